"""The pin of BullMQ: one version everywhere, its commit beside the hashes; and the page that explains departures."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_python

_ROOT = Path(__file__).parents[2]
_PIN = json.loads((_ROOT / "tests/oracle/pin.json").read_text())
_PAGE = (_ROOT / "docs/departures.md").read_text(encoding="utf-8")
_ROWS = [line for line in _PAGE.splitlines() if line.startswith("| ") and not line.startswith("| Asked for")]


def test_the_pin_is_that_of_the_lock_file() -> None:
    lock = json.loads((_ROOT / "tests/node/package-lock.json").read_text())["packages"][
        f"node_modules/{_PIN['package']}"
    ]
    assert (lock["version"], lock["integrity"]) == (_PIN["version"], _PIN["integrity"])
    wanted = json.loads((_ROOT / "tests/node/package.json").read_text())["dependencies"][_PIN["package"]]
    assert wanted == _PIN["version"]


def test_the_commit_is_a_whole_one_and_the_pages_name_it_and_the_version() -> None:
    assert re.fullmatch(r"[0-9a-f]{40}", _PIN["commit"])
    assert _PIN["commit"] in _PAGE
    for page in ("README.md", "CHANGELOG.md", "docs/departures.md"):
        assert f"BullMQ {_PIN['version']}" in re.sub(r"[\[\]]|\(http[^)]*\)", "", (_ROOT / page).read_text("utf-8")), (
            page
        )


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: str(row)[2:40])
def test_each_departure_says_what_was_asked_what_there_is_and_why(row: str) -> None:
    cells = [cell.strip() for cell in row.strip("|").split(" | ")]
    assert len(cells) == 3
    assert all(cells)


def test_the_departures_that_were_decided_are_there() -> None:
    for words in ("Plain keys by default", "Lua of our own", "1 is the most urgent", "One attempt, no backoff"):
        assert words in _PAGE
    for words in ("None by default; `Backoff(jitter=...)`", "Every quarter", "after a tenth of a round"):
        assert words in _PAGE


def test_links_of_the_pages_lead_somewhere() -> None:
    pages = [_ROOT / "README.md", _ROOT / "CONTRIBUTING.md", *sorted((_ROOT / "docs").glob("*.md"))]
    lost = [
        f"{page.name}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert lost == []
