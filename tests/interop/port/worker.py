"""A worker of BullMQ's Python port; the lines, and what a job's data means, are those of node/worker.js."""

import asyncio
import json
import sys
import time
from typing import Any

from bullmq import Worker
from lines import say, serve

CONFIG = json.loads(sys.argv[1])


async def process(job: Any, token: str) -> Any:
    data = job.data
    say(event="started", id=job.id, attempt=job.attemptsMade + 1, at=round(time.time() * 1000))
    if data.get("work_ms"):
        await asyncio.sleep(data["work_ms"] / 1000)
    if job.attemptsMade < data.get("fails", 0):
        raise RuntimeError(f"failure {job.attemptsMade + 1}")
    return data.get("value")


async def main() -> None:
    worker = Worker(CONFIG["queue"], process, {"connection": CONFIG["url"], **CONFIG["options"]})
    worker.on("completed", lambda job, result: say(event="completed", id=job.id))
    worker.on(
        "failed",
        lambda job, error: say(
            event="failed", id=job.id, reason=str(error), final=bool(getattr(job, "finishedOn", None))
        ),
    )
    worker.on("stalled", lambda id: say(event="stalled", id=id))
    worker.on("error", lambda error, *rest: say(event="error", message=str(error)))
    say(event="ready")
    await serve({})
    await worker.close()
    say(event="closed")


if __name__ == "__main__":
    asyncio.run(main())
