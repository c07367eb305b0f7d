"""BullMQ's own Python port in the bench, used as its documentation shows: `python bench/port.py '{"url": ...}'`.

It runs in an environment of its own, which has the port and nothing of ours, and speaks the lines of the other sides.
"""

import asyncio
import json
import sys
import threading
import time
from typing import Any

from bullmq import FlowProducer, Queue, Worker

URL = json.loads(sys.argv[1])["url"]
CONNECTION = {"connection": URL}


def say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


class Stopwatch:
    """Seconds on the clock and of this process's CPU."""

    def __init__(self) -> None:
        self._start, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        return {"seconds": time.perf_counter() - self._start, "cpu_seconds": time.process_time() - self._cpu}


def payload(n: int, size: int) -> dict[str, Any]:
    return {"n": n, "text": "x" * size} if size else {"n": n}


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


async def main() -> None:
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str] = asyncio.Queue()

    def read() -> None:
        for text in sys.stdin:
            loop.call_soon_threadsafe(lines.put_nowait, text)
        loop.call_soon_threadsafe(lines.put_nowait, "")

    threading.Thread(target=read, daemon=True).start()
    say(event="ready")
    while text := await lines.get():
        line = json.loads(text)
        try:
            say(n=line["n"], result=await CALLS[line["call"]](**line["args"]))
        except Exception as error:
            say(n=line["n"], error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    asyncio.run(main())
