"""What the documentation site is made of: pages of the reference, links, drawings, `llms.txt`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import pages
from tools import drawings, site
from tools.public_names import TARGET, TIERS

pytestmark = pytest.mark.any_python

_ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_reference_has_a_page_for_each_line_of_the_tiers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "TARGET", tmp_path)
    (tmp_path / "stale.md").write_text("of another day")
    site.write_api("Exception")
    patterns = [pattern.removesuffix(".*") for each in TIERS.values() for pattern in each]
    assert {file.stem for file in tmp_path.iterdir()} == {"index", *patterns}
    texts = "".join(file.read_text() for file in tmp_path.iterdir())
    assert sorted(re.findall(r"automodule:: (\S+)", texts)) == sorted(site.modules())
    assert all(f"\n{pattern}\n" in (tmp_path / "index.md").read_text() for pattern in patterns)


@pytest.mark.slow
def test_every_recorded_name_is_looked_for_in_the_reference() -> None:
    """`make docs` fails where the reference lacks one of these."""
    recorded = {re.split(r":| = ", line, maxsplit=1)[0] for line in TARGET.read_text().splitlines() if line[:1] != "#"}
    assert recorded == set(site.public_names().listed)


def test_links_within_pages_lead_somewhere(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h1 id="top"></h1><a href="b.html#there"></a><a href="#top"></a><img src="x.png">'
    )
    (tmp_path / "b.html").write_text('<p id="there"></p><a href="https://example.org/"></a><a href="a.html"></a>')
    (tmp_path / "x.png").write_bytes(b"")
    assert site.dead_links(tmp_path) == []
    assert site.main([str(tmp_path)]) == 0
    (tmp_path / "b.html").write_text('<a href="a.html#gone"></a><a href="c.html"></a>')
    assert site.dead_links(tmp_path) == ["a.html: b.html#there", "b.html: a.html#gone", "b.html: c.html"]
    assert site.main([str(tmp_path)]) == 1
    assert site.main([]) == 2


def test_anchors_and_folders_are_found_as_on_github() -> None:
    text = '<a id="torn"></a>\n[here](#torn) [there](#adding-once) [specs](../specs) [tests](../tests)\n'
    prepared = site.prepared("docs/connection-loss", text)
    assert "[here](connection-loss.md#torn)" in prepared
    assert "[there](#adding-once)" in prepared
    assert "[specs](../specs/README.md)" in prepared
    assert "[tests]\n" in prepared


def test_a_drawing_that_is_missing_or_left_over_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(drawings, "TARGET", tmp_path / "drawings")
    monkeypatch.setattr(drawings, "draw", lambda block: f"<svg>{block}")
    assert drawings.main(["--check"]) == 1
    assert "docs/_drawings is stale, run python tools/drawings.py" in capsys.readouterr().err
    assert drawings.main([]) == drawings.main(["--check"]) == 0
    (drawings.TARGET / "left-over.svg").touch()
    assert drawings.main(["--check"]) == 1
    assert drawings.main([]) == drawings.main(["--check"]) == 0
    assert drawings.main(["--other"]) == 2


def test_a_new_drawing_without_graphviz_is_reported_and_nothing_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(drawings, "TARGET", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "before.svg").touch()
    assert drawings.main([]) == 1
    assert "needs Graphviz" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["before.svg"]


def test_every_drawing_of_a_page_is_drawn() -> None:
    assert drawings.main(["--check"]) == 0
    wanted = list(drawings.TARGET.iterdir())
    prepared = site.prepared("docs/worker-machine", (_ROOT / "docs" / "worker-machine.md").read_text())
    assert prepared.count("<svg ") == prepared.count('<div class="drawing">') == 5
    # A blank line would end the HTML.
    assert all("\n\n" not in file.read_text() and "black" not in file.read_text() for file in wanted)


def test_a_block_is_a_graph() -> None:
    block = "stateDiagram-v2\n    [*] --> NEW\n    NEW --> [*]: the end\n"
    assert "start -> NEW []" in drawings.graph(block) and 'NEW -> end [label=" the end "]' in drawings.graph(block)
    block = 'flowchart LR\n    a["one: two"] -. "a job" .-> b[(Redis)]\n    a --- b\n    a -- said --> b\n'
    graph = drawings.graph(block)
    assert "rankdir=LR" in graph and 'a [label="one: two"]' in graph and 'b [label="Redis"]' in graph
    assert 'a -> b [style=dashed, label=" a job "]' in graph and "a -> b [dir=none]" in graph
    assert 'a -> b [label=" said "]' in graph
    with pytest.raises(ValueError, match="no line of a drawing"):
        drawings.graph("flowchart LR\n    a ==> b\n")


def test_llms_names_each_page_with_its_first_sentence() -> None:
    text = site.llms({"docs/guides/lifo": "Run the newest job first", "README": "bullmq-protocol"})
    assert "- [Run the newest job first](docs/guides/lifo.html): Jobs run in the order" in text
    assert text.index("## The project") < text.index("## docs/guides")


def test_every_page_is_in_a_table_of_contents() -> None:
    index = (_ROOT / "docs" / "index.md").read_text()
    pages = [page.relative_to(_ROOT / "docs").with_suffix("").as_posix() for page in (_ROOT / "docs").rglob("*.md")]
    kept = [each for each in pages if not each.startswith(("python/", "vectors/"))]
    assert [each for each in kept if f"\n{each}\n" not in index] == ["index"]


def test_the_worker_of_the_guide_is_as_short_as_it_says() -> None:
    page = pages.page("guides/own-worker.md")
    (worker,) = (each for each in pages.snippets("guides/own-worker.md") if "WorkerMachine(" in each)
    # Without the jobs that show it.
    lines = worker[: worker.index("\nfor text in")].splitlines()
    assert sum(bool(line.strip()) and not line.startswith("#") for line in lines) == 60
    assert "Here that takes 60 lines over redis-py." in page
