"""A flow, and the wait for its result: `python -m examples.flow_app redis://localhost`."""

import asyncio
import sys
from typing import Any

from bullmq_anyio import FlowProducer, Job, QueueEvents, Worker
from bullmq_protocol import FlowNode, WorkerOptions


async def count(job: Job[Any]) -> int:
    return len(job.data["text"].split())


async def add_up(job: Job[Any]) -> int:
    return sum((await job.get_children_values()).values())


async def main(url: str) -> None:
    pages = [FlowNode("page", "pages", {"text": text}) for text in ("so it goes", "and so on", "the end")]
    async with (
        QueueEvents("books", url) as events,
        FlowProducer(url) as flows,
        Worker("pages", count, url, options=WorkerOptions(concurrency=10)),
        Worker("books", add_up, url),
    ):
        flow = await flows.add(FlowNode("book", "books", children=pages))
        print("words:", await flow.job.wait_until_finished(events, 10_000))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "redis://localhost"))
