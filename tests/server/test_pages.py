"""Every Python block of README.md and docs runs, in whatever page it stands, and prints what stands below it as `text`.

A block that is a part of a program has the rest in a comment above it, `<!-- around ... -->`, with `...` in its place.
Pages whose blocks need more than that have tests of their own: `TESTED`.
"""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest
import redis

from tests.support import pages
from tests.support.servers import Server

_LINES = r"(?:(?!```).*\n)*"
_BLOCK = re.compile(
    rf"(?:^<!-- around\n(?P<around>(?:(?!-->).*\n)*)-->\n)?^```python\n(?P<code>{_LINES})```$"
    rf"(?:\n\n^```text\n(?P<printed>{_LINES})```$)?",
    re.MULTILINE,
)
# What else a block may be: output, data, what a shell gets, a drawing, a program of another library or language.
_LANGUAGES = {"python", "text", "sh", "console", "json", "acl", "sql", "mermaid", "py", "js"}
TESTED = {
    "README.md": "server/test_readme.py",
    "docs/monque.md": "monque/test_page.py",
    "docs/observability.md": "server/test_recipes.py",
    "docs/outbox.md": "server/test_outbox_relays.py",
    "docs/testing.md": "server/test_testing_page.py",
    "docs/transactions.md": "server/test_transactions.py",
    "docs/transports.md": "server/test_coredis_example.py",
    "docs/tutorial/1-a-job.md": "server/test_tutorial.py",
    "docs/tutorial/2-a-retry.md": "server/test_tutorial.py",
}


class Block(NamedTuple):
    """A block of a page, as a program of its own, and what it prints; None: not said."""

    place: str
    program: str
    printed: str | None
    stands_alone: bool


def page_names() -> list[str]:
    found = [pages.ROOT / "README.md", *sorted((pages.ROOT / "docs").rglob("*.md"))]
    # What is written before each build of the site is not kept.
    names = [page.relative_to(pages.ROOT).as_posix() for page in found]
    return [name for name in names if not name.startswith(("docs/python/", "docs/vectors/"))]


def blocks(name: str) -> list[Block]:
    text = (pages.ROOT / name).read_text("utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        code, around = match["code"], match["around"]
        if around is not None:
            place = re.search(r"^( *)\.\.\.\n", around, re.MULTILINE)
            assert place is not None, name
            code = f"{around[: place.start()]}{textwrap.indent(code, place[1])}{around[place.end() :]}"
        code = code.replace("redis://localhost:6379", "redis://localhost")
        line = text.count("\n", 0, match.start("code")) + 1
        alone = around is not None or match["printed"] is not None
        found.append(Block(f"{name}:{line}", code, match["printed"], alone))
    return found


_RUN = [each for name in page_names() for each in blocks(name) if name not in TESTED or each.stands_alone]


def test_every_block_is_run_or_has_a_test() -> None:
    assert len(_RUN) > 20
    assert [each.place for each in _RUN if not each.stands_alone] == []
    tests = Path(__file__).parents[1]
    assert [name for name, file in TESTED.items() if not blocks(name) or not (tests / file).exists()] == []


def test_every_block_says_what_it_is() -> None:
    fences = {
        f"{name}: {kind}"
        for name in page_names()
        for kind in re.findall(
            r"^```(\S*).*\n(?:(?!```).*\n)*```$", (pages.ROOT / name).read_text("utf-8"), re.MULTILINE
        )
        if kind not in _LANGUAGES and not kind.startswith("{")
    }
    assert fences == set()
    for name in page_names():
        for code in pages.snippets(name.removeprefix("docs/"), "py"):
            ast.parse(code)


@pytest.mark.any_server
@pytest.mark.any_python
@pytest.mark.parametrize("block", _RUN, ids=[each.place for each in _RUN])
def test_block(block: Block, server: Server) -> None:
    with redis.Redis.from_url(server.url) as raw:
        raw.flushdb()
    done = pages.run(block.program, server)
    assert done.returncode == 0, done.stderr
    assert block.printed is None or done.stdout == block.printed
