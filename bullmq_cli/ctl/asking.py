"""Before something is destroyed, and while it takes its time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from bullmq_cli.ctl.show import console
from bullmq_cli.text import visible


class Declined(Exception):
    """The answer was no."""


def ask(question: str, *, yes: bool) -> None:
    """Go on if the answer is yes. Raises `Declined`, and `click.ClickException` where nobody can be asked."""
    if yes:
        return
    if not is_somebody_there():
        raise click.ClickException(f"{visible(question)} Nobody can be asked here: say --yes, or look with --dry-run.")
    if not click.confirm(visible(question), err=True):
        raise Declined


def is_somebody_there() -> bool:
    """Whether a person sits at standard input."""
    # Without a standard input at all there is no such object.
    source: Any = sys.stdin
    return source is not None and source.isatty()


Tell = Callable[[float], None]
"""What is given the amount that is done."""


@contextmanager
def progress(what: str, total: float | None, *, bytes_of_file: bool = False) -> Generator[Tell]:
    """Show a bar at standard error while a block runs, if that is a terminal. None: nobody knows how much it is."""
    shown = console(error=True)
    if not shown.is_terminal:
        yield lambda _: None
        return
    columns: list[Any] = [TextColumn("{task.description}"), BarColumn() if total else SpinnerColumn()]
    if not bytes_of_file:
        columns.append(MofNCompleteColumn())
    columns.append(TimeRemainingColumn())
    with Progress(*columns, console=shown, transient=True) as bar:
        task = bar.add_task(visible(what), total=total)
        yield lambda done: bar.update(task, completed=done)
