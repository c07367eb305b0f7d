"""Measure the server's own time per job of every hot script: `python -m bench.server_time [--calls 20000]`.

The figure is `usec_per_call` of `INFO commandstats`, on a server with real-time priority where that is allowed, with
scripts that are loaded and warm. The client waits for each reply, so nothing queues. For the scripts that take several
jobs the figure is divided by their number. `--lua FOLDER` measures the scripts of another checkout, `--profile fleet`
those of a profile beside those of `strict`, in turn. `--instructions` counts the processor's instructions in place of
the time, with valgrind: they do not vary with what else the machine does.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bullmq_conformance.wire import Wire, of_bytes
from bullmq_protocol.common.codec import pack
from bullmq_protocol.common.switches import STRICT_SWITCHES, Switches
from bullmq_protocol.scripts.profile import FLEET, STRICT, V6_7, Profile
from tests.support import servers

ROOT = Path(__file__).parents[1]
B = "bull:bench:"
NOW = 1_700_000_000_000
OPTIONS = pack({"attempts": 0})
FETCH = "wait active prioritized events stalled limiter delayed paused meta pc"
MANY = "wait paused meta id completed delayed active events marker prioritized pc waiting-children"
CHUNK = 50
PROFILES = {"fleet": FLEET, "6.7": V6_7}


def keys(names: str) -> tuple[str, ...]:
    return tuple(B + name for name in names.split())


def head(deduplication_key: str | None = None) -> bytes:
    return pack([B, "", "n", NOW, None, None, None, None, deduplication_key])


def node(id: str, parent: str | None = None, *more: bool) -> bytes:
    """Return the head of a job of a flow."""
    above: tuple[Any, ...] = (None, None, None)
    if parent is not None:
        above = (B + parent, f"{B}{parent}:dependencies", {"id": parent, "queueKey": B[:-1]})
    return pack([B, id, "n", NOW, *above, None, None, *more])


def _last_count(counts: Path) -> int:
    """Return what callgrind counted between the last two PINGs."""
    last = max(counts.glob("counts.*"), key=lambda path: int(path.suffix[1:]))
    found = re.search(r"^totals: (\d+)", last.read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def finish_options(token: str) -> dict[str, Any]:
    return {
        "token": token,
        "name": None,
        "keepJobs": {"count": -1},
        "limiter": None,
        "lockDuration": 30000,
        "attempts": 1,
        "maxMetricsSize": "",
        "fpof": False,
        "cpof": False,
        "idof": False,
        "rdof": False,
    }


class Meter:
    """A server, scripts of ours, and a job that is added and processed."""

    def __init__(
        self, wire: Wire, texts: Mapping[str, str], data: str, switches: Switches, counts: Path | None
    ) -> None:
        self.wire = wire
        self.counts = counts
        self.data = data
        self.switches = switches
        self.loaded: dict[str, str] = {name: self.wire.load(text) for name, text in texts.items()}

    def call(self, name: str, names: str, *args: Any) -> tuple[Any, ...]:
        found = keys(names)
        return ("EVALSHA", self.loaded[name], len(found), *found, *args)

    def time(self, calls: Iterator[tuple[Any, ...]], each: float = 1) -> float:
        """Return microseconds per job, or instructions."""
        number = 0
        self.wire.run([("CONFIG", "RESETSTAT"), ("PING",)])
        for call in calls:
            number += 1
            reply = self.wire.run([call])[0]
            if isinstance(reply, Exception):
                raise reply
        if self.counts is not None:
            self.wire.run([("PING",)])
            return _last_count(self.counts) / number / each
        text = of_bytes(self.wire.run([("INFO", "commandstats")])[0]).decode()
        line = next(line for line in text.splitlines() if line.startswith("cmdstat_evalsha:"))
        return float(dict(part.split("=") for part in line.partition(":")[2].split(","))["usec_per_call"]) / each

    # --- calls ---

    def add(self) -> tuple[Any, ...]:
        names = "wait paused meta id completed delayed active events marker"
        return self.call("addStandardJob", names, head(), self.data, OPTIONS)

    def add_once(self, deduplication_id: str, **options: Any) -> tuple[Any, ...]:
        names = "wait paused meta id completed delayed active events marker"
        packed = pack({"attempts": 0, "de": {"id": deduplication_id, **options}})
        return self.call("addStandardJob", names, head(f"{B}de:{deduplication_id}"), self.data, packed)

    def add_delayed(self, delay: int) -> tuple[Any, ...]:
        return self.call(
            "addDelayedJob", "marker meta id delayed completed events", head(), self.data, pack({"delay": delay})
        )

    def add_prioritized(self, priority: int) -> tuple[Any, ...]:
        names = "marker meta id prioritized delayed completed active events pc"
        return self.call("addPrioritizedJob", names, head(), self.data, pack({"attempts": 0, "priority": priority}))

    def fetch(self) -> tuple[Any, ...]:
        options = pack({"token": "w:1", "lockDuration": 30000, "limiter": None, "name": None})
        return self.call("moveToActive", f"{FETCH} marker", B, NOW, options)

    def finish(self, id: int, *, outcome: str = "completed", fetch: str = "1") -> tuple[Any, ...]:
        field = "returnvalue" if outcome == "completed" else "failedReason"
        fields = "" if outcome == "completed" else pack(["failedReason", "no", "stacktrace", '["Error: no"]'])
        names = f"{FETCH} {outcome} {id} metrics:{outcome} marker"
        return self.call(
            "moveToFinished", names, id, NOW, field, "null", outcome, fetch, B, pack(finish_options("w:1")), fields
        )

    def retry(self, id: int) -> tuple[Any, ...]:
        names = f"active wait paused {id} meta events delayed prioritized pc marker stalled"
        return self.call("retryJob", names, B, NOW, "LPUSH", id, "w:1", pack(["failedReason", "no"]))

    def delay(self, id: int, *, fetch: bool = False) -> tuple[Any, ...]:
        names = f"marker active prioritized delayed {id} events meta stalled"
        later: tuple[Any, ...] = ()
        if self.switches.next_job_of_move_to_delayed:
            names += " wait limiter pc" if self.switches.waiting_layout == "v6" else " wait limiter paused pc"
            later = ("1", self.fetch()[-1]) if fetch else ("0", "")
        fields = pack(["failedReason", "no"])
        return self.call("moveToDelayed", names, B, NOW, id, "w:1", 1000 + id, "0", fields, *later)

    def delay_and_fetch(self, id: int) -> list[tuple[Any, ...]]:
        """Return the call that moves a job to `delayed` and brings the next one, or the two that do."""
        call = self.delay(id, fetch=True)
        return [call] if self.switches.next_job_of_move_to_delayed else [call, self.fetch()]

    def add_many(self, count: int) -> tuple[Any, ...]:
        return self.call("addMany", MANY, *[part for _ in range(count) for part in (0, head(), self.data, OPTIONS)])

    def add_flow(self, number: int, children: int = 10) -> tuple[Any, ...]:
        above, later = f"f{number}", self.switches.deferred_parent_release
        deferring = (True,) if later else ()
        options = pack({"attempts": 0, "parent": {"id": above, "queue": B[:-1]}})
        rows: list[Any] = [3, node(above, None, *deferring), self.data, OPTIONS]
        for place in range(children):
            rows += (0, node(f"{above}-{place}", above, *deferring), self.data, options)
        return self.call("addMany", MANY, *rows, *((4, B[:-1], above, NOW) if later else ()))

    def finish_many(self, ids: range, *, fetch: int = 1) -> tuple[Any, ...]:
        options = finish_options("")
        del options["token"]
        heads = [part for id in ids for part in (str(id), "w:1", str(NOW), 0, fetch, 1, 1)]
        names = f"{FETCH} completed failed metrics:completed metrics:failed marker"
        return self.call("finishMany", names, B, pack([options]), pack(heads), "null", "")

    def fetch_many(self, count: int) -> tuple[Any, ...]:
        options = pack({"lockDuration": 30000, "limiter": None, "name": None})
        return self.call("fetchMany", f"{FETCH} marker", B, NOW, options, pack(["w:1"] * count))

    # --- states ---

    def waiting(self, count: int, active: int = 0) -> None:
        """Start anew with this many waiting jobs and, above them, active ones with the ids 1, 2, ..."""
        self.wire.run([("FLUSHALL",), ("HSET", f"{B}meta", "opts.maxLenEvents", 10000)])
        for _ in range(0, count + active, 1000):
            self.wire.run([self.add() for _ in range(min(1000, count + active))])
        for _ in range(0, active, 1000):
            self.wire.run([self.fetch() for _ in range(min(1000, active))])


@contextmanager
def counting(kind: str | None) -> Iterator[tuple[servers.Server, Path]]:
    """Start a server program in callgrind; give it, and the folder of its counts."""
    found = {name: source for name, source in servers.sources().items() if source.name != "docker"}
    kind = kind or next(iter(found))
    with tempfile.TemporaryDirectory() as folder:
        counts, program = Path(folder), Path(folder) / "server"
        options = f"--toggle-collect=evalShaCommand --dump-after=pingCommand --callgrind-out-file={counts}/counts"
        program.write_text(f'#!/bin/sh\nexec valgrind --tool=callgrind {options} {found[kind].origin} "$@"\n')
        program.chmod(0o700)
        with servers.Server(kind, servers.Source("path", str(program))) as server:
            yield server, counts


def measure(meter: Meter, count: int, report: Callable[[str, float], None]) -> None:
    """Measure each script on its own state."""
    held = 50
    meter.waiting(0)
    report("addStandardJob", meter.time(meter.add() for _ in range(count)))
    report("moveToActive", meter.time(meter.fetch() for _ in range(50)))
    meter.waiting(count, held)
    report("moveToFinished, with the next job, 50 active", meter.time(meter.finish(id) for id in range(1, count + 1)))
    meter.waiting(0, held)
    report("moveToFinished, nothing to fetch", meter.time(meter.finish(id) for id in range(1, held + 1)))
    meter.waiting(count, held)
    report(
        "moveToFinished, failed, with the next job",
        meter.time(meter.finish(id, outcome="failed") for id in range(1, count + 1)),
    )
    meter.waiting(count)
    report("moveToActive, growing active list", meter.time(meter.fetch() for _ in range(count)))
    meter.waiting(0)
    report("addDelayedJob", meter.time(meter.add_delayed(1000 + id) for id in range(count)))
    meter.waiting(0)
    report("addPrioritizedJob", meter.time(meter.add_prioritized(1 + id % 10) for id in range(count)))
    few = min(1000, count)
    meter.waiting(0, few)
    report("retryJob", meter.time(meter.retry(id) for id in range(1, few + 1)))
    meter.waiting(0, few)
    report("moveToDelayed", meter.time(meter.delay(id) for id in range(1, few + 1)))
    meter.waiting(few, few)
    both = [call for id in range(1, few + 1) for call in meter.delay_and_fetch(id)]
    report("moveToDelayed, then the next job", meter.time(iter(both), few / len(both)))
    for name, options in (("", {}), (" for a time", {"ttl": 600_000})):
        meter.waiting(1)
        report(
            f"addStandardJob, its deduplication id is free{name}",
            meter.time(meter.add_once(f"{n}", **options) for n in range(few)),
        )
    for name, options in (
        ("", {}),
        (" for a time", {"ttl": 600_000}),
        (" ever longer", {"ttl": 600_000, "extend": True}),
    ):
        meter.waiting(1)
        meter.wire.run([meter.add_once("d", **options)])
        report(
            f"addStandardJob, its deduplication id is taken{name}",
            meter.time(meter.add_once("d", **options) for _ in range(few)),
        )
    meter.waiting(0)
    meter.wire.run([meter.add_once(f"{n}") for n in range(few)])
    meter.wire.run([meter.fetch() for _ in range(few)])
    report("moveToFinished of a deduplicated job", meter.time(meter.finish(id) for id in range(1, few + 1)))
    meter.waiting(0, held)
    report(
        "extendLock",
        meter.time(
            ("EVALSHA", meter.loaded["extendLock"], 2, f"{B}{id}:lock", f"{B}stalled", "w:1", 30000, id)
            for id in [1 + at % held for at in range(count)]
        ),
    )
    tokens, ids = pack(["w:1"] * held), pack([str(id) for id in range(1, held + 1)])
    report(
        "extendLocks, 50, per lock",
        meter.time((meter.call("extendLocks", "stalled", B, tokens, ids, 30000) for _ in range(count // held)), held),
    )
    if "addMany" in meter.loaded:
        meter.waiting(0)
        report("addMany, 50, per job", meter.time((meter.add_many(CHUNK) for _ in range(count // CHUNK)), CHUNK))
        meter.waiting(0)
        report("addMany, a flow of ten children", meter.time(meter.add_flow(n) for n in range(count // CHUNK)))
        for size in (2, 10, 50):
            meter.waiting(count, size)
            report(
                f"finishMany, {size}, each with the next job, per job",
                meter.time((meter.finish_many(range(at, at + size)) for at in range(1, count + 1, size)), size),
            )
        meter.waiting(count)
        report("fetchMany, 50, per job", meter.time((meter.fetch_many(CHUNK) for _ in range(count // CHUNK)), CHUNK))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench.server_time", description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kind")
    parser.add_argument("--lua", type=Path, default=ROOT / "lua")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--profile", choices=sorted(PROFILES))
    parser.add_argument("--instructions", action="store_true")
    options = parser.parse_args(arguments)
    sides = {"": (_built(options.lua), STRICT_SWITCHES)}
    if options.profile:
        sides = {"strict": _of(STRICT), options.profile: _of(PROFILES[options.profile])}
    found: dict[str, dict[str, list[float]]] = {}
    counted = counting(options.kind) if options.instructions else None
    with ExitStack() as stack:
        server, counts = stack.enter_context(counted or _timed(options.kind))
        data = msgspec.json.encode({"a": "x" * 80}).decode()
        meters = {
            side: Meter(stack.enter_context(closing(Wire(server.host, server.port))), texts, data, switches, counts)
            for side, (texts, switches) in sides.items()
        }
        for number in range(options.rounds):
            for side in list(sides)[:: -1 if number % 2 else 1]:
                measure(meters[side], options.calls, _into(found, side))
    unit = "" if counted else " us"
    best = {name: {side: round(min(values), 2) for side, values in each.items()} for name, each in found.items()}
    for name, each in best.items():
        sys.stdout.write("".join(f"{value:8.{0 if counted else 1}f}{unit}" for value in each.values()))
        if options.profile:
            medians = [statistics.median(values) for values in found[name].values()]
            sys.stdout.write(f"{each[options.profile] / each['strict']:7.3f}{medians[1] / medians[0]:7.3f}")
        sys.stdout.write(f"  {name}\n")
    if options.json:
        options.json.write_text(json.dumps(best, indent=1) + "\n")
    return 0


@contextmanager
def _timed(kind: str | None) -> Iterator[tuple[servers.Server, None]]:
    with servers.start(kind) as server:
        subprocess.run(["chrt", "-f", "-p", "50", str(server.pid)], check=False, capture_output=True)
        yield server, None


def _into(found: dict[str, dict[str, list[float]]], side: str) -> Callable[[str, float], None]:
    return lambda name, value: found.setdefault(name, {}).setdefault(side, []).append(value)


def _of(profile: Profile) -> tuple[dict[str, str], Switches]:
    return {name: script.source for name, script in profile.scripts.items()}, profile.switches


def _built(folder: Path) -> dict[str, str]:
    """Return the scripts of a checkout."""
    spec = importlib.util.spec_from_file_location("measured_build", folder / "build.py")
    assert spec is not None
    assert spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    own = getattr(build, "own", tuple)
    return {name: build.packaged(name) for name in (*build.commands(), *own())}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
