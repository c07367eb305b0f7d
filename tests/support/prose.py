"""The prose of Python files: paragraphs of docstrings and comments, and whether their lines are filled."""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

WIDTH = 120
# A line that begins something new: an entry of a list or of a section, a heading's underline, a row of a table, code.
_BEGINS = re.compile(r"[-*] |\d+\. |@|>>> |\.\.\. |\||[-=~]{3,}|[*`\w][*`\w .,]*(\([^)]*\))?:( |$)")
_HEADING = re.compile(r"\w+:")
_HANGING = 8
_FEW = 3
# What click is not to fill begins with its own sign.
_EXAMPLE = (">>> ", "... ", "@", "\\b")


class Line(NamedTuple):
    """A line of prose: its number, its indent, its text, and the column after it."""

    number: int
    indent: int
    text: str
    end: int


def paragraphs(source: str) -> Iterator[list[Line]]:
    """Give the paragraphs of the docstrings, those of attributes among them, and of the comments that fill lines."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found = [_line(lines, number) for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)]
            yield from _parts([_bare(each, '"""') for each in found])
    block: list[Line] = []
    for number, text in enumerate(lines, 1):
        bare = text.lstrip()
        if not bare.startswith("# ") or bare.startswith("# ---"):
            continue
        if block and block[-1].number < number - 1:
            yield from _parts(block)
            block = []
        block.append(_bare(_line(lines, number), "# "))
    yield from _parts(block)


def ragged(source: str) -> Iterator[str]:
    """Tell of lines of at most three words whose successor's first word would have fitted."""
    for paragraph in paragraphs(source):
        for line, after in pairwise(paragraph):
            if len(line.text.split()) <= _FEW and line.end + 1 + len(after.text.split()[0]) <= WIDTH:
                yield f"{line.number}: {line.text}"


def _line(lines: list[str], number: int) -> Line:
    text = lines[number - 1]
    return Line(number, len(text) - len(text.lstrip()), text.strip(), len(text))


def _bare(line: Line, sign: str) -> Line:
    return line._replace(text=line.text.replace(sign, "", 1).removesuffix(sign).strip())


def _parts(lines: list[Line]) -> Iterator[list[Line]]:
    """Part lines at empty ones, where something new begins, and where the indent changes; leave out examples."""
    part: list[Line] = []
    in_example = False
    for line in lines:
        if line.text.startswith(_EXAMPLE):
            in_example = True
        elif not line.text:
            in_example = False
        shift = abs(line.indent - part[-1].indent) if part else 0
        # The second line of a paragraph may hang; a cell of a table stands far off.
        same = shift == 0 or (len(part) == 1 and shift <= _HANGING and not _HEADING.fullmatch(part[0].text))
        if not line.text or in_example or _BEGINS.match(line.text) or not same:
            yield part
            part = []
        if line.text and not in_example:
            part.append(line)
    yield part
