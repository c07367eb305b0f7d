"""The client mode: ours and BullMQ's own clients have no difference, and what is said of one that has."""

import json
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import bullmq_sync
from bullmq_conformance import report, search, vectors
from bullmq_conformance.__main__ import main
from bullmq_conformance.calls import Calls
from bullmq_conformance.program import Broken, Local, Program
from bullmq_conformance.scripts import PROFILES
from bullmq_conformance.search import Arena
from tests.conformance.conftest import compared, local, url_of
from tests.conformance.faults import FAULTS, patched
from tests.support.node import FOLDERS
from tests.support.servers import Server

ADAPTERS = Path(__file__).parents[2] / "conformance" / "adapters"


def program(*command: object) -> Program:
    return Program(list(map(str, command)), {"PYTHONPATH": str(ADAPTERS.parents[1])})


@pytest.mark.parametrize("version", ["5.62.0", "6.7.0"])
@pytest.mark.parametrize("backend", ["asyncio", "trio", "threads"])
def test_ours_has_no_difference(server: Server, backend: str, version: str) -> None:
    client = program(sys.executable, ADAPTERS / "ours.py", backend, version)
    found = compared(client, version, url_of(server), seed=3, count=5)
    assert report.client_text(found).splitlines()[-1] == "0 differences"
    assert found.total > 50


@pytest.mark.node
@pytest.mark.any_server
@pytest.mark.parametrize("version", vectors.VERSIONS)
@pytest.mark.parametrize("backend", ["asyncio", "trio", "threads"])
def test_ours_has_no_difference_from_bullmq_on_node(server: Server, backend: str, version: str) -> None:
    client = program(sys.executable, ADAPTERS / "ours.py", backend, version)
    reference = program("node", ADAPTERS / "bullmq.js", FOLDERS[version]())
    found = compared(client, version, url_of(server), reference=reference, seed=5, count=4)
    assert report.client_text(found).splitlines()[-1] == "0 differences"
    assert (found.reference, found.version) == (f"BullMQ on Node {version}", version)


def faulty(call: str, part: str) -> Local:
    """Return our client with a fault."""
    fault = next(each for each in FAULTS if each.call == call and part in each.new)
    return Local(patched(fault)(bullmq_sync, PROFILES["5.62.0"], "threads").methods())


def report_of(made: Arena, known: tuple[str, ...], seed: int, **options: int) -> search.Report:
    """Search with the few requests that a fault needs: shrinking takes many sequences."""
    made.known = {name: made.known[name]._replace(weight=1) for name in known}
    found, drawn = search.search(made, seed=seed, **options)
    return search.Report("ours", "0", "5.62.0", "ours 0", seed, drawn, dict(made.counted), [], found)


@pytest.mark.any_server
def test_the_same_seed_gives_the_same_report_byte_for_byte(arena: Callable[..., Arena]) -> None:
    options = {"count": 10, "length": 8, "shrinking": 6}
    found, again = (
        report_of(arena(faulty("delay", "until - 50")), ("add", "take", "delay"), 2, **options) for _ in range(2)
    )
    for write in (report.client_text, report.as_json, report.client_html):
        assert write(found) == write(again)
    signatures = [each.signature for each in found.found]
    assert signatures and all(each.startswith("delay: ") for each in signatures)
    text = report.client_text(found)
    assert "1999999999950" in text or "2000000599950" in text
    assert all(signature in text for signature in signatures)


@pytest.mark.deep
@pytest.mark.any_server
def test_a_difference_is_shown_by_the_shortest_sequence(arena: Callable[..., Arena]) -> None:
    known = ("add", "add_bulk", "flow", "take", "fail", "log", "clear_logs", "state", "pause")
    made = arena(faulty("log", 'row + " "'))
    found = report_of(made, known, 1, count=2, length=30, shrinking=300)
    assert [each.signature for each in found.found] == ["log: <job>:logs has other elements"]
    assert found.found[0].requests == [
        {"call": "open", "args": {"queue": "q"}},
        {"call": "open", "args": {"queue": "p"}},
        {"call": "add", "args": {"queue": "q", "name": "n", "data": {}, "opts": {}}},
        {"call": "log", "args": {"queue": "q", "id": "1", "row": "row"}},
    ]
    (one,) = found.found[0].differences
    assert (one.place, one.expected, one.got) == ("bull:q:1:logs", ["row"], ["row "])
    # What a report has can be done again.
    again = made.replay(found.found[0].requests)
    assert again.signatures == {found.found[0].signature: found.found[0].differences}


@pytest.mark.any_server
def test_a_client_that_says_wrong_things_about_itself_is_refused(arena: Callable[..., Arena]) -> None:
    class Odd(Calls):
        async def hello(self, url: str, **_: object) -> dict[str, object]:
            return {"client": "odd", "can": "add"}

    with pytest.raises(ValueError, match=r"hello is not as it must be: Expected `array`, got `str` - at `\$\.can`"):
        arena(local("5.62.0", Odd))


@pytest.mark.any_server
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import sys; sys.stdin.readline()", "ended in hello"),
        ("print('hello', flush=True); import sys; sys.stdin.read()", "answered hello with"),
        ('print(\'{"n": 7, "result": 1}\', flush=True); import sys; sys.stdin.read()', "answered request 7, not 1"),
        ('print(\'{"n": 1, "result": {"can": []}}\', flush=True); import sys; sys.stdin.read()', "can do \\[\\]"),
        ('print(\'{"n": 1, "error": "no"}\', flush=True); import sys; sys.stdin.read()', "cannot begin: no"),
    ],
)
def test_a_program_that_does_not_speak_is_exit_code_2(server: Server, text: str, expected: str) -> None:
    command = ["client", "--version", "5.62.0", "--redis", url_of(server), "--", sys.executable, "-c", text]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 2
    assert re.search(expected, done.output)


@pytest.mark.any_server
def test_a_program_that_ends_later_is_told_by_the_request(server: Server) -> None:
    client = program(sys.executable, "-c", "import sys; sys.stdin.readline()")
    with pytest.raises(Broken, match=r"ended (in|before) add"):
        client.call("add", {})
    client.close()


@pytest.mark.any_server
def test_the_command_compares_a_program(server: Server, tmp_path: Path) -> None:
    files = (tmp_path / "out.json", tmp_path / "out.html")
    command = ["client", "--version", "5.62.0", "--redis", url_of(server), "--sequences", "2"]
    command += ["--json", str(files[0]), "--html", str(files[1])]
    done = CliRunner().invoke(main, [*command, "--", sys.executable, str(ADAPTERS / "ours.py"), "threads", "5.62.0"])
    assert done.exit_code == 0, done.output
    assert json.loads(files[0].read_text())["version"] == "5.62.0"
    assert "0 differences" in files[1].read_text()


@pytest.mark.any_server
def test_the_command_takes_another_program_as_reference(server: Server) -> None:
    ours = [sys.executable, str(ADAPTERS / "ours.py"), "threads"]
    command = ["client", "--version", "6.7.0", "--redis", url_of(server), "--sequences", "2", "--shrinking", "0"]
    done = CliRunner().invoke(main, [*command, "--reference", shlex.join([*ours, "6.7.0"]), "--", *ours, "6.7.0"])
    assert done.exit_code == 0, done.output
    assert "compared with bullmq-protocol on threads" in done.output


@pytest.mark.any_server
def test_a_sequence_goes_on_after_a_known_difference_in_a_value(arena: Callable[..., Arena]) -> None:
    fault = next(each for each in FAULTS if each.call == "progress")
    made = arena(Local(patched(fault)(bullmq_sync, PROFILES["5.62.0"], "threads").methods()))
    steps = [
        {"call": "add", "p": False, "name": "n", "data": {}, "opts": {}},
        {"call": "progress", "p": False, "job": 0, "progress": 50},
        {"call": "pause", "p": False},
    ]
    known = made.run(steps, lambda signature: signature.startswith("progress: "))
    assert known.signatures and not known.ended
    assert [each["call"] for each in known.requests] == ["open", "open", "add", "progress", "pause"]
    assert made.run(steps).ended
    assert search.first(arena(local("5.62.0")), seed=1, count=1, length=10) is None
