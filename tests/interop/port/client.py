"""Adds jobs and asks about queues with BullMQ's Python port, used as its documentation shows; the lines are those of
node/client.js."""

import asyncio
import json
import sys
from typing import Any

from bullmq import FlowProducer, Job, Queue
from lines import say, serve

URL = json.loads(sys.argv[1])["url"]
CONNECTION = {"connection": URL}
QUEUES: dict[str, Any] = {}


def of(name: str) -> Any:
    if name not in QUEUES:
        QUEUES[name] = Queue(name, CONNECTION)
    return QUEUES[name]


async def open_(queue: str) -> None:
    await of(queue).getJobCounts("waiting")


async def add(queue: str, jobs: list[dict[str, Any]]) -> list[str]:
    return [(await of(queue).add(job["name"], job["data"], dict(job.get("opts", {})))).id for job in jobs]


async def add_bulk(queue: str, jobs: list[dict[str, Any]]) -> list[str]:
    return [job.id for job in await of(queue).addBulk(jobs)]


async def flow(flow: dict[str, Any]) -> str:
    producer = FlowProducer(CONNECTION)
    try:
        added = await producer.add(flow)
        return str(added["job"].id)
    finally:
        await producer.close()


async def counts(queue: str, states: list[str] | None = None) -> Any:
    return await of(queue).getJobCounts(*(states or ()))


async def pause(queue: str) -> None:
    await of(queue).pause()


async def resume(queue: str) -> None:
    await of(queue).resume()


async def state(queue: str, id: str) -> Any:
    return await of(queue).getJobState(id)


async def upsert_scheduler(queue: str, id: str, repeat: dict[str, Any], template: dict[str, Any]) -> str | None:
    made = await of(queue).upsertJobScheduler(
        id, repeat, template["name"], template.get("data"), template.get("opts", {})
    )
    return made.id if made is not None else None


async def remove_scheduler(queue: str, id: str) -> Any:
    return await of(queue).removeJobScheduler(id)


async def method(
    queue: str, method: str, args: list[Any], id: str | None = None, options: dict[str, Any] | None = None
) -> Any:
    target = of(queue) if id is None else await Job.fromId(of(queue), id)
    result = await getattr(target, method)(*args, *([] if options is None else [options]))
    return result if isinstance(result, str | int | float | bool | None) else None


CALLS = {
    "open": open_,
    "add": add,
    "add_bulk": add_bulk,
    "flow": flow,
    "counts": counts,
    "pause": pause,
    "resume": resume,
    "state": state,
    "upsert_scheduler": upsert_scheduler,
    "remove_scheduler": remove_scheduler,
    "method": method,
}


async def main() -> None:
    say(event="ready")
    await serve(CALLS)
    for queue in QUEUES.values():
        await queue.close()


if __name__ == "__main__":
    asyncio.run(main())
