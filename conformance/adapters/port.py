"""BullMQ's Python port, by its documented API: `<Python with bullmq> conformance/adapters/port.py`.

What it has no public method for is left out of `can`, and so is `open`: its queues write nothing when they are opened.
"""

import asyncio
import json
import re
import sys
import uuid
from importlib.metadata import version
from typing import Any

from bullmq import FlowProducer, Job, Queue, UnrecoverableError, Worker

STATES = ("waiting", "active", "delayed", "prioritized", "waiting-children", "completed", "failed", "paused")
FIELDS = "name data progress returnvalue failedReason attemptsMade attemptsStarted delay priority timestamp "
FIELDS += "processedOn finishedOn parentKey"
_QUEUE = """
state=getJobState(id) priorities=getCountsPerPriority(priorities) logs=getJobLogs(id) is_paused=isPaused()
clean=clean(grace,limit,state) deduplication_job=getDeduplicationJobId(id) schedulers=getJobSchedulers() pause=pause()
resume=resume() drain=drain(delayed) obliterate=obliterate(force) promote_jobs=promoteJobs()
set_concurrency=setGlobalConcurrency(concurrency) remove_scheduler=removeJobScheduler(id)
"""
_JOB = """
finish=moveToCompleted(value,token) delay=moveToDelayed(until,token) promote=promote() retry=retry(state)
update_data=updateData(data) progress=updateProgress(progress) log=log(row) children_values=getChildrenValues()
"""
# Requests, with the methods of queue or job that do them and the members of the request that these take.
OF_QUEUE, OF_JOB = (
    {name: (method, re.findall(r"\w+", args)) for name, method, args in re.findall(r"(\w+)=(\w+)\((.*?)\)", table)}
    for table in (_QUEUE, _JOB)
)
NOTHING = "pause resume drain obliterate promote_jobs set_concurrency finish delay promote retry update_data progress"

Args = dict[str, Any]


class Port:
    def __init__(self) -> None:
        self._connection: Args = {}
        self._open: dict[tuple[Any, str], Any] = {}
        self._taken: dict[tuple[str, str], Any] = {}

    def _queue(self, a: Args) -> Any:
        key = (Queue, a["queue"])
        if key not in self._open:
            self._open[key] = Queue(a["queue"], self._connection)
        return self._open[key]

    async def _job(self, a: Args) -> Any:
        job = self._taken.get((a["queue"], a.get("token", "")))
        if job is None or job.id != a["id"]:
            job = await Job.fromId(self._queue(a), a["id"])
        return job

    async def call(self, name: str, a: Args) -> Any:
        method, names = {**OF_QUEUE, **OF_JOB}.get(name, (None, ()))
        if method is not None:
            found = self._queue(a) if name in OF_QUEUE else await self._job(a)
            result = await getattr(found, method)(*(a[each] for each in names))
            result = bool(result) if name in ("is_paused", "remove_scheduler") else result
            return None if name in NOTHING.split() else result
        return await getattr(self, name)(a)

    async def hello(self, a: Args) -> Args:
        self._connection = {"connection": a["url"], "autorun": False, "lockDuration": 30_000, "drainDelay": 0.01}
        can = sorted({name for name in dir(self) if name[0] != "_"} - {"call", "hello", "reset"} | {*OF_QUEUE, *OF_JOB})
        return {"client": "BullMQ's Python port", "version": version("bullmq"), "can": can}

    async def reset(self, a: Args) -> None:
        for each in self._open.values():
            await each.close()
        self._open, self._taken = {}, {}

    async def add(self, a: Args) -> str:
        return (await self._queue(a).add(a["name"], a["data"], a["opts"])).id

    async def add_bulk(self, a: Args) -> list[str]:
        return [job.id for job in await self._queue(a).addBulk(a["jobs"])]

    async def flow(self, a: Args) -> Args:
        def ids(added: Args) -> Args:
            return {"id": added["job"].id, "children": [ids(child) for child in added.get("children") or ()]}

        self._open.setdefault(("flow", ""), FlowProducer(self._connection))
        return ids(await self._open["flow", ""].add(a["flow"]))

    async def take(self, a: Args) -> Args | None:
        token = uuid.uuid4().hex
        # A worker that found nothing waits for the next delayed job before it looks again: a new one looks at once.
        self._open[Worker, token] = Worker(a["queue"], None, self._connection)
        job = await self._open[Worker, token].getNextJob(token)
        self._taken[a["queue"], token] = job
        return None if job is None else {"id": job.id, "token": token, "name": job.name, "data": job.data}

    async def fail(self, a: Args) -> None:
        error = UnrecoverableError(a["reason"]) if a["fatal"] else RuntimeError(a["reason"])
        await (await self._job(a)).moveToFailed(error, a["token"])

    async def wait_for_children(self, a: Args) -> bool:
        return bool(await (await self._job(a)).moveToWaitingChildren(a["token"], {}))

    async def change_priority(self, a: Args) -> None:
        await (await self._job(a)).changePriority({"priority": a["priority"], "lifo": a["lifo"]})

    async def remove(self, a: Args) -> bool:
        return bool(await self._queue(a).remove(a["id"], {"removeChildren": a["remove_children"]}))

    async def retry_jobs(self, a: Args) -> None:
        await self._queue(a).retryJobs({"state": a["state"]})

    async def job(self, a: Args) -> Args | None:
        job = await Job.fromId(self._queue(a), a["id"])
        return job and {
            **{name: getattr(job, name, None) for name in FIELDS.split()},
            "stacktraces": len(job.stacktrace or ()),
        }

    async def jobs(self, a: Args) -> list[str]:
        return [job.id for job in await self._queue(a).getJobs(a["states"], a["start"], a["end"], a["asc"])]

    async def counts(self, a: Args) -> Any:
        return await self._queue(a).getJobCounts(*STATES)

    async def upsert_scheduler(self, a: Args) -> str | None:
        its = a["template"]
        made = await self._queue(a).upsertJobScheduler(a["id"], a["repeat"], its["name"], its["data"], its["opts"])
        return None if made is None else str(made.id)


async def main() -> None:
    port = Port()
    while text := await asyncio.to_thread(sys.stdin.readline):
        line = json.loads(text)
        try:
            answer = {"result": await port.call(line["call"], line["args"])}
        except Exception as error:
            answer = {"error": str(error) or type(error).__name__}
        print(json.dumps({"n": line["n"], **answer}), flush=True)
    await port.reset({})


asyncio.run(main())
