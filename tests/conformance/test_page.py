"""The page names every request and option, and the adapters keep to their size."""

import re
import subprocess
from pathlib import Path

import pytest

import bullmq_sync
from bullmq_conformance.calls import Calls
from bullmq_conformance.scripts import PROFILES
from bullmq_conformance.steps import OPTIONS, operations

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
        ["git", "ls-files", "conformance"], cwd=_ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert len(files) >= 5
    assert {name: n for name in files if (n := len((_ROOT / name).read_text().splitlines())) > _MOST_LINES} == {}
    assert "import bullmq_" not in (_ROOT / "conformance" / "adapters" / "port.py").read_text()
