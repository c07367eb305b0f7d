"""How long `bullmq-worker` takes from its call to the start of its first job, and what its imports take of that.

`python -m bench.start`, on a machine that does nothing else. `bench/start_app.py` has the workers. `--imports` measures
what importing each package takes instead.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from bench.arguments import positive
from bullmq_sync import Queue
from tests.support import servers

_ROOT = Path(__file__).parents[1]
QUEUE = "bench-start"
KINDS: dict[str, tuple[str, ...]] = {
    "asyncio": ("tasks",),
    "uvloop": ("tasks", "--loop", "uvloop"),
    "trio": ("tasks", "--loop", "trio"),
    "threads": ("threads",),
}
_LIBRARIES = ("asyncio", "anyio", "click", "hiredis", "msgspec", "redis", "ssl", "trio", "uvloop", "bullmq_protocol")
_IMPORT_ROUNDS = 7
STATEMENTS = (
    "pass",
    "import msgspec",
    "import asyncio",
    "import bullmq_protocol",
    "from bullmq_protocol import JobOptions, WorkerOptions",
    "from bullmq_protocol import *",
    "import bullmq_anyio",
    "from bullmq_anyio import Queue",
    "from bullmq_anyio import Queue, Worker",
    "import bullmq_sync",
    "from bullmq_sync import Queue",
    "from bullmq_sync import Queue, Worker",
)
"""What `--imports` measures; the first is Python alone, which is subtracted from the others."""
_IMPORTED = re.compile(r"^import time:\s+(\d+) \|\s+\d+ \|\s*(\S+)$", re.MULTILINE)


def _environment() -> dict[str, str]:
    """Return the environment of an installed program: modules are compiled once."""
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def start(kind: str, url: str) -> tuple[float, float]:
    """Start a program that processes one job and ends; return the seconds to the job's start, and those of the
    processor (until its end)."""
    with Queue[None](QUEUE, url) as queue:
        queue.add("a")
        target, *more = KINDS[kind]
        command = [sys.executable, "-m", "bullmq_cli", f"bench.start_app:{target}", "--burst", "--log-level", "error"]
        begun = time.time()
        process = subprocess.Popen(
            [*command, *more],
            cwd=_ROOT,
            env={**_environment(), "BULLMQ_URL": url},
            stdout=subprocess.PIPE,
            text=True,
        )
        with process:
            assert process.stdout is not None
            started = float(process.stdout.readline())
            _, _, used = os.wait4(process.pid, 0)
            process.returncode = 0
        queue.obliterate(force=True)
    return started - begun, used.ru_utime + used.ru_stime


def imports(kind: str) -> dict[str, float]:
    """Return the milliseconds that imports take, by library, the least of some runs; `rest` is Python's own."""
    adapter = "bullmq_sync" if kind == "threads" else "bullmq_anyio"
    more = {"trio": ", trio", "uvloop": ", uvloop"}.get(kind, "")
    least: dict[str, int] = {}
    for _ in range(_IMPORT_ROUNDS):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", f"import bullmq_cli.command, {adapter}{more}"],
            cwd=_ROOT,
            env=_environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        for microseconds, module in _IMPORTED.findall(done.stderr):
            least[module] = min(least.get(module, 1 << 40), int(microseconds))
    found: dict[str, float] = defaultdict(float)
    for module, microseconds in least.items():
        root = module.partition(".")[0].lstrip("_")
        found[root if root in (*_LIBRARIES, "bullmq_cli", adapter) else "rest"] += microseconds / 1000
    return dict(sorted(found.items(), key=lambda each: -each[1]))


def statements(rounds: int) -> dict[str, float]:
    """Return the milliseconds of CPU that each statement takes in a process of its own, medians of alternating
    rounds."""
    taken: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds + 1):
        for statement in STATEMENTS:
            process = subprocess.Popen([sys.executable, "-c", statement], cwd=_ROOT, env=_environment())
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            assert process.returncode == 0, statement
            taken[statement].append((used.ru_utime + used.ru_stime) * 1000)
    medians = {statement: statistics.median(each[1:]) for statement, each in taken.items()}
    return {statement: each - medians[STATEMENTS[0]] for statement, each in medians.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.start", description=__doc__)
    parser.add_argument("--rounds", type=positive, default=9, help="of which the median is shown, 9")
    parser.add_argument("--imports", action="store_true", help="what importing each package takes")
    options = parser.parse_args()
    rounds: int = options.rounds
    if options.imports:
        for statement, milliseconds in statements(rounds).items():
            print(f"{statement}: {milliseconds:.1f} ms")
        return
    server = servers.start()
    try:
        for kind in KINDS:
            taken = [start(kind, server.url) for _ in range(rounds + 1)][1:]
            walls = [wall for wall, _ in taken]
            used = [processor for _, processor in taken]
            print(
                f"{kind}: {statistics.median(walls) * 1000:.0f} ms to the first job "
                f"({min(walls) * 1000:.0f} to {max(walls) * 1000:.0f}), "
                f"processor {statistics.median(used) * 1000:.0f} ms ({min(used) * 1000:.0f})"
            )
            parts = (f"{library} {taken_ms:.0f}" for library, taken_ms in imports(kind).items() if taken_ms >= 1)
            print(f"  imports (ms, while they are timed): {', '.join(parts)}")
    finally:
        server.stop()


if __name__ == "__main__":
    main()
