"""What handlers, callbacks and documents of others may do to a scheduler: nothing that another job meets."""

import asyncio
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import anyio
import pytest
from bson import Code, DatetimeMS, Decimal128, Int64, ObjectId, Regex
from pymongo import MongoClient
from pymongo.errors import OperationFailure

import monque_anyio
import monque_sync
from bullmq_protocol.errors import UsageError
from monque_protocol import events
from monque_protocol.document import Job
from monque_protocol.errors import MonqueConnectionError
from tests.monque.conftest import Monques
from tests.support import mongo_servers
from tests.support.seen import LIMIT_S, Seen

pytestmark = pytest.mark.anyio
REQUEST: ContextVar[str] = ContextVar("REQUEST", default="nobody's")


class MuteError(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)

    __repr__ = __str__


class OddError(BaseException):
    pass


RAISED: dict[str, Callable[[], BaseException]] = {
    "exit": lambda: SystemExit(3),
    "generator": GeneratorExit,
    "cancelled": asyncio.CancelledError,
    "odd": lambda: OddError("odd"),
    "mute": MuteError,
    "stop": lambda: StopAsyncIteration("no more"),
    "group": lambda: BaseExceptionGroup("two", [SystemExit(1), ValueError("x")]),
    "surrogate": lambda: ValueError("\ud800"),
    "huge": lambda: ValueError("x" * 20_000_000),
}


class Handler:
    """Raises what the payload names. No function, so that it is called on a thread of the scheduler there."""

    def __call__(self, job: Job[Any]) -> Any:
        if job.data in RAISED:
            raise RAISED[job.data]()
        return object()


async def test_whatever_a_handler_raises_is_a_run_that_failed(monque: Monques) -> None:
    async with monque.running(max_retries=1) as scheduler:
        seen = Seen(scheduler, events.JobFailed, events.JobCompleted, events.JobErrored)
        scheduler.worker("mail", Handler())
        for number in range(3):
            for each in RAISED:
                await scheduler.enqueue("mail", each)
            await scheduler.enqueue("mail", number)
        await seen.until(lambda: len(seen.all) == 3 * len(RAISED) + 3)
        assert scheduler.is_healthy and not seen.of(events.JobErrored)
        stored = {each.data: each for each in await scheduler.get_jobs(limit=0)}
    assert {stored[each].status for each in RAISED} == {"failed"}
    assert {stored[number].status for number in range(3)} == {"completed"}
    assert stored["huge"].fail_reason == "x" * 65_536 and stored["exit"].fail_reason


class Asynchronous:
    """What a handler can do to its own task, and to what it is in."""

    def __init__(self) -> None:
        self.go_on = anyio.Event()
        self.kept: list[Any] = []

    async def cancel_at_the_end(self) -> None:
        current = asyncio.current_task()
        assert current is not None
        current.cancel()

    async def cancel_and_wait(self) -> None:
        await self.cancel_at_the_end()
        await anyio.sleep(0)

    async def cancel_later(self) -> None:
        current = asyncio.current_task()
        assert current is not None
        asyncio.get_running_loop().call_later(0.01, current.cancel)

    async def leave_a_scope_open(self) -> None:
        scope = anyio.CancelScope()
        scope.__enter__()
        scope.cancel()
        self.kept.append(scope)

    async def leave_a_group_open(self) -> None:
        group = anyio.create_task_group()
        await group.__aenter__()
        group.start_soon(anyio.sleep, 0.01)
        self.kept.append(group)

    async def wait_for_others(self) -> None:
        await self.go_on.wait()


OF_TASKS = {
    "asyncio": ("cancel_at_the_end", "cancel_and_wait", "cancel_later", "leave_a_scope_open", "leave_a_group_open"),
    "trio": ("leave_a_scope_open", "leave_a_group_open"),
    # There it is the future for which the thread waits that is cancelled.
    "threads": ("cancel_and_wait",),
}


async def test_what_a_handler_does_to_its_task_meets_no_other(monque: Monques) -> None:
    acts = OF_TASKS.get(monque.adapter, OF_TASKS["asyncio"])
    hostile = Asynchronous()
    async with monque.running(max_retries=1) as scheduler:
        seen = Seen(scheduler, events.JobFailed, events.JobCompleted, events.JobReleased)

        async def handle(job: Job[Any]) -> None:
            await getattr(hostile, job.data)()

        scheduler.worker("mail", handle, concurrency=20)
        neighbour = await scheduler.enqueue("mail", "wait_for_others")
        for _ in range(2):
            for act in acts:
                await scheduler.enqueue("mail", act)
        await seen.until(lambda: len(seen.all) == 2 * len(acts))
        await anyio.sleep(0.02)
        assert scheduler.is_healthy and scheduler.snapshot().jobs == (neighbour.id,)
        hostile.go_on.set()
        await seen.until(lambda: len(seen.all) == 2 * len(acts) + 1)
        assert seen.of(events.JobCompleted)[-1].job.id == neighbour.id and not seen.of(events.JobReleased)


async def test_context_variables_of_a_handler_or_a_callback_reach_no_job(monque: Monques) -> None:
    found: list[str] = []

    class Look:
        def __call__(self, job: Job[Any]) -> None:
            found.append(REQUEST.get())
            REQUEST.set(job.id)

    REQUEST.set("the owner's")
    async with monque.running() as scheduler:
        REQUEST.set("not for jobs")
        seen = Seen(scheduler, events.JobCompleted)
        scheduler.on(events.JobStarted, lambda event: REQUEST.set("the callback's") and None)
        scheduler.worker("mail", Look(), concurrency=2)
        for _ in range(12):
            await scheduler.enqueue("mail", None)
        await seen.wait(events.JobCompleted, 12)
    assert set(found) == {"the owner's"}


class Callback:
    """Raises, or cancels the current task; it counts its calls."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.calls = 0

    def __call__(self, event: Any) -> Any:
        self.calls += 1
        if self.kind == "cancel":
            current = asyncio.current_task() if "trio" not in sys.modules or _is_asyncio() else None
            if current is not None:
                current.cancel()
            return None
        if self.kind == "async":
            return self._later()
        raise RAISED[self.kind]()

    async def _later(self) -> None:
        if _is_asyncio():
            current = asyncio.current_task()
            assert current is not None
            current.cancel()
        raise OddError("later")


def _is_asyncio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("kind", ["exit", "cancelled", "odd", "mute", "cancel", "async"])
async def test_whatever_a_callback_does_meets_neither_jobs_nor_the_scheduler(
    monque: Monques, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with monque.running(base_retry_interval=1) as scheduler:
        hostile = Callback(kind)
        for each in (events.JobStarted, events.JobFailed, events.JobCompleted, events.JobDeleted):
            scheduler.on(each, hostile)
        seen = Seen(scheduler, events.JobCompleted)

        class First:
            def __call__(self, job: Job[Any]) -> None:
                if job.fail_count == 0:
                    raise ValueError("the first run")

        scheduler.worker("mail", First(), concurrency=2)
        for _ in range(4):
            added = await scheduler.enqueue("mail", None)
        await seen.wait(events.JobCompleted, 4)
        assert await scheduler.delete_job(added.id)
        assert scheduler.is_healthy and hostile.calls == 17
    if kind == "cancel":
        assert caplog.text == ""
    else:
        assert "a callback of JobStarted" in caplog.text and "a callback of JobDeleted" in caplog.text


async def test_a_handler_that_stops_its_scheduler_is_waited_for_as_long_as_any(monque: Monques) -> None:
    async with monque.running(shutdown_timeout=50) as scheduler:
        seen = Seen(scheduler, events.JobErrored, events.JobCompleted)

        async def handle(job: Job[Any]) -> None:
            await scheduler.stop()

        scheduler.worker("mail", handle)
        await scheduler.enqueue("mail", None)
        await seen.wait(events.JobCompleted)
        (errored,) = seen.of(events.JobErrored)
        assert str(errored.error).startswith("Shutdown timed out after 50ms")
        await scheduler.start()
        assert scheduler.is_healthy


async def test_a_start_while_it_stops_waits_for_the_end(monque: Monques) -> None:
    entered, go_on = anyio.Event(), anyio.Event()
    async with monque.running() as scheduler:
        seen = Seen(scheduler, events.JobCompleted)

        async def handle(job: Job[Any]) -> None:
            entered.set()
            await go_on.wait()

        scheduler.worker("mail", handle)
        await scheduler.enqueue("mail", None)
        with anyio.fail_after(LIMIT_S):
            await entered.wait()
            async with anyio.create_task_group() as group:
                group.start_soon(scheduler.stop)
                while scheduler.snapshot().state == "running":
                    await anyio.lowlevel.checkpoint()
                group.start_soon(scheduler.start)
                group.start_soon(scheduler.start)
                await anyio.sleep(0.01)
                assert scheduler.snapshot().state == "shutting down"
                go_on.set()
        assert scheduler.is_healthy
        await scheduler.enqueue("mail", None)
        await seen.wait(events.JobCompleted, 2)


async def test_what_is_no_handler_is_refused(monque: Monques) -> None:
    scheduler = monque()

    async def generator(job: Job[Any]) -> Any:
        yield job

    async def later(job: Job[Any]) -> None:
        return None

    package: Any = monque_sync if monque.adapter == "threads" else monque_anyio
    other: Any = package.Monque(monque.plain["x"])
    for wrong in (generator, None, 5, *([later] if monque.adapter == "threads" else [])):
        with pytest.raises(UsageError, match=r"^handler: must be a function of the job"):
            other.worker("mail", wrong)
    assert scheduler.snapshot().jobs == ()


async def test_a_coroutine_on_threads_is_no_success(monque: Monques) -> None:
    async def later() -> None:
        return None

    class Hidden:
        def __call__(self, job: Job[Any]) -> Any:
            return later()

    async with monque.running(max_retries=1) as scheduler:
        seen = Seen(scheduler, events.JobCompleted, events.JobFailed)
        scheduler.worker("mail", Hidden())
        await scheduler.enqueue("mail", None)
        await seen.until(lambda: bool(seen.all))
        (event,) = seen.all
        assert isinstance(event, events.JobFailed) is (monque.adapter == "threads")
        if monque.adapter == "threads":
            assert "must not return a coroutine" in event.job.fail_reason


ODD_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 2**31, Int64(2**62), 1e308, float("nan"), "", "\x00", "x" * 10_000, b"\xff", [], {}, [1, [2]]),
    *({"$ne": 1}, {"a.b": 1}, ObjectId(), Decimal128("1E+6000"), Regex("x"), Code("x"), datetime(1, 1, 1, tzinfo=UTC)),
    *(DatetimeMS(2**62), DatetimeMS(-(2**62)), ["pending"], ["mail"], ["processing"]),
)
FIELDS = (
    *("data", "nextRunAt", "lockedAt", "claimedBy", "lastHeartbeat", "heartbeatInterval", "failCount", "failReason"),
    *("repeatInterval", "uniqueKey", "createdAt", "updatedAt", "status", "name"),
)


async def test_documents_with_anything_in_any_field_harm_no_other_job(monque: Monques) -> None:
    now = datetime.now(UTC)
    sound = {"name": "mail", "status": "pending", "nextRunAt": now, "failCount": 0, "createdAt": now, "updatedAt": now}
    odd = [{**sound, field: value, "odd": True} for field in FIELDS for value in ODD_VALUES]
    odd += [{**{key: each for key, each in sound.items() if key != field}, "odd": True} for field in FIELDS]
    if mongo_servers.kind() == "mongoeco":
        # It takes a fifth of a second for each.
        odd = odd[::7]
    async with monque() as scheduler:
        for each in odd:
            # The unique index counts some of them as equal.
            each["uniqueKey"] = each.get("uniqueKey", str(ObjectId()))
        stored = 0
        for each in odd:
            # What is a key twice, or what this server cannot store.
            with suppress(OperationFailure):
                await anyio.to_thread.run_sync(monque.stored.insert_one, each)
                stored += 1
        seen = Seen(scheduler, events.JobCompleted, events.JobErrored)
        ran: list[Any] = []

        async def handle(job: Job[Any]) -> None:
            ran.append(job.data)
            if job.fail_count > 3:
                raise ValueError("counted")

        scheduler.worker("mail", handle, concurrency=10)
        await scheduler.start()
        for number in range(10):
            await scheduler.enqueue("mail", f"sound {number}")
        await seen.until(
            lambda: {f"sound {number}" for number in range(10)} <= {each for each in ran if type(each) is str}
        )
        assert scheduler.is_healthy and stored > len(odd) // 2
        names = [view.name for view in await _or_refused(scheduler.get_queue_view_summaries) or []]
        assert names in ([], ["mail"]) or "mail" in names
        listed = await scheduler.get_jobs(limit=0)
        assert {f"sound {number}" for number in range(10)} <= {job.data for job in listed if type(job.data) is str}
        cursor, pages = None, 0
        while True:
            page = await scheduler.get_jobs_with_cursor(cursor=cursor, limit=50)
            cursor, pages = page.cursor, pages + 1
            if not page.has_next_page:
                break
        assert pages >= stored // 60
        await _or_refused(scheduler.get_queue_stats)
    # A second scheduler finds nothing that keeps it from starting.
    async with monque.running(lock_timeout=1) as other:
        assert other.is_healthy


async def _or_refused(call: Callable[[], Any]) -> Any:
    """Call it; the server may refuse to reckon with what is no moment, and says so."""
    with suppress(MonqueConnectionError):
        return await call()
    return None


async def test_a_payload_without_end_is_refused(monque: Monques) -> None:
    endless: dict[str, Any] = {}
    endless["x"] = endless
    async with monque() as scheduler:
        for wrong in (endless, {"x": object()}, {5: 1}, {"x": 2**70}, {"x": "\ud800"}):
            with pytest.raises(MonqueConnectionError, match=r"^Failed to enqueue job: "):
                await scheduler.enqueue("mail", wrong)
        assert monque.stored.count_documents({}) == 0


async def test_poll_intervals_of_any_length_can_be_waited_for(monque: Monques) -> None:
    longest = 2**53
    options = dict.fromkeys(("poll_interval", "heartbeat_interval", "shutdown_timeout", "lock_timeout"), longest)
    async with monque.running(**options) as scheduler:
        seen = Seen(scheduler, events.JobCompleted)
        scheduler.worker("mail", Handler())
        await scheduler.enqueue("mail", None)
        await seen.wait(events.JobCompleted)
    if monque.adapter == "threads":
        assert not [each for each in threading.enumerate() if each.name.endswith("timer") and not each.daemon]


@pytest.mark.parametrize("at", ["reply", "tick"])
async def test_a_fault_of_the_machine_is_raised_to_the_owner_and_nobody_waits(monque: Monques, at: str) -> None:
    scheduler = monque(poll_interval=20)
    machine = getattr(scheduler, "_target", scheduler)._driver.machine

    async def run() -> None:
        async with scheduler:
            await scheduler.start()
            setattr(machine, "_on_reply" if at == "reply" else "_on_time", lambda *args: 1 // 0)
            scheduler.worker("mail", Handler())
            with anyio.fail_after(LIMIT_S):
                while scheduler.is_healthy:
                    await anyio.sleep(0.005)
                if monque.adapter != "threads":
                    await anyio.sleep_forever()

    with pytest.raises(ZeroDivisionError):
        await run()


def test_an_interrupt_in_a_handler_ends_the_scheduler_and_gives_its_job_back(mongodb: str) -> None:
    collection = f"jobs_{uuid4().hex}"

    async def run() -> None:
        options: dict[str, Any] = {"collection_name": collection, "change_streams": False, "shutdown_timeout": 200}
        async with monque_anyio.Monque(client["monque_tests"], **options) as scheduler:

            async def handle(job: Job[Any]) -> None:
                raise KeyboardInterrupt

            scheduler.worker("mail", handle)
            await scheduler.enqueue("mail", None)
            await scheduler.start()
            await anyio.sleep(LIMIT_S)

    kind: Any = MongoClient
    with kind(mongodb) as client:
        # On trio, since asyncio leaves its loop for one at once.
        with pytest.raises(KeyboardInterrupt):
            anyio.run(run, backend="trio")
        stored = client["monque_tests"][collection]
        (document,) = stored.find()
        assert (document["status"], document["failCount"]) == ("pending", 0)
        stored.drop()


def test_where_no_thread_can_be_had_work_waits_for_one(mongodb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    collection = f"jobs_{uuid4().hex}"
    over, refused = threading.Event(), 0
    start = threading.Thread.start

    def fail_first(thread: threading.Thread) -> None:
        nonlocal refused
        if thread.name.startswith("monque ") and not thread.name.endswith("timer") and refused < 5:
            refused += 1
            raise RuntimeError("can't start new thread")
        start(thread)

    with MongoClient(mongodb) as client:
        database = client["monque_tests"]
        with monque_sync.Monque(database, collection_name=collection, change_streams=False) as scheduler:
            monkeypatch.setattr(threading.Thread, "start", fail_first)
            scheduler.on(events.JobCompleted, lambda event: over.set())
            scheduler.worker("mail", lambda job: None)
            scheduler.enqueue("mail", None)
            scheduler.start()
            assert over.wait(LIMIT_S) and refused == 5
        database[collection].drop()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_cancellation_from_outside_gives_jobs_back_at_once(mongodb: str, backend: str) -> None:
    collection = f"jobs_{uuid4().hex}"
    kind: Any = MongoClient

    async def run(client: Any) -> tuple[bool, list[str]]:
        options: dict[str, Any] = {"collection_name": collection, "change_streams": False}
        entered = anyio.Event()
        seen: list[str] = []

        async def handle(job: Job[Any]) -> None:
            entered.set()
            await anyio.sleep_forever()

        with anyio.CancelScope() as scope:
            async with monque_anyio.Monque(client["monque_tests"], **options) as scheduler:
                scheduler.on(events.JobReleased, lambda event: seen.append(event.reason))
                scheduler.worker("mail", handle, concurrency=1)
                await scheduler.enqueue("mail", None)
                await scheduler.start()
                with anyio.fail_after(LIMIT_S):
                    await entered.wait()
                scope.cancel()
                await anyio.sleep_forever()
        return scope.cancelled_caught, seen

    with kind(mongodb) as client:
        assert anyio.run(run, client, backend=backend) == (True, ["cancelled"])
        stored = client["monque_tests"][collection]
        (document,) = stored.find()
        assert (document["status"], document["failCount"]) == ("pending", 0)
        stored.drop()


def test_a_scheduler_that_was_left_ends_with_its_client(mongodb: str) -> None:
    entered, go_on = threading.Event(), threading.Event()
    collection = f"jobs_{uuid4().hex}"
    client: Any = MongoClient(mongodb)
    options: dict[str, Any] = {"collection_name": collection, "change_streams": False, "shutdown_timeout": 50}
    with monque_sync.Monque(client["monque_tests"], **options) as scheduler:

        def handle(job: Job[Any]) -> None:
            entered.set()
            go_on.wait(LIMIT_S)

        scheduler.worker("mail", handle)
        scheduler.enqueue("mail", None)
        scheduler.start()
        assert entered.wait(LIMIT_S)
    client["monque_tests"][collection].drop()
    client.close()
    # Its report cannot be sent any more.
    go_on.set()
    mine = f"monque {scheduler.scheduler_instance_id} timer"
    for each in threading.enumerate():
        if each.name == mine:
            each.join(LIMIT_S)
            assert not each.is_alive()
    assert scheduler.snapshot().jobs == ()
