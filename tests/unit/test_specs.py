"""The specification's anchors are unique, and every place that is cited exists."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_python

_ROOT = Path(__file__).parents[2]
_SPECS = [*sorted((_ROOT / "specs").glob("0*.md")), _ROOT / "specs" / "monque.md"]
_RECORD = Path(__file__).with_name("spec_anchors.txt")
_CITING = ("bullmq_protocol", "monque_protocol", "bullmq_anyio", "bullmq_sync", "bullmq_outbox", "lua")
_CITATION = re.compile(r"specs/([\w-]+(?:\.md)?)(?:#([\w.-]*\w))?")


def _anchors(spec: Path) -> list[str]:
    return re.findall(r'<a id="([^"]+)"></a>', spec.read_text(encoding="utf-8"))


def _citations() -> Iterator[tuple[str, str, str]]:
    for folder in _CITING:
        for file in sorted((_ROOT / folder).rglob("*")):
            if file.suffix in (".py", ".lua") and not file.name.startswith("_lua"):
                for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                    for name, anchor in _CITATION.findall(line):
                        yield f"{file.relative_to(_ROOT)}:{number}", name, anchor


def test_which_files_there_are() -> None:
    assert [spec.name[:2] for spec in _SPECS] == ["01", "02", "03", "04", "05", "06", "08", "mo"]


@pytest.mark.parametrize("spec", _SPECS, ids=lambda spec: str(spec.name))
def test_anchors_are_unique(spec: Path) -> None:
    assert [anchor for anchor, times in Counter(_anchors(spec)).items() if times > 1] == []


@pytest.mark.parametrize("spec", _SPECS, ids=lambda spec: str(spec.name))
def test_every_numbered_section_and_behaviour_has_its_anchor(spec: Path) -> None:
    text = re.sub(r"^```.*?^```", "", spec.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    sections = re.findall(r"^#{2,4} (\d+(?:\.\d+)*)\.? ", text, flags=re.MULTILINE)
    behaviours = re.findall(r"^### ([WS]\d+) ", text, flags=re.MULTILINE)
    expected = {f"sec-{number.replace('.', '-')}" for number in sections} | {each.lower() for each in behaviours}
    assert expected
    assert expected - set(_anchors(spec)) == set()


def test_anchors_stay() -> None:
    """Others link to them: a new one is recorded, a section that goes leaves its anchor with a line that says where."""
    found = [f"{spec.name}#{anchor}" for spec in _SPECS for anchor in _anchors(spec)]
    recorded = _RECORD.read_text(encoding="utf-8").split()
    gone, new = set(recorded) - set(found), set(found) - set(recorded)
    assert not gone, f"give these an anchor again, with a line that says where the content went: {sorted(gone)}"
    assert not new, f"add these to tests/unit/{_RECORD.name}: {sorted(new)}"
    assert found == recorded, f"tests/unit/{_RECORD.name}: the order must be that of the files"


def test_every_cited_place_exists() -> None:
    known = {spec.name: set(_anchors(spec)) for spec in _SPECS}
    missing = [
        f"{place}: specs/{name}#{anchor}"
        for place, name, anchor in _citations()
        if name not in known or anchor not in known[name]
    ]
    assert missing == []


def test_something_is_cited() -> None:
    assert sum(1 for _ in _citations()) > 20
