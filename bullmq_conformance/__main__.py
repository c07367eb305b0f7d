"""The command `bullmq-conformance`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit, urlunsplit

import click

import bullmq_sync
from bullmq_conformance import report, scripts, search
from bullmq_conformance.calls import Calls
from bullmq_conformance.keyspace import PREFIX, Moments, Side
from bullmq_conformance.program import Broken, Client, Local, Program
from bullmq_conformance.search import SHRINKING, Arena
from bullmq_conformance.states import Json
from bullmq_conformance.steps import OPTIONS, operations
from bullmq_conformance.vectors import VERSIONS
from bullmq_conformance.wire import Wire, number
from bullmq_protocol.errors import BullMQError, UsageError
from bullmq_protocol.net.address import parse_url

T = TypeVar("T")
_REDIS = "redis://127.0.0.1:6379/14"
_version = click.option(
    "--version", type=click.Choice(VERSIONS), required=True, help="The version of BullMQ to compare with."
)
_redis = click.option(
    "--redis", default=_REDIS, show_default=True, help="The URL of a server, with the number of an empty database."
)
_json = click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the report as JSON."
)
_html = click.option(
    "--html", "html_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the report as an HTML page."
)


@click.group(name="bullmq-conformance")
def main() -> None:
    """Report, case by case, where an implementation differs from a version of BullMQ.

    Exit code: 0 nothing differs, 1 something does, 2 wrong usage.
    """


@main.command(name="scripts")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@_version
@_redis
@click.option("--partial", is_flag=True, help="Skip commands that have no script in FOLDER.")
@_json
@_html
def scripts_command(
    folder: Path, version: str, redis: str, partial: bool, json_file: Path | None, html_file: Path | None
) -> None:
    """Run the Lua files of FOLDER against the golden vectors, in an empty database."""
    texts = _checked(lambda: scripts.folder_scripts(folder))
    wire = _opened(redis)
    cases = list(scripts.run(wire, texts, version, partial=partial))
    wire.run([("FLUSHDB",)])
    wire.close()
    made = scripts.Report(folder.name, version, cases)
    _write(json_file, report.as_json(made))
    _write(html_file, report.scripts_html(made))
    click.echo(report.scripts_text(made), nl=False)
    sys.exit(not all(case.passed for case in cases))


@main.command(name="client")
@_version
@_redis
@click.option("--seed", default=0, show_default=True, help="The same seed gives the same sequences and report.")
@click.option("--sequences", default=100, show_default=True, help="How many sequences to run.")
@click.option("--steps", default=30, show_default=True, help="The maximum number of steps in a sequence.")
@click.option(
    "--shrinking", default=SHRINKING, show_default=True, help="How many more sequences to run to shorten one."
)
@click.option("--reference", help="The command line of a program to compare with. Default: this library's client.")
@_json
@_html
@click.argument("program", nargs=-1, required=True)
def client_command(
    version: str,
    redis: str,
    seed: int,
    sequences: int,
    steps: int,
    shrinking: int,
    reference: str | None,
    json_file: Path | None,
    html_file: Path | None,
    program: tuple[str, ...],
) -> None:
    """Send PROGRAM random requests, and compare it with this library's client in the profile of that version.

    Two databases of the server must be empty: the one in the URL and the next.
    """
    with ExitStack() as stack:
        client = stack.enter_context(closing(_checked(lambda: Program(program))))
        other: Client = reference_of(version)
        if reference is not None:
            other = _checked(lambda: Program(shlex.split(reference)))
        stack.enter_context(closing(other))
        try:
            made = compare(client, other, version, redis, seed=seed, count=sequences, length=steps, shrinking=shrinking)
        except (Broken, ValueError) as error:
            click.echo(f"bullmq-conformance: {error}", err=True)
            sys.exit(2)
    _write(json_file, report.as_json(made))
    _write(html_file, report.client_html(made))
    click.echo(report.client_text(made), nl=False)
    sys.exit(bool(made.found))


@main.command(name="lua")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@_version
def lua_command(folder: Path, version: str) -> None:
    """Write this library's scripts for a version into FOLDER, for your own client to run."""
    click.echo(f"{scripts.write_scripts(folder, version)} scripts")


def reference_of(version: str) -> Local:
    """Return this library's client in the profile of a version."""
    return Local(Calls(bullmq_sync, scripts.PROFILES[version], "threads").methods())


def compare(
    client: Client,
    reference: Client,
    version: str,
    url: str,
    *,
    seed: int = 0,
    count: int = 100,
    length: int = 30,
    shrinking: int = SHRINKING,
) -> search.Report:
    """Compare a client with the reference of a version. Raises `Broken`, and `ValueError` where it cannot begin."""
    urls = (url, _next_database(url))
    wires = [_opened(each) for each in urls]
    moments = Moments()
    arena = Arena(client, reference, (Side(wires[0], moments), Side(wires[1], moments)), moments)
    try:
        hello, other = arena.introduce([_place(each, version) for each in urls])
        found, drawn = search.search(arena, seed=seed, count=count, length=length, shrinking=shrinking)
    finally:
        for wire in wires:
            wire.run([("FLUSHDB",)])
            wire.close()
    return search.Report(
        client=hello.client,
        client_version=hello.version,
        version=version,
        reference=f"{other.client} {other.version}",
        seed=seed,
        sequences=drawn,
        requests=dict(sorted(arena.counted.items())),
        left_out=sorted({*operations(OPTIONS), "open"} - arena.known.keys() - ({"open"} & set(hello.can))),
        found=found,
    )


def _place(url: str, version: str) -> Mapping[str, Json]:
    options = parse_url(url)
    return {
        "url": url,
        "host": options.host,
        "port": options.port,
        "db": options.db,
        "prefix": PREFIX,
        "version": version,
    }


def _next_database(url: str) -> str:
    """Return the URL of the next database of the same server."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"/{parse_url(url).db + 1}"))


def _opened(url: str) -> Wire:
    """Connect to a database that is empty, so that nothing of anybody's is lost."""
    try:
        wire = Wire.of_url(url)
    except UsageError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.UsageError(f"the server cannot be reached: {error}") from None
    keys = number(wire.run([("DBSIZE",)])[0])
    if keys != 0:
        wire.close()
        raise click.UsageError(f"the database {parse_url(url).db} is not empty: it has {keys} keys")
    return wire


def _checked(make: Callable[[], T]) -> T:
    try:
        return make()
    except (BullMQError, OSError) as error:
        raise click.UsageError(str(error)) from None


def _write(file: Path | None, text: str) -> None:
    if file is not None:
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
