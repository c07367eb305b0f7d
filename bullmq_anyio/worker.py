"""The public worker. `driver.py` runs it, `manual.py` has manual work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeAlias, TypeVar, overload

from bullmq_anyio.drive import Connection, transport_of
from bullmq_anyio.driver import Driver
from bullmq_anyio.driving.runs import BackoffStrategy
from bullmq_anyio.generics import Defaulted, S
from bullmq_anyio.guard import provider_raised
from bullmq_anyio.job import Job
from bullmq_anyio.manual import Manual
from bullmq_anyio.notices import Notices
from bullmq_anyio.worker_ids import made_worker_id
from bullmq_anyio.zones import find_zone
from bullmq_protocol.common.keys import DEFAULT_PREFIX, KeyLayout, QueueKeys, check_name
from bullmq_protocol.common.payloads import DataType
from bullmq_protocol.common.units import Duration
from bullmq_protocol.model.options import DEFAULT_LIMITS, Limits
from bullmq_protocol.net.transport import Clock
from bullmq_protocol.observability.metrics import NO_METRICS, MetricsCollector
from bullmq_protocol.observability.telemetry import TelemetryProvider, guarded
from bullmq_protocol.scripts.profile import DEFAULT, Profile, check_profile
from bullmq_protocol.worker.ending import Idle
from bullmq_protocol.worker.notices import Notice
from bullmq_protocol.worker.options import WorkerOptions
from bullmq_protocol.worker.setup import WorkerSetup
from bullmq_protocol.worker.snapshot import WorkerSnapshot

R = TypeVar("R")
T = TypeVar("T")
Y = TypeVar("Y")
N = TypeVar("N", bound=Notice)

Middleware: TypeAlias = Callable[[Job[Any, Any, Any], Callable[[Job[Any, Any, Any]], Awaitable[Any]]], Awaitable[Any]]
"""Called with the job and `call_next`, a function of the job; returns the result."""


class Worker(Defaulted, Generic[T, S]):
    """A worker of one queue. It opens nothing before `run`, so you can create it before an event loop runs.

    `async with worker:` runs it in the background and closes it gracefully at the end.

    Args:
        name: The queue's name: 1 to 255 characters, no colon.
        processor: An async function that takes the `Job`. The JSON value that it returns becomes the job's result; an
            exception becomes its failure. None, the default: jobs are only taken manually, with `get_next_job`.
        connection: A URL, options (`ConnectionOptions`, `SentinelOptions`, `ClusterOptions`), a transport, which
            remains yours to close, or None, the default: the server that `BULLMQ_URL` names, else 127.0.0.1:6379.
        prefix: The beginning of all keys of the queue; `bull` by default, as in BullMQ.
        layout: Where the keys have the hash tag that a Redis Cluster needs. `KeyLayout.PLAIN`, the default: nowhere.
        options: Concurrency, locks, retries and limits; see `WorkerOptions` for the defaults.
        data_type: The type that payloads are read into: any type that msgspec decodes, a pydantic model, a
            `TypeAdapter`, or an object with `dumps` and `loads` (docs/payloads.md). A payload that does not fit fails
            its job for good. None, the default: JSON values.
        result_type: The same for results, whether returned by the processor or passed to `complete`. None, the default:
            any JSON value.
        worker_id: The worker's name in logs and metrics. None, the default: host, process id and six hexadecimal
            digits.
        backoff_strategy: A function, async or not, for backoff types other than `fixed` and `exponential`. It takes
            attempt number, backoff type, error and job, and returns milliseconds; -1 fails the job for good. None by
            default.
        scripts: A profile of `bullmq_protocol.scripts.profile`: `FLEET`, the default, beside clients of BullMQ 5 and 6,
            `V6_7` beside BullMQ 6 alone, `STRICT` for what 5.62.0 does, or BullMQ's own scripts from `bullmq_scripts`.
        metrics_collector: An object that counts and times jobs, such as `PrometheusMetrics`; see
            `bullmq_protocol.observability.metrics`. No metrics by default.
        telemetry: A provider of spans, such as `BullMQOtel`. None, the default: no spans. See
            `bullmq_protocol.observability.telemetry`.
        limits: Limits on what processors return and write; 10 MiB by default. A result over its limit fails the job.
        middleware: Async functions that take the job and `call_next` and run around the processor of each job, the
            first outermost. Each returns the result, usually that of `await call_next(job)`, and runs in the job's own
            task. None by default.
        lifespan: A function that takes the worker and returns an async context manager, which is entered when `run`
            begins and left when it ends. The value that it yields is the `state` of every job. None, the default: no
            state.
        clock: The worker's clock, for tests (docs/testing.md): a `SimulatedClock`, or any function that returns an
            `Instant`. None, the default: the system's clocks.

    Source: specs/05-worker-runtime.md#sec-2

    Examples:
        >>> async def greet(job):
        ...     return f"hello {job.data['to']}"
        >>> worker = Worker("mail", greet, "redis://localhost:6379", options=WorkerOptions(concurrency=20))
        >>> await worker.aclose()
    """

    # A processor of jobs of a type needs a worker that reads this type.
    @overload
    def __init__(
        self: Worker[Any, Any],
        name: str,
        processor: Callable[[Job[object, Any, Y]], Awaitable[R]] | None = None,
        connection: Connection = None,
        *,
        prefix: str = DEFAULT_PREFIX,
        layout: KeyLayout = KeyLayout.PLAIN,
        options: WorkerOptions = ...,
        data_type: None = None,
        result_type: DataType[R] | None = None,
        worker_id: str | None = None,
        backoff_strategy: BackoffStrategy | None = None,
        scripts: Profile = DEFAULT,
        metrics_collector: MetricsCollector = NO_METRICS,
        telemetry: TelemetryProvider | None = None,
        limits: Limits = DEFAULT_LIMITS,
        middleware: Sequence[Middleware] = (),
        lifespan: Callable[[Any], AbstractAsyncContextManager[Y]] | None = None,
        clock: Clock | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        processor: Callable[[Job[T, Any, S]], Awaitable[R]] | None = None,
        connection: Connection = None,
        *,
        prefix: str = DEFAULT_PREFIX,
        layout: KeyLayout = KeyLayout.PLAIN,
        options: WorkerOptions = ...,
        data_type: DataType[T],
        result_type: DataType[R] | None = None,
        worker_id: str | None = None,
        backoff_strategy: BackoffStrategy | None = None,
        scripts: Profile = DEFAULT,
        metrics_collector: MetricsCollector = NO_METRICS,
        telemetry: TelemetryProvider | None = None,
        limits: Limits = DEFAULT_LIMITS,
        middleware: Sequence[Middleware] = (),
        lifespan: Callable[[Any], AbstractAsyncContextManager[S]] | None = None,
        clock: Clock | None = None,
    ) -> None: ...
    def __init__(
        self,
        name: str,
        processor: Callable[[Job[Any, Any, Any]], Awaitable[Any]] | None = None,
        connection: Connection = None,
        *,
        prefix: str = DEFAULT_PREFIX,
        layout: KeyLayout = KeyLayout.PLAIN,
        options: WorkerOptions = WorkerOptions(),  # noqa: B008
        data_type: DataType[T] | None = None,
        result_type: DataType[Any] | None = None,
        worker_id: str | None = None,
        backoff_strategy: BackoffStrategy | None = None,
        scripts: Profile = DEFAULT,
        metrics_collector: MetricsCollector = NO_METRICS,
        telemetry: TelemetryProvider | None = None,
        limits: Limits = DEFAULT_LIMITS,
        middleware: Sequence[Middleware] = (),
        lifespan: Callable[[Any], AbstractAsyncContextManager[Any]] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._setup = setup = WorkerSetup(
            name,
            processor,
            is_async=True,
            prefix=prefix,
            layout=layout,
            switches=check_profile(scripts).switches,
            options=options,
            zones=find_zone,
            data_type=data_type,
            result_type=result_type,
            worker_id=worker_id,
            made_id=made_worker_id(),
            backoff_strategy=backoff_strategy,
            metrics_collector=metrics_collector,
            telemetry=guarded(telemetry, provider_raised),
            limits=limits,
            middleware=middleware,
            lifespan=lifespan,
            clock=clock,
        )
        transport, owned = transport_of(connection, scripts)
        around = None if lifespan is None else partial(lifespan, self)
        self._driver = Driver[T](setup, processor, backoff_strategy, transport, around, owned=owned, profile=scripts)
        self._manual = Manual[T](setup, self._driver)

    @property
    def id(self) -> str:
        """The worker's name in logs and metrics."""
        return self._setup.id

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._setup.keys.name

    @property
    def keys(self) -> QueueKeys:
        """The names of the queue's keys in Redis."""
        return self._setup.keys

    @property
    def concurrency(self) -> int:
        """How many jobs run at a time, at least 1. You may set it while the worker runs."""
        return self._driver.concurrency

    @concurrency.setter
    def concurrency(self, value: int) -> None:
        self._driver.concurrency = value

    @property
    def is_running(self) -> bool:
        """Whether `run` is in progress, or the body of `async with` with a worker that has not been closed."""
        return self._driver.is_running

    @property
    def is_paused(self) -> bool:
        """Whether the worker itself is paused, also before it runs; not whether its queue is."""
        return self._driver.is_paused

    def __repr__(self) -> str:
        return repr(self._driver)

    def snapshot(self) -> WorkerSnapshot:
        """Return what the worker holds and waits for, as a plain value that `msgspec.json` can encode.

        Examples:
            >>> snapshot = worker.snapshot()
            >>> snapshot.state, snapshot.jobs, snapshot.completed
            ('stopped', (), 0)
        """
        return self._driver.snapshot()

    async def run(self, *, until: Literal["idle"] | Idle | None = None, max_jobs: int | None = None) -> None:
        """Take and process jobs until the worker is closed. `async with` does this in the background.

        If it is cancelled, it cancels the processors, returns their jobs to the queue, and then raises the cancellation
        again.

        Args:
            until: None, the default, runs until the worker is closed; "idle" until no job is held, waiting or due. Jobs
                that are delayed for later, and those of a paused queue, stay where they are. An `Idle` from
                `bullmq_protocol.worker.ending` does the same for several workers, which then end together.
            max_jobs: How many jobs, at least 1, the worker takes before it ends, once the last of them is over. None,
                the default: no limit.

        Raises:
            AuthenticationFailed: The server refused the login, and has not accepted it before. The same goes for the
                next two.
            ServerTooOld: The server is older than the scripts need.
            UsageError: The server cannot hold this queue, the worker has no processor, is already running or has ended,
                or an argument is wrong.
            ConnectionLost: `max_reconnect_attempts` attempts to reconnect have failed.

        Source: specs/05-worker-runtime.md#sec-4-2

        Examples:
            >>> async def stop(notice):
            ...     await worker.aclose()
            >>> remove = worker.on(JobCompleted, stop)
            >>> job = await queue.add("welcome", {"to": "ada"})
            >>> await worker.run()
            >>> await job.get_state()
            'completed'

            >>> other = Worker("mail", greet, url)
            >>> await other.run(until="idle")
        """
        await self._driver.run(until, max_jobs)

    async def pause(self, *, wait: bool = True) -> None:
        """Start no further job.

        Args:
            wait: True, the default, returns when the running jobs have ended, or earlier if the worker is resumed or
                ends; in a processor or a callback it does not wait. False returns immediately.

        Source: specs/05-worker-runtime.md#sec-14-1

        Examples:
            >>> async with worker:
            ...     await worker.pause()
        """
        await self._driver.pause(wait=wait)

    def resume(self) -> None:
        """Take jobs again after `pause`.

        Source: specs/05-worker-runtime.md#sec-14-2

        Examples:
            >>> async with worker:
            ...     await worker.pause()
            ...     worker.resume()
        """
        self._driver.resume()

    def cancel_job(self, job_id: str, reason: str = "cancelled") -> bool:
        """Cancel the processor of a job that this worker runs. This does not affect jobs of other workers.

        On asyncio and trio the job then fails with this reason, and is retried as its options say. On threads,
        `job.cancelled` tells the processor, and the job ends as the processor returns or raises.

        Args:
            job_id: The id of the job.
            reason: The text of the failure; `cancelled` by default.

        Returns:
            False if no processor of this worker has the job.

        Source: specs/06-later-versions.md#sec-4-13

        Examples:
            >>> worker.cancel_job("1", "no longer wanted")
            False
        """
        return self._driver.cancel(check_name("job_id", job_id, max_length=None), reason) > 0

    def cancel_all_jobs(self, reason: str = "cancelled") -> int:
        """Cancel the processors of all jobs that this worker runs, as `cancel_job` does.

        Args:
            reason: The text of the failures; `cancelled` by default.

        Returns:
            The number of processors cancelled.

        Source: specs/06-later-versions.md#sec-4-13

        Examples:
            >>> worker.cancel_all_jobs("the day is over")
            0
        """
        return self._driver.cancel(None, reason)

    async def aclose(self, force: bool = False) -> None:
        """Close the worker, and wait until it is closed.

        Running jobs have `shutdown_timeout` to finish; then they are cancelled and returned to the queue. Called from a
        processor or a callback, it does not wait. A task that continues although it was cancelled cannot be stopped:
        `aclose` waits for such a processor, whose job another worker may have by then, and logs a warning every ten
        seconds.

        Args:
            force: True returns the running jobs to the queue at once. False by default.

        Source: specs/05-worker-runtime.md#sec-14-3

        Examples:
            >>> async with worker:
            ...     await worker.aclose(force=True)
        """
        await self._driver.aclose(force)

    async def __aenter__(self) -> Self:
        await self._driver.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._driver.leave(kind, error, trace)

    def on(self, kind: type[N], callback: Callable[[N], object]) -> Callable[[], None]:
        """Call a function with each notice of one kind.

        An async function runs in its own task, and the worker waits for it before it ends. Exceptions from the function
        are logged and change nothing.

        Args:
            kind: A class of `bullmq_protocol.worker.notices`, such as `JobCompleted` or `JobFailed`.
            callback: The function, async or not, which takes the notice.

        Returns:
            A function without arguments that removes the callback.

        Source: specs/05-worker-runtime.md#sec-16

        Examples:
            >>> remove = worker.on(JobFailed, lambda notice: print(notice.job.id, notice.reason))
            >>> remove()
        """
        return self._driver.on(kind, callback)

    def notices(self, buffer: int = 1000) -> Notices:
        """Return an asynchronous iterator over all notices from now on. It ends with the worker.

        Args:
            buffer: How many notices to keep for a slow reader, at least 1; 1,000 by default. Beyond that the oldest are
                dropped, and counted in `dropped`.

        Source: specs/05-worker-runtime.md#sec-16

        Examples:
            >>> job = await queue.add("welcome", {"to": "ada"})
            >>> notices = worker.notices()
            >>> async with worker:
            ...     async for notice in notices:
            ...         if isinstance(notice, JobCompleted):
            ...             print(notice.value)
            ...             break
            "sent to ada"
        """
        return self._driver.notices(buffer)

    async def get_next_job(self, *, block: bool = True) -> Job[T] | None:
        """Take a job manually.

        Renew its lock with `extend_lock` before `lock_duration` is over, and end the job with `complete` or `fail`.

        Args:
            block: True, the default: if the last call found no job, wait for one first, up to `drain_delay`. False: do
                not wait.

        Returns:
            The job; None if there is none, or if the worker is closed.

        Source: specs/05-worker-runtime.md#sec-17

        Examples:
            >>> job = await queue.add("welcome", {"to": "ada"})
            >>> taken = await worker.get_next_job()
            >>> taken.data
            {'to': 'ada'}
        """
        return await self._manual.get_next_job(block=block)

    async def complete(self, job: Job[T], value: Any = None, *, fetch_next: bool = False) -> Job[T] | None:
        """Complete a job that was taken manually: store its result.

        Args:
            job: The job, from `get_next_job`, or from `complete` or `fail` with `fetch_next`.
            value: The result: any JSON value, up to `Limits.max_result_bytes`. None by default.
            fetch_next: True also takes the next job, in the same call. False by default.

        Returns:
            With `fetch_next`, the next job if there is one; otherwise None.

        Raises:
            JobNotFound: The job no longer exists.
            LockMissing: Its lock has expired.
            LockMismatch: Another worker holds its lock.
            WrongState: It is not active.
            PendingChildren: It has unfinished children.
            ChildFailed: A child has failed that fails its parent.

        Source: specs/02-worker-path.md#move-to-finished

        Examples:
            >>> job = await queue.add("welcome", {"to": "ada"})
            >>> taken = await worker.get_next_job()
            >>> await worker.complete(taken, {"sent": True})
            >>> await taken.get_state()
            'completed'
        """
        return await self._manual.complete(job, value, fetch_next=fetch_next)

    async def fail(self, job: Job[T], error: BaseException, *, fetch_next: bool = False) -> Job[T] | None:
        """End an attempt of a job that was taken manually: retry the job later or fail it for good, as a worker
        decides.

        Args:
            job: The job, from `get_next_job`, or from `complete` or `fail` with `fetch_next`.
            error: Why it failed. Its type and the job's options decide whether it is retried.
            fetch_next: True also takes the next job if this one fails for good. False by default.

        Returns:
            With `fetch_next`, the next job if there is one; otherwise None.

        Raises:
            JobNotFound: The job no longer exists.
            LockMissing: Its lock has expired.
            LockMismatch: Another worker holds its lock.
            WrongState: It is not active.

        Source: specs/05-worker-runtime.md#sec-9-1

        Examples:
            >>> job = await queue.add("welcome", {"to": "ada"})
            >>> taken = await worker.get_next_job()
            >>> await worker.fail(taken, ValueError("no such address"))
            >>> await taken.get_state()
            'failed'
        """
        return await self._manual.fail(job, error, fetch_next=fetch_next)

    async def extend_lock(self, job: Job[T], duration: Duration | None = None) -> bool:
        """Renew the lock of a job that was taken manually.

        Args:
            job: The job.
            duration: How long the lock lasts from now on, in milliseconds or as a `timedelta`, above 0. None, the
                default: the option `lock_duration`.

        Returns:
            False if the lock is no longer this worker's.

        Source: specs/03-transitions-admin-getters.md#extend-lock

        Examples:
            >>> job = await queue.add("welcome", {"to": "ada"})
            >>> taken = await worker.get_next_job()
            >>> await worker.extend_lock(taken)
            True
        """
        return await self._manual.extend_lock(job, duration)
