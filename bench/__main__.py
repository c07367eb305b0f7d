"""Measure us and others in one run on one server, in alternating rounds: `python -m bench`. See docs/bench.md."""

import argparse
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import redis

import bullmq_sync
from bench import limit, sides
from bench.arguments import chosen_from, positive, started_server
from bench.large_queue import FILL, NOW
from bench.limit import Batch, Recorder
from bench.report import (
    FORMAT,
    Figures,
    OtherRunError,
    Sample,
    against_best_peer,
    latencies,
    rates,
    show,
    show_against_best_peer,
    show_against_peers,
    show_latencies,
    show_rates,
    show_required,
    undecided,
    undecided_latencies,
)
from bench.scenarios import BULK, LATENCY, SCENARIOS, Scenario
from bench.sides import LIMIT, NAMES, NODE, OURS, PORT, SHARES, SIDES, UVLOOP
from bullmq_anyio import bullmq_scripts
from bullmq_protocol import NewJob
from bullmq_protocol.scripts.profile import DEFAULT, STRICT
from tests.support.node import bullmq_folder, node_available, node_version
from tests.support.port import PEERS
from tests.support.programs import Program, TooLateError
from tests.support.servers import Server

QUEUE = "bench"
WAIT_S = 180
"""How long a side may take for one round of a scenario."""
SOAK_WAIT_S = 1200
CHANCES = 2
"""How often a side may take longer before it is left out of the rest of the run."""
PEERS_SOAK = 0.01
"""The share of jobs that other queues process before their memory is looked at: no growth is asked for there."""
PEERS_SAMPLES = 0.3
"""The share of jobs whose latency is measured there."""
OTHERS = ("latency", "scripts", "memory")
SHORT_SIDES = ("node-5", "asyncio", "trio", "threads", UVLOOP)


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
        """End all programs; one that does not end in good order is named, and killed."""
        for side, program in self._programs.items():
            try:
                program.close()
            except (AssertionError, subprocess.TimeoutExpired) as error:
                print(f"\n{NAMES[side]} did not end well: {error}")
                program.kill()
        self._programs.clear()

    def kill(self) -> None:
        """End at once what still runs: where the run was ended, a program in the middle of a call."""
        for side in list(self._programs):
            self.leave_out(side)
        self.raw.close()

    def taking_part(self, able: Sequence[str]) -> list[str]:
        return [side for side in self.sides if side in able]

    def leave_out(self, side: str) -> None:
        """End the program of a side that failed; it may be in the middle of anything. The next call starts another."""
        if (program := self._programs.pop(side, None)) is not None:
            program.kill()

    def program(self, side: str) -> Program:
        if side not in self._programs:
            self._programs[side] = sides.start(side, self.server)
        return self._programs[side]

    def count(self, scenario: Scenario, side: str) -> int:
        """Return how many jobs a side works with."""
        jobs = self.jobs * scenario.share * SHARES.get(side, 1)
        step = int(scenario.args.get("at_once") or scenario.args.get("size") or 1)
        return max(step, int(jobs) // step * step)

    def prepare(self, scenario: Scenario, count: int, side: str) -> None:
        self.raw.flushall()
        if side in PEERS:
            if scenario.fill is not None:
                self.program(side).call("fill", timeout=WAIT_S, queue=QUEUE, count=count)
            return
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
        self.prepare(scenario, count, side)
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
        self._check(scenario, count, side)
        return sample

    def _check(self, scenario: Scenario, count: int, side: str) -> None:
        """Nobody is fast by leaving work undone."""
        if side in PEERS:
            left = self.program(side).call("left", timeout=WAIT_S, queue=QUEUE)
            assert left == (0 if scenario.call == "process" else count), (scenario.name, left)
        elif scenario.call == "process":
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
            with closing(Recorder(self.server.host, self.server.port)) as recorder:
                # Where it fails, it is ended as the side for which it records.
                recorded = self._programs[LIMIT] = sides.start("asyncio", self.server, recorder.port)
                # Once through for the server to know the scripts, then for the record.
                for program in (self.program("asyncio"), recorded):
                    self.prepare(scenario, count, "asyncio")
                    program.call(scenario.call, timeout=WAIT_S, queue=QUEUE, count=count, **scenario.args)
                self._programs.pop(LIMIT).close()
                self._recorded[scenario.name] = recorder.batches()
        return self._recorded[scenario.name]

    def _server_cpu(self) -> float:
        found = self.raw.info("cpu")
        return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])

    # --- what is not a rate ---

    def latency(self, count: int, side: str) -> Sample:
        """Milliseconds from the call of `add` to the start of the processor, on a worker that waits."""
        self.raw.flushall()
        call = {"queue": QUEUE, "count": int(count * PEERS_SAMPLES) if side in PEERS else count, "pause_ms": 4}
        found = sorted(self.program(side).call("latency", timeout=WAIT_S, **call)["ms"])
        return {"p50_ms": _percentile(found, 0.50), "p99_ms": _percentile(found, 0.99)}

    def memory(self, count: int, side: str) -> Sample:
        """Resident memory of a process that adds and processes many jobs: early, and at the end."""
        self.raw.flushall()
        if side in PEERS:
            count = max(2 * BULK, int(count * PEERS_SOAK) // BULK * BULK)
        first = min(10_000, count // 2)
        found: Sample = self.program(side).call(
            "memory", timeout=SOAK_WAIT_S, queue=QUEUE, count=count, first=first, size=BULK
        )
        return found

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
            self.prepare(scenario, count, side)
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


@dataclass
class Run:
    """Measures what is asked for; what fails is left out, and named."""

    bench: Bench
    figures: Figures
    samples: int
    """Jobs of one round of the latency."""
    soak: int
    """Jobs before memory is looked at."""
    _late: Counter[str] = field(default_factory=Counter)

    def rates(self, scenario: Scenario) -> None:
        sides = self._sides(scenario.name, scenario.sides, kept := self.figures.rates.get(scenario.name))
        if kept is not None and not sides:
            return
        # A large queue takes long to fill: one round.
        rounds = self.bench.rounds if scenario.state is None else 1
        measure = partial(self.bench.measure, scenario)
        row = self.decided(scenario.name, sides, measure, rates, undecided, rounds)
        self.figures.rates[scenario.name] = row
        self.figures.save()
        show_rates(scenario.name, row)

    def other(self, group: str) -> None:
        able = (*NODE, PORT, *OURS, *PEERS)
        if group == "latency" and (sides := self._sides(group, able, self.figures.latency)):
            measure = partial(self.bench.latency, self.samples)
            self.figures.latency = self.decided(group, sides, measure, latencies, undecided_latencies)
            show_latencies(LATENCY, self.figures.latency)
            self.figures.save()
        if group == "scripts":
            for side in self.each_once(group, ("node-5", "asyncio-strict", "asyncio"), self.bench.scripts):
                show(f"server time of scripts, {NAMES[side]}", self.figures.scripts[side], names={})
        if group == "memory":
            for _ in self.each_once(group, (*NODE, *OURS, *PEERS), partial(self.bench.memory, self.soak)):
                pass
            show(f"resident memory early and after {self.soak:,} jobs", self.figures.memory)

    def _sides(self, name: str, able: Sequence[str], kept: dict[str, Any] | None) -> list[str]:
        """Return the sides to measure: none if all that take part were, else those that were before as well, as sides
        take turns."""
        asked = self.bench.taking_part(able)
        row = kept or {}
        return [side for side in able if side in asked or side in row] if self.figures.lacks(name, row, asked) else []

    def decided(
        self,
        name: str,
        sides: Sequence[str],
        measure: Callable[[str], Sample],
        summary: Callable[[dict[str, list[Sample]]], dict[str, Any]],
        undecided: Callable[[dict[str, Any]], Sequence[str]],
        rounds: int | None = None,
    ) -> dict[str, Any]:
        """Return the summary of the rounds, and of as many more where these lie too far apart."""
        rounds = rounds or self.bench.rounds
        found = self.rounds_of(name, sides, rounds, measure)
        row = summary(found)
        if not undecided(row):
            return row
        # With the rounds before: to repeat until it fits would decide nothing.
        for side, more in self.rounds_of(name, tuple(found), rounds, measure, warm=True).items():
            found[side] += more
        return summary(found)

    def each_once(self, group: str, able: Sequence[str], act: Callable[[str], Any]) -> Iterator[str]:
        """Let each side act that the figures of a group lack; they are kept before the next one begins."""
        kept = getattr(self.figures, group)
        for side in self.bench.taking_part(able):
            if side not in kept:
                for found in self.rounds_of(group, (side,), 1, act).get(side, ()):
                    kept[side] = found
                    self.figures.save()
                    yield side

    def rounds_of(
        self, name: str, sides: Sequence[str], rounds: int, act: Callable[[str], Any], *, warm: bool = False
    ) -> dict[str, list[Any]]:
        """Let each side act once a round; the order rotates. Several rounds follow one to get warm, unless all are."""
        found: dict[str, list[Any]] = {side: [] for side in sides}
        self.figures.forget_failed(name, sides)
        for number in range(-1 if rounds > 1 and not warm else 0, rounds):
            order = list(found)
            turn = number % len(order) if order else 0
            for side in order[turn:] + order[:turn]:
                try:
                    if self._late[side] >= CHANCES:
                        raise TooLateError(f"not tried: took over {WAIT_S} s in {CHANCES} scenarios before")
                    sample = act(side)
                except Exception as error:  # a time-out or an assertion of one side: the others go on
                    self._late[side] += isinstance(error, TooLateError)
                    self.bench.leave_out(side)
                    del found[side]
                    self.figures.note_failed(name, side, error)
                else:
                    if number >= 0:
                        found[side].append(sample)
        return found


def main(arguments: Sequence[str] | None = None) -> int:
    groups = (*SCENARIOS, *OTHERS)
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a tenth of the jobs, one round: to see that it runs")
    size.add_argument("--short", action="store_true", help="the main rows, half of the jobs: under 4 minutes")
    parser.add_argument("--only", default=",".join(groups), help="comma list of " + ", ".join(groups))
    parser.add_argument("--sides", default=None, help="comma list of peers, " + ", ".join(SIDES))
    parser.add_argument("--jobs", type=positive, default=None, help="jobs per side and round, 10,000")
    parser.add_argument("--rounds", type=positive, default=None, help="5, after one that does not count")
    parser.add_argument("--large", type=positive, default=None, help="jobs in a large queue, 1,000,000")
    parser.add_argument("--soak", type=positive, default=None, help="jobs before memory is looked at, 1,000,000")
    parser.add_argument("--server", default=None, help="kind of server, as in BULLMQ_TEST_SERVERS")
    parser.add_argument("--resume", action="store_true", help="keep what the file holds, and measure what is missing")
    default = Path(__file__).parents[1] / ".cache" / "bench.json"
    parser.add_argument("--json", type=Path, default=default, help="where the figures go, each as it comes")
    options = parser.parse_args(arguments)
    quick, short = options.quick, options.short
    chosen = chosen_from(
        parser, "--sides", options.sides or ",".join(SHORT_SIDES if short else SIDES), (*SIDES, "peers")
    )
    chosen = [side for each in chosen for side in (PEERS if each == "peers" else (each,))]
    asked = chosen_from(parser, "--only", options.only, groups)
    if not node_available():
        print("Node and npm are not installed: no comparison")
        chosen = [side for side in chosen if side not in NODE]
    with started_server(parser, options.server) as server:
        jobs = options.jobs or (1_000 if quick else 5_000 if short else 10_000)
        rounds = options.rounds or (1 if quick else 5)
        large = options.large or (20_000 if quick else 1_000_000)
        soak = options.soak or (20_000 if quick else 1_000_000)
        samples = 100 if quick else 300 if short else 1_000
        about = {
            "format": FORMAT,
            "server": server.kind,
            "node": node_version(),
            "python": sys.version.split()[0],
            "cores": os.cpu_count(),
            "jobs": jobs,
            "rounds": rounds,
            "large": large,
            "soak": soak,
            "samples": samples,
        }
        print(", ".join(f"{key} {value}" for key, value in about.items()))
        figures = Figures(options.json, about)
        try:
            figures.try_file()
            if options.resume:
                figures.resume()
        except (OSError, OtherRunError) as error:
            parser.error(f"--json: {error}")
        bench = Bench(server, chosen, jobs, rounds, large)
        run = Run(bench, figures, samples, soak)
        try:
            for group in asked:
                for scenario in SCENARIOS.get(group, ()):
                    if scenario.short or not short:
                        run.rates(scenario)
                if group == "latency" or not short:
                    run.other(group)
            bench.close()
        finally:
            bench.kill()
            figures.save()
            show_against_peers(against := figures.against_peers())
            show_against_best_peer(against_best_peer(against))
            show_required(figures.required())
            for what, fault in figures.failed.items():
                print(f"failed: {what}: {fault}")
            print(f"\n{'' if figures.is_written else 'not '}written to {options.json}")
    return 0 if figures.is_written and not figures.failed else 1


if __name__ == "__main__":
    sides.end_well_on_signals()
    sys.exit(main())
