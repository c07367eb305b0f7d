"""The pages name every request and all that was measured, and the adapters keep to their size."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import bullmq_sync
from bullmq_conformance.calls import Calls
from bullmq_conformance.scripts import PROFILES
from bullmq_conformance.search import Arena
from bullmq_conformance.steps import OPTIONS, operations
from tests.conformance.test_client import program
from tests.support.servers import Server
from tools import conformance, conformance_page

_ROOT = Path(__file__).parents[2]
_MOST_LINES = 150


def test_every_request_has_a_row_and_comes_in_sequences() -> None:
    page = (_ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
    rows = {
        name for row in re.findall(r"^\| (`[a-z_`, ]+`) \|", page, re.MULTILINE) for name in re.findall(r"\w+", row)
    }
    ours = set(Calls(bullmq_sync, PROFILES["5.62.0"], "threads").methods()) - {"hello", "reset"}
    assert rows >= ours
    assert set(operations(OPTIONS)) == ours - {"open"}


@pytest.mark.node
def test_the_adapter_of_node_can_do_all() -> None:
    text = (_ROOT / "conformance" / "adapters" / "bullmq.js").read_text(encoding="utf-8")
    table = text[text.index("const calls = {") :]
    named = set(re.findall(r"^  ([a-z_]+):", table, re.MULTILINE))
    assert set(operations(OPTIONS)) | {"hello", "reset", "open"} == named


def test_adapters_are_short_and_bring_their_own() -> None:
    files = subprocess.run(
        ["git", "ls-files", "conformance/adapters", "conformance/minimal"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert len(files) >= 5
    assert {name: n for name in files if (n := len((_ROOT / name).read_text().splitlines())) > _MOST_LINES} == {}
    assert "import bullmq_" not in (_ROOT / "conformance" / "adapters" / "port.py").read_text()


def test_the_results_are_not_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert conformance_page.main(["--check"]) == 0
    monkeypatch.setattr(conformance_page, "TARGET", tmp_path / "page.md")
    assert conformance_page.main(["--check"]) == 1
    assert conformance_page.main([]) == 0
    assert conformance_page.main(["--check"]) == 0
    assert conformance_page.main(["--other"]) == 2


def test_the_results_are_of_all_scripts_and_clients() -> None:
    found = conformance_page.read()
    assert [row.name for row in found.clients] == [run.name for run in conformance.runs()]
    assert [row.name for row in found.scripts] == [each.name for each in conformance.folders()]
    assert all(row.report.sequences >= 20 and row.report.seed == 0 for row in found.clients)


def test_who_claims_to_do_what_a_version_does_has_no_difference() -> None:
    found = conformance_page.read()
    assert {row.name: row.report.found for row in found.clients if conformance_page.must_agree(row)} == {
        run.name: [] for run in conformance.runs() if not run.name.startswith(("port-", "fleet-"))
    }
    assert {row.name for row in found.scripts if row.differing} <= {"lua-fleet"}


def test_each_difference_has_a_case_that_shows_it() -> None:
    found = [each for row in conformance_page.read().clients for each in row.report.found]
    assert found
    for each in found:
        assert each.differences and each.requests[-1]["call"] == each.signature.partition(": ")[0]
    page = conformance_page.TARGET.read_text(encoding="utf-8")
    assert all(f"#### `{each.signature.partition(': ')[2]}`" in page for each in found)


@pytest.mark.node
@pytest.mark.any_server
@pytest.mark.parametrize("name", ["port-6.7.0", "fleet-6.7.0"])
def test_a_recorded_difference_is_seen_again(server: Server, arena: Callable[..., Arena], name: str) -> None:
    """What the page says of a client, done once more: in one case of each kind."""
    (row,) = (each for each in conformance_page.read().clients if each.name == name)
    (run,) = (each for each in conformance.runs() if each.name == name)
    assert run.reference is not None
    made = arena(program(*run.client()), run.version, reference=program(*run.reference()))
    for each in conformance_page.by_kind(row.report).values():
        (case, *_) = each
        again = made.replay(case.requests, lambda other, own=case.signature: other != own)
        assert case.signature in again.signatures or not case.repeated
