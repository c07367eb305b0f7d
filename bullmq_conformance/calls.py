"""The requests of the client mode, done with this library's client: the reference, and what its adapter runs.

Each method is a request; its parameters are the request's members, its result is the answer's. docs/conformance.md
describes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bullmq_conformance.lines import Methods, got
from bullmq_conformance.words import node_of, options_of, repeat_of, scheduler_in_words
from bullmq_protocol import VERSION
from bullmq_protocol.errors import JobNotFound, UnrecoverableError
from bullmq_protocol.model.job import NewJob
from bullmq_protocol.scripts.profile import Profile
from bullmq_protocol.worker.options import WorkerOptions

LOCK_MS = 30_000
"""How long a worker's locks live."""

STATES = ("waiting", "active", "delayed", "prioritized", "waiting-children", "completed", "failed", "paused")

Args = Mapping[str, Any]
Job = Any


class Calls:
    """One client: queues, workers and a producer of flows, each made when it is first needed.

    `package` is `bullmq_sync` or `bullmq_anyio`, `backend` what it runs on.
    """

    def __init__(self, package: Any, profile: Profile, backend: str) -> None:
        self._package = package
        self._profile = profile
        self._backend = backend
        self._url = ""
        self._queues: dict[str, Any] = {}
        self._workers: dict[str, Any] = {}
        self._flows: Any = None
        self._taken: dict[tuple[str, str], Job] = {}

    def methods(self) -> Methods:
        """Return all requests by name."""
        return {name: getattr(self, name) for name in dir(self) if not name.startswith("_") and name != "methods"}

    async def hello(self, url: str, **_: Any) -> dict[str, Any]:
        self._url = url
        can = sorted(set(self.methods()) - {"hello", "reset"})
        return {"client": f"bullmq-protocol on {self._backend}", "version": VERSION, "can": can}

    async def reset(self) -> None:
        for each in (*self._queues.values(), *self._workers.values(), *([self._flows] if self._flows else [])):
            await got(each.close() if hasattr(each, "close") else each.aclose())
        self._queues, self._workers, self._flows, self._taken = {}, {}, None, {}

    def _queue(self, name: str) -> Any:
        if name not in self._queues:
            self._queues[name] = self._package.Queue(name, self._url, scripts=self._profile)
        return self._queues[name]

    def _worker(self, name: str) -> Any:
        if name not in self._workers:
            options = WorkerOptions(lock_duration=LOCK_MS)
            self._workers[name] = self._package.Worker(name, None, self._url, options=options, scripts=self._profile)
        return self._workers[name]

    async def _job(self, queue: str, id: str) -> Job:
        job = await got(self._queue(queue).get_job(id))
        if job is None:
            raise JobNotFound("request", job_id=id)
        return job

    async def _held(self, queue: str, id: str, token: str) -> Job:
        """Return the job that was taken with a token, or a job as it is stored with that token."""
        job = self._taken.get((queue, token))
        if job is None or job.id != id:
            job = await self._job(queue, id)
            job.token = token
        return job

    # --- adding -------------------------------------------------------------------------------------------------------

    async def open(self, queue: str) -> None:
        await got(self._queue(queue).get_version())

    async def add(self, queue: str, name: str, data: Any, opts: Args) -> str:
        return str((await got(self._queue(queue).add(name, data, options_of(opts)))).id)

    async def add_bulk(self, queue: str, jobs: Sequence[Args]) -> list[str]:
        new = [NewJob(job["name"], job["data"], options_of(job["opts"])) for job in jobs]
        return [job.id for job in await got(self._queue(queue).add_bulk(new))]

    async def flow(self, flow: Args) -> dict[str, Any]:
        if self._flows is None:
            self._flows = self._package.FlowProducer(self._url, scripts=self._profile)
        return _ids(await got(self._flows.add(node_of(flow))))

    # --- working ------------------------------------------------------------------------------------------------------

    async def take(self, queue: str) -> dict[str, Any] | None:
        job = await got(self._worker(queue).get_next_job(block=False))
        if job is None:
            return None
        self._taken[(queue, job.token)] = job
        return {"id": job.id, "token": job.token, "name": job.name, "data": job.data}

    async def finish(self, queue: str, id: str, token: str, value: Any) -> None:
        await got(self._worker(queue).complete(await self._held(queue, id, token), value))

    async def fail(self, queue: str, id: str, token: str, reason: str, fatal: bool) -> None:
        error = UnrecoverableError(reason) if fatal else RuntimeError(reason)
        await got(self._worker(queue).fail(await self._held(queue, id, token), error))

    async def delay(self, queue: str, id: str, token: str, until: int) -> None:
        job = await self._held(queue, id, token)
        await got(job.move_to_delayed(until, token))

    async def release(self, queue: str, id: str, token: str) -> None:
        job = await self._held(queue, id, token)
        await got(job.move_to_wait(token))

    async def wait_for_children(self, queue: str, id: str, token: str) -> bool:
        job = await self._held(queue, id, token)
        return bool(await got(job.move_to_waiting_children(token)))

    async def extend_lock(self, queue: str, id: str, token: str, duration: int) -> bool:
        job = await self._held(queue, id, token)
        return bool(await got(job.extend_lock(duration)))

    # --- one job ------------------------------------------------------------------------------------------------------

    async def promote(self, queue: str, id: str) -> None:
        await got((await self._job(queue, id)).promote())

    async def retry(self, queue: str, id: str, state: str) -> None:
        await got((await self._job(queue, id)).retry(state))

    async def change_priority(self, queue: str, id: str, priority: int, lifo: bool) -> None:
        await got((await self._job(queue, id)).change_priority(priority, lifo=lifo))

    async def change_delay(self, queue: str, id: str, delay: int) -> None:
        await got((await self._job(queue, id)).change_delay(delay))

    async def remove(self, queue: str, id: str, remove_children: bool) -> bool:
        return bool(await got(self._queue(queue).remove(id, remove_children=remove_children)))

    async def update_data(self, queue: str, id: str, data: Any) -> None:
        await got((await self._job(queue, id)).update_data(data))

    async def progress(self, queue: str, id: str, progress: Any) -> None:
        await got((await self._job(queue, id)).update_progress(progress))

    async def log(self, queue: str, id: str, row: str) -> int:
        return int(await got((await self._job(queue, id)).log(row)))

    async def clear_logs(self, queue: str, id: str, keep: int) -> None:
        await got((await self._job(queue, id)).clear_logs(keep))

    async def remove_parent(self, queue: str, id: str) -> bool:
        return bool(await got((await self._job(queue, id)).remove_child_dependency()))

    async def remove_children(self, queue: str, id: str) -> None:
        await got((await self._job(queue, id)).remove_unprocessed_children())

    # --- reading ------------------------------------------------------------------------------------------------------

    async def job(self, queue: str, id: str) -> dict[str, Any] | None:
        job = await got(self._queue(queue).get_job(id))
        if job is None:
            return None
        return {
            "name": job.name,
            "data": job.data,
            "progress": job.progress,
            "returnvalue": job.returnvalue,
            "failedReason": job.failed_reason,
            "attemptsMade": job.attempts_made,
            "attemptsStarted": job.attempts_started,
            "delay": job.delay,
            "priority": job.priority,
            "timestamp": job.timestamp,
            "processedOn": job.processed_on,
            "finishedOn": job.finished_on,
            "parentKey": job.parent_key,
            "stacktraces": len(job.stacktrace),
        }

    async def state(self, queue: str, id: str) -> str:
        return str(await got(self._queue(queue).get_job_state(id)))

    async def counts(self, queue: str) -> dict[str, int]:
        return dict(await got(self._queue(queue).get_job_counts(*STATES)))

    async def priorities(self, queue: str, priorities: Sequence[int]) -> dict[str, int]:
        found = await got(self._queue(queue).get_counts_per_priority(priorities))
        return {str(priority): count for priority, count in found.items()}

    async def jobs(self, queue: str, states: Sequence[str], start: int, end: int, asc: bool) -> list[str]:
        return [job.id for job in await got(self._queue(queue).get_jobs(states, start, end, asc))]

    async def logs(self, queue: str, id: str) -> dict[str, Any]:
        return dict(msgspec.to_builtins(await got(self._queue(queue).get_job_logs(id))))

    async def dependencies(self, queue: str, id: str) -> dict[str, Any]:
        found = await got((await self._job(queue, id)).get_dependencies())
        return {"processed": found.processed, "unprocessed": sorted(found.unprocessed)}

    async def children_values(self, queue: str, id: str) -> dict[str, Any]:
        return dict(await got((await self._job(queue, id)).get_children_values()))

    # --- the queue ----------------------------------------------------------------------------------------------------

    async def pause(self, queue: str) -> None:
        await got(self._queue(queue).pause())

    async def resume(self, queue: str) -> None:
        await got(self._queue(queue).resume())

    async def is_paused(self, queue: str) -> bool:
        return bool(await got(self._queue(queue).is_paused()))

    async def drain(self, queue: str, delayed: bool) -> None:
        await got(self._queue(queue).drain(delayed))

    async def clean(self, queue: str, grace: int, limit: int, state: str) -> list[str]:
        return list(await got(self._queue(queue).clean(grace, limit, state)))

    async def obliterate(self, queue: str, force: bool) -> None:
        await got(self._queue(queue).obliterate(force=force))

    async def retry_jobs(self, queue: str, state: str) -> None:
        await got(self._queue(queue).retry_jobs(state))

    async def promote_jobs(self, queue: str) -> None:
        await got(self._queue(queue).promote_jobs())

    async def set_concurrency(self, queue: str, concurrency: int) -> None:
        await got(self._queue(queue).set_global_concurrency(concurrency))

    async def remove_deduplication(self, queue: str, id: str) -> bool:
        return bool(await got(self._queue(queue).remove_deduplication_key(id)))

    async def deduplication_job(self, queue: str, id: str) -> str | None:
        found = await got(self._queue(queue).get_deduplication_job_id(id))
        return None if found is None else str(found)

    # --- schedulers ---------------------------------------------------------------------------------------------------

    async def upsert_scheduler(self, queue: str, id: str, repeat: Args, template: Args) -> str | None:
        options = options_of(template["opts"])
        rule = repeat_of(repeat)
        job = await got(self._queue(queue).upsert_job_scheduler(id, rule, template["name"], template["data"], options))
        return None if job is None else str(job.id)

    async def schedulers(self, queue: str) -> list[dict[str, Any]]:
        return [scheduler_in_words(found) for found in await got(self._queue(queue).get_job_schedulers())]

    async def remove_scheduler(self, queue: str, id: str) -> bool:
        return bool(await got(self._queue(queue).remove_job_scheduler(id)))


def _ids(added: Any) -> dict[str, Any]:
    return {"id": added.job.id, "children": [_ids(child) for child in added.children or ()]}
