"""`python -m tools.mutants.python`: plant faults in the core and the adapters, print what survives and a rate."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tests.support import servers
from tools import twin

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "mutants"
QUICK_MODULES, QUICK_FILES = 4, 12
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
    """Slower tests are not among the first that are asked, in seconds."""
    budget: float
    """The first tests of one fault may take as long together, in seconds."""
    longest_more: float
    """Slower tests are never asked, in seconds."""
    more: float
    """All the tests of a fault that the first do not notice may take as long together, in seconds."""
    only: tuple[str, ...] = ()
    """Files, if it is not the packages as they are."""
    without: tuple[str, ...] = ()
    """Files that are another part's."""


# What these test is no code of the core: texts of the repository, other programs, installed packages.
_NOT_ASKED = (
    *("house_rules", "parity", "api_table", "reference", "lua_build", "make"),
    *("specs", "servers", "extras", "schemas", "pin", "kept_mutants", "lua_mutants", "python_mutants"),
)

# Written by tools/twin.py: their faults are those of bullmq_anyio.
_TWINS = tuple(f"bullmq_sync/{each}.py" for each in twin.NAMES)

_SLOW = (
    "test_thousand_callers_share_the_same_connections",
    "test_all_callers_are_asked_for_at_once",
    "test_depth_and_width",
    "test_a_cancelled_run_ends_its_callbacks",
    "test_no_socket_and_no_memory_for_a_moment",
    "test_idle_worker_keeps_two_threads",
    "test_a_busy_worker_is_listed_again_after_a_loss_and_after_a_pause",
)

# Each fork starts sentinels or a cluster of its own for their tests.
_SETS = (
    "bullmq_anyio/net/cluster.py",
    "bullmq_anyio/net/sentinel.py",
)

_TESTS_OF_ADAPTERS = (
    *(
        f"tests/unit/test_{each}.py"
        for each in ("arguments", "every_argument", "given_objects", "observability", "queue_spans")
    ),
    *(f"tests/unit/test_{each}.py" for each in ("time_limit", "worker_options", "zones")),
    *(
        f"tests/server/test_{each}.py"
        for each in (
            "bad_input",
            "blocking_transports",
            "broken_deliveries",
            "callbacks_tasks",
            "connection",
            "connection_threads",
        )
    ),
    *(
        f"tests/server/test_{each}.py"
        for each in ("deliveries", "events", "events_behind", "events_tasks", "thread_pool")
    ),
    *(f"tests/server/test_{each}.py" for each in ("flows", "forks", "gathering", "half_sent", "hostile_handlers")),
    *(f"tests/server/test_{each}.py" for each in ("hostile_server", "idle", "job", "job_api", "login")),
    *(
        f"tests/server/test_{each}.py"
        for each in ("losses", "metrics_collector", "names", "otel", "queue", "queue_api")
    ),
    *(
        f"tests/server/test_{each}.py"
        for each in ("around_handlers", "failures_seen", "job_types", "outbox", "payloads", "recipes", "transactions")
    ),
    *(f"tests/server/test_{each}.py" for each in ("redis_asyncio_transport", "refusals", "runner", "schedulers")),
    *(
        f"tests/server/test_{each}.py"
        for each in (
            "script_sources",
            "server_lifetime",
            "signals",
            "silent_server",
            "slots",
            "sockets",
            "taken_manually",
        )
    ),
    *(f"tests/server/test_{each}.py" for each in ("telemetry_faults", "threads_faults", "torn_calls")),
    *(f"tests/server/test_transport_conformance{each}.py" for each in ("", "_sync")),
    *(f"tests/server/test_worker{each}.py" for each in ("", "_tasks", "_threads")),
    # These take long, and what they see others see, too.
    *("-k", " and ".join(f"not {each}" for each in _SLOW)),
)

_ADAPTERS = ("bullmq_anyio", "bullmq_sync")

PARTS = (
    Part(
        "core",
        ("bullmq_protocol",),
        ("tests/unit", "tests/property", *(f"--ignore=tests/unit/test_{each}.py" for each in _NOT_ASKED)),
        wanted=90,
        server=False,
        longest=2,
        budget=5,
        longest_more=10,
        more=20,
    ),
    Part(
        "anyio",
        _ADAPTERS,
        _TESTS_OF_ADAPTERS,
        wanted=80,
        server=True,
        longest=3,
        budget=8,
        longest_more=15,
        more=40,
        only=("bullmq_anyio/",),
        without=_SETS,
    ),
    Part(
        "sync",
        _ADAPTERS,
        _TESTS_OF_ADAPTERS,
        wanted=80,
        server=True,
        longest=3,
        budget=8,
        longest_more=15,
        more=40,
        only=("bullmq_sync/",),
        without=(*_SETS, *_TWINS),
    ),
    Part(
        "topologies",
        _ADAPTERS,
        (
            *(f"tests/unit/test_{each}.py" for each in ("dropped", "every_argument", "small_faults")),
            *(f"tests/server/test_{each}.py" for each in ("sentinel_waits", "sentinel", "cluster")),
            "tests/server/test_conformance_topology.py",
        ),
        wanted=80,
        server=True,
        longest=20,
        budget=60,
        longest_more=20,
        more=60,
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
    parser.add_argument(
        "--quick", action="store_true", help="only some modules, drawn by the seed, and the unit tests that import them"
    )
    parser.add_argument("--again", action="store_true", help="only those that survived in the run before")
    parser.add_argument("--budget", type=float, help="seconds that the first tests of one fault may take together")
    parser.add_argument("--more", type=float, help="seconds that all tests of one fault may take, if the first pass")
    parser.add_argument("--fresh", action="store_true", help="forget what earlier runs found out")
    asked = parser.parse_args(arguments)
    chosen = [part for part in PARTS if asked.part in (None, part.name)]
    return max([run(part, asked) for part in chosen])


def run(part: Part, asked: argparse.Namespace) -> int:
    modules, tests = asked.module, part.tests
    if asked.quick:
        modules, files = drawn(part, asked.seed)
        tests = tuple(each for each in tests if each not in ("tests/unit", "tests/property")) + files
    CACHE.mkdir(parents=True, exist_ok=True)
    results = CACHE / f"{part.name}.jsonl"
    again = [[e["function"], e["was"], e["now"]] for e in read(results) if "was" in e] if asked.again else None
    results.unlink(missing_ok=True)
    order = {
        "packages": part.packages,
        "modules": modules,
        "only": part.only,
        "without": part.without,
        "sample": asked.sample,
        "seed": asked.seed,
        "seconds": asked.seconds,
        "again": again,
        "longest": part.longest,
        "budget": asked.budget or part.budget,
        "longest_more": part.longest_more,
        # Where time is short, other faults tell more than other tests.
        "more": 0 if asked.quick else part.more if asked.more is None else asked.more,
        "kept": str(CACHE / f"{part.name}.kept.jsonl"),
        "types": None if asked.quick else str(CACHE / f"{part.name}.types"),
        "fresh": asked.fresh,
        "listed": sorted({each["function"] for each in listed()}),
        "results": str(results),
        "server": part.server,
        "for_tls": next((kind for kind, each in servers.sources().items() if each.name != "wheel"), None),
    }
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
        "not alone and not node" + (" and not search and not slow" if asked.quick else ""),
        f"--basetemp={CACHE / part.name}.tmp",
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


def drawn(part: Part, seed: int) -> tuple[list[str], tuple[str, ...]]:
    """Draw modules of a part, large ones rather, and return them with the files of unit tests that import one.

    Left out is what has no file of unit tests of its own name, since others test it that are not asked, and what so
    many files import that it takes long to see who covers what.
    """
    left_out = {each.removeprefix("--ignore=") for each in part.tests}
    files = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests" / "unit").glob("test_*.py"))]
    importing: dict[str, list[str]] = defaultdict(list)
    for file in files:
        for name in imported(ROOT / file) if file not in left_out else ():
            importing[f"{name.replace('.', '/')}.py"].append(file)
    sizes = {
        path: (ROOT / path).stat().st_size
        for path, found in sorted(importing.items())
        if (ROOT / path).exists()
        and "/_lua" not in path
        and "testing" not in path
        and len(found) <= QUICK_FILES
        and f"tests/unit/test_{Path(path).stem}.py" in found
    }
    random = Random(seed)
    # The largest of u ** (1 / size) are a weighted sample without repetition.
    modules = sorted(sizes, key=lambda path: random.random() ** (1 / max(sizes[path], 1)))[-QUICK_MODULES:]
    near = {file for path in modules for file in importing[path]}
    return modules, tuple(sorted(near))


def imported(path: Path) -> set[str]:
    return set(re.findall(r"^(?:from|import) (bullmq_protocol[\w.]*)", path.read_text(encoding="utf-8"), re.MULTILINE))


def read(results: Path) -> Iterator[dict[str, Any]]:
    if results.exists():
        yield from map(json.loads, results.read_text().splitlines())


def listed() -> list[dict[str, str]]:
    """Return the faults that no test can notice."""
    found: list[dict[str, str]] = tomllib.loads(EQUIVALENT.read_text()).get("equivalent", [])
    return found


def is_listed(entry: dict[str, Any], equivalent: dict[str, str]) -> bool:
    return all(equivalent.get(each, entry[each]) == entry[each] for each in ("function", "was", "now"))


def report(part: Part, entries: list[dict[str, Any]], *, whole: bool) -> int:
    """Print what survives and the rates; return 0 if they are as wanted.

    What the type checker refuses is noticed, too: it looks at each commit.
    """
    ended = entries[-1:] == [{"ended": True}]
    entries = [each for each in entries if "outcome" in each]
    equivalent = listed()
    shown = [each for each in entries if "was" in each]
    alive = [each for each in shown if each["outcome"] != "killed"]
    survivors = [each for each in alive if not any(is_listed(each, known) for known in equivalent)]
    unnoticed = len(survivors)
    survivors = [each for each in survivors if each["outcome"] != "refused"]
    for each in survivors:
        print(f"{each['place']} ({each['outcome']}, {each['tests']} tests)\n  - {each['was']}\n  + {each['now']}")
    left_out = Counter(each["module"] for each in alive if any(is_listed(each, known) for known in equivalent))
    lost = Counter(each["module"] for each in survivors)
    for module, count in sorted((Counter(each["module"] for each in entries) - left_out).items()):
        print(f"  {module}: {count - lost[module]} of {count}")
    counted = len(entries) - left_out.total()
    rate = 100 * (counted - len(survivors)) / counted if counted else 100.0
    by_tests = counted - unnoticed
    print(
        f"{part.name}: {counted - len(survivors)} of {counted} faults noticed, {rate:.1f} % (wanted {part.wanted} %): "
        f"{by_tests} by tests ({100 * by_tests / max(counted, 1):.1f} %), {unnoticed - len(survivors)} more by types; "
        f"{len(survivors)} survived; {left_out.total()} more are equivalent"
    )
    if not ended:
        print(f"{part.name}: planting broke off")
        return 1
    if not whole:
        # A sample fails when it speaks against the rate: two standard deviations below it.
        share = part.wanted / 100
        allowed = 200 * math.sqrt(share * (1 - share) / max(counted, 1))
        return 0 if rate >= part.wanted - allowed else 1
    modules = tuple(f"{each['module'].removesuffix('.py').replace('/', '.')}." for each in entries)
    wrong = [
        known
        for known in equivalent
        if known["function"].startswith(modules) and not any(is_listed(each, known) for each in alive)
    ]
    for known in wrong:
        noticed = any(is_listed(each, known) for each in shown)
        how = "noticed" if noticed else "no such fault"
        print(f"listed as equivalent, but {how}: {known['function']}: {known['now']}")
    return 0 if rate >= part.wanted and not wrong else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
