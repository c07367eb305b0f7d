"""Pictures are resized in the background: a FastAPI application that adds jobs and shows how far they have come.

`uvicorn examples.fastapi_app:app`, and beside it `bullmq-worker examples.fastapi_app:worker`. Both take the server that
`BULLMQ_URL` names.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Header, HTTPException, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel

from bullmq_anyio import Job, Queue, QueueEvents, Worker
from bullmq_protocol.events.stream import ActiveEvent, CompletedEvent, FailedEvent, ProgressEvent


class Picture(BaseModel):
    """What a client sends."""

    path: str
    width: int


async def resize(job: Job[dict[str, Any]]) -> str:
    """Resize a picture."""
    if job.data["width"] < 1:
        raise ValueError("no picture is so narrow")
    await job.update_progress(50)
    return f"{job.data['width']}-{job.data['path']}"


worker = Worker[dict[str, Any]]("pictures", resize)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    """Open the queue once for all requests, in the application's event loop."""
    async with Queue[Any]("pictures") as queue, QueueEvents("pictures") as events:
        yield {"queue": queue, "events": events}


app = FastAPI(lifespan=lifespan)


@app.post("/pictures", status_code=202)
async def create(picture: Picture, request: Request, response: Response) -> dict[str, str]:
    """Add a job; say where to look for it."""
    job = await request.state.queue.add("resize", picture.model_dump())
    response.headers["Location"] = f"/pictures/{job.id}"
    return {"id": job.id}


@app.get("/pictures/{job_id}")
async def show(job_id: str, request: Request) -> dict[str, Any]:
    """Tell how far a job has come."""
    job = await request.state.queue.get_job(job_id)
    if job is None:
        raise HTTPException(404, "no such picture")
    state = await job.get_state()
    return {"state": state, "progress": job.progress, "result": job.returnvalue, "reason": job.failed_reason}


@app.get("/pictures/{job_id}/events", response_class=EventSourceResponse)
async def follow(
    job_id: str, request: Request, last_event_id: Annotated[str, Header()] = "0-0"
) -> AsyncIterator[ServerSentEvent]:
    """Send what happens to a job as it happens, until it has ended.

    A browser that connects again sends the id of the last event that it has; others get all from the first.
    """
    stream = request.state.events.stream(last_event_id)
    try:
        async for event in stream:
            match event:
                case ActiveEvent(job_id=found):
                    kind, text = "active", "null"
                case ProgressEvent(job_id=found, data_text=text):
                    kind = "progress"
                case CompletedEvent(job_id=found, returnvalue_text=text):
                    kind = "completed"
                case FailedEvent(job_id=found, failed_reason=reason):
                    kind, text = "failed", json.dumps(reason)
                case _:
                    continue
            if found == job_id:
                yield ServerSentEvent(raw_data=text, event=kind, id=event.entry_id)
                if kind in ("completed", "failed"):
                    return
    finally:
        await stream.aclose()
