"""Measure us and BullMQ on Node in one run on one server, in alternating rounds: `python -m bench`."""

import argparse
import json
import os
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import redis

from tests.interop.programs import Program
from tests.support import servers
from tests.support.node import bullmq_folder, node_available, node_version
from tests.support.servers import Server

SIDES = ("node", "asyncio", "trio", "threads")
AT_ONCE = 100
CONCURRENCY = 50
_HERE = Path(__file__).parent

Samples = dict[str, dict[str, list[dict[str, float]]]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000, help="jobs per side and round (a multiple of 100)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sides", default=",".join(SIDES), help="comma list of " + ", ".join(SIDES))
    parser.add_argument("--server", default=None, help="kind of server, as in BULLMQ_TEST_SERVERS")
    parser.add_argument(
        "--json", type=Path, default=_HERE.parent / ".cache" / "bench.json", help="where the figures go"
    )
    options = parser.parse_args()
    sides = [side for side in options.sides.split(",") if side]
    if "node" in sides and not node_available():
        print("Node and npm are not installed: no comparison")
        sides.remove("node")
    with servers.start(options.server) as server:
        print(
            f"{server.kind}, Node {node_version() or 'none'}, Python {sys.version.split()[0]}, {os.cpu_count()} cores"
        )
        samples = measure(server, sides, options.jobs, options.rounds)
        result = summary(samples, options.jobs)
        result |= {"server": server.kind, "node": node_version(), "python": sys.version.split()[0]}
    show(result)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=2) + "\n")
    print(f"written to {options.json}")


def measure(server: Server, sides: list[str], jobs: int, rounds: int) -> Samples:
    """Let each side add and process the same number of jobs, in turns; the first to go changes with the round."""
    samples: Samples = defaultdict(lambda: defaultdict(list))
    parties = {side: _party(side, server) for side in sides}
    try:
        with redis.Redis.from_url(server.url) as raw:
            for number in range(rounds):
                turn = number % len(sides)
                for side in sides[turn:] + sides[:turn]:
                    raw.flushall()
                    queue = f"bench-{side}"
                    added = parties[side].call("add", timeout=300, queue=queue, count=jobs, at_once=AT_ONCE)
                    samples["add 100 at once"][side].append(added)
                    done = parties[side].call("process", timeout=300, queue=queue, count=jobs, concurrency=CONCURRENCY)
                    samples["process at concurrency 50"][side].append(done)
                    assert raw.zcard(f"bull:{queue}:completed") == jobs
    finally:
        for party in parties.values():
            party.close()
    return samples


def _party(side: str, server: Server) -> Program:
    if side == "node":
        argument = json.dumps({"connection": {"host": server.host, "port": server.port}})
        command = ["node", str(_HERE / "node" / "party.js"), argument]
        party = Program(command, environment={"NODE_PATH": str(bullmq_folder())})
    else:
        argument = json.dumps({"colour": side, "url": server.url})
        party = Program([sys.executable, "-m", "bench.party", argument])
    party.wait(lambda events: events, f"{side} gets ready")
    return party


def summary(samples: Samples, jobs: int) -> dict[str, Any]:
    """Take the median of the rounds; `ratio` compares with Node of the same run."""
    result: dict[str, Any] = {"jobs": jobs, "figures": {}}
    for what, sides in samples.items():
        medians = {side: statistics.median(jobs / each["seconds"] for each in rounds) for side, rounds in sides.items()}
        result["figures"][what] = {
            side: {
                "jobs_per_s": round(rate),
                "ratio": round(rate / medians["node"], 2) if "node" in medians else None,
                "cpu_us_per_job": round(statistics.median(each["cpu_seconds"] for each in sides[side]) / jobs * 1e6, 1),
                "rounds": [round(jobs / each["seconds"]) for each in sides[side]],
            }
            for side, rate in medians.items()
        }
    return result


def show(result: dict[str, Any]) -> None:
    for what, sides in result["figures"].items():
        print(f"\n{what:<28}{'jobs/s':>9}{'x Node':>8}{'CPU us/job':>12}  rounds")
        for side, found in sides.items():
            ratio = "" if found["ratio"] is None else f"{found['ratio']:.2f}"
            rounds = ", ".join(map(str, found["rounds"]))
            print(f"  {side:<26}{found['jobs_per_s']:>9,}{ratio:>8}{found['cpu_us_per_job']:>12}  {rounds}")


if __name__ == "__main__":
    main()
