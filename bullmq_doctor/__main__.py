"""The command `bullmq-doctor`."""

from __future__ import annotations

import sys

import click
import msgspec
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from bullmq_cli.text import json_line, visible
from bullmq_doctor.examine import Finding, Severity, examine
from bullmq_doctor.facts import Facts, Unreachable, look
from bullmq_protocol.common.keys import DEFAULT_PREFIX
from bullmq_protocol.errors import UsageError

EXIT_CODES = {None: 0, Severity.NOTE: 0, Severity.WARNING: 1, Severity.ERROR: 3}
UNREACHABLE = 4
_COLOURS = {Severity.NOTE: "cyan", Severity.WARNING: "yellow", Severity.ERROR: "bold red"}
_ORDER = list(Severity)


@click.command(name="bullmq-doctor")
@click.argument("url")
@click.argument("queues", nargs=-1)
@click.option("--prefix", default=DEFAULT_PREFIX, show_default=True, help="Of the keys, with its braces if it has any.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def main(url: str, queues: tuple[str, ...], prefix: str, as_json: bool) -> None:
    """Say what is wrong with the server at URL and with QUEUES (all of the prefix if none is named), and what mends it.

    Nothing is written. Exit code: 0 nothing found but notes, 1 warnings, 2 wrong usage, 3 errors, 4 the server cannot
    be examined.
    """
    try:
        facts = look(url, queues, prefix=prefix)
    except UsageError as error:
        raise click.UsageError(str(error)) from None
    except Unreachable as error:
        click.echo(f"bullmq-doctor: {visible(error)}", err=True)
        sys.exit(UNREACHABLE)
    sys.exit(report(facts, as_json=as_json))


def report(facts: Facts, *, as_json: bool = False) -> int:
    """Print what is wrong; return the exit code."""
    findings = examine(facts)
    if as_json:
        click.echo(json_line(msgspec.to_builtins(findings)))
    else:
        _show(facts, findings)
    worst = max((finding.severity for finding in findings), key=_ORDER.index, default=None)
    return EXIT_CODES[worst]


def _show(facts: Facts, findings: list[Finding]) -> None:
    console = Console()
    if findings:
        # Folded, not cut: an id or a method is there to be copied.
        table = Table("", *(Column(title, overflow="fold") for title in ("where", "problem", "fix")))
        for finding in findings:
            severity = Text(finding.severity.value, style=_COLOURS[finding.severity])
            # Text, not markup: names of queues may hold brackets.
            shown = (Text(visible(each)) for each in (finding.where, finding.problem, finding.fix))
            table.add_row(severity, *shown)
        console.print(table)
    queues = f"{len(facts.queues)} queue{'' if len(facts.queues) == 1 else 's'}"
    found = f"{len(findings)} finding{'' if len(findings) == 1 else 's'}" if findings else "nothing is wrong"
    console.print(Text(f"{facts.server.address}, {queues}: {found}"))


if __name__ == "__main__":
    main()
