"""The words of the code: those that gave way to the field's terms stay away, and paragraphs are filled.

`docs/glossary.md` has the project's own words that stay.
"""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.support.prose import ragged

_ROOT = Path(__file__).parents[2]
# Texts of others, texts with a word list of their own, and what was released or generated.
_LEFT_OUT = (
    "specs/",
    "lua/",
    "bullmq_protocol/scripts/_lua",
    "docs/reference/",
    "docs/conformance-results.md",
    "CHANGELOG.md",
)
_OURS = ("tests/unit/test_words.py", "tests/unit/public_names.txt")
# A word, what to say in its place, and files in which it means something else.
_WORDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "colours?": (
        "adapter",
        # Colours.
        (
            "bullmq_doctor/__main__.py",
            "docs/ctl.md",
            "tests/unit/test_address.py",
            "tests/unit/test_codec.py",
            "tests/unit/test_stack.py",
        ),
    ),
    "moulds?": ("template", ()),
    "twice is as once": ("idempotent", ()),
}
# The same for what is rewritten already; tests have many of these words.
_REWRITTEN = (
    "bullmq_",
    "monque_",
    "bench/",
    "examples/",
    "docs/",
    "README.md",
    "CONTRIBUTING.md",
    "Makefile",
    "observability/",
)
_PROSE: dict[str, tuple[str, tuple[str, ...]]] = {
    "told|heard": ("reported, received or notified", ()),
    "by[ _]hand": ("manual", ()),
    "put[ _]back": ("delay or release", ()),
    "strange": ("unsupported, foreign, unknown", ()),
    "so (many|long|much|old)": ("this many", ()),
    "work(s|ed)? off": ("process", ()),
    "crews?": ("thread pool", ()),
    "heirs?": ("next reader", ()),
    "rouses?|roused|asleep": ("wake, idle", ()),
    "forsak(e|es|ing)|forsook|salvag(e|es|ed|ing)": ("abandon", ()),
    "greeting|greeted": ("handshake", ("bullmq_protocol/model/categories.py",)),
    "by itself": ("automatically", ()),
    "unlisten(ed)?": (
        "cancel the wait",
        # Tags of messages, which old traces have.
        ("bullmq_protocol/worker/actions.py", "bullmq_protocol/worker/events.py"),
    ),
    "whoever": ("the caller, task or thread", ()),
    "one's own": ("custom", ()),
    "itself included": ("inclusive", ()),
    "without regard to": ("regardless of", ()),
    "(do|does|did) otherwise|otherwise than": ("differ", ()),
}
# The same for pages: what readers stumbled over.
_PAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "for ever": ("forever", ()),
    "good order": ("gracefully", ()),
    "g[ai]ves? way": ("was ignored, existed already, was replaced", ()),
    "handed over": ("passed", ()),
    "g(ive|ives|iven|iving|ave) back": ("return to the queue, release", ()),
    "rolls? (no )?dice": ("draw random numbers", ()),
}


@cache
def _texts() -> dict[str, str]:
    names = subprocess.run(
        ["git", "ls-files"], cwd=_ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    chosen = [name for name in names if name.endswith((".py", ".md", ".toml", ".yml", ".js")) or name == "Makefile"]
    return {name: (_ROOT / name).read_text() for name in chosen if not name.startswith((*_LEFT_OUT, *_OURS))}


def _found(word: str, texts: dict[str, str]) -> list[str]:
    """Return where a word is, as one of its own or as a part of a name."""
    pattern = re.compile(rf"(?<![a-z])(?:{word})(?![a-z])", re.IGNORECASE)
    return [
        f"{name}:{number}: {line.strip()}"
        for name, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


@pytest.mark.parametrize("word", _WORDS)
def test_a_word_that_gave_way_stays_away(word: str) -> None:
    instead, elsewhere = _WORDS[word]
    texts = {name: text for name, text in _texts().items() if name not in elsewhere}
    assert _found(word, texts) == [], f"say: {instead}"


@pytest.mark.parametrize("word", _PROSE)
def test_what_is_rewritten_stays_plain(word: str) -> None:
    instead, elsewhere = _PROSE[word]
    texts = {name: text for name, text in _texts().items() if name.startswith(_REWRITTEN) and name not in elsewhere}
    assert texts
    assert _found(word, texts) == [], f"say: {instead}"


@pytest.mark.parametrize("word", _PAGES)
def test_pages_are_plain(word: str) -> None:
    instead, elsewhere = _PAGES[word]
    pages = {name: text for name, text in _texts().items() if name.endswith(".md") and name not in elsewhere}
    assert "README.md" in pages and "docs/guides/adding.md" in pages
    assert _found(word, pages) == [], f"say: {instead}"


@pytest.mark.parametrize("word", [*_WORDS, *_PROSE, *_PAGES])
def test_each_exception_is_needed(word: str) -> None:
    _, elsewhere = {**_WORDS, **_PROSE, **_PAGES}[word]
    assert [name for name in elsewhere if not _found(word, {name: _texts()[name]})] == []


@pytest.mark.slow
def test_no_paragraph_is_ragged() -> None:
    found = [f"{name}:{each}" for name, text in _texts().items() if name.endswith(".py") for each in ragged(text)]
    assert found == []


def test_what_a_ragged_paragraph_is() -> None:
    text = '"""A first line that is long enough.\n\nTwo words\nand then a line that would have fitted.\n"""\n'
    assert list(ragged(text)) == ["3: Two words"]
    assert list(ragged("# Two words\n# and the rest of them.\n")) == ["1: Two words"]
    assert list(ragged(f'"""\nTwo words\n{"x" * 112}\n"""\n')) == []
    assert list(ragged('"""\nArgs:\n    one: text\n    two: text\n\n- one\n- two\n\n>>> 1 + 1\n2\n"""\n')) == []


def test_a_word_is_found_in_names_too() -> None:
    assert _found("moulds?", {"a": "x = _mould_of(MOULDS)\nmoulded"}) == ["a:1: x = _mould_of(MOULDS)"]
