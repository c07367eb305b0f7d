"""Workers of `bench.processes`, whose handlers compute for as long as the environment says."""

import importlib
import os
import time
from typing import Any

QUEUE, COMPUTE_US = "BENCH_QUEUE", "BENCH_COMPUTE_US"
"""Variables of the environment."""
_queue = os.environ.get(QUEUE, "bench")
_compute_s = int(os.environ.get(COMPUTE_US, "0")) / 1e6


def compute() -> None:
    """Compute, as `bench/node/client.js` does: by the clock that counts this thread's time on a CPU."""
    if _compute_s:
        end = time.thread_time() + _compute_s
        while time.thread_time() < end:
            pass


async def process(_: Any) -> None:
    compute()


def process_on_thread(_: Any) -> None:
    compute()


def tasks() -> Any:
    return importlib.import_module("bullmq_anyio").Worker(_queue, process)


def threads() -> Any:
    return importlib.import_module("bullmq_sync").Worker(_queue, process_on_thread)
