"""A worker of each adapter, which says when a job starts. Only the one that is asked for is imported."""

import importlib
import time
from typing import Any

_QUEUE = "bench-start"


async def process(_: Any) -> None:
    print(time.time(), flush=True)


def process_on_thread(_: Any) -> None:
    print(time.time(), flush=True)


def tasks() -> Any:
    return importlib.import_module("bullmq_anyio").Worker(_QUEUE, process)


def threads() -> Any:
    return importlib.import_module("bullmq_sync").Worker(_QUEUE, process_on_thread)
