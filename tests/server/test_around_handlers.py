"""What stands around handlers: routers, middleware, lifespans, time limits, and the job of the running code."""

import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pytest
from anyio.lowlevel import checkpoint
from opentelemetry.sdk.trace import TracerProvider

import bullmq_anyio
import bullmq_sync
from bullmq_anyio.testing import fake_job
from bullmq_anyio.time_limit import within
from bullmq_otel import BullMQOtel
from bullmq_protocol import (
    ConnectionLost,
    DelayedError,
    JobCompleted,
    JobFailed,
    JobOptions,
    JobType,
    UnrecoverableError,
    UsageError,
    WorkerOptions,
)
from bullmq_sync.time_limit import Alarms
from tests.support.adapters import Adapter
from tests.support.servers import Server


class Welcome(msgspec.Struct):
    to: str


WELCOME = JobType("welcome", Welcome)
SEEN: ContextVar[str] = ContextVar("seen", default="")


async def worked_off(worker: Any) -> dict[str, Any]:
    """Run it until there is nothing left to do; return by id what each job came to: a result, or a failure."""
    ends: dict[str, Any] = {}

    def note(notice: JobCompleted | JobFailed) -> None:
        ends[notice.job.id] = msgspec.json.decode(notice.value) if isinstance(notice, JobCompleted) else notice

    worker.on(JobCompleted, note)
    worker.on(JobFailed, note)
    await worker.run(until="idle")
    return ends


async def test_a_router_calls_the_function_of_the_name(adapter: Adapter, server: Server, name: str) -> None:
    async def welcome(job: Any) -> str:
        return f"hello {job.data.to}"

    async def other(job: Any) -> Any:
        return job.data["to"]

    router = adapter.Router()
    router.add(WELCOME, welcome)
    part = adapter.Router()
    part.add("other", other)
    router.include(part)
    async with adapter.Queue(name, server.url) as queue:
        ids = [(await queue.add(each, {"to": "ada"}, JobOptions(attempts=3))).id for each in ("welcome", "other", "x")]
        unfit, other_case = await queue.add("welcome", {"to": 3}, JobOptions(attempts=3)), await queue.add("Welcome")
        ends = await worked_off(adapter.Worker(name, router, server.url, options=WorkerOptions(concurrency=4)))
        assert [ends[each] for each in ids[:2]] == ["hello ada", "ada"]
        unknown = ends[ids[2]]
        assert unknown.reason == "no handler for jobs named 'x'; known are: 'other', 'welcome'"
        assert (unknown.permanent, unknown.retry_delay_ms, unknown.attempts_made) == (True, None, 1)
        assert "no handler for jobs named 'Welcome'" in ends[other_case.id].reason
        assert "$.to" in ends[unfit.id].reason
        assert ends[unfit.id].permanent
        await queue.obliterate(force=True)


async def test_middleware_sees_payload_result_and_exception(adapter: Adapter, server: Server, name: str) -> None:
    told: list[Any] = []

    async def welcome(job: Any) -> str:
        told.append("handler")
        if job.data.to == "nobody":
            raise ValueError("no such address")
        if job.data.to == "later":
            raise UnrecoverableError("a signal")
        return f"hello {job.data.to}"

    async def first(job: Any, call_next: Any) -> Any:
        told.append(("first", job.data.to))
        try:
            return await call_next(job)
        except Exception as error:
            told.append(type(error).__name__)
            raise

    async def second(job: Any, call_next: Any) -> Any:
        told.append("second")
        return (await call_next(job)).upper()

    router = adapter.Router()
    router.add(WELCOME, welcome)
    worker = adapter.Worker(name, router, server.url, middleware=[first, second])
    async with adapter.Queue(name, server.url) as queue:
        jobs = [await queue.add(WELCOME, Welcome(to), JobOptions(attempts=1)) for to in ("ada", "nobody", "later")]
        unknown = await queue.add("x")
        ends = await worked_off(worker)
        assert ends[jobs[0].id] == "HELLO ADA"
        assert [ends[job.id].reason for job in jobs[1:]] == ["no such address", "a signal"]
        assert ends[jobs[2].id].permanent
        assert ends[unknown.id].permanent
        await queue.obliterate(force=True)
    order = [["second", "handler"], ["second", "handler", "ValueError"], ["second", "handler", "UnrecoverableError"]]
    expected = [("first", "ada"), *order[0], ("first", "nobody"), *order[1], ("first", "later"), *order[2]]
    # No handler, no middleware.
    assert told == expected


async def test_each_route_has_its_own_handler_within_middleware(adapter: Adapter, server: Server, name: str) -> None:
    async def welcome(job: Any) -> Any:
        return ["welcome", job.data.to]

    async def other(job: Any) -> Any:
        return ["other", job.data["to"]]

    async def names(job: Any, call_next: Any) -> Any:
        return [job.id, *await call_next(job)]

    router = adapter.Router()
    router.add(WELCOME, welcome)
    router.add("other", other)
    async with adapter.Queue(name, server.url) as queue:
        jobs = [await queue.add(each, {"to": str(n)}) for n in range(3) for each in ("welcome", "other")]
        worker = adapter.Worker(name, router, server.url, middleware=[names], options=WorkerOptions(concurrency=2))
        assert await worked_off(worker) == {job.id: [job.id, job.name, job.data["to"]] for job in jobs}
        await queue.obliterate(force=True)


async def test_a_payload_is_checked_whatever_is_around_the_handler(adapter: Adapter, server: Server, name: str) -> None:
    reached: list[str] = []

    async def handler(job: Any) -> None:
        reached.append("handler")

    async def around(job: Any, call_next: Any) -> None:
        reached.append("middleware")

    router = adapter.Router()
    router.add("welcome", handler)
    async with adapter.Queue(name, server.url) as queue:
        for processor in (handler, router):
            for middleware in ([], [around]):
                job = await queue.add("welcome", {"to": 3}, JobOptions(attempts=3))
                worker = adapter.Worker(name, processor, server.url, middleware=middleware, data_type=Welcome)
                ends = await worked_off(worker)
                assert "$.to" in ends[job.id].reason
                assert ends[job.id].permanent
        await queue.obliterate(force=True)
    assert reached == []


async def test_a_route_reads_the_payload_in_place_of_the_worker(adapter: Adapter, server: Server, name: str) -> None:
    async def handler(job: Any) -> str:
        return repr(job.data)

    router = adapter.Router()
    router.add(WELCOME, handler)
    router.add("other", handler)
    async with adapter.Queue(name, server.url) as queue:
        typed, plain = await queue.add("welcome", {"to": "ada"}), await queue.add("other", 3)
        ends = await worked_off(adapter.Worker(name, router, server.url, data_type=int))
        # What does not fit the worker's type does not fail where the route has another.
        assert ends == {typed.id: "Welcome(to='ada')", plain.id: "3"}
        await queue.obliterate(force=True)


@pytest.mark.parametrize("around", ["nothing", "middleware", "a span"])
async def test_a_result_is_of_the_type_of_the_route(adapter: Adapter, server: Server, name: str, around: str) -> None:
    async def handler(job: Any) -> Any:
        return {"to": job.data}

    async def passes(job: Any, call_next: Any) -> Any:
        return await call_next(job)

    router = adapter.Router()
    router.add(JobType("typed", Any, result=Welcome), handler)
    router.add("plain", handler)
    async with adapter.Queue(name, server.url) as queue:
        jobs = [await queue.add(each, data) for each in ("typed", "plain") for data in ("ada", 3)]
        middleware = [passes] if around == "middleware" else []
        telemetry = BullMQOtel("tests", tracer_provider=TracerProvider()) if around == "a span" else None
        ends = await worked_off(adapter.Worker(name, router, server.url, middleware=middleware, telemetry=telemetry))
        fit, unfit, *plain = [ends[job.id] for job in jobs]
        assert (fit, plain) == ({"to": "ada"}, [{"to": "ada"}, {"to": 3}])
        assert unfit.permanent
        assert "the result of the job does not fit the result type" in unfit.reason
        await queue.obliterate(force=True)


async def test_a_router_in_a_router_decides_by_its_own_routes(adapter: Adapter, server: Server, name: str) -> None:
    async def inner_handler(job: Any) -> Any:
        return {"to": type(job.data).__name__} if job.name == "typed" else {"to": "x"} | job.data

    inner, outer = adapter.Router(), adapter.Router()
    inner.add("typed", inner_handler, data_type=Welcome)
    inner.add(JobType("result", dict[str, Any], result=dict[str, str]), inner_handler)
    inner.add("kept", inner_handler)

    async def routed(job: Any) -> Any:
        _ = job.data
        return await inner(job)

    outer.add("typed", routed, data_type=dict[str, str])
    outer.add(JobType("result", dict[str, Any], result=list[str]), routed)
    outer.add(JobType("kept", dict[str, Any], result=Welcome), routed)
    outer.add("unknown", routed)
    async with adapter.Queue(name, server.url) as queue:
        jobs = [await queue.add(each, {"to": "ada"}) for each in ("typed", "result", "kept", "unknown")]
        unfit = await queue.add("typed", {"cc": "ada"}, JobOptions(attempts=3))
        other, misfit = await queue.add("result", {"cc": "ada"}), await queue.add("kept", {"to": 3})
        ends = await worked_off(adapter.Worker(name, outer, server.url))
        typed, result, kept, unknown = [ends[job.id] for job in jobs]
        # Read again for the inner route, and checked before its handler is called.
        assert typed == {"to": "Welcome"}
        assert ends[unfit.id].permanent and "`to`" in ends[unfit.id].reason
        # The inner result type counts; that of the outer route, where the inner has none.
        assert (result, ends[other.id], kept) == ({"to": "ada"}, {"to": "x", "cc": "ada"}, {"to": "ada"})
        assert ends[misfit.id].permanent and "does not fit the result type" in ends[misfit.id].reason
        assert unknown.permanent and unknown.reason.startswith("no handler for jobs named 'unknown'")
        await queue.obliterate(force=True)


async def test_a_middleware_may_answer_itself_and_signals_pass(adapter: Adapter, server: Server, name: str) -> None:
    async def handler(job: Any) -> None:
        await job.move_to_delayed(job.timestamp + 3_600_000, job.token)
        raise DelayedError

    async def around(job: Any, call_next: Any) -> Any:
        return "answered" if job.name == "answered" else await call_next(job)

    async with adapter.Queue(name, server.url) as queue:
        delayed, answered = await queue.add("delayed"), await queue.add("answered")
        ends = await worked_off(adapter.Worker(name, handler, server.url, middleware=[around]))
        assert ends == {answered.id: "answered"}
        assert await queue.get_job_state(delayed.id) == "delayed"
        await queue.obliterate(force=True)


# --- lifespans --------------------------------------------------------------------------------------------------------


class Around:
    """A lifespan for both packages, and what happened in it."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.told: list[Any] = []
        self._fault = fault

    @contextlib.asynccontextmanager
    async def asynchronous(self, worker: Any) -> AsyncIterator[dict[str, str]]:
        with self.blocking(worker) as state:
            yield state

    @contextlib.contextmanager
    def blocking(self, worker: Any) -> Iterator[dict[str, str]]:
        self.told.append(("begins", worker.name))
        if self._fault is not None:
            raise self._fault
        SEEN.set("by the lifespan")
        try:
            yield {"pool": "of connections"}
        except BaseException as error:
            self.told.append(type(error).__name__)
            raise
        finally:
            self.told.append("ends")


def lifespan_of(adapter: Adapter, around: Around) -> Any:
    return around.blocking if adapter.name == "threads" else around.asynchronous


async def test_a_lifespan_is_around_run_and_its_value_the_state(adapter: Adapter, server: Server, name: str) -> None:
    around = Around()

    async def handler(job: Any) -> Any:
        around.told.append("job")
        return [job.state, SEEN.get() if adapter.name != "threads" else "by the lifespan"]

    worker = adapter.Worker(name, handler, server.url, lifespan=lifespan_of(adapter, around))
    async with adapter.Queue(name, server.url) as queue:
        job = await queue.add("x")
        assert await worked_off(worker) == {job.id: [{"pool": "of connections"}, "by the lifespan"]}
        with pytest.raises(UsageError, match="lifespan"):
            _ = job.state
        await queue.obliterate(force=True)
    assert around.told == [("begins", name), "job", "ends"]


async def test_every_job_is_lent_the_state(adapter: Adapter, server: Server, name: str) -> None:
    async def handler(job: Any) -> Any:
        return job.state

    async def passes(job: Any, call_next: Any) -> Any:
        return [job.state, await call_next(job)]

    router = adapter.Router()
    router.add("x", handler)
    state = {"pool": "of connections"}
    async with adapter.Queue(name, server.url) as queue:
        for processor in (handler, router):
            for middleware in ([], [passes]):
                ids = [(await queue.add("x")).id for _ in range(2)]
                lifespan = lifespan_of(adapter, Around())
                worker = adapter.Worker(name, processor, server.url, middleware=middleware, lifespan=lifespan)
                expected = [state, state] if middleware else state
                assert await worked_off(worker) == dict.fromkeys(ids, expected)
        await queue.obliterate(force=True)


async def test_a_lifespan_that_cannot_begin_ends_run_before_anything_is_opened(adapter: Adapter, name: str) -> None:
    around = Around(fault=LookupError("no pool"))

    async def handler(job: Any) -> None: ...

    # Nothing listens there: a connection would fail in its own way, and be tried again.
    worker = adapter.Worker(name, handler, "redis://127.0.0.1:1", lifespan=lifespan_of(adapter, around))
    with pytest.raises(LookupError, match="no pool"):
        await worker.run()
    assert not worker.is_running
    await worker.aclose()
    wrong = adapter.Worker(name, handler, "redis://127.0.0.1:1", lifespan=_returns_no_manager)
    with pytest.raises(UsageError, match="lifespan: must return"):
        await wrong.run()


def _returns_no_manager(worker: Any) -> Any:
    return "state"


async def test_a_lifespan_sees_what_ends_the_worker(adapter: Adapter, name: str) -> None:
    around = Around()

    async def handler(job: Any) -> None: ...

    options = WorkerOptions(max_reconnect_attempts=1)
    worker = adapter.Worker(
        name, handler, "redis://127.0.0.1:1", options=options, lifespan=lifespan_of(adapter, around)
    )
    with pytest.raises(ConnectionLost) as caught:
        await worker.run()
    assert around.told == [("begins", name), "ConnectionLost", "ends"]
    assert caught.value.__context__ is None


# --- time limits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_time_limit_cancels_a_task(server: Server, name: str, backend: str) -> None:
    cancelled: list[str] = []

    async def slow(job: Any) -> str:
        if job.data.get("leaves"):
            # Left open, it would be met by the scope of the limit.
            scope = anyio.CancelScope()
            scope.__enter__()
            if job.data["leaves"] == "raises":
                raise LookupError("its own")
            return "left"
        try:
            await anyio.sleep_forever()
        except BaseException as error:
            cancelled.append(type(error).__name__)
            if job.data.get("answers"):
                return "in time"
            raise
        raise AssertionError

    async def main() -> dict[str, Any]:
        router = bullmq_anyio.Router()
        router.add("slow", slow, timeout=30)
        router.add("soon", slow, timeout=60_000)
        async with bullmq_anyio.Queue[Any](name, server.url) as queue:
            await queue.add("slow", {}, JobOptions(job_id="slow"))
            await queue.add("slow", {"answers": True}, JobOptions(job_id="answers"))
            await queue.add("soon", {"leaves": True}, JobOptions(job_id="leaves"))
            await queue.add("soon", {"leaves": "raises"}, JobOptions(job_id="raises"))
            worker = bullmq_anyio.Worker[Any](name, router, server.url, options=WorkerOptions(concurrency=3))
            ends = await worked_off(worker)
            await queue.obliterate(force=True)
            return ends

    ends = anyio.run(main, backend=backend)
    assert ends["slow"].reason == "the handler took longer than 30 ms"
    assert type(ends["slow"].exception) is TimeoutError
    assert (ends["answers"], ends["leaves"]) == ("in time", "left")
    assert (type(ends["raises"].exception), ends["raises"].reason) == (LookupError, "its own")
    assert len(cancelled) == 2


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_limit_ends_with_a_handler_that_leaves_a_scope_open(backend: str) -> None:
    """What comes after the handler in its task, middleware first of all, isn't cancelled by a limit that was kept."""

    async def leaves(_: Any) -> str:
        anyio.CancelScope().__enter__()
        return "left"

    async def main() -> tuple[str, str]:
        # A busy machine takes some time for these two lines.
        returned = await within(300, leaves, fake_job({}))
        over = anyio.current_time() + 0.4
        while anyio.current_time() < over:
            await checkpoint()
        return returned, "went on"

    assert anyio.run(main, backend=backend) == ("left", "went on")


def test_a_time_limit_tells_a_thread(server: Server, name: str) -> None:
    def slow(job: bullmq_sync.Job[Any]) -> str:
        assert job.cancelled.wait(60)
        return job.cancelled.reason or ""

    def quick(job: bullmq_sync.Job[Any]) -> bool:
        return job.cancelled.is_set()

    router = bullmq_sync.Router()
    router.add("slow", slow, timeout=30)
    router.add("quick", quick, timeout=60_000)
    ends: dict[str, Any] = {}
    with bullmq_sync.Queue[Any](name, server.url) as queue:
        for each in ("slow", "quick"):
            queue.add(each, None, JobOptions(job_id=each))
        worker = bullmq_sync.Worker[Any](name, router, server.url, options=WorkerOptions(concurrency=2))
        worker.on(JobCompleted, lambda notice: ends.setdefault(notice.job.id, notice.value))
        worker.run(until="idle")
        queue.obliterate(force=True)
    assert ends == {"slow": '"the handler took longer than 30 ms"', "quick": "false"}


@pytest.mark.parametrize("backend", ["asyncio", "trio", "threads"])
def test_each_call_has_the_time_limit_of_its_route(server: Server, name: str, backend: str) -> None:
    """Also the second one of a middleware that retries, and those of a router in a router, or that was included."""
    calls: dict[str, int] = {}

    def begins(job: Any) -> None:
        calls[job.id] = calls.get(job.id, 0) + 1
        if job.data == "again" and calls[job.id] == 1:
            raise LookupError("not at once")

    async def slow(job: Any) -> None:
        if job.name != "unlimited":
            begins(job)
            await anyio.sleep(60)

    def blocking(job: Any) -> None:
        if job.name == "unlimited":
            return
        begins(job)
        assert job.cancelled.wait(60)
        raise TimeoutError(job.cancelled.reason)

    async def retries(job: Any, call_next: Any) -> Any:
        try:
            return await call_next(job)
        except LookupError:
            return await call_next(job)

    def retries_blocking(job: Any, call_next: Any) -> Any:
        try:
            return call_next(job)
        except LookupError:
            return call_next(job)

    package: Any = bullmq_sync if backend == "threads" else bullmq_anyio
    inner, outer, part = package.Router(), package.Router(), package.Router()
    handler = blocking if backend == "threads" else slow
    for router, kind in ((inner, "nested"), (outer, "limited"), (part, "included")):
        router.add(kind, handler, timeout=30)
    outer.add("unlimited", handler)
    outer.include(part)
    if backend == "threads":
        outer.add("nested", lambda job: inner(job))
    else:

        async def nested(job: Any) -> Any:
            return await inner(job)

        outer.add("nested", nested)
    ends: dict[str, Any] = {}
    with bullmq_sync.Queue[Any](name, server.url) as queue:
        # Its route is the first that a job comes for, with the handler of the others.
        queue.add("unlimited")
        for each in ("limited", "nested", "included"):
            for data in ("once", "again"):
                queue.add(each, data, JobOptions(job_id=f"{each} {data}"))
        middleware = [retries_blocking if backend == "threads" else retries]
        worker = package.Worker(name, outer, server.url, middleware=middleware, options=WorkerOptions(concurrency=4))
        worker.on(JobFailed, lambda notice: ends.setdefault(notice.job.id, notice.reason))
        if backend == "threads":
            worker.run(until="idle")
        else:
            anyio.run(partial(worker.run, until="idle"), backend=backend)
        queue.obliterate(force=True)
    assert ends == dict.fromkeys(calls, "the handler took longer than 30 ms")
    assert calls == {
        f"{kind} {data}": number
        for kind in ("limited", "nested", "included")
        for data, number in (("once", 1), ("again", 2))
    }


def test_a_later_cancellation_leaves_a_time_limit_the_reason(server: Server, name: str) -> None:
    is_over, is_cancelled = threading.Event(), threading.Event()

    class Told(bullmq_sync.Cancellation):
        def cancel(self, reason: str) -> None:
            super().cancel(reason)
            (is_cancelled if reason == "no longer wanted" else is_over).set()

    def slow(job: bullmq_sync.Job[Any]) -> str:
        assert is_cancelled.wait(60)
        return job.cancelled.reason or ""

    def lends(job: bullmq_sync.Job[Any], call_next: Any) -> Any:
        job.__dict__["_cancelled"] = Told()
        return call_next(job)

    def cancels() -> None:
        assert is_over.wait(60)
        assert worker.cancel_job("slow", "no longer wanted")

    router = bullmq_sync.Router()
    router.add("slow", slow, timeout=30)
    returned: list[str] = []
    with bullmq_sync.Queue[Any](name, server.url) as queue:
        queue.add("slow", None, JobOptions(job_id="slow"))
        worker = bullmq_sync.Worker[Any](name, router, server.url, middleware=[lends])
        worker.on(JobCompleted, lambda notice: returned.append(notice.value))
        canceller = threading.Thread(target=cancels)
        canceller.start()
        worker.run(until="idle")
        canceller.join()
        queue.obliterate(force=True)
    assert returned == ['"the handler took longer than 30 ms"']


def test_alarms_come_in_order_and_their_thread_goes() -> None:
    alarms = Alarms()
    came: list[str] = []
    done = threading.Event()
    gone = [alarms.set(3_600, done.set) for _ in range(200)]
    alarms.set(0.05, lambda: (came.append("second"), done.set()))
    first = alarms.set(0.02, lambda: came.append("first"))
    back = alarms.set(0.03, lambda: came.append("taken back"))
    for each in (*gone, back):
        alarms.take_back(each)
    assert done.wait(30)
    assert came == ["first", "second"]
    alarms.take_back(first)
    # What was taken back does not stay for its hour.
    alarms.set(3_600, done.set)
    assert len(alarms._due) < 100
    alarms.take_back(max(alarms._waiting))
    for thread in threading.enumerate():
        if thread.name == "bullmq time limits":
            thread.join(30)
            assert not thread.is_alive()
    again = threading.Event()
    alarms.set(0.001, again.set)
    assert again.wait(30)


def test_alarms_taken_back_leave_behind_one_that_is_due_before_them() -> None:
    alarms = Alarms()
    came: list[str] = []
    done = threading.Event()
    first = alarms.set(3_600, done.set)
    for each in [alarms.set(7_200, done.set) for _ in range(200)]:
        alarms.take_back(each)
    rest = [alarms.set(delay, done.set) for delay in (7_400, 7_300)]
    assert len(alarms._due) < 10
    for each in (first, *rest):
        alarms.take_back(each)
    # What is left is in order.
    alarms.set(0.04, lambda: (came.append("second"), done.set()))
    alarms.set(0.02, lambda: came.append("first"))
    assert done.wait(30)
    assert came == ["first", "second"]


# --- the job of the running code --------------------------------------------------------------------------------------


async def test_each_job_has_its_own_context(adapter: Adapter, server: Server, name: str) -> None:
    """What a middleware sets, and the current job, reach no other job."""
    seen: dict[str, Any] = {}
    current = bullmq_sync.current_job if adapter.name == "threads" else bullmq_anyio.current_job
    barrier = threading.Barrier(1)

    async with adapter.Queue(name, server.url) as queue:
        ids = [(await queue.add("x", number)).id for number in range(20)]
        if adapter.name == "threads":

            def around(job: Any, call_next: Any) -> Any:
                seen[job.id] = SEEN.get()
                SEEN.set(job.id)
                return call_next(job)

            def handler(job: Any) -> Any:
                barrier.wait()
                return [current().id, SEEN.get()]  # type: ignore[union-attr]

            worker = bullmq_sync.Worker[Any](
                name, handler, server.url, middleware=[around], options=WorkerOptions(concurrency=4)
            )
            ends: dict[str, Any] = {}
            worker.on(JobCompleted, lambda notice: ends.setdefault(notice.job.id, msgspec.json.decode(notice.value)))
            await anyio.to_thread.run_sync(lambda: worker.run(until="idle"))
        else:

            async def around_it(job: Any, call_next: Any) -> Any:
                seen[job.id] = SEEN.get()
                SEEN.set(job.id)
                return await call_next(job)

            async def handle(job: Any) -> Any:
                await anyio.lowlevel.checkpoint()
                found: Any = current()
                return [found.id, await anyio.to_thread.run_sync(SEEN.get)]

            ends = await worked_off(
                bullmq_anyio.Worker[Any](
                    name, handle, server.url, middleware=[around_it], options=WorkerOptions(concurrency=4)
                )
            )
        assert ends == {each: [each, each] for each in ids}
        assert seen == dict.fromkeys(ids, "")
        assert current() is None
        await queue.obliterate(force=True)


class Kept(logging.Handler):
    """Keeps records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.mark.parametrize("backend", ["asyncio", "trio", "threads"])
def test_a_filter_adds_the_job_to_what_handlers_log(server: Server, name: str, backend: str) -> None:
    log = logging.getLogger(f"application.{name}")
    log.setLevel(logging.INFO)
    kept = Kept()
    log.addHandler(kept)

    async def handler(job: Any) -> None:
        log.info("in the handler")
        await anyio.to_thread.run_sync(log.info, "in a thread of its own")

    def blocking_handler(job: Any) -> None:
        log.info("in the handler")
        thread = threading.Thread(target=copy_context().run, args=(log.info, "in a thread of its own"))
        thread.start()
        thread.join()

    async def main() -> None:
        await bullmq_anyio.Worker[Any](name, handler, server.url).run(until="idle")

    with bullmq_sync.Queue[Any](name, server.url) as queue:
        queue.add("welcome", None, JobOptions(job_id="mine"))
        if backend == "threads":
            kept.addFilter(bullmq_sync.JobFilter())
            bullmq_sync.Worker[Any](name, blocking_handler, server.url).run(until="idle")
        else:
            kept.addFilter(bullmq_anyio.JobFilter())
            anyio.run(main, backend=backend)
        queue.obliterate(force=True)
    log.info("outside")
    inside = [vars(each) for each in kept.records[:2]]
    found = [(each["job_id"], each["job_name"], each["queue"], each["attempt"]) for each in inside]
    assert found == [("mine", "welcome", name, 1)] * 2
    assert not hasattr(kept.records[2], "job_id")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_what_returns_nothing_to_await_ends_the_worker_by_name(server: Server, name: str, backend: str) -> None:
    async def handler(job: Any) -> None: ...

    async def main() -> None:
        async with bullmq_anyio.Queue[Any](name, server.url) as queue:
            await queue.add("x")
            for options in ({"middleware": [lambda job, call_next: 3]}, {"middleware": [_passes]}):
                process: Any = handler if options["middleware"] != [_passes] else (lambda job: 3)
                worker: Any = bullmq_anyio.Worker(name, process, server.url, **options)
                with pytest.raises(UsageError, match="must be an async function") as caught:
                    await worker.run()
                assert caught.value.field == ("processor" if process is not handler else "middleware[0]")
            assert await queue.count() == 1
            await queue.obliterate(force=True)

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("options", [{}, {"timeout": 60_000}], ids=["any time", "limited"])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_routers_handler_that_is_not_async_is_named(
    server: Server, name: str, backend: str, options: dict[str, Any]
) -> None:
    rule = "must be an async function: it was added for jobs named 'x'"

    def wrong(job: Any) -> int:
        return 3

    async def main() -> None:
        router: Any = bullmq_anyio.Router()
        router.add("x", lambda job: wrong(job), **options)
        async with bullmq_anyio.Queue[Any](name, server.url) as queue:
            job = await queue.add("x")
            for middleware in ([], [_passes]):
                worker: Any = bullmq_anyio.Worker(name, router, server.url, middleware=middleware)
                with pytest.raises(UsageError, match="lambda") as caught:
                    await worker.run()
                assert (caught.value.field, caught.value.rule) == ("handler", rule)
            # No job has paid for it.
            assert await queue.count() == 1
            if options:
                with pytest.raises(UsageError, match=rule):
                    await router(job)
            await queue.obliterate(force=True)

    anyio.run(main, backend=backend)


async def _passes(job: Any, call_next: Any) -> Any:
    return await call_next(job)


async def test_call_next_without_the_job_is_named_as_middleware_knows_it(
    adapter: Adapter, server: Server, name: str
) -> None:
    async def handler(job: Any) -> None: ...

    async def forgets(job: Any, call_next: Any) -> Any:
        return await call_next()

    async def passes(job: Any, call_next: Any) -> Any:
        return await call_next(job)

    async with adapter.Queue(name, server.url) as queue:
        for middleware in ([forgets], [forgets, passes], [passes, forgets]):
            job = await queue.add("x")
            ends = await worked_off(adapter.Worker(name, handler, server.url, middleware=middleware))
            assert ends[job.id].reason == "call_next() missing 1 required positional argument: 'job'"
        await queue.obliterate(force=True)
