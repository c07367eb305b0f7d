"""A producer or a worker in one of our adapters: `python -m tests.chaos.program '{...}'`. It ends when stdin does."""

import json
import logging
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import anyio
import anyio.to_thread
import msgspec

import bullmq_anyio
import bullmq_sync
from bullmq_protocol import Backoff, JobOptions, NewJob, WorkerOptions
from bullmq_protocol.errors import BulkAddError, BullMQError, FlowAddError, ServerError, TransportError
from bullmq_protocol.model.flow import FlowNode
from bullmq_protocol.worker.notices import JobCompleted, JobFailed, ReportRefused
from tests.chaos.ledger import Ledger
from tests.chaos.load import (
    ATTEMPTS,
    BULK,
    CONCURRENCY,
    KEPT,
    LANES,
    LEAN,
    MAX_LEN_EVENTS,
    PERIOD_S,
    QUEUES,
    REST_S,
    RETRY_MS,
    ROOM,
    SPARSE_S,
)
from tests.support.lines import finish, got


class _Producer:
    """One lane of adds. Marks and ids begin with the name of the process, so that no other process has them."""

    def __init__(self, name: str, seed: str, ledger: Ledger, queues: dict[str, Any], flows: Any, sleep: Any) -> None:
        self._name = name
        self._flows = flows
        self._dice = random.Random(seed)
        self._ledger = ledger
        self._queues = queues
        self._sleep = sleep
        self._count = self._turn = 0
        self._open = QUEUES
        self.over = False

    async def produce(self) -> None:
        while not self.over:
            if time.time() % PERIOD_S < SPARSE_S:
                await got(self._sleep(self._dice.uniform(0.5, 1.5) * REST_S))
            if self._turn % 5 == 0:
                await self._await_room()
            self._turn += 1
            where = self._dice.choice(self._open)
            way = self._dice.random()
            if where == KEPT and way < 0.3:
                await self._add_safely(self._new(where))
            elif way < 0.4:
                await self._add_bulk([self._new(where) for _ in range(BULK)], where)
            elif way < 0.45:
                await self._add_flow()
            else:
                await self._add_once(self._new(where), where)

    def _new(self, where: str) -> NewJob:
        self._count += 1
        dice = self._dice
        size = dice.random()
        work_ms = dice.randrange(1000, 4000) if size < 0.03 else dice.randrange(180) if size < 0.7 else 0
        data = {"work_ms": work_ms, "fails": 0}
        if dice.random() < 0.08:
            data["fails"] = dice.choice((1, 1, 2, 3))
        options: dict[str, Any] = {"attempts": ATTEMPTS, "backoff": Backoff(type="fixed", delay=RETRY_MS)}
        kind = dice.random()
        if kind < 0.05:
            options["delay"] = dice.randrange(1, 1500)
        elif kind < 0.1:
            options["priority"] = dice.randrange(1, 10)
        elif kind < 0.12:
            del options["backoff"]
        if where == LEAN:
            options["remove_on_complete"] = True
        return NewJob(f"{self._name}.{self._count}", data, JobOptions(**options))

    async def _add_once(self, job: NewJob, where: str) -> None:
        """Add without an id: never repeated."""
        self._ledger.note("try", where, job.name)
        try:
            added = await got(self._queues[where].add(job.name, job.data, job.options))
        except BullMQError as error:
            await self._failed(where, [job.name], error)
        else:
            self._ledger.note("ack", where, job.name, added.id)

    async def _add_bulk(self, jobs: list[NewJob], where: str) -> None:
        for job in jobs:
            self._ledger.note("try", where, job.name)
        try:
            results: list[Any] = await got(self._queues[where].add_bulk(jobs))
        except BulkAddError as error:
            results = error.results
        except BullMQError as error:
            await self._failed(where, [job.name for job in jobs], error)
            return
        for job, result in zip(jobs, results, strict=True):
            if isinstance(result, BullMQError):
                await self._failed(where, [job.name], result)
            else:
                self._ledger.note("ack", where, job.name, result.id)

    async def _add_flow(self) -> None:
        """Add a job that waits for two others, in both queues; their failures do not stop it."""
        nodes = [
            FlowNode(job.name, queue, job.data, job.options)
            for queue, job in ((queue, self._new(queue)) for queue in (KEPT, *QUEUES))
        ]
        options = [msgspec.structs.replace(node.options, ignore_dependency_on_failure=True) for node in nodes[1:]]
        children = [
            msgspec.structs.replace(node, options=given) for node, given in zip(nodes[1:], options, strict=True)
        ]
        for node in nodes:
            self._ledger.note("try", node.queue_name, node.name)
        try:
            added = await got(self._flows.add(msgspec.structs.replace(nodes[0], children=children)))
            results = [added.job.id, *(child.job.id for child in added.children)]
        except FlowAddError as error:
            results = error.results
        except BullMQError as error:
            results = [error] * len(nodes)
        for node, result in zip(nodes, results, strict=True):
            if isinstance(result, BullMQError):
                await self._failed(node.queue_name, [node.name], result)
            else:
                self._ledger.note("ack", node.queue_name, node.name, result)

    async def _add_safely(self, job: NewJob) -> None:
        """Add with an id of its own, again and again until the server says that the job is there."""
        options = msgspec.structs.replace(job.options, job_id=f"own-{job.name}")
        self._ledger.note("try", KEPT, job.name)
        while True:
            try:
                added = await got(self._queues[KEPT].add(job.name, job.data, options))
            except (TransportError, ServerError):
                if self.over:
                    self._ledger.note("unsure", KEPT, job.name)
                    return
                await got(self._sleep(self._dice.uniform(0.02, 0.2)))
            else:
                self._ledger.note("ack", KEPT, job.name, added.id)
                return

    async def _failed(self, where: str, marks: list[str], error: BullMQError) -> None:
        for mark in marks:
            if isinstance(error, TransportError) and error.maybe_applied:
                self._ledger.note("unsure", where, mark)
            else:
                self._ledger.note("not", where, mark, type(error).__name__, str(error)[:100])
        await got(self._sleep(self._dice.uniform(0.02, 0.1)))

    async def _await_room(self) -> None:
        """Wait until a queue has room; go on with those that have."""
        while not self.over:
            self._open = tuple([queue for queue in QUEUES if await self._has_room(queue)])
            if self._open:
                return
            await got(self._sleep(0.05))
        self._open = QUEUES

    async def _has_room(self, queue: str) -> bool:
        try:
            counts = await got(self._queues[queue].get_job_counts("waiting", "prioritized", "delayed"))
        except BullMQError:
            return False
        return sum(counts.values()) <= ROOM


class _Worker:
    """The handler of one queue, over either facade."""

    def __init__(self, queue: str, ledger: Ledger, sleep: Any) -> None:
        self._queue = queue
        self._ledger = ledger
        self._sleep = sleep

    async def process(self, job: Any) -> str:
        self._ledger.note("start", self._queue, job.id, job.name, job.attempts_started, job.attempts_made)
        await got(self._sleep(job.data["work_ms"] / 1000))
        if job.attempts_made < job.data["fails"]:
            raise RuntimeError("as told")
        return f"done:{job.name}"

    def listen(self, worker: Any) -> None:
        note, queue = self._ledger.note, self._queue
        worker.on(JobCompleted, lambda it: note("done", queue, it.job.id, it.job.name))
        worker.on(
            JobFailed,
            lambda it: note("failed", queue, it.job.id, it.job.name, int(it.retry_delay_ms is None), it.reason),
        )
        worker.on(ReportRefused, lambda it: note("refused", queue, it.job.id, it.job.name, int(it.uncertain)))


def _options(config: dict[str, Any], queue: str) -> WorkerOptions:
    return WorkerOptions(
        concurrency=CONCURRENCY[queue],
        lock_duration=config["lock_ms"],
        stalled_interval=config["stalled_ms"],
        name=config["name"],
        shutdown_timeout=10_000,
    )


def _queues(make: Any, url: str) -> dict[str, Any]:
    return {queue: make(queue, url, max_len_events=MAX_LEN_EVENTS) for queue in QUEUES}


async def _main(config: dict[str, Any], ledger: Ledger) -> None:
    if config["role"] == "worker":
        async with anyio.create_task_group() as tasks:
            workers = []
            for queue in QUEUES:
                handler = _Worker(queue, ledger, anyio.sleep)
                worker: Any = bullmq_anyio.Worker(
                    queue, handler.process, config["url"], options=_options(config, queue)
                )
                handler.listen(worker)
                workers.append(worker)
                tasks.start_soon(worker.run)
            await anyio.to_thread.run_sync(sys.stdin.read)
            for worker in workers:
                tasks.start_soon(worker.aclose)
        return
    queues = _queues(bullmq_anyio.Queue, config["url"])
    flows = bullmq_anyio.FlowProducer(config["url"])
    async with anyio.create_task_group() as tasks:
        lanes = _lanes(config, ledger, queues, flows, anyio.sleep)
        for lane in lanes:
            tasks.start_soon(lane.produce)
        await anyio.to_thread.run_sync(sys.stdin.read)
        _finish_all(lanes)
    for made in (flows, *queues.values()):
        await made.aclose()


def _main_blocking(config: dict[str, Any], ledger: Ledger) -> None:
    if config["role"] == "worker":
        with ExitStack() as stack:
            for queue in QUEUES:
                stack.enter_context(_blocking_worker(config, ledger, queue))
            sys.stdin.read()
        return
    queues = _queues(bullmq_sync.Queue, config["url"])
    flows = bullmq_sync.FlowProducer(config["url"])
    lanes = _lanes(config, ledger, queues, flows, time.sleep)
    threads = [threading.Thread(target=lambda lane=lane: finish(lane.produce())) for lane in lanes]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    _finish_all(lanes)
    for thread in threads:
        thread.join()
    for made in (flows, *queues.values()):
        made.close()


@contextmanager
def _blocking_worker(config: dict[str, Any], ledger: Ledger, queue: str) -> Iterator[None]:
    handler = _Worker(queue, ledger, time.sleep)
    worker: Any = bullmq_sync.Worker(
        queue, lambda job: finish(handler.process(job)), config["url"], options=_options(config, queue)
    )
    handler.listen(worker)
    with worker:
        yield


def _lanes(config: dict[str, Any], ledger: Ledger, queues: dict[str, Any], flows: Any, sleep: Any) -> list[_Producer]:
    names = [f"{config['name']}.{lane}" for lane in range(LANES)]
    return [_Producer(name, f"{config['seed']} {name}", ledger, queues, flows, sleep) for name in names]


def _finish_all(lanes: list[_Producer]) -> None:
    for lane in lanes:
        lane.over = True


def _without_trace(record: logging.LogRecord) -> bool:
    """Leave the exceptions of handlers out of the log: a trace in it is one of ours."""
    if record.msg.startswith("job %s of %s failed"):
        record.exc_info = None
    return True


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    book = Ledger(given["ledger"])
    book.watch()
    logging.basicConfig(format="%(asctime)s.%(msecs)03d %(message)s", datefmt="%H:%M:%S")
    logging.getLogger().handlers[0].addFilter(_without_trace)
    if given["adapter"] == "threads":
        _main_blocking(given, book)
    else:
        anyio.run(_main, given, book, backend=given["adapter"])
    book.note("end")
