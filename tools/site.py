"""What the documentation site has besides its pages: the API reference, anchors, `llms.txt`, and a look at the links.

`docs/conf.py` calls it while Sphinx builds; `python -m tools.site FOLDER` looks for dead links in the finished pages.
"""

import posixpath
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from tools import drawings, vector_pages
from tools.public_names import PACKAGES, TIERS, Names

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "python"
_ANCHOR = re.compile(r'<a id="([\w-]+)"></a>')
_SPEC = re.compile(r"specs/([\w-]+)\.md#([\w-]+)")
_DEFINED = re.compile(r"^(?:class |def |async def )?(\w+)(?=[(\[:]|: TypeAlias| = )", re.MULTILINE)
_SPECIAL = "__call__, __enter__, __aenter__, __iter__, __aiter__"
_LINK = re.compile(r"\]\(([^)#\s]*)(#[\w-]+)?\)")


class Public(NamedTuple):
    """The public names of both tiers."""

    listed: tuple[str, ...]
    """Each name, with its module and class, as the reference has it."""
    homes: Mapping[str, str]
    """Where a name is defined, and where the reference has it."""
    aliases: Mapping[str, str]
    """Names of classes that stand elsewhere in the reference, since a private module defines them for several."""
    unqualified: frozenset[str]
    """Names of modules of ours as signatures have them, without their module."""


@cache
def public_names() -> Public:
    """Return the public names; modules are imported for where their names come from."""
    names, listed, homes, aliases, unqualified = _all_names(), [], {}, {}, set()
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            unqualified |= set(_DEFINED.findall(file.read_text(encoding="utf-8")))
    for module in modules():
        imported = import_module(module)
        for line in names.of(module):
            full = re.split(r":| = ", line, maxsplit=1)[0]
            if full not in listed[-1:]:
                listed.append(full)
            value = getattr(imported, full.removeprefix(f"{module}."), None)
            home = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
            if full.count(".") == module.count(".") + 1:
                first = homes.setdefault(home, full)
                if first != full and "._" in home:
                    aliases[full] = first
    return Public(tuple(dict.fromkeys(listed)), homes, aliases, frozenset(unqualified))


@cache
def _all_names() -> Names:
    """Return what the modules define; their texts are read once."""
    return Names()


def place(name: str) -> str:
    """Return where a public name stands in the reference."""
    aliases = public_names().aliases
    owner = next((each for each in aliases if name == each or name.startswith(f"{each}.")), None)
    return name if owner is None else aliases[owner] + name.removeprefix(owner)


def modules() -> list[str]:
    """Return the public modules, the stable ones first."""
    names = _all_names()
    return [module for patterns in TIERS.values() for pattern in patterns for module in names.modules(pattern)]


def write_api(foreign: str) -> None:
    """Write a page for each line of the tiers, and their table of contents. `foreign` are bases of others."""
    names = _all_names()
    TARGET.mkdir(exist_ok=True)
    texts = {"index.md": _index()}
    for tier, patterns in TIERS.items():
        for pattern in patterns:
            found = names.modules(pattern)
            texts[f"{_page(pattern)}.md"] = "".join(_api_page(tier, pattern, found, foreign))
    for stale in {file.name for file in TARGET.iterdir()} - texts.keys():
        (TARGET / stale).unlink()
    for name, text in texts.items():
        file = TARGET / name
        # Sphinx reads again what is newer.
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def _page(pattern: str) -> str:
    return pattern.removesuffix(".*")


def _index() -> str:
    promise = "[What may change, and when](../stability.md) says what the tiers promise."
    parts = [f"# Python API\n\nEvery public name, from its docstring. {promise}\n"]
    for tier, patterns in TIERS.items():
        pages = "\n".join(_page(pattern) for pattern in patterns)
        parts.append(f"\n## {tier.capitalize()}\n\n```{{toctree}}\n:maxdepth: 1\n\n{pages}\n```\n")
    return "".join(parts)


def _api_page(tier: str, pattern: str, found: Sequence[str], foreign: str) -> Iterator[str]:
    title = _page(pattern)
    yield f"# {title}\n\nTier: [{tier}](../stability.md#{tier}).\n"
    for module in found:
        if len(found) > 1 and module != title:
            yield f"\n## {module.removeprefix(f'{title}.')}\n"
        imported = import_module(module)
        names = dict.fromkeys(name.partition(".")[0] for name in _names_in(module))
        data = [name for name in names if not callable(value := getattr(imported, name)) or _is_alias(value)]
        elsewhere = [name for name in names if f"{module}.{name}" in public_names().aliases]
        options = ["members:", "undoc-members:", "show-inheritance:", f"special-members: {_SPECIAL}"]
        options += [f"inherited-members: {foreign}", f"exclude-members: {', '.join([*data, *elsewhere])}"]
        options += ["imported-members:"] if getattr(imported, "__all__", None) else []
        lines = [f".. automodule:: {module}", *(f"   :{each}" for each in options), ""]
        lines += [f".. autodata:: {module}.{name}" for name in data]
        # What a module gives when it is asked for it is in none of its members.
        for name in (each for each in names if each not in vars(imported) and each not in data):
            lines += [f".. autoclass:: {module}.{name}", *(f"   :{each}" for each in options[:5]), ""]
        yield "\n".join(["", "```{eval-rst}", *lines, "```", ""])


def _names_in(module: str) -> Iterator[str]:
    for line in _all_names().of(module):
        yield re.split(r":| = ", line, maxsplit=1)[0].removeprefix(f"{module}.")


def _is_alias(value: object) -> bool:
    return not isinstance(value, type) and not hasattr(value, "__code__") and not hasattr(value, "__wrapped__")


def rst(lines: Sequence[str], *, is_module: bool) -> list[str]:
    """Return a docstring as reStructuredText: code in double backticks, our columns as fields, links to `specs/`."""
    written: list[str] = []
    section = ""
    for number, line in enumerate(lines):
        section = line if line and line[0] != " " else section
        if section == "Raises:" and (raised := re.match(r" +(\w+):", line)) is not None:
            line = line.replace(raised[1], _error(raised[1]), 1)
        if is_module and re.match(r"[-=]{3,}", line):
            # From the first heading on it is laid out for a terminal.
            return [*written[:-1], "::", "", *(f"    {each}" for each in lines[number - 1 :]), ""]
        if is_module and line.startswith("    ") and not lines[number - 1].strip():
            written += ["::", ""]
        if not line.lstrip().startswith((">>>", "...")):
            line = re.sub(r"(?<![`:])`([^`]+)`(?!`)(\w?)", _literal, line)
        if (
            field := re.match(r"(Keys|Args|Reply|Errors|Raises|Repeat|Cost|Events|Source|Options): +(\S.*)", line)
        ) is not None:
            if written and not written[-1].startswith((":", " ")):
                written.append("")
            line = f":{field[1]}: {field[2]}"
        written.append(_SPEC.sub(r"`specs/\1 #\2 <../../specs/\1.html#\2>`__", line))
    return written


def _error(name: str) -> str:
    """Return the full name of an error; several modules have some of them."""
    found = [each for each in public_names().homes.values() if each.endswith(f".{name}")]
    return f"~{next((each for each in found if each.count('.') == 1), found[0])}" if found else name


def _literal(code: re.Match[str]) -> str:
    return f"``{code[1]}``" + (f"\\ {code[2]}" if code[2] else "")


def anchors(text: str) -> list[str]:
    """Return the anchors that a page has as HTML."""
    return _ANCHOR.findall(text)


def prepared(docname: str, text: str) -> str:
    """Return a page as Sphinx is to read it: links to folders without a page are text, blocks of mermaid are drawn."""
    page = ROOT / f"{docname}.md"
    own = set(anchors(text))

    def linked(link: re.Match[str]) -> str:
        target, anchor = link[1], link[2] or ""
        if not target:
            return f"]({page.name}{anchor})" if anchor[1:] in own else link[0]
        if urlsplit(target).scheme:
            return link[0]
        if (vectors := vector_pages.link(page, target)) is not None:
            return f"]({vectors})"
        place = page.parent / target
        return f"]({target}/README.md)" if (place / "README.md").exists() else "]" if place.is_dir() else link[0]

    # Of a link to a folder the words are left, in brackets.
    text = drawings.BLOCK.sub(_drawn, _LINK.sub(linked, text))
    # Nothing highlights the rules of an ACL.
    return re.sub(r"^```acl$", "```text", text, flags=re.MULTILINE)


def _drawn(block: re.Match[str]) -> str:
    return f'<div class="drawing">\n{drawings.file_of(block[1]).read_text(encoding="utf-8")}</div>\n'


def llms(titles: Mapping[str, str]) -> str:
    """Return `llms.txt`: the pages by folder, with their first sentences."""
    lines = [
        "# bullmq-protocol",
        "",
        "> BullMQ job queues for Python: asyncio, trio and threads, from one core without I/O.",
        "",
    ]
    groups: dict[str, list[str]] = {}
    for name in sorted(titles):
        groups.setdefault(posixpath.dirname(name), []).append(name)
    for folder, names in groups.items():
        lines += [f"## {folder or 'The project'}", ""]
        lines += [f"- [{titles[name]}]({name}.html){_summary(ROOT / f'{name}.md')}" for name in names]
        lines.append("")
    return "\n".join(lines)


def _summary(page: Path) -> str:
    """Return the first sentence of a page, after a colon."""
    if page.is_relative_to(TARGET) or not page.exists():
        return ""
    for block in page.read_text(encoding="utf-8").split("\n\n"):
        if block[0:1].isalpha():
            plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(block.split()))
            return f": {re.split(r'(?<=[.:]) ', plain)[0].rstrip(':.')}."
    return ""


class _Page(HTMLParser):
    """The ids of a page, and where its links go."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            elif name in ("href", "src") and value and tag in ("a", "img", "script", "link"):
                self.links.add(value)


def dead_links(folder: Path) -> list[str]:
    """Return the links within finished pages that lead nowhere, each with its page."""
    pages = {page.relative_to(folder).as_posix(): _Page(page.read_text("utf-8")) for page in folder.rglob("*.html")}
    dead = []
    for name, page in sorted(pages.items()):
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            path = unquote(parts.path)
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            if target not in pages:
                if not (folder / target).exists():
                    dead.append(f"{name}: {link}")
            elif parts.fragment and unquote(parts.fragment) not in pages[target].ids | {""}:
                dead.append(f"{name}: {link}")
    return dead


def main(arguments: Sequence[str]) -> int:
    """Print the dead links of a folder; return the exit status."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    dead = dead_links(Path(arguments[0]))
    for each in dead:
        print(f"dead link in {each}", file=sys.stderr)
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
