"""Text out of queues, as a terminal may be given it, and JSON that every locale can write."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

import msgspec

ORDERS: Final = re.compile(
    # Controls, marks that turn the direction of writing, other ends of lines, halves of pairs.
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_ORDERS_OF_LINES: Final = re.compile(ORDERS.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))


def visible(value: object, most: int | None = None, *, lines: bool = False) -> str:
    """Return a text in one line with all that would steer a terminal written out, cut to a length. `lines`: with its
    ends of lines and tabs."""
    text = (_ORDERS_OF_LINES if lines else ORDERS).sub(written_out, str(value))
    return text if most is None or len(text) <= most else f"{text[: most - 1]}…"


def written_out(match: re.Match[str]) -> str:
    """Return a character as an escape of Python's."""
    letter = match[0]
    if "\udc80" <= letter <= "\udcff":
        # A byte that is no UTF-8.
        return f"\\x{ord(letter) - 0xDC00:02x}"
    return letter.encode("unicode_escape").decode()


def json_line(value: object) -> str:
    """Return a value as one line of JSON, in ASCII letters."""
    try:
        text = json.dumps(value, allow_nan=False, default=_builtin)
    except (ValueError, RecursionError):
        text = json.dumps(_finite(value), default=_builtin)
    return text.replace("\x7f", "\\u007f")


def _builtin(value: object) -> object:
    return None if value is msgspec.UNSET else msgspec.to_builtins(value, str_keys=True)


def _finite(value: Any, depth: int = 0) -> Any:
    """Return a value without what JSON cannot hold: infinite numbers, and what is nested too deeply."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if depth > 100:
        return "..."
    if isinstance(value, dict):
        return {str(name): _finite(each, depth + 1) for name, each in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, list | tuple):
        return [_finite(each, depth + 1) for each in value]  # pyright: ignore[reportUnknownVariableType]
    return value
