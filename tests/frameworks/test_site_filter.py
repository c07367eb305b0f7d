"""The site in a real browser: tables and lists of vectors are searched with its own script, and no page is too wide."""

from __future__ import annotations

import functools
import http.server
import os
import subprocess
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import board
from tools import vector_pages

pytestmark = [pytest.mark.any_python, pytest.mark.node]

_ROOT = Path(__file__).parents[2]
_STATIC = _ROOT / "docs" / "_static"
_SPHINX = _ROOT / ".venv-docs" / "bin" / "sphinx-build"
# Around those at which Furo hides a bar, and those of usual screens.
_WIDTHS = (390, 720, 768, 1000, 1024, 1072, 1080, 1150, 1280, 1312, 1313, 1320, 1366, 1400, 1440, 1600, 1920)
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
    (folder / "filter.js").write_bytes((_STATIC / "filter.js").read_bytes())
    rows = "".join(f"<tr><td>{name}</td><td>does Something</td></tr>" for name in _NAMES)
    vectors = vector_pages.pages()["promote.md"]
    vectors = vectors[vectors.index('<div class="vectors">') : vectors.index("\n```\n")]
    body = f'<article><table id="long"><tbody>{rows}</tbody></table><table><tbody><tr><td>a</td></tr></tbody></table>'
    html = f"<!doctype html><script src='filter.js'></script>{body}{vectors}</article>"
    (folder / "page.html").write_text(html, encoding="utf-8")
    with served(folder) as found:
        yield found


@contextmanager
def served(folder: Path) -> Generator[board.Page]:
    """Serve a folder, and give a page of a browser for it."""
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


def test_no_page_is_wider_than_its_window(tmp_path: Path) -> None:
    if not _SPHINX.exists():
        assert not os.environ.get("CI"), "make env-docs makes the environment of the site"
        pytest.skip("no environment of the site here")
    source = tmp_path / "source"
    source.mkdir()
    conf = f"html_theme = 'furo'\nhtml_static_path = [{str(_STATIC)!r}]\nhtml_css_files = ['site.css']\n"
    (source / "conf.py").write_text(conf, encoding="utf-8")
    cells = "   * - " + "\n     - ".join(["``a_long_name_without_a_break``"] * 9)
    code, prose = "code " * 60, "prose " * 300
    text = f"Title\n=====\n\n::\n\n   {code}\n\n.. list-table::\n\n{cells}\n\nSection\n-------\n\n{prose}\n"
    (source / "index.rst").write_text(text, encoding="utf-8")
    subprocess.run([_SPHINX, "-q", "-W", source, tmp_path / "site"], check=True)
    with served(tmp_path / "site") as page:
        page.open("/index.html")
        wider = {}
        for width in _WIDTHS:
            page.call(("setViewportSize", {"width": width, "height": 600}))
            measured = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
            inner, outer = page.call(("evaluate", measured))
            wider[width] = inner - outer
        assert wider == dict.fromkeys(_WIDTHS, 0)
