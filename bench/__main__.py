"""Measure us and others in one run on one server, in alternating rounds: `python -m bench`. See docs/bench.md."""

import argparse
import json
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import redis

import bullmq_sync
from bench import limit, sides
from bench.large_queue import FILL, NOW
from bench.limit import Batch, Recorder
from bench.sides import LIMIT, NAMES, NODE, OURS, PORT, SIDES
from bullmq_anyio import bullmq_scripts
from bullmq_protocol import JobOptions, NewJob
from bullmq_protocol.scripts.profile import DEFAULT, STRICT
from tests.support import servers
from tests.support.node import bullmq_folder, node_available, node_version
from tests.support.programs import Program
from tests.support.servers import Server

QUEUE = "bench"
BULK = 1000
CONCURRENCIES = (1, 10, 16, 50, 200)
CHILDREN = 10
WAIT_S = 600
Sample = dict[str, float]


@dataclass(frozen=True)
class Scenario:
    """Work that each side does as fast as it can. `share` of the jobs are enough where one takes longer."""

    name: str
    call: str
    args: dict[str, Any]
    share: float = 1.0
    fill: Callable[[int], JobOptions] | None = None
    """The options of the n-th job that is in the queue before; None for an empty queue."""
    state: str | None = None
    """The state that holds `--large` jobs before."""
    sides: tuple[str, ...] = (*NODE, PORT, *OURS)


def _process(concurrency: int, *, fails: int = 0) -> dict[str, Any]:
    return {"concurrency": concurrency, "fails": fails}


def _add(at_once: int, size: int = 0, **opts: Any) -> dict[str, Any]:
    return {"at_once": at_once, "bytes": size, "opts": opts}


def _plain(n: int) -> JobOptions:
    return JobOptions()


ALL = (*NODE, PORT, *OURS, LIMIT)
BY_PROFILE = ("node-5", "asyncio-strict", "asyncio", "node-6", "asyncio-6.7")
"""Each profile beside what it is like, and the default one beside both."""
WITHOUT_PORT = ("node-5", "asyncio")
SCENARIOS: dict[str, tuple[Scenario, ...]] = {
    "add": (
        Scenario("add one by one", "add", _add(1), share=0.2),
        Scenario("add 100 at once", "add", _add(100), sides=ALL),
        Scenario("bulk of 1,000", "bulk", {"size": BULK, "opts": {}}, sides=ALL),
    ),
    "process": tuple(
        Scenario(
            f"process, concurrency {concurrency}",
            "process",
            _process(concurrency),
            share=0.2 if concurrency == 1 else 1,
            fill=_plain,
            sides=ALL if concurrency >= 50 else (*NODE, PORT, *OURS),
        )
        for concurrency in CONCURRENCIES
    ),
    "payloads": (
        Scenario("add 100 B, 100 at once", "add", _add(100, 100)),
        Scenario("add 10 kB, 100 at once", "add", _add(100, 10_000), share=0.2),
        Scenario("add 1 MB, 10 at once", "add", _add(10, 1_000_000), share=0.01),
    ),
    "retries": (
        Scenario(
            "process, each job fails once",
            "process",
            _process(50, fails=1),
            fill=lambda n: JobOptions(attempts=2),
        ),
    ),
    "delayed": (
        Scenario("add delayed, 100 at once", "add", _add(100, delay=3_600_000)),
        Scenario("process delayed jobs that are due", "process", _process(50), fill=lambda n: JobOptions(delay=1)),
    ),
    "prioritized": (
        Scenario("add prioritized, 100 at once", "add", _add(100, priority=5)),
        Scenario("process 10 priorities", "process", _process(50), fill=lambda n: JobOptions(priority=1 + n % 10)),
    ),
    "flows": (Scenario(f"add flows of {CHILDREN} children, one by one", "flows", {"children": CHILDREN}, share=0.02),),
    "large": tuple(
        scenario
        for state in ("wait", "delayed", "completed")
        for scenario in (
            Scenario(f"add 100 at once, many in {state}", "add", _add(100), state=state, sides=WITHOUT_PORT),
            Scenario(
                f"process at 50, many in {state}",
                "process",
                _process(50),
                fill=_plain,
                state=state,
                sides=WITHOUT_PORT,
            ),
        )
    ),
}
SCENARIOS["profiles"] = (
    Scenario("add 100 at once, by profile", "add", _add(100), sides=BY_PROFILE),
    Scenario("bulk of 1,000, by profile", "bulk", {"size": BULK, "opts": {}}, sides=BY_PROFILE),
    Scenario("process at 50, by profile", "process", _process(50), fill=_plain, sides=BY_PROFILE),
    Scenario(
        "process at 50, each job fails once, by profile",
        "process",
        _process(50, fails=1),
        share=0.2,
        fill=lambda n: JobOptions(attempts=2, backoff=1),
        sides=BY_PROFILE,
    ),
)
OTHERS = ("latency", "scripts", "memory")


@dataclass(frozen=True)
class Required:
    """A ratio of issue 6, or of issue 13: `side` against `other` in one scenario."""

    scenario: str
    side: str
    other: str
    least: float


REQUIRED = (
    Required("process, concurrency 50", "asyncio", "node-5", 2.0),
    Required("process, concurrency 50", "asyncio", "port", 20),
    Required("process, concurrency 1", "asyncio", "node-5", 1.5),
    Required("add 100 at once", "asyncio", "node-5", 1.8),
    Required("bulk of 1,000", "asyncio", "node-5", 2.0),
    Required("process, concurrency 50", "trio", "asyncio", 0.85),
    Required("process, concurrency 16", "threads", "port", 5),
    Required("process, concurrency 200", "asyncio", LIMIT, 0.8),
    *(Required(each.name, "asyncio", "asyncio-strict", 0.97) for each in SCENARIOS["profiles"]),
)
LATENCY_RATIO = 1.0
MEMORY_MB = 20.0


@dataclass
class Bench:
    """One server, the sides that take part, and how much they do."""

    server: Server
    sides: list[str]
    jobs: int
    rounds: int
    large: int
    raw: Any = field(init=False)
    _programs: dict[str, Program] = field(default_factory=dict)
    _recorded: dict[str, list[Batch]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.raw = redis.Redis.from_url(self.server.url)
        self._fill_state = self.raw.register_script(FILL)

    def close(self) -> None:
        for program in self._programs.values():
            program.close()
        self.raw.close()

    def taking_part(self, able: Sequence[str]) -> list[str]:
        return [side for side in self.sides if side in able]

    def program(self, side: str) -> Program:
        if side not in self._programs:
            self._programs[side] = sides.start(side, self.server)
        return self._programs[side]

    def count(self, scenario: Scenario, side: str) -> int:
        """Return how many jobs a side works with; the Python port with a tenth, since it takes as long for them."""
        jobs = self.jobs * scenario.share * (0.1 if side == PORT else 1)
        step = int(scenario.args.get("at_once") or scenario.args.get("size") or 1)
        return max(step, int(jobs) // step * step)

    def prepare(self, scenario: Scenario, count: int) -> None:
        self.raw.flushall()
        if scenario.state is not None:
            for first in range(1, self.large + 1, 10_000):
                last = min(first + 9_999, self.large)
                self._fill_state(keys=[f"bull:{QUEUE}:"], args=[scenario.state, first, last, _now_of(scenario.state)])
            self.raw.set(f"bull:{QUEUE}:id", self.large)
        if scenario.fill is not None:
            with bullmq_sync.Queue[Any](QUEUE, self.server.url) as queue:
                for first in range(0, count, BULK):
                    last = min(first + BULK, count)
                    queue.add_bulk([NewJob("job", {"n": n}, scenario.fill(n)) for n in range(first, last)])

    def measure(self, scenario: Scenario, side: str) -> Sample:
        """Let one side do the work of a scenario once."""
        count = self.count(scenario, side)
        batches = self._record(scenario, count) if side == LIMIT else []
        self.prepare(scenario, count)
        used, stored = self._server_cpu(), self.raw.info("memory")["used_memory"]
        if side == LIMIT:
            window = scenario.args.get("concurrency") or scenario.args.get("at_once") or BULK
            sample: Sample = {"seconds": limit.fire(self.server.host, self.server.port, batches, window)}
        else:
            call = {"queue": QUEUE, "count": count, **scenario.args}
            sample = self.program(side).call(scenario.call, timeout=WAIT_S, **call)
        sample |= {"jobs": count, "server_seconds": self._server_cpu() - used}
        if scenario.call != "process":
            sample["server_bytes"] = self.raw.info("memory")["used_memory"] - stored
        self._check(scenario, count)
        return sample

    def _check(self, scenario: Scenario, count: int) -> None:
        """Nobody is fast by leaving work undone."""
        if scenario.call == "process":
            done = self.raw.zcard(f"bull:{QUEUE}:completed")
            before = self.large if scenario.state == "completed" else 0
            # A worker takes more while others wait.
            assert done == count + before or (scenario.state == "wait" and done > count), (scenario.name, done)
        else:
            made = int(self.raw.get(f"bull:{QUEUE}:id") or 0) - (self.large if scenario.state else 0)
            assert scenario.call == "flows" or made == count, (scenario.name, made)

    def _record(self, scenario: Scenario, count: int) -> list[Batch]:
        """Return what our asyncio side sends for a scenario, recorded once."""
        if scenario.name not in self._recorded:
            recorder = Recorder(self.server.host, self.server.port)
            # Once through for the server to know the scripts, then for the record.
            for side in (self.program("asyncio"), sides.start("asyncio", self.server, recorder.port)):
                self.prepare(scenario, count)
                side.call(scenario.call, timeout=WAIT_S, queue=QUEUE, count=count, **scenario.args)
            side.close()
            self._recorded[scenario.name] = recorder.batches()
            recorder.close()
        return self._recorded[scenario.name]

    def _server_cpu(self) -> float:
        found = self.raw.info("cpu")
        return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])

    # --- what is not a rate ---

    def latency(self, count: int, side: str) -> Sample:
        """Milliseconds from the call of `add` to the start of the processor, on a worker that waits."""
        self.raw.flushall()
        timeout, pause = WAIT_S, 4
        found = sorted(
            self.program(side).call("latency", timeout=timeout, queue=QUEUE, count=count, pause_ms=pause)["ms"]
        )
        return {"p50_ms": _percentile(found, 0.50), "p99_ms": _percentile(found, 0.99)}

    def memory(self, side: str, count: int) -> Sample:
        """Resident memory of a process that adds and processes many jobs: early, and at the end."""
        self.raw.flushall()
        first = min(10_000, count // 2)
        return self.program(side).call("memory", timeout=3600, queue=QUEUE, count=count, first=first, size=BULK)

    def scripts(self, side: str) -> dict[str, dict[str, float]]:
        """Server time of each script, from the slow log: p50 and p99 in microseconds, and calls per job."""
        profiles = {"asyncio": DEFAULT, "asyncio-strict": STRICT}
        source = profiles.get(side) or bullmq_scripts(bullmq_folder())
        names = {script.sha1: name for name, script in source.scripts.items()}
        times: dict[str, list[int]] = defaultdict(list)
        parts = [each for group in ("add", "process", "retries", "delayed", "prioritized") for each in SCENARIOS[group]]
        for scenario in parts:
            if scenario.name in ("add one by one", "process, concurrency 1"):
                continue
            count = self.count(scenario, side)
            self.prepare(scenario, count)
            self.raw.config_set("slowlog-max-len", 10 * count)
            self.raw.config_set("slowlog-log-slower-than", 0)
            self.raw.slowlog_reset()
            self.program(side).call(scenario.call, timeout=WAIT_S, queue=QUEUE, count=count, **scenario.args)
            self.raw.config_set("slowlog-log-slower-than", -1)
            for entry in self.raw.slowlog_get(10 * count):
                command = entry["command"].split(b" ", 2)
                name = names.get(command[1].decode()) if command[0].upper() == b"EVALSHA" else None
                if name is not None:
                    times[name].append(entry["duration"])
        return {
            name: {
                "calls": len(each),
                "p50_us": _percentile(sorted(each), 0.5),
                "p99_us": _percentile(sorted(each), 0.99),
            }
            for name, each in sorted(times.items())
        }


def _now_of(state: str) -> int:
    # What is delayed must not become due meanwhile.
    return int(time.time() * 1000) + 86_400_000 if state == "delayed" else NOW


def _percentile(found: list[Any], share: float) -> float:
    return float(found[min(len(found) - 1, int(len(found) * share))])


def rounds_of(bench: Bench, able: Sequence[str], rounds: int, act: Callable[[str], Any]) -> dict[str, list[Any]]:
    """Let each side act once a round; the order rotates. Several rounds follow one to get warm."""
    taking_part = bench.taking_part(able)
    found: dict[str, list[Any]] = {side: [] for side in taking_part}
    for number in range(-1 if rounds > 1 else 0, rounds):
        turn = number % len(taking_part) if taking_part else 0
        for side in taking_part[turn:] + taking_part[:turn]:
            sample = act(side)
            if number >= 0:
                found[side].append(sample)
    return found


def run(bench: Bench, groups: Sequence[str], *, samples: int, soak: int) -> dict[str, Any]:
    result: dict[str, Any] = {"rates": {}, "latency": {}, "scripts": {}, "memory": {}}
    for group in groups:
        for scenario in SCENARIOS.get(group, ()):
            # A large queue takes long to fill: one round.
            rounds = bench.rounds if scenario.state is None else 1
            found = rounds_of(bench, scenario.sides, rounds, partial(bench.measure, scenario))
            result["rates"][scenario.name] = rates(found)
            show_rates(scenario.name, result["rates"][scenario.name])
        if group == "latency":
            found = rounds_of(bench, (*NODE, PORT, *OURS), bench.rounds, partial(bench.latency, samples))
            result["latency"] = {side: _medians(each) for side, each in found.items()}
            show("latency from add to start, idle worker", result["latency"])
        if group == "scripts":
            for side in bench.taking_part(("node-5", "asyncio-strict", "asyncio")):
                result["scripts"][side] = bench.scripts(side)
                show(f"server time of scripts, {NAMES[side]}", result["scripts"][side], names={})
        if group == "memory":
            result["memory"] = {side: bench.memory(side, soak) for side in bench.taking_part((*NODE, *OURS))}
            show(f"resident memory early and after {soak:,} jobs", result["memory"])
    result["required"] = required(result)
    show_required(result["required"])
    return result


def rates(found: dict[str, list[Sample]]) -> dict[str, Any]:
    """Take the medians of the rounds, per job."""
    result = {}
    for side, rounds in found.items():
        result[side] = {
            "jobs_per_s": round(statistics.median(each["jobs"] / each["seconds"] for each in rounds)),
            "rounds": [round(each["jobs"] / each["seconds"]) for each in rounds],
        }
        for key, name, unit in (
            ("cpu_seconds", "cpu_us", 1e6),
            ("server_seconds", "server_us", 1e6),
            ("server_bytes", "server_bytes", 1),
        ):
            if all(key in each for each in rounds):
                per_job = statistics.median(each[key] / each["jobs"] for each in rounds) * unit
                result[side][f"{name}_per_job"] = round(per_job, 1)
    return result


def _medians(rounds: list[Sample]) -> Sample:
    return {key: round(statistics.median(each[key] for each in rounds), 3) for key in rounds[0]}


def required(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Say for each ratio of issue 6 what was measured; None where a side did not take part."""
    rows = []
    for each in REQUIRED:
        found = result["rates"].get(each.scenario, {})
        both = [found[side]["jobs_per_s"] for side in (each.side, each.other) if side in found]
        ratio = round(both[0] / both[1], 2) if len(both) == 2 else None
        what = f"{each.scenario}: {NAMES[each.side]} against {NAMES[each.other]}"
        rows.append({"what": what, "measured": ratio, "least": each.least})
    latency = result["latency"]
    ratio = (
        round(latency["asyncio"]["p99_ms"] / latency["node-5"]["p99_ms"], 2)
        if {"asyncio", "node-5"} <= set(latency)
        else None
    )
    rows.append({"what": "latency p99: ours, asyncio against Node", "measured": ratio, "most": LATENCY_RATIO})
    for side in OURS:
        found = result["memory"].get(side)
        grown = None if found is None else round(found["late_mb"] - found["early_mb"], 1)
        rows.append({"what": f"growth of memory in MB: {NAMES[side]}", "measured": grown, "most": MEMORY_MB})
    return rows


def show_rates(name: str, found: dict[str, Any]) -> None:
    node = found.get("node-5", {}).get("jobs_per_s")
    print(f"\n{name:<42}{'jobs/s':>10}{'x Node':>8}{'CPU us':>9}{'server us':>11}{'bytes':>9}  rounds")
    for side, each in found.items():
        ratio = "" if node is None else f"{each['jobs_per_s'] / node:.2f}"
        cells = [each.get(key, "") for key in ("cpu_us_per_job", "server_us_per_job", "server_bytes_per_job")]
        rounds = ", ".join(map(str, each["rounds"]))
        print(
            f"  {NAMES[side]:<40}{each['jobs_per_s']:>10,}{ratio:>8}{cells[0]:>9}{cells[1]:>11}{cells[2]:>9}  {rounds}"
        )


def show(name: str, found: dict[str, Any], names: dict[str, str] = NAMES) -> None:
    print(f"\n{name}")
    for row, cells in found.items():
        print(f"  {names.get(row, row):<40}" + "  ".join(f"{key} {round(cell, 2):g}" for key, cell in cells.items()))


def show_required(rows: list[dict[str, Any]]) -> None:
    print(f"\n{'required':<82}{'measured':>10}{'':>4}bound")
    for row in rows:
        bound = f"at least {row['least']:g}" if "least" in row else f"at most {row['most']:g}"
        measured = "-" if row["measured"] is None else f"{row['measured']:g}"
        print(f"  {row['what']:<80}{measured:>10}    {bound}")


def main(arguments: Sequence[str] | None = None) -> None:
    groups = (*SCENARIOS, *OTHERS)
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs, one round: to see that it runs")
    parser.add_argument("--only", default=",".join(groups), help="comma list of " + ", ".join(groups))
    parser.add_argument("--sides", default=",".join(SIDES), help="comma list of " + ", ".join(SIDES))
    parser.add_argument("--jobs", type=int, default=None, help="jobs per side and round, 10,000")
    parser.add_argument("--rounds", type=int, default=None, help="5, after one that does not count")
    parser.add_argument("--large", type=int, default=None, help="jobs in a large queue, 1,000,000")
    parser.add_argument("--soak", type=int, default=None, help="jobs before memory is looked at, 1,000,000")
    parser.add_argument("--server", default=None, help="kind of server, as in BULLMQ_TEST_SERVERS")
    default = Path(__file__).parents[1] / ".cache" / "bench.json"
    parser.add_argument("--json", type=Path, default=default, help="where the figures go")
    options = parser.parse_args(arguments)
    quick = options.quick
    chosen = [side for side in options.sides.split(",") if side]
    asked = [group for group in options.only.split(",") if group]
    if unknown := [each for each in (*chosen, *asked) if each not in (*SIDES, *groups)]:
        parser.error(f"unknown: {', '.join(unknown)}")
    if not node_available():
        print("Node and npm are not installed: no comparison")
        chosen = [side for side in chosen if side not in NODE]
    with servers.start(options.server) as server:
        about = {
            "server": server.kind,
            "node": node_version(),
            "python": sys.version.split()[0],
            "cores": os.cpu_count(),
        }
        jobs = options.jobs or (1_000 if quick else 10_000)
        print(", ".join(f"{key} {value}" for key, value in about.items()) + f", {jobs:,} jobs")
        large = options.large or (20_000 if quick else 1_000_000)
        bench = Bench(server, chosen, jobs, options.rounds or (1 if quick else 5), large)
        try:
            soak = options.soak or (20_000 if quick else 1_000_000)
            result = run(bench, asked, samples=100 if quick else 1_000, soak=soak)
        finally:
            bench.close()
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(about | {"jobs": jobs, "rounds": bench.rounds} | result, indent=2) + "\n")
    print(f"\nwritten to {options.json}")


if __name__ == "__main__":
    main()
