"""The command `top`: all queues, live."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final

import click
from redis.exceptions import RedisError
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bullmq_cli.ctl.frame import RATED, Look, look
from bullmq_cli.ctl.program import DONE, ctl, shared
from bullmq_cli.ctl.session import NotThere, Session
from bullmq_cli.ctl.show import age, console, flush, put, write
from bullmq_cli.text import json_line, visible
from bullmq_doctor.server import client_names, connected, count_workers, find_queues
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import AuthenticationFailed, TransportError

_SEARCH_S: Final = 60.0
"""How often new queues are looked for."""
_LEAST_WINDOW_MS: Final = 5000

Cell = Callable[[Look], Text]


def _number(state: str, style: str = "") -> Cell:
    def cell(seen: Look) -> Text:
        count = seen.counts[state]
        return Text(f"{count:,}", style=style if count else "dim")

    return cell


def _ready(seen: Look) -> Text:
    count = seen.ready
    return Text(f"{count:,}", style="" if count else "dim")


def _rate(kind: str, style: str = "") -> Cell:
    def cell(seen: Look) -> Text:
        rate = seen.rates[kind]
        return Text(f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}", style=style if rate else "dim")

    return cell


def _workers(seen: Look) -> Text:
    idle = seen.workers == 0 and not seen.is_paused and seen.ready > 0
    return Text("?" if seen.workers is None else str(seen.workers), style="bold red" if idle else "")


def _name(seen: Look) -> Text:
    text = Text(visible(seen.queue))
    if seen.is_paused:
        text.append(" paused", style="yellow")
    return text


COLUMNS: Final[tuple[tuple[str, Cell, int], ...]] = (
    ("queue", _name, 0),
    ("waiting", _ready, 0),
    ("active", _number("active", "cyan"), 0),
    ("delayed", _number("delayed"), 2),
    ("children", _number("waiting-children"), 4),
    ("completed", _number("completed", "green"), 4),
    ("failed", _number("failed", "red"), 0),
    ("add/s", _rate("added"), 3),
    ("done/s", _rate("completed", "green"), 0),
    ("fail/s", _rate("failed", "red"), 3),
    ("oldest", lambda seen: Text(age(seen.oldest_ms)), 1),
    ("workers", _workers, 1),
)
"""Heading, cell, and how early it gives way where the terminal is narrow: the highest number first."""
_LONG_NAME: Final = 24
_NUMBER: Final = 7
_GAP: Final = 2


def columns(rows: Sequence[Look], width: int) -> Sequence[tuple[str, Cell, int]]:
    """Return the columns that have room."""
    name = min(_LONG_NAME, max((len(visible(each.queue)) for each in rows), default=0) + len(" paused"))
    for most in range(max(level for _, _, level in COLUMNS), 0, -1):
        chosen = [column for column in COLUMNS if column[2] <= most]
        if name + sum(_GAP + max(_NUMBER, len(heading)) for heading, _, _ in chosen[1:]) <= width:
            return chosen
    return [column for column in COLUMNS if column[2] == 0]


@ctl.command("top")
@click.argument("names", nargs=-1, metavar="[QUEUE]...")
@click.option("--interval", type=click.FloatRange(0.1), default=2.0, show_default=True, help="Seconds between looks.")
@click.option("--count", type=click.IntRange(1), help="End after this many looks.")
@shared
def top(session: Session, /, names: tuple[str, ...], interval: float, count: int | None) -> int:
    """Show queues live, until Ctrl-C.

    Jobs by state (waiting: all that could run now), jobs per second, the age of the job that would run next, workers.
    Without QUEUE all of the prefix; new ones are looked for once a minute. Where the terminal is narrow, columns give
    way. Rates come from the newest events of each queue, of the last 5 s at least.

    \b
    bullmq-ctl top
    bullmq-ctl top mail video --interval 1
    bullmq-ctl top --count 1 > now.txt

    JSON: one line for each look, an array of {queue, is_paused, workers, waiting, paused, active, delayed,
    prioritized, waiting-children, completed, failed, added_per_s, completed_per_s, failed_per_s, oldest_waiting_ms}.
    """
    watch = Watch(session, names, round(interval * 1000))
    with ExitStack() as ends:
        ends.callback(watch.close)
        # What is wrong from the start ends it; what comes later is shown.
        watch.look()
        looks = range(count) if count is not None else itertools.count()
        shown = console()
        live: Live | None = None
        if shown.is_terminal and not shown.is_dumb_terminal and not session.as_json and count is None:
            live = ends.enter_context(Live(console=shown, screen=True, auto_refresh=False))
        with contextlib.suppress(KeyboardInterrupt):
            for number in looks:
                if number:
                    time.sleep(interval)
                    watch.look()
                put_look(watch, shown, live, as_json=session.as_json)
            return DONE
    # Ctrl-C is how it ends.
    if live is not None:
        shown.print(watch.drawn(shown))
    return DONE


def put_look(watch: Watch, shown: Console, live: Live | None, *, as_json: bool) -> None:
    """Show what was seen last. A program gets nothing while the server does not answer."""
    if as_json and watch.trouble:
        click.echo(f"bullmq-ctl: no answer: {visible(watch.trouble)}", err=True)
    elif as_json:
        write(json_line([each.fields() for each in watch.looks]))
    elif live is not None:
        live.update(watch.drawn(shown, shown.height), refresh=True)
    else:
        put(watch.drawn(shown))
    flush()


class Watch:
    """Looks at queues again and again."""

    def __init__(self, session: Session, names: Sequence[str], interval_ms: int) -> None:
        self.looks: list[Look] = []
        self.trouble = ""
        self._session = session
        self._fixed = [session.keys(name) for name in dict.fromkeys(names)]
        self._found: list[QueueKeys] = []
        self._window_ms = max(_LEAST_WINDOW_MS, interval_ms)
        self._search_at = 0.0
        self._opened = ExitStack()
        self._client: Any = None
        self._has_looked = False

    def close(self) -> None:
        """Close what looks at the server itself."""
        self._opened.close()

    def look(self) -> None:
        """Look once. Raises what is wrong at the first time; later the trouble is kept, and the last look shown."""
        try:
            connections = self._of_the_server()
            if not self._has_looked:
                for keys in self._fixed:
                    if not self._session.is_there(self._session.queue(keys.name)):
                        raise NotThere(f"there is no queue {keys.name!r} of the prefix {self._session.prefix!r}")
            self.looks = look(
                self._session,
                self._fixed or self._found,
                lambda keys: count_workers(keys, connections),
                self._window_ms,
            )
            self.trouble = ""
            self._has_looked = True
        except (TransportError, AuthenticationFailed, RedisError) as error:
            self._opened.close()
            self._client = None
            if not self._has_looked:
                raise
            self.trouble = str(error)

    def _of_the_server(self) -> list[str] | None:
        if self._client is None:
            self._client = self._opened.enter_context(connected(self._session.address))
            self._search_at = 0.0
        if not self._fixed and time.monotonic() >= self._search_at:
            names, _ = find_queues(self._client, self._session.prefix, None)
            self._found = [self._session.keys(name) for name in sorted(names)]
            self._search_at = time.monotonic() + _SEARCH_S
        return client_names(self._client)[0]

    def drawn(self, shown: Console, height: int | None = None) -> RenderableType:
        """Return the screen. `height`: how many lines there are."""
        width = shown.width
        address = self._session.address.address
        at = time.strftime("%H:%M:%S")
        names = zip(RATED, ("add", "done", "fail"), strict=True)
        rates = "  ".join(f"{sum(each.rates[kind] for each in self.looks):,.1f} {name}/s" for kind, name in names)
        count = len(self.looks)
        head = Text(f"{at}  {count} queue{'' if count == 1 else 's'}  {rates}  {address}", style="bold", no_wrap=True)
        head.truncate(width, overflow="ellipsis")
        parts: list[RenderableType] = [head]
        if self.trouble:
            trouble = Text(f"no answer, this is how it was: {visible(self.trouble)}", style="red", no_wrap=True)
            trouble.truncate(width, overflow="ellipsis")
            parts.append(trouble)
        room = None if height is None else max(1, height - len(parts) - 2)
        rows = self.looks if room is None or count <= room else self.looks[: room - 1]
        parts.append(self._table(rows, width) if count else Text(f"no queues of the prefix {self._session.prefix}"))
        if len(rows) < count:
            parts.append(Text(f"and {count - len(rows)} more: name those to watch", style="dim"))
        return Group(*parts)

    def _table(self, rows: Sequence[Look], width: int) -> Table:
        made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
        chosen = columns(rows, width)
        for heading, _, _ in chosen:
            is_name = heading == "queue"
            made.add_column(
                heading,
                justify="left" if is_name else "right",
                no_wrap=True,
                overflow="ellipsis",
                min_width=None if is_name else len(heading),
                ratio=None,
            )
        for each in rows:
            made.add_row(*(cell(each) for _, cell, _ in chosen))
        return made
