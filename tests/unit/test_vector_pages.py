"""The pages of the golden vectors: each vector has a place, and links to the files lead to them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bullmq_protocol.testing import vectors
from tools import site, vector_pages

pytestmark = [pytest.mark.any_python, pytest.mark.slow]

_ROOT = Path(__file__).parents[2]


def test_each_vector_has_a_place_of_its_own() -> None:
    found = vector_pages.pages()
    for version in vector_pages.VERSIONS:
        for command in vectors.commands(version):
            ids = re.findall(r'<details id="([^"]+)">', found[f"{command}.md"])
            assert len(ids) == len(set(ids))
            after = "" if version == vectors.PINNED else f"-of-{version}"
            assert {f"{each['id']}{after}" for each in vectors.load(command, version)} <= set(ids)
            assert f"[{command}]({command}.md)" in found["index.md"]
    assert all(text.count("```") % 2 == 0 and "<script" not in text for text in found.values())


def test_a_vector_is_shown_with_start_call_and_end() -> None:
    page = vector_pages.pages()["promote.md"]
    block = page[page.index('<details id="promote-2">') :].partition("</details>")[0]
    assert "<td><strong>bull:q:wait</strong></td>" in block
    assert '<small>list</small><pre>"w"</pre>' in block
    assert '<small>list</small><pre>"1"\n"w"</pre>' in block
    assert '<td>ARGV</td><td><ol><li><code>"bull:q:"</code></li>' in block
    assert "<td>Reply</td><td><code>0</code></td>" in block
    assert vector_pages._entry({"type": "string", "value": "<&", "ttl_ms": 5}) == (
        '<small>string, expires in 5 ms</small><pre>"&lt;&amp;"</pre>'
    )
    assert vector_pages._state({}, {}) == "<p>The database is empty before and after.</p>"
    assert "the same" in vector_pages._state(*[{"k": {"type": "string", "value": "1"}}] * 2)


def test_links_to_the_files_lead_to_the_pages() -> None:
    text = "[a](vectors) [b](vectors/promote.json) [c](vectors/6.7.0) "
    text += "[d](vectors/schema.json) [e](vectors/relay/6.7.0.json)"
    assert site.prepared("specs/README", text) == (
        "[a](../docs/vectors/index.md) [b](../docs/vectors/promote.md) [c](../docs/vectors/index.md) "
        "[d](vectors/schema.json) [e](../docs/vectors/relay.md)"
    )
    text = "[v](../../specs/vectors/5.81.5/getJobs.json)"
    assert site.prepared("docs/reference/commands", text) == "[v](../vectors/getJobs.md)"
    # The pages themselves link to the files.
    assert site.prepared("docs/vectors/getJobs", text) == text


def test_every_file_has_a_page() -> None:
    files = [file for file in (_ROOT / "specs" / "vectors").rglob("*.json") if file.name != "schema.json"]
    wanted = {vector_pages.page_of(file.relative_to(_ROOT).as_posix()) for file in files}
    assert {f"docs/vectors/{name}" for name in vector_pages.pages()} == {*wanted, "docs/vectors/index.md"}


def test_a_page_that_is_stale_goes(tmp_path: Path) -> None:
    target = tmp_path / "vectors"
    target.mkdir()
    (target / "gone.md").write_text("of another day")
    vector_pages.write(target)
    assert {file.name for file in target.iterdir()} == vector_pages.pages().keys()
