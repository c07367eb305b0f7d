"""Workers for `bullmq-worker`, as an application has them. The environment names the queue."""

import logging
import os
import sys
import threading
from pathlib import Path
from typing import Any

import anyio

import bullmq_anyio
import bullmq_sync
from bullmq_protocol import WorkerOptions

_log = logging.getLogger("application")
_QUEUE = os.environ.get("CLI_QUEUE", "q")
_OPTIONS = WorkerOptions(concurrency=3, shutdown_timeout=60_000)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


async def process(job: Any) -> Any:
    _say(f"began {job.id}")
    if job.name == "long":
        await anyio.sleep_forever()
    if job.name == "log":
        _log.info("in the handler")
    if job.name == "pipe":
        # Until somebody has written into it.
        await anyio.to_thread.run_sync(Path(os.environ["CLI_FLAG"]).read_text)
    await anyio.lowlevel.checkpoint()
    return job.data


def process_on_thread(job: Any) -> Any:
    _say(f"began {job.id}")
    if job.name == "long":
        threading.Event().wait()
    if job.name == "log":
        _log.info("in the handler")
    if job.name == "pipe":
        Path(os.environ["CLI_FLAG"]).read_text()
    return job.data


async def process_and_die_once(job: Any) -> None:
    """Take the process with it, the first time."""
    flag = Path(os.environ["CLI_FLAG"])
    if job.name == "die" and not flag.exists():
        flag.touch()
        os._exit(7)


tasks = bullmq_anyio.Worker[Any](_QUEUE, process, options=_OPTIONS)
threads = bullmq_sync.Worker[Any](_QUEUE, process_on_thread, options=_OPTIONS)
dies = bullmq_anyio.Worker[Any](_QUEUE, process_and_die_once)
impatient = bullmq_anyio.Worker[Any](
    _QUEUE, process, "redis://127.0.0.1:1", options=WorkerOptions(max_reconnect_attempts=1, max_reconnect_delay=1)
)


class Broken(bullmq_anyio.Worker[Any]):
    async def run(self, **_: Any) -> None:
        raise RuntimeError("the disk is gone")


broken = Broken(_QUEUE, process)


def made() -> list[Any]:
    """Return two workers of the queue."""
    return [tasks, bullmq_anyio.Worker[Any](f"{_QUEUE}-2", process)]
