"""What people and programs are shown: text that no terminal takes for orders, tables, JSON of ASCII letters."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

import click
import msgspec
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from bullmq_protocol.common.codec import parse_json
from bullmq_sync import Job

_ORDERS: Final = re.compile(
    # Controls, marks that turn the direction of writing, other ends of lines, halves of pairs.
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_ORDERS_OF_LINES: Final = re.compile(_ORDERS.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))
_WIDE: Final = 2000
"""The width of what no terminal shows, so that each row is one line."""
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))
_BARS: Final = " ▁▂▃▄▅▆▇█"
_BARS_ASCII: Final = " .:-=+*#@"


def visible(value: object, most: int | None = None, *, lines: bool = False) -> str:
    """Return a text in one line with all that would steer a terminal written out, cut to a length. `lines`: with its
    ends of lines and tabs."""
    text = (_ORDERS_OF_LINES if lines else _ORDERS).sub(_written_out, str(value))
    return text if most is None or len(text) <= most else f"{text[: most - 1]}…"


def _written_out(match: re.Match[str]) -> str:
    letter = match[0]
    if "\udc80" <= letter <= "\udcff":
        # A byte that is no UTF-8.
        return f"\\x{ord(letter) - 0xDC00:02x}"
    return letter.encode("unicode_escape").decode()


def as_text(value: object, style: str = "") -> Text:
    """Return a cell of a table."""
    return Text(visible(value), style=style)


class PipedConsole(Console):
    """A console that leaves a closed pipe to the program."""

    def on_broken_pipe(self) -> NoReturn:
        """Go on with the error that is being handled."""
        raise


def console(*, error: bool = False) -> Console:
    """Return what prints to standard output, or to standard error. No markup: texts may hold brackets."""
    stream = sys.stderr if error else sys.stdout
    shown = PipedConsole(file=stream, markup=False, highlight=False, emoji=False)
    if not shown.is_terminal:
        shown = PipedConsole(file=stream, markup=False, highlight=False, emoji=False, width=_WIDE)
    return shown


def draws(stream: Any = None) -> bool:
    """Whether standard output takes more than ASCII letters."""
    encoding = getattr(sys.stdout if stream is None else stream, "encoding", None) or "ascii"
    return encoding.lower().replace("-", "").startswith("utf")


def say(text: str) -> None:
    """Print one line."""
    click.echo(visible(text))


def print_json(value: object) -> None:
    """Print a value as one line of JSON."""
    click.echo(json_line(value))


def json_line(value: object) -> str:
    """Return a value as one line of JSON, in ASCII letters, which every locale can write."""
    try:
        text = json.dumps(value, allow_nan=False, default=_builtin)
    except (ValueError, RecursionError):
        text = json.dumps(_finite(value), default=_builtin)
    return text.replace("\x7f", "\\u007f")


def _builtin(value: object) -> object:
    if value is msgspec.UNSET:
        return None
    return msgspec.to_builtins(value, str_keys=True)


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


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()) -> Table:
    """Return a table of texts. `right`: the headings of columns of numbers."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        justify: JustifyMethod = "right" if heading in right else "left"
        made.add_column(heading, justify=justify, overflow="fold" if justify == "left" else "ellipsis")
    for row in rows:
        made.add_row(*(each if isinstance(each, Text) else as_text(each) for each in row))
    return made


def age(ms: float | None) -> str:
    """Return a span of time in its largest unit; `-` for none."""
    if ms is None:
        return "-"
    for size, unit in _UNITS:
        if ms >= size:
            return f"{ms / size:.1f} {unit}" if ms < 10 * size and unit != "s" else f"{ms // size:.0f} {unit}"
    return f"{max(0, ms):.0f} ms"


def sparkline(values: Sequence[float]) -> str:
    """Return a bar for each value, the highest as high as a letter."""
    bars = _BARS if draws() else _BARS_ASCII
    highest = max(values, default=0)
    if highest <= 0:
        return bars[0] * len(values)
    # What is not nothing is seen.
    return "".join(bars[0 if each <= 0 else max(1, math.ceil(each / highest * (len(bars) - 1)))] for each in values)


def decoded(text: str) -> tuple[Any, bool]:
    """Return what JSON says, None for nothing, and whether it could be read; else the text, with bytes that are no
    UTF-8 written out."""
    try:
        return (parse_json(text) if text else None), True
    except (msgspec.DecodeError, RecursionError):
        return "".join(_written_out(m) if (m := _ORDERS.match(c)) and c >= "\ud800" else c for c in text), False


JOB_KEYS: Final = (
    *("id", "name", "queue", "state", "data", "progress", "returnvalue", "failed_reason", "stacktrace"),
    *("attempts_made", "attempts_started", "stalled_counter", "priority", "delay", "timestamp", "processed_on"),
    *("finished_on", "processed_by", "parent_key", "repeat_job_key", "deduplication_id", "opts", "undecodable"),
)
"""The keys of a job in JSON. `undecodable` names those that hold a text because what is stored is no JSON."""


def job_fields(job: Job[Any], state: str) -> dict[str, Any]:
    """Return what is known of a job, under the keys `JOB_KEYS`."""
    record = job.record
    stored = {
        name: record.fields.get(name, b"").decode("utf-8", "surrogateescape")
        for name in ("data", "progress", "returnvalue", "stacktrace", "opts")
    }
    values: dict[str, Any] = {}
    wrong: list[str] = []
    for name, text in stored.items():
        values[name], is_right = decoded(text)
        if not is_right:
            wrong.append(name)
    return {
        "id": record.id,
        "name": record.name,
        "queue": job.queue_name,
        "state": state,
        "data": values["data"],
        "progress": values["progress"],
        "returnvalue": values["returnvalue"],
        "failed_reason": record.failed_reason,
        "stacktrace": values["stacktrace"] or [],
        "attempts_made": record.attempts_made,
        "attempts_started": record.attempts_started,
        "stalled_counter": record.stalled_counter,
        "priority": record.priority,
        "delay": record.delay,
        "timestamp": record.timestamp,
        "processed_on": record.processed_on,
        "finished_on": record.finished_on,
        "processed_by": record.processed_by,
        "parent_key": record.parent_key,
        "repeat_job_key": record.repeat_job_key,
        "deduplication_id": record.deduplication_id,
        "opts": values["opts"],
        "undecodable": wrong,
    }
