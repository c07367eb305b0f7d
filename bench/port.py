"""BullMQ's own Python port in the bench, used as its documentation shows: `python -m bench.port '{"url": ...}'`.

It runs in an environment of its own, which has the port and nothing of ours, and speaks the lines of the other sides.
"""

import asyncio
import json
import sys
import time
from typing import Any

from bullmq import FlowProducer, Queue, Worker

from bench.lines import Stopwatch, payload, serve

URL = json.loads(sys.argv[1])["url"]
CONNECTION = {"connection": URL}


async def add(queue: str, count: int, at_once: int, bytes: int, opts: dict[str, Any]) -> dict[str, float]:
    adding = Queue(queue, CONNECTION)
    watch = Stopwatch()
    for done in range(0, count, at_once):
        await asyncio.gather(*(adding.add("job", payload(n, bytes), dict(opts)) for n in range(done, done + at_once)))
    result = watch.read()
    await adding.close()
    return result


async def bulk(queue: str, count: int, size: int, opts: dict[str, Any]) -> dict[str, float]:
    adding = Queue(queue, CONNECTION)
    watch = Stopwatch()
    for done in range(0, count, size):
        await adding.addBulk([{"name": "job", "data": {"n": n}, "opts": dict(opts)} for n in range(done, done + size)])
    result = watch.read()
    await adding.close()
    return result


async def flows(queue: str, count: int, children: int) -> dict[str, float]:
    producer = FlowProducer(CONNECTION)
    watch = Stopwatch()
    for n in range(count):
        below = [{"name": "child", "queueName": queue, "data": {"n": c}} for c in range(children)]
        await producer.add({"name": "parent", "queueName": queue, "data": {"n": n}, "children": below})
    result = watch.read()
    await producer.close()
    return result


async def process(queue: str, count: int, concurrency: int, fails: int) -> dict[str, float]:
    finished = asyncio.Event()
    left = count

    async def work(job: Any, token: str) -> None:
        if job.attemptsMade < fails:
            raise RuntimeError("again")

    def completed(job: Any, result: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            finished.set()

    worker = Worker(queue, work, {**CONNECTION, "concurrency": concurrency, "autorun": False})
    worker.on("completed", completed)
    watch = Stopwatch()
    running = asyncio.create_task(worker.run())
    await finished.wait()
    result = watch.read()
    await worker.close()
    running.cancel()
    return result


async def latency(queue: str, count: int, pause_ms: float) -> dict[str, list[float]]:
    started: asyncio.Queue[float] = asyncio.Queue()

    async def work(job: Any, token: str) -> None:
        started.put_nowait(time.perf_counter())

    adding = Queue(queue, CONNECTION)
    worker = Worker(queue, work, CONNECTION)
    ms = []
    for n in range(count):
        await asyncio.sleep(pause_ms / 1000)
        asked = time.perf_counter()
        await adding.add("job", {"n": n}, {})
        ms.append((await started.get() - asked) * 1000)
    await worker.close()
    await adding.close()
    return {"ms": ms}


CALLS = {"add": add, "bulk": bulk, "flows": flows, "process": process, "latency": latency}


if __name__ == "__main__":
    asyncio.run(serve(CALLS))
