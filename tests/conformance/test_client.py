"""The client mode: ours and BullMQ's own clients have no difference, and what is said of one that has."""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import bullmq_sync
from bullmq_conformance import report, search, vectors
from bullmq_conformance.__main__ import compare, main
from bullmq_conformance.program import Broken, Local, Program
from bullmq_conformance.scripts import PROFILES
from bullmq_conformance.search import Arena
from tests.conformance.conftest import local, url_of
from tests.conformance.faults import FAULTS, patched
from tests.support.node import FOLDERS
from tests.support.servers import Server

ADAPTERS = Path(__file__).parents[2] / "conformance" / "adapters"
MINIMAL = ADAPTERS.with_name("minimal")


def program(*command: object) -> Program:
    return Program(list(map(str, command)), {"PYTHONPATH": str(ADAPTERS.parents[1])})


@pytest.mark.parametrize("version", ["5.62.0", "6.7.0"])
@pytest.mark.parametrize("backend", ["asyncio", "trio", "threads"])
def test_ours_has_no_difference(server: Server, backend: str, version: str) -> None:
    client = program(sys.executable, ADAPTERS / "ours.py", backend, version)
    try:
        found = compare(client, version, url_of(server), seed=3, count=5)
    finally:
        client.close()
    assert report.client_text(found).splitlines()[-1] == "0 differences"
    assert found.total > 50


@pytest.mark.node
@pytest.mark.any_server
@pytest.mark.parametrize("version", vectors.VERSIONS)
def test_bullmq_on_node_has_no_difference_from_its_own_version(server: Server, version: str) -> None:
    client = program("node", ADAPTERS / "bullmq.js", FOLDERS[version]())
    try:
        found = compare(client, version, url_of(server), seed=5, count=8)
    finally:
        client.close()
    assert report.client_text(found).splitlines()[-1] == "0 differences"
    assert found.client_version == version


def test_the_minimal_client_passes_its_part(server: Server, tmp_path: Path) -> None:
    if shutil.which("redis-cli") is None and not os.environ.get("CI"):
        pytest.skip("redis-cli is not installed")
    assert CliRunner().invoke(main, ["lua", str(tmp_path), "--version", "5.62.0"]).exit_code == 0
    client = program("sh", MINIMAL / "client.sh", tmp_path)
    try:
        found = compare(client, "5.62.0", url_of(server), seed=1, count=3, length=20)
    finally:
        client.close()
    assert report.client_text(found).splitlines()[-1] == "0 differences"
    assert set(found.requests) == {"add", "take", "finish"}
    assert "flow" in found.left_out and "fail" in found.left_out


def one_fault() -> Local:
    """Our client, whose delays are 50 ms too short."""
    fault = next(each for each in FAULTS if "until - 50" in each.new)
    return Local(patched(fault)(bullmq_sync, PROFILES["5.62.0"], "threads").methods())


def found_in(made: Arena, seed: int) -> search.Report:
    """Search with the few requests that the fault needs: shrinking takes many sequences."""
    made.known = {name: made.known[name]._replace(weight=1) for name in ("add", "take", "delay")}
    found, drawn = search.search(made, seed=seed, count=10, length=8, shrinking=4)
    return search.Report("ours", "0", "5.62.0", seed, drawn, dict(made.counted), [], found)


@pytest.mark.any_server
def test_the_same_seed_gives_the_same_report_twice(arena: Callable[..., Arena]) -> None:
    found, again = (found_in(arena(one_fault()), 2) for _ in range(2))
    assert report.as_json(found) == report.as_json(again)
    signatures = [each.signature for each in found.found]
    assert signatures and all(each.startswith("delay: ") for each in signatures)
    assert [each["call"] for each in found.found[0].requests][-1] == "delay"
    text = report.client_text(found)
    assert "1999999999950" in text or "2000000599950" in text
    assert signatures[0] in text
    assert "delay: " in report.client_html(found)


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
