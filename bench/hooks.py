"""What metrics, spans, logs and snapshots cost while they are off: `python -m bench.hooks`.

A worker on asyncio processes no-op jobs of a transport in memory, once as it is, once with its hooks cut out of the
text: `no spans` (the checks for telemetry, and the counters of snapshots) or `no hooks` (also whatever tells notices to
the log, to callbacks and to metrics). Counted are Python's instructions, which do not depend on what else the machine
does, and CPU time, the least of several runs. Nothing is sent: against a real server the share is smaller.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from bench import memory
from bench.memory import Memory
from bullmq_protocol.worker.options import WorkerOptions

ROOT = Path(__file__).parents[1]
BUILDS = ("hooks", "no spans", "no hooks")
MODULES = (
    "bullmq_protocol.worker._running",
    "bullmq_protocol.worker.machine",
    "bullmq_anyio.driving.notifier",
    "bullmq_anyio.driving.runs",
    "bullmq_anyio.driving.slots",
    "bullmq_anyio.driver",
)
UNCUT = ("bullmq_protocol.worker.machine", "bullmq_anyio.driving.notifier")
"""Without spans they have no hooks of their own; those before them they know as they are."""
FACADE = "bullmq_anyio.worker"
COUNTERS = {"completed", "failed", "retried"}
FEW, MANY = 200, 700
LONG, ROUNDS = 20_000, 7


class Cut(ast.NodeTransformer):
    """Takes the hooks out of a module: checks for tracing become the branch without it, counters go."""

    def __init__(self, *, tell: bool) -> None:
        self._tell = tell
        self.cuts = 0

    def _without(self, test: ast.expr) -> bool | None:
        """Return what a check for telemetry gives when it is off, None for another test."""
        match test:
            case ast.Compare(left=ast.Attribute(attr="_tracing" | "tracing"), ops=[ast.Is()]):
                return True
            case ast.Compare(left=ast.Attribute(attr="_tracing" | "tracing"), ops=[ast.IsNot()]):
                return False
            case ast.BoolOp(op=ast.Or(), values=[first, *_]) if self._without(first):
                return True
            case _:
                return None

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        found = self._without(node.test)
        if found is None:
            return node
        self.cuts += 1
        return (node.body if found else node.orelse) or ast.Pass()

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        self.generic_visit(node)
        found = self._without(node.test)
        if found is None:
            return node
        self.cuts += 1
        return node.body if found else node.orelse

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        if isinstance(node.target, ast.Attribute) and node.target.attr in COUNTERS:
            self.cuts += 1
            return ast.Pass()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        self.generic_visit(node)
        if self._tell and node.name == "tell":
            self.cuts += 1
            node.body = [ast.Pass()]
        return node


def load(build: str) -> ModuleType:
    """Return the module of the worker, with the hooks cut out of it and of the machine where that is wanted."""
    if build != "hooks":
        for name in MODULES:
            found = importlib.util.find_spec(name)
            assert found is not None and found.origin is not None
            cut = Cut(tell=build == "no hooks")
            tree = ast.fix_missing_locations(cut.visit(ast.parse(Path(found.origin).read_text(encoding="utf-8"))))
            assert cut.cuts or name in UNCUT, f"no hook was found in {name}"
            module = sys.modules.get(name) or importlib.util.module_from_spec(found)
            sys.modules[name] = module
            exec(compile(tree, found.origin, "exec"), module.__dict__)
        # It was imported with the others, and knows the driver as it is.
        return importlib.reload(importlib.import_module(FACADE))
    return importlib.import_module(FACADE)


async def work(module: ModuleType, jobs: int) -> None:
    transport = Memory(jobs)

    async def process(job: Any) -> None:
        pass

    options = WorkerOptions(concurrency=1)
    async with module.Worker("q", process, transport, options=options, worker_id="w"):
        await transport.over.wait()


def instructions(build: str, jobs: int) -> int:
    """Return how many instructions of Python a run takes."""
    module = load(build)
    return memory.instructions(lambda: asyncio.run(work(module, jobs)))


def cpu_seconds(build: str, jobs: int) -> float:
    module = load(build)
    begun = time.process_time()
    asyncio.run(work(module, jobs))
    return time.process_time() - begun


def ask(what: str, build: str, jobs: int) -> float:
    """Measure in a process of its own: the module is loaded once."""
    command = [sys.executable, "-m", "bench.hooks", what, build, str(jobs)]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return float(done.stdout)


def main(arguments: list[str]) -> int:
    if arguments:
        what, build, jobs = arguments
        print((instructions if what == "instructions" else cpu_seconds)(build, int(jobs)))
        return 0
    # Two lengths: their difference is free of beginning and end.
    counted = {
        build: (ask("instructions", build, MANY) - ask("instructions", build, FEW)) / (MANY - FEW) for build in BUILDS
    }
    least = dict.fromkeys(BUILDS, float("inf"))
    for _ in range(ROUNDS):
        for build in BUILDS:
            least[build] = min(least[build], ask("cpu", build, LONG) * 1_000_000 / LONG)
    for build in BUILDS:
        shares = [100 * (1 - figures[build] / figures["hooks"]) for figures in (counted, least)]
        print(
            f"{build:9} {counted[build]:6.1f} instructions a job (cut out: {shares[0]:.2f} %), "
            f"{least[build]:5.2f} us of CPU (cut out: {shares[1]:.2f} %)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
