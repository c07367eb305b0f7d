"""Adds jobs and asks about queues, in the adapter that argv names; the lines are those of node/client.js."""

import json
import sys
import threading
from collections.abc import Callable
from typing import Any

import anyio
import msgspec

from bullmq_conformance.words import node_of, options_of, repeat_of, scheduler_in_words, snake
from bullmq_protocol.errors import UnrecoverableError
from bullmq_protocol.model.job import NewJob
from bullmq_protocol.scripts.profile import Profile
from bullmq_protocol.worker.notices import JobCompleted, JobFailed
from bullmq_protocol.worker.options import WorkerOptions
from tests.support.lines import Calls, finish, got, package_of, profile_named, say, serve, serve_blocking


def _plain(result: Any, job: type) -> Any:
    """Jobs are reported by their ids, structs by their fields."""
    if isinstance(result, list) and all(isinstance(each, job) for each in result):
        return [job.id for job in result]
    return msgspec.to_builtins(result)


class Client:
    """One queue object per name."""

    def __init__(self, package: Any, url: str, max_len_events: int, profile: Profile) -> None:
        self._kind = package.Queue
        self._job = package.Job
        self._flows = package.FlowProducer(url, scripts=profile)
        self._profile = profile
        self._url = url
        self._max_len_events = max_len_events
        self.queues: dict[str, Any] = {}

    def queue(self, name: str) -> Any:
        if name not in self.queues:
            self.queues[name] = self._kind(name, self._url, max_len_events=self._max_len_events, scripts=self._profile)
        return self.queues[name]

    async def open(self, queue: str) -> None:
        await got(self.queue(queue).get_version())

    async def add(self, queue: str, jobs: list[dict[str, Any]]) -> list[str]:
        return [
            (await got(self.queue(queue).add(job["name"], job["data"], options_of(job.get("opts", {}))))).id
            for job in jobs
        ]

    async def add_bulk(self, queue: str, jobs: list[dict[str, Any]]) -> list[str]:
        new = [NewJob(job["name"], job["data"], options_of(job.get("opts", {}))) for job in jobs]
        return [job.id for job in await got(self.queue(queue).add_bulk(new))]

    async def flow(self, flow: dict[str, Any]) -> str:
        added = await got(self._flows.add(node_of(flow)))
        return str(added.job.id)

    async def counts(self, queue: str, states: list[str] | None = None) -> dict[str, int]:
        counts: dict[str, int] = await got(self.queue(queue).get_job_counts(*(states or ())))
        return counts

    async def workers(self, queue: str) -> list[dict[str, str]]:
        workers: list[dict[str, str]] = await got(self.queue(queue).get_workers())
        return workers

    async def pause(self, queue: str) -> None:
        await got(self.queue(queue).pause())

    async def resume(self, queue: str) -> None:
        await got(self.queue(queue).resume())

    async def is_paused(self, queue: str) -> bool:
        paused: bool = await got(self.queue(queue).is_paused())
        return paused

    async def obliterate(self, queue: str, force: bool = False) -> None:
        await got(self.queue(queue).obliterate(force=force))

    async def state(self, queue: str, id: str) -> str:
        state: str = await got(self.queue(queue).get_state(id))
        return state

    async def job(self, queue: str, id: str) -> dict[str, Any] | None:
        job = await got(self.queue(queue).get_job(id))
        if job is None:
            return None
        return {
            "id": job.id,
            "name": job.name,
            "data": job.data,
            "progress": job.progress,
            "returnvalue": job.returnvalue,
            "failed_reason": job.failed_reason,
            "attempts_made": job.attempts_made,
            "attempts_started": job.attempts_started,
            "delay": job.delay,
            "priority": job.priority,
            "timestamp": job.timestamp,
            "processed_by": job.processed_by,
            "stacktraces": len(job.stacktrace),
        }

    async def upsert_scheduler(
        self, queue: str, id: str, repeat: dict[str, Any], template: dict[str, Any]
    ) -> str | None:
        opts = options_of(template.get("opts", {}))
        rule = repeat_of(repeat)
        job = await got(self.queue(queue).upsert_job_scheduler(id, rule, template["name"], template["data"], opts))
        return None if job is None else str(job.id)

    async def schedulers(self, queue: str) -> list[dict[str, Any]]:
        return [scheduler_in_words(found) for found in await got(self.queue(queue).get_job_schedulers())]

    async def remove_scheduler(self, queue: str, id: str) -> bool:
        removed: bool = await got(self.queue(queue).remove_job_scheduler(id))
        return removed

    async def remove_repeatable(self, queue: str, job: str, repeat: dict[str, Any], id: str | None = None) -> bool:
        removed: bool = await got(self.queue(queue).remove_repeatable(job, repeat_of(repeat), id))
        return removed

    async def method(
        self, queue: str, method: str, args: list[Any], id: str | None = None, options: dict[str, Any] | None = None
    ) -> Any:
        """Call any method of Queue, or of the Job with this id; `options` are keyword arguments here."""
        target = self.queue(queue) if id is None else await got(self.queue(queue).get_job(id))
        named = {snake(name): value for name, value in (options or {}).items()}
        return _plain(await got(getattr(target, snake(method))(*args, **named)), self._job)

    async def close(self) -> None:
        for each in (*self.queues.values(), self._flows):
            await got(each.close() if hasattr(each, "close") else each.aclose())

    def calls(self) -> Calls:
        names = ("open", "add", "add_bulk", "flow", "counts", "workers", "pause", "resume", "is_paused", "obliterate")
        names += ("upsert_scheduler", "schedulers", "remove_scheduler", "remove_repeatable")
        return {name: getattr(self, name) for name in (*names, "state", "job", "method")}


def _process(job: Any) -> Any:
    if "fatal" in job.data:
        raise UnrecoverableError(job.data["fatal"])
    return job.data.get("value")


def _count(worker: Any, count: int, reached: Callable[[], None]) -> None:
    """Tell when this many jobs are finished. None of them is tried again."""
    left = count

    def over(notice: JobCompleted | JobFailed) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            reached()

    worker.on(JobCompleted, over)
    worker.on(JobFailed, over)


async def _main(url: str, max_len_events: int, profile: Profile) -> None:
    package = package_of("asyncio")
    client = Client(package, url, max_len_events, profile)

    async def process(job: Any) -> Any:
        return _process(job)

    async def work_off(queue: str, count: int, **options: Any) -> None:
        worker: Any = package.Worker(queue, process, url, options=WorkerOptions(**options), scripts=profile)
        all_over = anyio.Event()
        _count(worker, count, all_over.set)
        async with worker:
            await all_over.wait()

    say(event="ready")
    await serve({**client.calls(), "work_off": work_off})
    await client.close()


def _main_blocking(url: str, max_len_events: int, profile: Profile) -> None:
    package = package_of("threads")
    client = Client(package, url, max_len_events, profile)

    async def work_off(queue: str, count: int, **options: Any) -> None:
        worker: Any = package.Worker(queue, _process, url, options=WorkerOptions(**options), scripts=profile)
        all_over = threading.Event()
        _count(worker, count, all_over.set)
        with worker:
            all_over.wait()

    say(event="ready")
    serve_blocking({**client.calls(), "work_off": work_off})
    finish(client.close())


if __name__ == "__main__":
    config = json.loads(sys.argv[1])
    arguments = (config["url"], config["max_len_events"], profile_named(config["profile"]))
    if config["adapter"] == "threads":
        _main_blocking(*arguments)
    else:
        anyio.run(_main, *arguments, backend=config["adapter"])
