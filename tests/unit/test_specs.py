"""The specification's anchors are unique, and every place that is cited exists."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import anchors

pytestmark = pytest.mark.any_python

_ROOT = Path(__file__).parents[2]
_SPECS = anchors.SPECS
_CITING = ("bullmq_protocol", "monque_protocol", "bullmq_anyio", "bullmq_sync", "bullmq_outbox", "lua")
_CITATION = re.compile(r"specs/([\w-]+(?:\.md)?)(?:#([\w.-]*\w))?")


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
    assert [anchor for anchor, times in Counter(anchors.anchors(spec)).items() if times > 1] == []


@pytest.mark.parametrize("spec", _SPECS, ids=lambda spec: str(spec.name))
def test_every_numbered_section_and_behaviour_has_its_anchor(spec: Path) -> None:
    text = re.sub(r"^```.*?^```", "", spec.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    sections = re.findall(r"^#{2,4} (\d+(?:\.\d+)*)\.? ", text, flags=re.MULTILINE)
    behaviours = re.findall(r"^### ([WS]\d+) ", text, flags=re.MULTILINE)
    expected = {f"sec-{number.replace('.', '-')}" for number in sections} | {each.lower() for each in behaviours}
    assert expected
    assert expected - set(anchors.anchors(spec)) == set()


def test_anchors_stay_and_new_ones_are_recorded_in_the_order_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert anchors.main(["--check"]) == 0
    spec, record = tmp_path / "01-x.md", tmp_path / "list.txt"
    spec.write_text('<a id="new"></a>\n<a id="old"></a>\n')
    record.write_text("01-x.md#old\n")
    monkeypatch.setattr(anchors, "SPECS", (spec,))
    monkeypatch.setattr(anchors, "TARGET", record)
    assert anchors.main(["--check"]) == 1
    assert "list.txt is stale, run python tools/anchors.py" in capsys.readouterr().err
    assert anchors.main([]) == 0
    assert record.read_text() == "01-x.md#new\n01-x.md#old\n"
    assert anchors.main(["--check"]) == 0
    # Others link to an anchor that goes: it is never taken from the list.
    spec.write_text('<a id="new"></a>\n')
    assert anchors.main(["--check"]) == anchors.main([]) == 1
    assert "01-x.md#old" in capsys.readouterr().out
    assert "01-x.md#old" in record.read_text()
    assert anchors.main(["--other"]) == 2


def test_every_cited_place_exists() -> None:
    known = {spec.name: set(anchors.anchors(spec)) for spec in _SPECS}
    missing = [
        f"{place}: specs/{name}#{anchor}"
        for place, name, anchor in _citations()
        if name not in known or anchor not in known[name]
    ]
    assert missing == []


def test_something_is_cited() -> None:
    assert sum(1 for _ in _citations()) > 20
