"""What people and programs are shown: text that no terminal takes for orders, tables, JSON of ASCII letters."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

import msgspec
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from bullmq_cli.text import json_line, visible, written_out
from bullmq_protocol.common.codec import parse_json
from bullmq_sync import Job

_WIDE: Final = 1_000_000
"""The width of what no terminal shows, so that each row is one line."""
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))
_BYTES: Final = re.compile("[\ud800-\udfff]")
_BARS: Final = " ▁▂▃▄▅▆▇█"
_BARS_ASCII: Final = " .:-=+*#@"


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


def put(shape: RenderableType) -> None:
    """Print a table or a tree; where no terminal shows it, without blanks at the ends of lines."""
    shown = console()
    if shown.is_terminal:
        shown.print(shape)
        return
    with shown.capture() as captured:
        shown.print(shape)
    write("\n".join(line.rstrip() for line in captured.get().splitlines()))


def flush() -> None:
    """Write what is in the buffer of standard output."""
    # Where that is closed from the start, there is no such object.
    stream: Any = sys.stdout
    if stream is not None:
        stream.flush()


def draws(stream: Any = None) -> bool:
    """Whether standard output takes more than ASCII letters."""
    encoding = getattr(sys.stdout if stream is None else stream, "encoding", None) or "ascii"
    return encoding.lower().replace("-", "").startswith("utf")


def write(line: str) -> None:
    """Print a line as it is. (`click.echo` takes a terminal of ASCII letters for one of UTF-8.)"""
    stream: Any = sys.stdout
    if stream is not None:
        stream.write(f"{line}\n")


def say(text: str) -> None:
    """Print one line."""
    write(visible(text))


def print_json(value: object) -> None:
    """Print a value as one line of JSON."""
    write(json_line(value))


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()) -> Table:
    """Return a table of texts. `right`: the headings of columns of numbers."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        # Where it is narrow, texts go on in the next line, not numbers.
        if heading in right:
            made.add_column(heading, justify="right", no_wrap=True, min_width=len(heading))
        else:
            made.add_column(heading, overflow="fold", min_width=min(8, max(4, len(heading))))
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
        return _BYTES.sub(written_out, text), False


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
