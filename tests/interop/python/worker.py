"""A worker in the adapter that argv names; the lines, and what a job's data means, are those of node/worker.js."""

import json
import sys
import time
from typing import Any

import anyio

from bullmq_conformance.words import snake
from bullmq_protocol.commands.fetching import Limiter
from bullmq_protocol.errors import DelayedError, UnrecoverableError
from bullmq_protocol.scripts.profile import Profile
from bullmq_protocol.worker.notices import JobCompleted, JobFailed, JobStalled, WorkerProblem
from bullmq_protocol.worker.options import WorkerOptions
from tests.support.lines import finish, got, package_of, profile_named, say, serve, serve_blocking


class _Processor:
    """What a job's data says, over either facade."""

    def __init__(self, sleep: Any, sleep_forever: Any) -> None:
        self._sleep = sleep
        self._sleep_forever = sleep_forever

    async def process(self, job: Any) -> Any:
        data = job.data
        attempt = job.attempts_made + 1
        say(event="started", id=job.id, attempt=attempt, starts=job.attempts_started, at=round(time.time() * 1000))
        for row in data.get("logs", ()):
            await got(job.log(row))
        if "progress" in data:
            await got(job.update_progress(data["progress"]))
        if "update" in data:
            await got(job.update_data({**data, **data["update"]}))
        if data.get("work_ms"):
            await got(self._sleep(data["work_ms"] / 1000))
        if job.attempts_started <= data.get("hangs", 0):
            await got(self._sleep_forever(job))
        if job.attempts_started <= data.get("postpones", 0):
            await got(job.move_to_delayed(round(time.time() * 1000) + data["by_ms"]))
            raise DelayedError()
        if "fatal" in data:
            raise UnrecoverableError(data["fatal"])
        if attempt <= data.get("fails", 0):
            raise RuntimeError(f"failure {attempt}")
        return data.get("value")


def _listen(worker: Any) -> None:
    worker.on(JobCompleted, lambda notice: say(event="completed", id=notice.job.id))
    worker.on(
        JobFailed,
        lambda notice: say(
            event="failed",
            id=notice.job.id,
            attempts=notice.attempts_made,
            reason=notice.reason,
            final=notice.retry_delay_ms is None,
        ),
    )
    worker.on(JobStalled, lambda notice: say(event="stalled", id=notice.job_id))
    worker.on(WorkerProblem, lambda notice: say(event="error", message=notice.message))


def _calls(worker: Any) -> Any:
    async def pause() -> None:
        await got(worker.pause())

    async def resume() -> None:
        await got(worker.resume())

    return {"pause": pause, "resume": resume}


async def _main(queue: str, url: str, options: WorkerOptions, profile: Profile) -> None:
    processor = _Processor(anyio.sleep, lambda job: anyio.sleep_forever())
    worker: Any = package_of("asyncio").Worker(queue, processor.process, url, options=options, scripts=profile)
    _listen(worker)
    async with worker:
        say(event="ready")
        await serve(_calls(worker))
    say(event="closed")


def _main_blocking(queue: str, url: str, options: WorkerOptions, profile: Profile) -> None:
    processor = _Processor(time.sleep, lambda job: job.cancelled.wait())
    worker: Any = package_of("threads").Worker(
        queue, lambda job: finish(processor.process(job)), url, options=options, scripts=profile
    )
    _listen(worker)
    with worker:
        say(event="ready")
        serve_blocking(_calls(worker))
    say(event="closed")


if __name__ == "__main__":
    config = json.loads(sys.argv[1])
    given = {snake(name): value for name, value in config["options"].items()}
    if "limiter" in given:
        given["limiter"] = Limiter(**given["limiter"])
    options = WorkerOptions(**given)
    if config["adapter"] == "threads":
        _main_blocking(config["queue"], config["url"], options, profile_named(config["profile"]))
    else:
        profile = profile_named(config["profile"])
        anyio.run(_main, config["queue"], config["url"], options, profile, backend=config["adapter"])
