"""The site's tables and lists of vectors are searched in a real browser, with the site's own script."""

from __future__ import annotations

import functools
import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import board
from tools import vector_pages

pytestmark = [pytest.mark.any_python, pytest.mark.node]

_SCRIPT = Path(__file__).parents[2] / "docs" / "_static" / "filter.js"
_NAMES = [f"command{number}" for number in range(20)]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[board.Page]:
    """Give a page with a long table, a short one, and the vectors of a command."""
    if board.browser_program() is None and not os.environ.get("CI"):
        pytest.skip("no Chromium here")
    folder = tmp_path_factory.mktemp("site")
    (folder / "filter.js").write_bytes(_SCRIPT.read_bytes())
    rows = "".join(f"<tr><td>{name}</td><td>does Something</td></tr>" for name in _NAMES)
    vectors = vector_pages.pages()["promote.md"]
    vectors = vectors[vectors.index('<div class="vectors">') : vectors.index("\n```\n")]
    body = f'<article><table id="long"><tbody>{rows}</tbody></table><table><tbody><tr><td>a</td></tr></tbody></table>'
    html = f"<!doctype html><script src='filter.js'></script>{body}{vectors}</article>"
    (folder / "page.html").write_text(html, encoding="utf-8")
    (folder / "favicon.ico").write_bytes(b"")
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with board.page(f"http://127.0.0.1:{server.server_port}") as found:
                yield found
        finally:
            server.shutdown()
            thread.join()


def shown(page: board.Page, rows: str) -> int:
    return int(page.call(("locator", f"{rows}:visible"), ("count",)))


def test_a_table_is_left_with_the_rows_that_have_all_words(page: board.Page) -> None:
    page.open("/page.html?table")
    field = ("getByPlaceholder", "Filter 20 rows")
    assert shown(page, "#long tr") == 20
    for typed, count in (("command7", 1), ("SOMETHING command1", 11), ("nothing", 0), ("", 20)):
        page.call(field, ("fill", typed))
        assert shown(page, "#long tr") == count
    # The short table has no field, the list of vectors has one.
    assert page.call(("locator", "input"), ("count",)) == 2
    assert page.call(("failures",)) == []


def test_vectors_are_searched_by_what_is_in_them(page: board.Page) -> None:
    page.open("/page.html?vectors")
    count = shown(page, ".vectors > details")
    assert count > 5
    page.call(("getByPlaceholder", f"Filter {count} rows"), ("fill", "promote-2 bull:q:wait"))
    assert 1 <= shown(page, ".vectors > details") < count
    assert not page.call(("locator", "#promote-2 table >> nth=0"), ("isVisible",))


def test_a_link_to_a_vector_opens_it(page: board.Page) -> None:
    page.open("/page.html?link#promote-2")
    assert page.call(("locator", "#promote-2 table >> nth=0"), ("isVisible",))
    assert not page.call(("locator", "#promote-1 table >> nth=0"), ("isVisible",))
