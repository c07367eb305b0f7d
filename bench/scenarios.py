"""What the bench measures, and the ratios that are asked of this library."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.sides import BEST_PEER, LIMIT, NODE, OURS, PORT, UVLOOP
from bullmq_protocol import JobOptions
from tests.support.port import PEERS

BULK = 1000
CONCURRENCIES = (1, 10, 16, 50, 200)
CHILDREN = 10
LATENCY = "latency from add to start, idle worker"
PERCENTILES = ("p50_ms", "p99_ms")


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
    short: bool = False
    """Whether `--short` has it."""


def _process(concurrency: int, *, fails: int = 0) -> dict[str, Any]:
    return {"concurrency": concurrency, "fails": fails}


def _add(at_once: int, size: int = 0, **opts: Any) -> dict[str, Any]:
    return {"at_once": at_once, "bytes": size, "opts": opts}


def _plain(n: int) -> JobOptions:
    return JobOptions()


ALL = (*NODE, PORT, *OURS, LIMIT)
WITH_PEERS = (1, 10, 50)
"""The concurrencies at which other queues for Python take part."""
BY_PROFILE = ("node-5", "asyncio-strict", "asyncio", "node-6", "asyncio-6.7")
"""Each profile beside what it is like, and the default one beside both."""
WITHOUT_PORT = ("node-5", "asyncio")
SCENARIOS: dict[str, tuple[Scenario, ...]] = {
    "add": (
        Scenario("add one by one", "add", _add(1), share=0.2, sides=(*NODE, PORT, *OURS, *PEERS), short=True),
        Scenario("add 100 at once", "add", _add(100), sides=ALL, short=True),
        Scenario("bulk of 1,000", "bulk", {"size": BULK, "opts": {}}, sides=(*ALL, *PEERS), short=True),
    ),
    "process": tuple(
        Scenario(
            f"process, concurrency {concurrency}",
            "process",
            _process(concurrency),
            share=0.2 if concurrency == 1 else 1,
            fill=_plain,
            sides=(
                *(ALL if concurrency >= 50 else (*NODE, PORT, *OURS, UVLOOP)),
                *(PEERS if concurrency in WITH_PEERS else ()),
            ),
            short=True,
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
        Scenario("add delayed, 100 at once", "add", _add(100, delay=3_600_000), short=True),
        Scenario("process delayed jobs that are due", "process", _process(50), fill=lambda n: JobOptions(delay=1)),
    ),
    "prioritized": (
        Scenario("add prioritized, 100 at once", "add", _add(100, priority=5), short=True),
        Scenario("process 10 priorities", "process", _process(50), fill=lambda n: JobOptions(priority=1 + n % 10)),
    ),
    "flows": (
        Scenario(
            f"add flows of {CHILDREN} children, one by one", "flows", {"children": CHILDREN}, share=0.02, short=True
        ),
    ),
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
    """A ratio of issues 6, 13 or 18: jobs per second of `side` against `other` in one scenario."""

    scenario: str
    side: str
    other: str
    least: float


@dataclass(frozen=True)
class RequiredLatency:
    """A ratio of milliseconds of one of our sides against another."""

    percentile: str
    side: str = "asyncio"
    other: str = "node-5"
    most: float = 1.0


_FLOWS = SCENARIOS["flows"][0].name
_FROM_NODE = {
    "process, concurrency 50": 2.0,
    "process, concurrency 200": 2.2,
    "process, concurrency 10": 1.6,
    "process, concurrency 16": 1.6,
    "add one by one": 1.8,
    "add 100 at once": 1.8,
    "bulk of 1,000": 2.6,
    "add delayed, 100 at once": 1.5,
    "add prioritized, 100 at once": 1.5,
    _FLOWS: 1.5,
}
_RATES = [
    each
    for group in ("add", "process", "payloads", "retries", "delayed", "prioritized", "flows")
    for each in SCENARIOS[group]
]
# Three times as fast, and on no adapter slower.
_FROM_PEERS = {"asyncio": 3.0, "trio": 1.0, "threads": 1.0}
REQUIRED = (
    *(Required(scenario, "asyncio", "node-5", least) for scenario, least in _FROM_NODE.items()),
    Required("process, concurrency 1", UVLOOP, "node-5", 1.5),
    *(Required(each.name, side, "node-5", 1.0) for side in ("trio", "threads") for each in _RATES),
    Required("process, concurrency 50", "trio", "asyncio", 0.75),
    Required("process, concurrency 50", "threads", "node-5", 1.5),
    Required("process, concurrency 50", "asyncio", PORT, 20),
    Required("process, concurrency 16", "threads", PORT, 5),
    Required("process, concurrency 200", "asyncio", LIMIT, 0.8),
    *(Required(each.name, "asyncio", "asyncio-strict", 0.97) for each in SCENARIOS["profiles"]),
    *(
        Required(each.name, side, BEST_PEER, least)
        for side, least in _FROM_PEERS.items()
        for each in (*SCENARIOS["add"], *SCENARIOS["process"])
        if set(PEERS) & set(each.sides)
    ),
)
REQUIRED_LATENCIES = (
    *(RequiredLatency(percentile, side) for side in OURS for percentile in PERCENTILES),
    *(
        RequiredLatency("p50_ms", side, BEST_PEER, most)
        for side, most in (("asyncio", round(1 / _FROM_PEERS["asyncio"], 2)), ("trio", 1.0), ("threads", 1.0))
    ),
)
MEMORY_MB = 20.0
"""How much a client may grow from 10,000 to 1,000,000 jobs."""
