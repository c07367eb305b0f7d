"""`python -m tools.mutants.python`: plant faults in the core and the adapters, print what survives and a rate."""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.support import servers

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "mutants"
EQUIVALENT = Path(__file__).with_name("equivalent_python.toml")


class Part(NamedTuple):
    """What is planted together, with the tests that shall notice."""

    name: str
    packages: tuple[str, ...]
    tests: tuple[str, ...]
    wanted: float
    """The least share of faults that tests must notice, in per cent."""
    server: bool
    longest: float
    """Slower tests are not asked, in seconds."""
    budget: float
    """The tests of one fault may take as long together, in seconds."""
    only: tuple[str, ...] = ()
    """Files, if it is not the packages as they are."""
    without: tuple[str, ...] = ()
    """Files that are another part's."""


# What these test is no code of the core: texts of the repository, other programs, installed packages.
_NOT_ASKED = (
    *("house_rules", "parity", "api_table", "reference", "lua_build", "make"),
    *("specs", "servers", "extras", "schemas", "pin"),
)

# Each fork starts sentinels or a cluster of its own for their tests.
_SETS = (
    "bullmq_anyio/net/cluster.py",
    "bullmq_anyio/net/sentinel.py",
    "bullmq_sync/net/redis_py_cluster.py",
    "bullmq_sync/net/redis_py_sentinel.py",
)

PARTS = (
    Part(
        "core",
        ("bullmq_protocol",),
        ("tests/unit", "tests/property", *(f"--ignore=tests/unit/test_{each}.py" for each in _NOT_ASKED)),
        wanted=90,
        server=False,
        longest=2,
        budget=5,
    ),
    Part(
        "adapters",
        ("bullmq_anyio", "bullmq_sync"),
        (
            *(
                f"tests/unit/test_{each}.py"
                for each in (
                    "arguments",
                    "every_argument",
                    "given_objects",
                    "observability",
                    "queue_spans",
                    "worker_options",
                    "zones",
                )
            ),
            *(
                f"tests/server/test_{each}.py"
                for each in (
                    "blocking_transports",
                    "connection",
                    "connection_threads",
                    "deliveries",
                    "events",
                    "events_behind",
                    "events_tasks",
                    "flows",
                    "gathering",
                    "hostile_handlers",
                    "hostile_server",
                    "idle",
                    "job",
                    "job_api",
                    "login",
                    "losses",
                    "metrics_collector",
                    "otel",
                    "queue",
                    "queue_api",
                    "redis_asyncio_transport",
                    "refusals",
                    "runner",
                    "schedulers",
                    "slots",
                    "taken_by_hand",
                    "torn_calls",
                    "transport_conformance",
                    "transport_conformance_sync",
                    "worker",
                    "worker_tasks",
                    "worker_threads",
                )
            ),
        ),
        wanted=80,
        server=True,
        longest=5,
        budget=20,
        without=_SETS,
    ),
    Part(
        "topologies",
        ("bullmq_anyio", "bullmq_sync"),
        ("tests/server/test_cluster.py", "tests/server/test_sentinel.py", "tests/server/test_conformance_topology.py"),
        wanted=80,
        server=True,
        longest=20,
        budget=60,
        only=_SETS,
    ),
)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants.python", description=__doc__)
    parser.add_argument("--part", choices=[each.name for each in PARTS], help="only one part")
    parser.add_argument("--module", action="append", default=[], help="only files whose path begins so")
    parser.add_argument("--sample", type=int, help="as many faults of each part, drawn by the seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, help="plant no more faults after this time, in each part")
    parser.add_argument("--quick", action="store_true", help="without the property tests and what is marked search")
    parser.add_argument("--again", action="store_true", help="only those that survived in the run before")
    asked = parser.parse_args(arguments)
    chosen = [part for part in PARTS if asked.part in (None, part.name)]
    return max([run(part, asked) for part in chosen])


def run(part: Part, asked: argparse.Namespace) -> int:
    if asked.quick:
        # The property tests and the long searches, which are left out, notice the rest.
        part = part._replace(wanted=part.wanted - 5)
    CACHE.mkdir(parents=True, exist_ok=True)
    results = CACHE / f"{part.name}.jsonl"
    again = [[e["function"], e["was"], e["now"]] for e in read(results) if "was" in e] if asked.again else None
    results.unlink(missing_ok=True)
    order = {
        "packages": part.packages,
        "modules": asked.module,
        "only": part.only,
        "without": part.without,
        "sample": asked.sample,
        "seed": asked.seed,
        "seconds": asked.seconds,
        "again": again,
        "longest": part.longest,
        "budget": part.budget,
        "results": str(results),
        "server": part.server,
    }
    tests = [each for each in part.tests if not (asked.quick and each == "tests/property")]
    options = [
        "-p",
        "tools.mutants.planting",
        "-p",
        "no:randomly",
        "-p",
        "no:timeout",
        "-p",
        "no:cacheprovider",
        "-s",
        "-qq",
    ]
    options += [
        "-m",
        "not alone and not node" + (" and not search" if asked.quick else ""),
        f"--basetemp={CACHE / 'tmp'}",
        "--no-header",
        "--no-summary",
        "--assert=plain",
    ]
    environment = {**os.environ, "MUTANTS": json.dumps(order), "HYPOTHESIS_PROFILE": "mutants", "PYTHONPATH": str(ROOT)}
    if part.server:
        environment["BULLMQ_TEST_SERVERS"] = servers.kinds()[-1]
    done = subprocess.run([sys.executable, "-m", "pytest", *options, *tests], cwd=ROOT, env=environment)
    if not results.exists():
        print(f"{part.name}: nothing was planted, pytest ended with {done.returncode}")
        return 1
    return report(
        part,
        list(read(results)),
        whole=not (asked.sample or asked.seconds or asked.module or asked.again or asked.quick),
    )


def read(results: Path) -> Iterator[dict[str, Any]]:
    if results.exists():
        yield from map(json.loads, results.read_text().splitlines())


def report(part: Part, entries: list[dict[str, Any]], *, whole: bool) -> int:
    equivalent = {
        (each["function"], each["now"]): each["reason"]
        for each in tomllib.loads(EQUIVALENT.read_text()).get("equivalent", [])
    }
    alive = [each for each in entries if each["outcome"] != "killed"]
    listed = [each for each in alive if (each["function"], each["now"]) in equivalent]
    survivors = [each for each in alive if (each["function"], each["now"]) not in equivalent]
    for each in survivors:
        print(f"{each['place']} ({each['outcome']}, {each['tests']} tests)\n  - {each['was']}\n  + {each['now']}")
    by_module = Counter(each["module"] for each in entries if each not in listed)
    lost = Counter(each["module"] for each in survivors)
    for module, count in sorted(by_module.items()):
        print(f"  {module}: {count - lost[module]} of {count}")
    counted = len(entries) - len(listed)
    rate = 100 * (counted - len(survivors)) / counted if counted else 100.0
    print(
        f"{part.name}: {counted - len(survivors)} of {counted} faults noticed, {rate:.1f} % (wanted {part.wanted} %); "
        f"{len(survivors)} survived; {len(listed)} more are equivalent"
    )
    if whole:
        found = {(each["function"], each["now"]) for each in entries if "now" in each}
        modules = tuple(each.removesuffix(".py").replace("/", ".") + "." for each in by_module)
        mine = [key for key in equivalent if key[0].startswith(modules)]
        for function, now in mine:
            if (function, now) not in found:
                print(f"listed as equivalent, but no such fault survived: {function}: {now}")
                return 1
        return 0 if rate >= part.wanted else 1
    # A sample fails when it speaks against the rate: two standard deviations below it.
    share = part.wanted / 100
    allowed = 200 * math.sqrt(share * (1 - share) / max(counted, 1))
    return 0 if rate >= part.wanted - allowed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
