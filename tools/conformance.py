"""Run scripts and clients through the conformance run, and write what differs into docs/conformance-results.md.

`python -m tools.conformance [--sequences N] [--seed N] [NAME ...]`; names such as `port-6.7.0` measure a part anew, and
leave the rest as it is. The reports go to `.cache/conformance`, too.
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from bullmq_conformance import report, scripts, vectors
from bullmq_conformance.__main__ import compare, reference_of
from bullmq_conformance.program import Client, Program
from bullmq_conformance.wire import Wire
from tests.oracle.scripts import originals
from tests.support import node, servers
from tests.support.port import port_python
from tools import conformance_page as page

ROOT = Path(__file__).parents[1]
ADAPTERS = ROOT / "conformance" / "adapters"
REPORTS = ROOT / ".cache" / "conformance"
DATABASE = 14
SHRINKING = 25
"""How many more sequences to run for a shorter one. A client that differs in much takes most of the time."""


class Run(NamedTuple):
    """A client, and what it is compared with: None is this library's client."""

    name: str
    version: str
    client: Callable[[], Sequence[object]]
    reference: Callable[[], Sequence[object]] | None


def on_node(version: str) -> Callable[[], Sequence[object]]:
    """Return what makes the command of BullMQ on Node."""
    return lambda: ("node", ADAPTERS / "bullmq.js", node.FOLDERS[version]())


def ours(backend: str, profile: str) -> Callable[[], Sequence[object]]:
    """Return what makes the command of this library's client."""
    return lambda: (sys.executable, ADAPTERS / "ours.py", backend, profile)


def port() -> Sequence[object]:
    """Return the command of BullMQ's Python port."""
    return port_python(), ADAPTERS / "port.py"


def minimal() -> Sequence[object]:
    """Return the command of the client that docs/write-a-client.md explains."""
    folder = ROOT / ".cache" / "conformance" / "lua"
    scripts.write_scripts(folder, vectors.VERSIONS[0])
    return "sh", ADAPTERS.with_name("minimal") / "client.sh", folder


def runs() -> Iterator[Run]:
    """Yield all clients, each with what it is compared with."""
    for version in vectors.VERSIONS:
        for backend in ("asyncio", "trio", "threads"):
            yield Run(f"{backend}-{version}", version, ours(backend, version), on_node(version))
        yield Run(f"node-{version}", version, on_node(version), None)
    yield Run("minimal-5.62.0", "5.62.0", minimal, on_node("5.62.0"))
    yield Run("port-6.7.0", "6.7.0", port, on_node("6.7.0"))
    yield Run("fleet-6.7.0", "6.7.0", ours("threads", "fleet"), on_node("6.7.0"))


class Folder(NamedTuple):
    """A set of scripts, and the version it is compared with."""

    name: str
    label: str
    version: str
    scripts: Callable[[], Mapping[str, str]]


def folders() -> Iterator[Folder]:
    """Yield all sets of scripts."""
    for version in vectors.VERSIONS:
        profile = scripts.PROFILES[version].label
        own = functools.partial(texts, version)
        yield Folder(f"lua-{profile}", f"this library's, profile `{profile}`", version, own)
    yield Folder("lua-fleet", "this library's, profile `fleet`", "6.7.0", functools.partial(texts, "fleet"))
    for version in vectors.VERSIONS:
        yield Folder(f"lua-bullmq-{version}", f"BullMQ {version}", version, functools.partial(originals, version))


def texts(profile: str) -> dict[str, str]:
    """Return this library's scripts of a profile, of the commands that have vectors."""
    known = scripts.NAMED[profile].scripts
    return {name: known[name].source for version in vectors.VERSIONS for name in vectors.own(version) if name in known}


def measured(name: str, given: argparse.Namespace) -> page.ClientRow:
    """Compare one client on a server of its own; write its reports."""
    (run,) = (each for each in runs() if each.name == name)
    began = time.monotonic()
    with ExitStack() as stack:
        url = f"{stack.enter_context(servers.start()).url}/{DATABASE}"
        client = stack.enter_context(closing(started(run.client())))
        other: Client = reference_of(run.version) if run.reference is None else started(run.reference())
        stack.enter_context(closing(other))
        found = compare(
            client, other, run.version, url, seed=given.seed, count=given.sequences, shrinking=given.shrinking
        )
    for ending, text in (
        ("json", report.as_json(found)),
        ("html", report.client_html(found)),
        ("txt", report.client_text(found)),
    ):
        (REPORTS / f"{run.name}.{ending}").write_text(text, encoding="utf-8")
    return page.ClientRow(run.name, round(time.monotonic() - began), found)


def started(command: Sequence[object]) -> Program:
    """Start a client."""
    return Program(list(map(str, command)), {"PYTHONPATH": str(ROOT)})


def checked(url: str, folder: Folder) -> page.ScriptsRow:
    """Run one set of scripts against the vectors of a version."""
    began = time.monotonic()
    with closing(Wire.of_url(url)) as wire:
        # BullMQ has scripts that nobody calls any more, and a profile may lack a command.
        cases = list(scripts.run(wire, folder.scripts(), folder.version, partial=True))
        wire.run([("FLUSHDB",)])
    differing = [case for case in cases if not case.passed]
    commands = len({case.command for case in cases})
    seconds = round(time.monotonic() - began)
    return page.ScriptsRow(folder.name, folder.label, folder.version, commands, len(cases), differing, seconds)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools.conformance")
    parser.add_argument("--sequences", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shrinking", type=int, default=SHRINKING, help="see bullmq-conformance client")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many clients at once")
    parser.add_argument("names", nargs="*", help="what to measure, such as port-6.7.0 or 'lua-*'; all by default")
    given = parser.parse_args()
    REPORTS.mkdir(parents=True, exist_ok=True)
    wanted: list[str] = given.names or ["*"]
    clients, sets = list(runs()), list(folders())
    known = [each.name for each in (*sets, *clients)]
    chosen = {name for name in known if any(fnmatch.fnmatch(name, pattern) for pattern in wanted)}
    if not chosen:
        parser.error(f"names must be among {', '.join(known)}")
    began, failed = time.monotonic(), list[str]()
    before = page.read() if given.names else page.Results()
    rows: dict[str, page.ScriptsRow | page.ClientRow] = {row.name: row for row in (*before.scripts, *before.clients)}
    with servers.start() as server:
        url = f"{server.url}/{DATABASE}"
        for folder in sets:
            if folder.name in chosen:
                row = checked(url, folder)
                rows[folder.name] = row
                record(rows, server.kind, time.monotonic() - began)
                said(f"{folder.name}: {row.cases} cases, {len(row.differing)} differ, {row.seconds} s")
    # Each waits most of the time, for one program after the other.
    with ProcessPoolExecutor(given.jobs, multiprocessing.get_context("spawn")) as pool:
        asked = {pool.submit(measured, run.name, given): run.name for run in clients if run.name in chosen}
        for done in as_completed(asked):
            if done.exception() is not None:
                said(f"{asked[done]}: {done.exception()!r}")
                failed.append(asked[done])
                continue
            made = done.result()
            rows[made.name] = made
            record(rows, server.kind, time.monotonic() - began)
            counts = f"{made.report.sequences} sequences, {made.report.total} requests"
            said(f"{made.name}: {counts}, {len(made.report.found)} differences, {made.seconds} s")
    said(f"{round((time.monotonic() - began) / 60, 1)} minutes")
    ends = [
        row.name
        for row in rows.values()
        if isinstance(row, page.ClientRow) and page.must_agree(row) and row.report.found
    ]
    return 1 if ends or failed else 0


def record(rows: Mapping[str, page.ScriptsRow | page.ClientRow], server: str, seconds: float) -> None:
    """Write what was measured so far: one client that fails takes nothing from the others."""
    page.write(
        page.Results(
            measured=page.Measured(
                date=datetime.now(UTC).date().isoformat(),
                server=server,
                node=node.node_version() or "",
                python=".".join(map(str, sys.version_info[:3])),
                cores=os.cpu_count() or 1,
                seconds=round(seconds),
            ),
            scripts=[row for each in folders() if isinstance(row := rows.get(each.name), page.ScriptsRow)],
            clients=[row for each in runs() if isinstance(row := rows.get(each.name), page.ClientRow)],
        )
    )


def said(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
