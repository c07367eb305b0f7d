"""Python adds a job and waits for what a worker on Node returns: `python -m examples.mixed_fleet.add [URL]`."""

import sys
from datetime import UTC, datetime
from typing import Any

import anyio

from bullmq_anyio import Queue, QueueEvents
from bullmq_protocol import JobFailedError, JobOptions
from bullmq_protocol.events.stream import ProgressEvent


async def main(url: str) -> None:
    async with Queue[Any]("node-works", url) as queue, QueueEvents("node-works", url) as events:
        events.on(ProgressEvent, lambda event: print("progress", event.data_text))
        job = await queue.add("describe", {"at": datetime(1970, 1, 1, tzinfo=UTC), "big": str(2**64)})
        print("Node returned", await job.wait_until_finished(events, 30_000))
        bad = await queue.add("fail", {}, JobOptions(attempts=2))
        try:
            await bad.wait_until_finished(events, 30_000)
        except JobFailedError as error:
            print("Node failed:", error)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "redis://localhost")
