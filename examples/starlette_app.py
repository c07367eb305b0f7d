"""Squares: a Starlette application whose worker runs in the same process, and whose requests wait for short jobs.

`uvicorn examples.starlette_app:app`. The server of the queue is that of `BULLMQ_URL`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from bullmq_anyio import Job, Queue, QueueEvents, Worker
from bullmq_protocol import JobFailedError, WaitTimeout, WorkerOptions

PATIENCE_MS = 5_000


async def square(job: Job[int]) -> int:
    """Square a number."""
    if job.data > 1_000_000:
        raise ValueError("too large")
    return job.data**2


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[dict[str, Any]]:
    """Open all of it in the application's event loop. The worker ends with it, in good order."""
    async with (
        Queue[int]("squares-web") as queue,
        QueueEvents("squares-web") as events,
        Worker("squares-web", square, options=WorkerOptions(concurrency=10)),
    ):
        yield {"queue": queue, "events": events}


async def show(request: Request) -> JSONResponse:
    """Add a job and wait for its result; after five seconds say where to look for it."""
    job = await request.state.queue.add("square", request.path_params["number"])
    try:
        return JSONResponse({"square": await job.wait_until_finished(request.state.events, PATIENCE_MS)})
    except JobFailedError as error:
        return JSONResponse({"reason": error.reason}, status_code=422)
    except WaitTimeout:
        return JSONResponse({"id": job.id}, status_code=202)


app = Starlette(routes=[Route("/squares/{number:int}", show, methods=["POST"])], lifespan=lifespan)
