"""What was made, never used and dropped without a close leaves nothing: no object, hook, thread, file or warning."""

import gc
import os
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import bullmq_anyio
import bullmq_sync
import bullmq_sync.forks
from bullmq_protocol.worker.notices import JobCompleted

_URL = "redis://127.0.0.1:1"
_COUNT = 60


async def _process(job: Any) -> None:
    """Do nothing."""


def _process_blocking(job: Any) -> None:
    """Do nothing."""


def _worker(module: Any, connection: Any) -> Any:
    processor = _process if module is bullmq_anyio else _process_blocking
    worker = module.Worker("q", processor, connection)
    worker.on(JobCompleted, print)
    return worker


def _worker_that_is_read(module: Any, connection: Any) -> Any:
    worker = _worker(module, connection)
    worker.notices()
    return worker


KINDS: dict[str, Callable[[Any, Any], Any]] = {
    "Worker": _worker,
    "Worker and its notices": _worker_that_is_read,
    "Queue": lambda module, connection: module.Queue("q", connection),
    "QueueEvents": lambda module, connection: module.QueueEvents("q", connection),
    "QueueEventsProducer": lambda module, connection: module.QueueEventsProducer("q", connection),
    "FlowProducer": lambda module, connection: module.FlowProducer(connection),
}
URLS = {"own": _URL, "sentinel": "redis+sentinel://127.0.0.1:1/jobs", "cluster": "redis+cluster://127.0.0.1:1"}


def _held() -> tuple[int, int, int]:
    gc.collect()
    return len(bullmq_sync.forks._known), threading.active_count(), len(os.listdir("/dev/fd"))


@pytest.mark.parametrize("connection", [*URLS, "shared"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("module", [bullmq_anyio, bullmq_sync], ids=["anyio", "sync"])
def test_what_is_dropped_leaves_nothing(module: Any, kind: str, connection: str) -> None:
    shared = module.connect(_URL)

    def make() -> Any:
        return KINDS[kind](module, URLS.get(connection, shared))

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        made = [weakref.ref(make()) for _ in range(20)]
        before = _held()
        objects = len(gc.get_objects())
        for _ in range(_COUNT):
            make()
        assert _held() == before
        grown = len(gc.get_objects()) - objects
    assert [each for each in made if each() is not None] == []
    # Not one object is kept for each.
    assert grown < _COUNT // 2
    assert said == []
