"""What runs the handlers on asyncio and trio: many outcomes in one call, and handlers that disturb only themselves."""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import anyio
import pytest

from bullmq_anyio import Connection, Job, Queue, Worker
from bullmq_anyio.driving import slots
from bullmq_anyio.driving.contact import Contact
from bullmq_anyio.driving.slots import Slots
from bullmq_protocol import JobOptions, NewJob
from bullmq_protocol.commands.batches import MOST_OUTCOME_BYTES
from bullmq_protocol.worker.actions import Call, Wait
from bullmq_protocol.worker.notices import JobCompleted, JobFailed
from bullmq_protocol.worker.options import WorkerOptions
from tests.support.servers import Server

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]
Handler = Callable[[Job[Any]], Awaitable[Any]]


@pytest.fixture
def queue_name() -> str:
    return f"slots-{uuid4().hex[:12]}"


class _Counting(Connection):
    """Counts the commands by name, and the bytes of outcomes."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.names: list[str] = []
        self.sizes: list[int] = []

    async def perform(self, step: Any, /) -> Any:
        self.names.append(getattr(step, "name", "batch"))
        if self.names[-1] == "finishMany":
            self.sizes.append(sum(len(each) for each in step.args[3:]))
        return await super().perform(step)


async def _work_off(server: Server, queue: str, count: int, handler: Handler, concurrency: int, data: Any = 1) -> Any:
    """Process that many jobs; return the connection with its counts, and how each job ended."""
    connection = _Counting(server.url)
    ends: dict[str, str] = {}
    over = anyio.Event()

    def ended(notice: JobCompleted | JobFailed) -> None:
        ends[notice.job.id] = type(notice).__name__
        if len(ends) == count:
            over.set()

    async with Queue[Any](queue, connection) as adding:
        await adding.add_bulk([NewJob("job", data) for _ in range(count)])
        worker = Worker[Any](queue, handler, connection, options=WorkerOptions(concurrency=concurrency))
        worker.on(JobCompleted, ended)
        worker.on(JobFailed, ended)
        with anyio.fail_after(60):
            async with worker:
                await over.wait()
        counts = await adding.get_job_counts()
        assert counts["active"] == counts["waiting"] == 0
    await connection.aclose()
    return connection, ends


async def test_outcomes_that_are_ready_together_go_in_one_call(server: Server, queue_name: str) -> None:
    async def nothing(job: Job[Any]) -> None:
        pass

    connection, ends = await _work_off(server, queue_name, 300, nothing, 50)
    assert set(ends.values()) == {"JobCompleted"}
    assert 300 / 50 <= connection.names.count("finishMany") <= 60
    assert connection.names.count("moveToFinished") < 60


async def test_free_places_are_filled_in_one_call(server: Server, queue_name: str, anyio_backend_name: str) -> None:
    full = anyio.Event()
    began: list[str] = []

    async def gather(job: Job[Any]) -> None:
        began.append(job.id)
        if len(began) == 20:
            full.set()
        await full.wait()

    connection, ends = await _work_off(server, queue_name, 20, gather, 20)
    assert len(ends) == 20
    if anyio_backend_name == "trio":
        # It runs the tasks of one turn in any order.
        began.sort(key=int)
    assert began == [str(number) for number in range(1, 21)]
    assert connection.names.count("moveToActive") == 0
    # the second asks whether there is more, when the places are free again
    assert 1 <= connection.names.count("fetchMany") <= 3


async def test_one_job_at_a_time_takes_single_calls(server: Server, queue_name: str) -> None:
    async def nothing(job: Job[Any]) -> None:
        pass

    connection, ends = await _work_off(server, queue_name, 20, nothing, 1)
    assert len(ends) == 20
    assert (connection.names.count("moveToFinished"), connection.names.count("finishMany")) == (20, 0)


async def test_handlers_that_wait_run_together(server: Server, queue_name: str) -> None:
    together, most = 0, 0
    full = anyio.Event()

    async def meet(job: Job[Any]) -> None:
        nonlocal together, most
        together += 1
        most = max(most, together)
        if most == 10:
            full.set()
        await full.wait()
        together -= 1

    _, ends = await _work_off(server, queue_name, 40, meet, 10)
    assert (len(ends), most) == (40, 10)


async def test_large_jobs_come_in_several_answers(server: Server, queue_name: str) -> None:
    sizes: list[int] = []

    async def measure(job: Job[Any]) -> None:
        sizes.append(len(job.data))

    _, ends = await _work_off(server, queue_name, 40, measure, 20, data="x" * 200_000)
    assert (len(ends), set(sizes)) == (40, {200_000})


async def test_jobs_of_an_answer_start_while_the_next_call_is_made(
    server: Server, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer has no place for all jobs: the task that has it makes the next call before it is free."""
    began, waits, held = anyio.Event(), anyio.Event(), 0
    wait = Contact.wait

    async def watched(contact: Contact, call: Any) -> Any:
        waits.set()
        return await wait(contact, call)

    monkeypatch.setattr(Contact, "wait", watched)

    class Holding(Connection):
        fetched = False

        async def perform(self, step: Any, /) -> Any:
            nonlocal held
            if self.fetched:
                held += 1
                await began.wait()
            answer = await super().perform(step)
            # Of the calls that a worker makes while it has no job, this one brings the first.
            self.fetched = self.fetched or (
                waits.is_set() and getattr(step, "name", "") in ("fetchMany", "moveToActive")
            )
            return answer

    async def process(job: Job[Any]) -> None:
        began.set()

    # No timer of the worker wakes a slot meanwhile.
    options = WorkerOptions(concurrency=20, lock_duration=600_000, stalled_interval=600_000)
    connection = Holding(server.url)
    async with Queue[Any](queue_name, server.url) as adding:
        with anyio.fail_after(20):
            async with Worker[Any](queue_name, process, connection, options=options):
                await waits.wait()
                await adding.add_bulk([NewJob("job", "x" * 200_000) for _ in range(20)])
                await began.wait()
        await adding.obliterate(force=True)
    await connection.aclose()
    assert held > 0


async def test_large_results_go_in_several_calls(server: Server, queue_name: str) -> None:
    together = anyio.Event()
    began: list[str] = []

    async def write(job: Job[Any]) -> str:
        began.append(job.id)
        if len(began) == 20:
            together.set()
        await together.wait()
        return job.id + "x" * (MOST_OUTCOME_BYTES // 4)

    connection, ends = await _work_off(server, queue_name, 20, write, 20)
    assert len(ends) == 20
    assert connection.names.count("moveToFinished") + connection.names.count("finishMany") >= 6
    assert max(connection.sizes) <= MOST_OUTCOME_BYTES


async def test_a_handler_that_cancels_its_own_task_disturbs_no_other(
    server: Server, queue_name: str, anyio_backend_name: str
) -> None:
    async def careless(job: Job[Any]) -> None:
        if anyio_backend_name == "asyncio" and int(job.id) % 7 == 0:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()

    connection, ends = await _work_off(server, queue_name, 60, careless, 10)
    assert len(ends) == 60
    assert set(ends.values()) == {"JobCompleted"}
    assert connection.names.count("moveStalledJobsToWait") == 1


async def test_a_job_that_was_waited_for_is_started_by_the_task_that_fetched_it(
    server: Server, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No slot is woken for it: that would cost a turn of the loop. Nor does another one stay for each."""
    asleep, woken, waits, ended = 0, 0, anyio.Event(), anyio.Event()
    sleep, wait = vars(Slots)["_sleep"], Contact.wait

    async def counted(slots: Slots[Any], slot: Any) -> None:
        nonlocal asleep, woken
        asleep += 1
        await sleep(slots, slot)
        woken += 1

    async def watched(contact: Contact, call: Any) -> Any:
        waits.set()
        return await wait(contact, call)

    monkeypatch.setattr(Slots, "_sleep", counted)
    monkeypatch.setattr(Contact, "wait", watched)

    async def process(job: Job[Any]) -> None:
        pass

    worker = Worker[Any](queue_name, process, server.url)
    worker.on(JobCompleted, lambda notice: ended.set())
    with anyio.fail_after(60):
        async with Queue[Any](queue_name, server.url) as adding, worker:
            for number in range(20):
                await waits.wait()
                waits, ended = anyio.Event(), anyio.Event()
                await adding.add("job", number)
                await ended.wait()
            await waits.wait()
            assert (asleep, woken) == (1, 0)


@pytest.mark.parametrize(("most", "tasks"), [(64, 84), (3, 400)])
async def test_calls_of_jobs_that_fail_are_made_by_tasks_that_stay(
    server: Server, queue_name: str, monkeypatch: pytest.MonkeyPatch, most: int, tasks: int
) -> None:
    """Each needs a call of its own, and a task for each took a tenth more CPU time."""
    monkeypatch.setattr(slots, "_MOST_CARRIERS", most)
    carriers, idle = set[int](), 0
    make_all = vars(Slots)["_make_all"]

    async def counted(slots: Any, call: Any) -> Any:
        nonlocal idle
        carriers.add(anyio.get_current_task().id)
        idle = max(idle, len(slots._carriers))
        return await make_all(slots, call)

    monkeypatch.setattr(Slots, "_make_all", counted)
    ends = await _fail_once(server, queue_name, 400, 20, monkeypatch)
    assert ends == 400
    assert 0 < idle <= most
    assert len(carriers) <= tasks


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_call_is_not_lost_with_the_task_that_was_woken_for_it(
    server: Server, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, struck = vars(Slots)["_send"], 0

    def strikes(slots: Any, call: Any) -> None:
        nonlocal struck
        woken = slots._carriers[-1] if slots._carriers else None
        send(slots, call)
        if woken is None or woken.call is None:
            return
        for task in [each for each in gc.get_objects() if issubclass(type(each), asyncio.Task)]:
            if getattr(task, "_fut_waiter", None) is woken.wake:
                struck += task.cancel()

    monkeypatch.setattr(Slots, "_send", strikes)
    assert await _fail_once(server, queue_name, 40, 4, monkeypatch) == 40
    assert struck > 0


async def test_a_task_that_waits_for_a_call_keeps_none(
    server: Server, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may hold much that the user's code wrote, and a worker may be idle for long."""
    waiting = vars(Slots)["_next_call"]
    kept: list[Any] = []

    async def looks(slots: Any, carrier: Any) -> Any:
        frame = inspect.currentframe()
        assert frame is not None
        assert frame.f_back is not None
        kept.extend([each for each in frame.f_back.f_locals.values() if type(each) in (Call, Wait)])
        return await waiting(slots, carrier)

    monkeypatch.setattr(Slots, "_next_call", looks)
    assert await _fail_once(server, queue_name, 20, 4, monkeypatch) == 20
    assert kept == []


async def test_no_task_stays_in_which_code_of_others_has_run(
    server: Server, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A context variable that a call has set would be there in the next one, which belongs to another job."""
    waited, next_call = list[Any](), vars(Slots)["_next_call"]

    async def watched(slots: Any, carrier: Any) -> Any:
        call = await next_call(slots, carrier)
        waited.append(call)
        return call

    monkeypatch.setattr(Slots, "_next_call", watched)
    transport = _Counting(server.url)
    assert await _fail_once(server, queue_name, 40, 4, monkeypatch, transport) == 40
    await transport.aclose()
    assert set(waited) == {None}


async def _fail_once(
    server: Server,
    queue: str,
    count: int,
    concurrency: int,
    monkeypatch: pytest.MonkeyPatch,
    transport: Connection | None = None,
) -> int:
    """Process jobs that fail once; return how many have completed."""
    completed, over, perform = 0, anyio.Event(), vars(Slots)["perform"]
    names: list[str] = []

    async def counted(slots: Any, call: Any) -> Any:
        names.append(call.command.name)
        return await perform(slots, call)

    monkeypatch.setattr(Slots, "perform", counted)

    async def process(job: Job[Any]) -> None:
        if not job.attempts_made:
            raise LookupError

    def ended(notice: JobCompleted) -> None:
        nonlocal completed
        completed += 1
        if completed == count:
            over.set()

    async with Queue[Any](queue, server.url) as adding:
        await adding.add_bulk([NewJob("job", 1, JobOptions(attempts=2)) for _ in range(count)])
        worker = Worker[Any](queue, process, transport or server.url, options=WorkerOptions(concurrency=concurrency))
        worker.on(JobCompleted, ended)
        with anyio.fail_after(60):
            async with worker:
                await over.wait()
        await adding.obliterate(force=True)
    # None is made again, neither by another task nor at the end.
    assert names.count("retryJob") == count
    return completed
