"""Draw the mermaid blocks of the pages, for the site has no JavaScript for them: `python tools/drawings.py [--check]`.

It writes `docs/_drawings/<digest>.svg` for each block; a new one needs Graphviz (`dot`). GitHub draws blocks itself.
"""

import hashlib
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "_drawings"
BLOCK = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NODE = r"(\w+|\[\*\])(\[\(?[^]]*?\)?\])?"
_EDGE = re.compile(rf'^ *{_NODE} *(?:(--|-\.) "?([^"]*?)"? (?:-->|\.->)|(---|-->)) *{_NODE}(?:: (.*))?$')
_HEAD = (
    "digraph { bgcolor=transparent; nodesep=0.4; ranksep=0.5;"
    ' node [shape=box, style=rounded, fontname="sans-serif", fontsize=12, height=0.35];'
    ' edge [fontname="sans-serif", fontsize=10, arrowsize=0.7];'
)


def main(arguments: Sequence[str]) -> int:
    """Draw what is not drawn yet, and remove what no page has, or tell that either is due; return the exit status."""
    if list(arguments) not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    TARGET.mkdir(exist_ok=True)
    wanted = {file_of(block): block for page in pages() for block in BLOCK.findall(page.read_text("utf-8"))}
    there = set(TARGET.iterdir())
    if arguments and there != wanted.keys():
        print("tools/drawings.py: docs/_drawings is stale, run python tools/drawings.py", file=sys.stderr)
        return 1
    try:
        drawn = {file: draw(wanted[file]) for file in wanted.keys() - there}
    except FileNotFoundError:
        print("tools/drawings.py: a new drawing needs Graphviz: apt install graphviz", file=sys.stderr)
        return 1
    for file in there - wanted.keys():
        file.unlink()
    for file, text in drawn.items():
        file.write_text(text, encoding="utf-8")
    return 0


def pages() -> list[Path]:
    """Return the pages that may have drawings."""
    return sorted((ROOT / "docs").rglob("*.md"))


def file_of(block: str) -> Path:
    """Return where the drawing of a block is."""
    return TARGET / f"{hashlib.sha256(block.encode()).hexdigest()[:16]}.svg"


def draw(block: str) -> str:
    """Return a drawing in `currentColor`, without blank lines."""
    done = subprocess.run(["dot", "-Tsvg"], input=graph(block), capture_output=True, text=True, check=True)
    svg = done.stdout[done.stdout.index("<svg") :]
    svg = re.sub(r"<!--.*?-->|<title>.*?</title>| id=\"[^\"]*\"", "", svg, flags=re.DOTALL)
    svg = svg.replace("black", "currentColor").replace("<svg ", '<svg role="img" fill="currentColor" ', 1)
    return "\n".join(line for line in svg.splitlines() if line.strip()) + "\n"


def graph(block: str) -> str:
    """Return a block in the language of Graphviz."""
    first, *lines = block.splitlines()
    direction = "rankdir=LR;" if first.endswith("LR") else ""
    return "\n".join([_HEAD + direction, *dict.fromkeys(each for line in lines for each in _parts(line)), "}"])


def _parts(line: str) -> Iterator[str]:
    found = _EDGE.match(line)
    if found is None:
        raise ValueError(f"no line of a drawing that is known here: {line!r}")
    start, start_label, dash, said, plain, end, end_label, note = found.groups("")
    for name, label, kind in ((start, start_label, "start"), (end, end_label, "end")):
        if name == "[*]":
            shape = "circle" if kind == "start" else "doublecircle"
            yield f'{kind} [shape={shape}, label="", width=0.15, style=filled, fillcolor=black]'
        elif label:
            inner = label.strip("[]()").strip('"')
            yield f'{name} [label="{inner}"]'
    look = ["style=dashed"] if dash == "-." else []
    look += ["dir=none"] if plain == "---" else []
    text = (said or note).replace('"', "'")
    look += [f'label=" {_folded(text)} "'] if text else []
    names = ["start" if start == "[*]" else start, "end" if end == "[*]" else end]
    yield f"{names[0]} -> {names[1]} [{', '.join(look)}]"


def _folded(text: str) -> str:
    """Return a text in lines of about thirty characters."""
    return re.sub(r"(.{24,}?) ", r"\1\\n", text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
