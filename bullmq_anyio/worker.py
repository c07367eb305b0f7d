"""A worker on asyncio or trio: it carries out what the machine of the core decides.

Nobody pumps: the task that has an answer gives it to the machine and goes on with the first thing that the machine
wants; for the others it starts further tasks. One more task waits for the machine's deadline.

Each job has a task of its own, which runs the user's code and nothing else: what that leaves behind (a timer that
cancels the task, a cancel scope in a generator, context variables) meets nobody. *Slots*, tasks that live long, start
the jobs' tasks and take their outcomes to the server. The outcomes that are there when a slot goes are delivered in one
call; while two calls are under way, the next gathers. Rule: whoever leaves work behind and waits has roused a slot for
it, or another one that is on its way sees it.
"""

from __future__ import annotations

import inspect
import itertools
import logging
import math
import os
import random
import secrets
import socket
import time
import uuid
from _thread import get_ident
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, suppress
from contextvars import Context, ContextVar, copy_context
from functools import partial
from types import CoroutineType, TracebackType, UnionType
from typing import Any, Generic, Self, TypeVar, cast

import anyio
import msgspec
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from bullmq_anyio.drive import Connection, check_server, clock, has_ended, perform, run, stop_connecting, transport_of
from bullmq_anyio.guard import is_interrupt, provider_raised, say
from bullmq_anyio.job import Job
from bullmq_anyio.net.link import Wake, wake_maker
from bullmq_anyio.notices import Notices
from bullmq_anyio.tasks import Apart, Errand, Handling, JobTasks, apart, job_tasks, start_unlisted
from bullmq_anyio.zones import find_zone
from bullmq_protocol.command import Batch, Command, Operation
from bullmq_protocol.commands.batches import MOST_JOBS
from bullmq_protocol.commands.queues import ping
from bullmq_protocol.common.codec import check_type
from bullmq_protocol.common.keys import DEFAULT_PREFIX, MAX_NAME_LENGTH, KeyLayout, QueueKeys, check_label
from bullmq_protocol.common.units import Duration, Millis, to_ms
from bullmq_protocol.errors import (
    AuthenticationFailed,
    BullMQError,
    Closed,
    ConnectionLost,
    ServerError,
    ServerTooOld,
    TransportError,
    UnexpectedReply,
    UnrecoverableError,
    UsageError,
)
from bullmq_protocol.model.backoff import custom_type, strategy_delay
from bullmq_protocol.model.categories import is_one, repr_of
from bullmq_protocol.model.failure import Failure, FailureKind, failure_of
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.model.options import DEFAULT_LIMITS, Limits, result_text
from bullmq_protocol.net.merge import fitting, merged
from bullmq_protocol.net.transport import AsyncTransport
from bullmq_protocol.observability.metrics import NO_METRICS, MetricsCollector, check_collector
from bullmq_protocol.observability.stack import StackTexts
from bullmq_protocol.observability.telemetry import (
    NO_SPAN,
    Attributes,
    TelemetryProvider,
    TelemetrySpan,
    guarded,
    omits_context,
)
from bullmq_protocol.scripts.source import OWN, ScriptSource
from bullmq_protocol.worker.actions import Action, Call, CancelJob, Listen, Notify, RunJob, Stopped, Unlisten
from bullmq_protocol.worker.events import (
    CallFailed,
    CloseRequested,
    ConnectionEnded,
    Event,
    JobRaised,
    JobReturned,
    PauseRequested,
    Replied,
    ResumeRequested,
    Tick,
    Unlistened,
)
from bullmq_protocol.worker.logline import LOWEST_LEVEL, logline
from bullmq_protocol.worker.machine import WorkerMachine
from bullmq_protocol.worker.manual import ManualWork, Taken
from bullmq_protocol.worker.metering import METERED, Meter, lasted
from bullmq_protocol.worker.notices import (
    JobCompleted,
    Notice,
    Paused,
    Reconnected,
    Resumed,
    WorkerProblem,
    check_notice,
)
from bullmq_protocol.worker.options import WorkerOptions, check_concurrency, check_processor
from bullmq_protocol.worker.outcome import failure_report
from bullmq_protocol.worker.snapshot import WorkerSnapshot, WorkerState
from bullmq_protocol.worker.tracing import TRACED, WorkerTracing

T = TypeVar("T")
N = TypeVar("N", bound=Notice)

_log = logging.getLogger("bullmq_anyio")

BackoffStrategy = Callable[
    [int, str, BaseException, Job[Any]], "Millis | float | Awaitable[Millis | float | None] | None"
]
"""Called with attempt number, backoff type, error and job; returns milliseconds (-1: fail for good). May be async."""

# What no later attempt can mend, as long as the server has never answered.
_FATAL = (AuthenticationFailed, ServerTooOld, UsageError)
_FORCED_STOP_S = 10.0
_LOOK_S = 0.25
"""So often a worker whose slots are all busy looks whether its connection has ended."""
_INTRODUCE_S = 1.0
"""So often it tries to open its named connection."""
_NAMED: tuple[type[Notice], ...] = (Paused, Resumed, Reconnected)
"""After these the named connection may be gone, and a worker that always has work makes no other."""
_MOST_DELIVERIES = 2
"""So many calls with outcomes are under way at a time: the server works on one while the next gathers."""


_within: ContextVar[object] = ContextVar("bullmq_anyio.worker", default=None)
"""The worker whose handlers and callbacks this code is part of."""


class Worker(Generic[T]):
    """A worker of one queue. Nothing is opened before `run`, so it can be made before an event loop runs.

    `async with worker:` runs it in the background and closes it gracefully at the end.

    Args:
        name: The queue's name: 1 to 255 characters, no colon.
        processor: An async function of the `Job`. What it returns, any JSON value, becomes the job's result, and what
            it raises its failure. None, the default: jobs are only taken manually, with `get_next_job`.
        connection: A URL, options (`ConnectionOptions`, `SentinelOptions`, `ClusterOptions`), a transport, which its
            owner closes, or None, the default: the server at 127.0.0.1:6379.
        prefix: What all keys of the queue begin with, as in BullMQ `bull` by default.
        layout: Where the keys have the hash tag that a Redis Cluster needs: `KeyLayout.PLAIN` by default, nowhere.
        options: Concurrency, locks, retries and limits; see `WorkerOptions` for the defaults.
        data_type: What payloads are read into: anything that msgspec can decode. One that does not fit fails its job
            for good. None, the default: JSON values.
        worker_id: The worker's name in logs and metrics. None, the default: made of host, process id and six hex
            digits.
        backoff_strategy: A function, async or not, of attempt number, backoff type, error and job, for backoff types
            other than `fixed` and `exponential`. It returns milliseconds; -1 fails the job for good. None by default.
        scripts: The source of the scripts: ours by default, or BullMQ's own from `bullmq_scripts`.
        metrics_collector: Counts and times what happens, such as `PrometheusMetrics`; see
            `bullmq_protocol.observability.metrics`. No metrics by default.
        telemetry: A provider of spans, such as `BullMQOtel`. None, the default: no spans. See
            `bullmq_protocol.observability.telemetry`.
        limits: Bounds on what processors return and write: by default 10 MiB. A result over its limit fails the job.

    Source: specs/05-worker-runtime.md#sec-2

    Examples:
        >>> async def greet(job):
        ...     return f"hello {job.data['to']}"
        >>> worker = Worker("mail", greet, "redis://localhost:6379", options=WorkerOptions(concurrency=20))
        >>> await worker.aclose()
    """

    def __init__(
        self,
        name: str,
        processor: Callable[[Job[T]], Awaitable[Any]] | None = None,
        connection: Connection = None,
        *,
        prefix: str = DEFAULT_PREFIX,
        layout: KeyLayout = KeyLayout.PLAIN,
        options: WorkerOptions = WorkerOptions(),  # noqa: B008
        data_type: type[T] | UnionType | None = None,
        worker_id: str | None = None,
        backoff_strategy: BackoffStrategy | None = None,
        scripts: ScriptSource = OWN,
        metrics_collector: MetricsCollector = NO_METRICS,
        telemetry: TelemetryProvider | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._keys = QueueKeys.of(name, prefix=prefix, layout=layout)
        check_processor(processor, is_async=True)
        if backoff_strategy is not None and not callable(backoff_strategy):
            raise UsageError("backoff_strategy", backoff_strategy, "must be a function")
        if not isinstance(options, WorkerOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("options", options, "must be a WorkerOptions")
        check_type("data_type", data_type)
        if not isinstance(limits, Limits):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("limits", limits, "must be Limits")
        check_collector(metrics_collector)
        telemetry = guarded(telemetry, provider_raised)
        self._settings, warnings = options.checked(zones=find_zone)
        self._id = _worker_id() if worker_id is None else check_label("worker_id", worker_id)
        for warning in warnings:
            say(logging.WARNING, "worker %s: %s", self._id, warning, extra=self._extra())
        self._processor = processor
        self._limits = limits
        self._strategy = backoff_strategy
        self._stacks = StackTexts()
        self._data_type: Any = Any if data_type is None else data_type
        self._transport, self._owned = transport_of(connection, scripts)
        # Spans are made for each call, so that they need single ones.
        self._merges = scripts.batches and telemetry is None
        self._machine = WorkerMachine(self._keys, self._settings, str(uuid.uuid4()), batches=self._merges)
        self._tasks: TaskGroup | None = None
        self._inner: anyio.CancelScope | None = None
        self._armed: Millis | None = None
        self._rearm: anyio.Event | None = None
        self._idle: list[anyio.Event] = []
        self._listener: AsyncTransport | None = None
        self._listening: dict[int, anyio.CancelScope] = {}
        self._introducing: set[anyio.CancelScope] = set()
        self._context = copy_context()
        """What jobs and callbacks begin in a copy of: the context of `run`."""
        self._jobs: JobTasks | None = None
        self._apart: Apart | None = None
        self._handling: dict[int, Handling] = {}
        self._emptied: anyio.Event | None = None
        self._launching = False
        self._ready: deque[RunJob] = deque()
        self._called_off: set[int] = set()
        self._returned: list[Event] = []
        """Handlers that are over, of which the machine is told together: at the latest before anything else."""
        self._outcomes: deque[Call] = deque()
        self._deliveries = 0
        self._errands: dict[Errand, str] = {}
        """The user's code that waits beside the handlers, and what to call it."""
        self._errands_until = math.inf
        self._asleep: list[Wake] = []
        self._rousing = False
        self._contacted = False
        self._look_at = 0.0
        self._listed = False
        self._introduce_at = 0.0
        self._closed = False
        self._paused_first = False
        self._broken = False
        self._error: BaseException | None = None
        self._running = False
        self._thread = 0
        self._stopped: anyio.Event | None = None
        self._finished: anyio.Event | None = None
        self._over = False
        self._background: _Background | None = None
        self._meter = None if metrics_collector is NO_METRICS else Meter(metrics_collector, self.name, self._id)
        self._callbacks: dict[type[Any], tuple[Callable[[Any], object], ...]] = (
            {} if self._meter is None else dict.fromkeys(METERED, (self._meter,))
        )
        self._tracing: WorkerTracing | None = None
        if telemetry is not None:
            self._tracing = WorkerTracing(
                telemetry, self._machine, self._settings, queue=self.name, worker_id=self._id, now=clock
            )
            for kind in TRACED:
                self._callbacks[kind] = (*self._callbacks.get(kind, ()), self._tracing)
        self._streams: tuple[Notices, ...] = ()
        self._manual = ManualWork(self._keys, self._settings)
        self._manual_token = str(uuid.uuid4())
        self._manual_count = 0
        self._manual_waiting = False
        self._manual_listener: AsyncTransport | None = None

    # --- what it is ---------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The worker's name in logs and metrics."""
        return self._id

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._keys.name

    @property
    def keys(self) -> QueueKeys:
        """The names of the queue's keys in Redis."""
        return self._keys

    @property
    def concurrency(self) -> int:
        """How many jobs run at a time, at least 1. May be set while the worker runs."""
        return self._machine.concurrency

    @concurrency.setter
    def concurrency(self, value: int) -> None:
        self._check_thread()
        self._machine.concurrency = check_concurrency(value)
        self._happen(Tick(random.random()))

    @property
    def is_running(self) -> bool:
        """Whether `run` is under way."""
        return self._running

    @property
    def is_paused(self) -> bool:
        """Whether the worker itself is paused. A paused queue does not count."""
        return self._machine.state is WorkerState.PAUSED

    def __repr__(self) -> str:
        return f"<Worker {self.name!r}, prefix {self._keys.prefix!r}, id {self._id!r}, {self._machine.word}>"

    def snapshot(self) -> WorkerSnapshot:
        """Return what the worker holds and waits for: a plain value, which `msgspec.json` can encode.

        Examples:
            >>> snapshot = worker.snapshot()
            >>> snapshot.state, snapshot.jobs, snapshot.completed
            ('stopped', (), 0)
        """
        return self._machine.snapshot(clock())

    # --- life ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Take and process jobs until the worker is closed. `async with` does this in the background.

        Cancelling it cancels the processors, gives their jobs back to the queue, and is then raised again.

        Raises:
            AuthenticationFailed: The server refused the login, and has never given another answer; so for the two
                below.
            ServerTooOld: The server is older than the scripts need.
            UsageError: The server cannot hold this queue, the worker has no processor, or it runs already or has ended.
            ConnectionLost: As many attempts to reconnect failed as `max_reconnect_attempts` allows.

        Source: specs/05-worker-runtime.md#sec-4-2

        Examples:
            >>> async def stop(notice):
            ...     await worker.aclose()
            >>> remove = worker.on(JobCompleted, stop)
            >>> job = await queue.add("welcome", {"to": "ada"})
            >>> await worker.run()
            >>> await job.get_state()
            'completed'
        """
        self._check_first()
        if self._background is not None:
            raise UsageError("worker", self._id, "is already running: it was entered before")
        await self._run()

    async def _run(self) -> None:
        if self._processor is None:
            raise UsageError("processor", None, "no process function is defined")
        self._check_first()
        if self._closed:
            return
        self._running = True
        self._thread = get_ident()
        self._context = copy_context()
        self._context.run(_within.set, self)
        self._stopped = anyio.Event()
        self._finished = anyio.Event()
        try:
            self._meter_life(begins=True)
            await self._meet_server()
            # The work goes on in a shielded scope, so that a cancellation from outside does not cut it in the middle.
            async with anyio.create_task_group() as outer:
                start_unlisted(outer, self._work)
                try:
                    await self._stopped.wait()
                except BaseException:
                    self._give_up()
                    raise
        finally:
            self._closed = True
            try:
                await self._close_for_good()
            finally:
                self._running = False
                self._over = True
                self._finished.set()
                self._end_streams()
                self._meter_life(begins=False)
        if self._error is not None:
            raise self._error

    async def pause(self, *, wait: bool = True) -> None:
        """Start no further job.

        Args:
            wait: True, the default: return when the running jobs are over. False: return immediately.

        Source: specs/05-worker-runtime.md#sec-14-1

        Examples:
            >>> async with worker:
            ...     await worker.pause()
        """
        self._check_thread()
        with self._span("pause", {} if wait else {"bullmq.worker.do.not.wait.active": True}):
            self._paused_first = True
            self._happen(PauseRequested())
            while wait and self._running and self._machine.running_jobs and _within.get() is not self:
                event = anyio.Event()
                self._idle.append(event)
                await event.wait()

    def resume(self) -> None:
        """Take jobs again after `pause`.

        Source: specs/05-worker-runtime.md#sec-14-2

        Examples:
            >>> async with worker:
            ...     await worker.pause()
            ...     worker.resume()
        """
        self._check_thread()
        with self._span("resume"):
            self._paused_first = False
            self._happen(ResumeRequested())

    async def aclose(self, force: bool = False) -> None:
        """Close the worker, and wait until that is done.

        Running jobs may end within `shutdown_timeout`; then they are cancelled and given back to the queue. Called from
        a processor or a callback it does not wait. A task that goes on although it was cancelled cannot be stopped:
        `aclose` waits for such a processor, whose job another worker may have by then, and logs a warning every ten
        seconds.

        Args:
            force: True gives the running jobs back at once. False by default.

        Source: specs/05-worker-runtime.md#sec-14-3

        Examples:
            >>> async with worker:
            ...     await worker.aclose(force=True)
        """
        self._check_thread()
        with self._span("close", {"bullmq.worker.force.close": force}):
            self._closed = True
            left = 0.0 if force else self._settings.shutdown_ms / 1000
            self._errands_until = min(self._errands_until, time.monotonic() + left)
            if self._rearm is not None:
                self._rearm.set()
            if self._running and self._finished is not None:
                if self._tasks is None:
                    await self._close_transports()
                self._happen(CloseRequested(force))
                if self._machine.adrift or not (self._contacted or self._machine.running_jobs):
                    await self._close_transports()
                if _within.get() is not self:
                    await self._finished.wait()
            elif not self._over:
                self._over = True
                await self._close_transports()
                self._end_streams()

    def _check_first(self) -> None:
        if self._over and self._finished is not None:
            raise UsageError("worker", self._id, "has ended: make a new one to work again")
        if self._running:
            raise UsageError("worker", self._id, "is already running")

    async def __aenter__(self) -> Self:
        self._check_first()
        if self._background is not None:
            raise UsageError("worker", self._id, "is already running: it was entered before")
        self._background = _Background()
        await self._background.start(self._run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        background = self._background
        if background is None:
            return None
        return await background.end(self.aclose, kind, error, trace)

    # --- what it tells ------------------------------------------------------------------------------------------------

    def on(self, kind: type[N], callback: Callable[[N], object]) -> Callable[[], None]:
        """Call a function with each notice of one kind.

        An async function runs in a task of its own, for which the worker waits at its end. What the function raises is
        logged and changes nothing.

        Args:
            kind: A class of `bullmq_protocol.worker.notices`, such as `JobCompleted` or `JobFailed`.
            callback: The function, async or not; it is given the notice.

        Returns:
            A function without arguments that ends the calls.

        Source: specs/05-worker-runtime.md#sec-16

        Examples:
            >>> remove = worker.on(JobFailed, lambda notice: print(notice.job.id, notice.reason))
            >>> remove()
        """
        check_notice(kind)
        self._callbacks[kind] = (*self._callbacks.get(kind, ()), callback)

        def remove() -> None:
            known = list(self._callbacks.get(kind, ()))
            if callback in known:
                known.remove(callback)
            self._callbacks[kind] = tuple(known)

        return remove

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
        if type(buffer) is not int or buffer < 1:
            raise UsageError("buffer", buffer, "must be a whole number above 0")
        stream = Notices(buffer, self._forget)
        self._streams = (*self._streams, stream)
        if self._over:
            stream.close()
        return stream

    # --- by hand ------------------------------------------------------------------------------------------------------

    async def get_next_job(self, *, block: bool = True) -> Job[T] | None:
        """Take a job manually.

        Its lock must be renewed with `extend_lock` before `lock_duration` is over, and the job ended with `complete` or
        `fail`.

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
        if self._closed:
            return None
        self._manual_count += 1
        token = f"{self._manual_token}:{self._manual_count}"
        # One wait at a time: they share a connection.
        waiting = block and not self._manual_waiting
        self._manual_waiting = self._manual_waiting or waiting
        try:
            job = self._taken(await self._by_hand(self._manual.next_job(token, block=waiting)))
            if job is not None and self._tracing is not None:
                self._tracing.taken(job.record, block=block)
            return job
        except Closed:
            if self._is_closed():
                return None
            raise
        finally:
            if waiting:
                self._manual_waiting = False

    async def complete(self, job: Job[T], value: Any = None, *, fetch_next: bool = False) -> Job[T] | None:
        """End a job that was taken manually: store its result.

        Args:
            job: The job, from `get_next_job`, or from `complete` or `fail` with `fetch_next`.
            value: The result: any JSON value, up to `Limits.max_result_bytes`. None by default.
            fetch_next: True also takes the next job, in the same call. False by default.

        Returns:
            With `fetch_next` the next job if there is one; else None.

        Raises:
            JobNotFound: The job does not exist any more.
            LockMissing: Its lock has expired.
            LockMismatch: Another worker holds it.
            WrongState: It is not active.
            PendingChildren: It has children that are not finished.
            ChildFailed: A child failed whose failure fails its parent.

        Source: specs/02-worker-path.md#move-to-finished

        Examples:
            >>> job = await queue.add("welcome", {"to": "ada"})
            >>> taken = await worker.get_next_job()
            >>> await worker.complete(taken, {"sent": True})
            >>> await taken.get_state()
            'completed'
        """
        text = result_text(value, self._limits)
        operation = self._manual.complete(job.record, _token_of(job), text, fetch_next=fetch_next)
        with NO_SPAN if self._tracing is None else self._tracing.completing():
            taken = await self._by_hand(operation)
        self._meter_by_hand(JobCompleted(job.record, text, lasted(job.record, clock().wall)))
        return self._taken(taken)

    async def fail(self, job: Job[T], error: BaseException, *, fetch_next: bool = False) -> Job[T] | None:
        """End an attempt of a job that was taken manually: retry the job later or fail it for good, as a worker
        decides.

        Args:
            job: The job, from `get_next_job`, or from `complete` or `fail` with `fetch_next`.
            error: Why it failed. Its type and the job's options decide whether it is retried.
            fetch_next: True also takes the next job if this one fails for good. False by default.

        Returns:
            With `fetch_next` the next job if there is one; else None.

        Raises:
            JobNotFound: The job does not exist any more.
            LockMissing: Its lock has expired.
            LockMismatch: Another worker holds it.
            WrongState: It is not active.

        Source: specs/05-worker-runtime.md#sec-9-1

        Examples:
            >>> job = await queue.add("welcome", {"to": "ada"})
            >>> taken = await worker.get_next_job()
            >>> await worker.fail(taken, ValueError("no such address"))
            >>> await taken.get_state()
            'failed'
        """
        record, token = job.record, _token_of(job)
        raised = self._raised(-1, job, error, *await self._ask_strategy(job, error))
        report = failure_report(
            record,
            raised.failure,
            self._settings,
            roll=raised.roll,
            strategy_delay=raised.strategy_delay_ms,
            strategy_error=raised.strategy_error,
            exception=error,
        )
        with NO_SPAN if self._tracing is None else self._tracing.failing(report) as span:
            operation = self._manual.fail(
                record,
                token,
                raised.failure,
                roll=raised.roll,
                strategy_delay=raised.strategy_delay_ms,
                strategy_error=raised.strategy_error,
                telemetry=None if self._tracing is None or omits_context(record) else span.metadata() or None,
                fetch_next=fetch_next,
            )
            taken = await self._by_hand(operation)
        self._meter_by_hand(report.notice(record, lasted(record, clock().wall)))
        return self._taken(taken)

    async def extend_lock(self, job: Job[T], duration: Duration | None = None) -> bool:
        """Renew the lock of a job that was taken manually.

        Args:
            job: The job.
            duration: How long the lock lives from now on, in milliseconds or as a `timedelta`, above 0. None, the
                default: the option `lock_duration`.

        Returns:
            False if the lock is not this worker's any more.

        Source: specs/03-transitions-admin-getters.md#extend-lock

        Examples:
            >>> job = await queue.add("welcome", {"to": "ada"})
            >>> taken = await worker.get_next_job()
            >>> await worker.extend_lock(taken)
            True
        """
        return await job.extend_lock(self._settings.lock_ms if duration is None else to_ms("duration", duration))

    async def _by_hand(self, operation: Operation[Taken]) -> Taken:
        return await run(operation, _ByHand(self._transport, self._manual_wait))

    async def _manual_wait(self, command: Command[Any]) -> Any:
        if self._manual_listener is None:
            name = self._keys.client_name(self._settings.name)
            self._manual_listener = self._transport.dedicated(client_name=name)
        return await self._manual_listener.perform(command)

    def _taken(self, taken: Taken) -> Job[T] | None:
        if taken.problem is not None:
            self._tell(WorkerProblem(taken.problem))
        return None if taken.job is None else self._job(taken.job, taken.token)

    # --- driving ------------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        _within.set(self)
        with anyio.CancelScope(shield=True) as self._inner:
            try:
                if self._closed:
                    return
                try:
                    async with anyio.create_task_group() as tasks:
                        self._jobs = job_tasks(self._attend, self._context, tasks)
                        self._tasks = tasks
                        if self._tracing is not None:
                            self._tracing.started()
                        self._start(self._machine.start(clock(), paused=self._paused_first))
                        self._spawn(self._keep_time)
                    self._tasks = None
                    if self._stopped is not None and not self._stopped.is_set():
                        raise _Interrupted(f"worker {self._id}: another program's code has cancelled its tasks")
                    if self._jobs is not None:
                        await self._jobs.settled()
                except BaseException:
                    self._broken = True
                    await self._end_handlers()
                    raise
            except anyio.get_cancelled_exc_class():
                self._tasks = None
                if not self._inner.cancel_called:
                    # asyncio.run cancels every task at its end, this one too.
                    await self._salvage()
                raise
            except BaseException as error:
                # Ctrl-C met one of our tasks (trio raises it where it comes), or a fault of this library.
                self._tasks = None
                self._error = _root(error)
                await self._salvage()
            finally:
                self._tasks = None
                self._stop()

    async def _end_handlers(self) -> None:
        """The tasks are gone for a fault: cancel the handlers that are left, and wait for them."""
        while self._handling:
            for handling in tuple(self._handling.values()):
                if self._jobs is not None:
                    self._jobs.cancel(handling)
            self._emptied = anyio.Event()
            with suppress(anyio.get_cancelled_exc_class()), anyio.CancelScope(shield=True):
                with anyio.move_on_after(_FORCED_STOP_S):
                    await self._emptied.wait()
                    return
                self._warn_of_handlers()
        if self._jobs is not None:
            await self._jobs.call_back()

    async def _salvage(self) -> None:
        """The tasks are gone: give back what was running, so that another worker takes it at once."""
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _FORCED_STOP_S):
            try:
                await self._settle()
            except Exception:
                say(
                    logging.ERROR,
                    "worker %s broke while it gave its jobs back",
                    self._id,
                    extra=self._extra(),
                    trace=True,
                )
            try:
                await run(self._machine.give_back_strays(), self._transport)
            except BullMQError as error:
                say(logging.WARNING, "worker %s may still hold jobs: %s", self._id, error, extra=self._extra())

    async def _settle(self) -> None:
        actions = self._machine.owed()
        actions += self._machine.handle_all((*self._returned, CloseRequested(force=True)), clock())
        while actions:
            match actions.pop(0):
                case Notify(notice):
                    self._tell(notice)
                case Call(ticket, command):
                    actions += self._machine.handle(await self._call(ticket, command), clock())
                case _:
                    pass

    def _spawn(self, function: Callable[..., Coroutine[Any, Any, None]], *args: Any, name: str | None = None) -> None:
        """Start a task of the worker's in a context of its own, whoever this runs in."""
        # Nobody would cancel one that joins a group whose others have been cancelled and are over.
        if self._jobs is not None and not self._is_torn():
            self._context.copy().run(partial(self._jobs.start_soon, function, *args, name=name))

    def _check_thread(self) -> None:
        if self._tasks is not None and get_ident() != self._thread:
            raise UsageError("worker", self._id, "runs in the event loop of another thread: call it from there")

    def _happen(self, event: Event) -> None:
        """Give the machine an event that is no answer."""
        if self._tasks is not None:
            self._start(self._feed((event,)))

    def _feed(self, events: Sequence[Event]) -> list[Action]:
        machine = self._machine
        if self._returned:
            events = [*self._returned, *events]
        actions = machine.handle_all(events, clock())
        # Where that raised, they are told again: a run that is over ends once.
        self._returned.clear()
        if self._rearm is not None:
            due = machine.deadline()
            if due is not None and (self._armed is None or due < self._armed):
                self._rearm.set()
        if self._idle and not machine.running_jobs:
            self._wake_idle()
        return actions

    def _start(self, actions: list[Action]) -> None:
        action = self._sort(actions)
        if action is not None:
            self._spawn(self._carry, action)
        self._rouse()

    async def _carry(self, action: Action) -> None:
        """Do what the machine wants, tell it the answer, and go on with what it wants then."""
        following: Action | None = action
        try:
            while following is not None:
                match following:
                    case Call(ticket, command):
                        event = await self._call(ticket, command)
                    case Listen(ticket, command):
                        event = await self._listen(ticket, command)
                    case _:
                        raise TypeError(f"{following!r} has no answer")
                following = self._sort(self._feed((event,)))
                self._rouse()
        except anyio.get_cancelled_exc_class():
            if self._is_torn():
                raise
            # asyncio: somebody cancelled this very task (a handler its own, or all of them): another goes on for it.
            self._hand_over(following)
        except BaseException:
            # Before the other tasks are cancelled for it: their handlers have not failed.
            self._broken = True
            raise

    def _is_torn(self) -> bool:
        """Whether the tasks are being cancelled as a whole, by us or for a fault."""
        inner, tasks = self._inner, self._tasks
        return self._broken or inner is None or inner.cancel_called or tasks is None or tasks.cancel_scope.cancel_called

    def _hand_over(self, action: Action | None) -> None:
        match action:
            case Call(ticket, _, shielded) if not shielded:
                self._happen(CallFailed(ticket, "the task was cancelled", lost=False))
            case Call():
                self._spawn(self._carry, action)
            case Listen(ticket):
                self._happen(Unlistened(ticket))
            case _:
                pass

    def _sort(self, actions: list[Action]) -> Call | Listen | None:
        """Do at once what has no answer, put jobs and outcomes where the slots find them, return the first of the other
        calls, and start tasks for the rest."""
        first: Call | Listen | None = None
        told: dict[type[Notice], bool] = {}
        for action in actions:
            match action:
                case RunJob():
                    self._ready.append(action)
                    continue
                case Notify(notice):
                    kind = type(notice)
                    if kind not in told:
                        told[kind] = self._is_told(kind)
                        if kind in _NAMED:
                            self._spawn(self._introduce)
                    if told[kind]:
                        self._tell(notice)
                    continue
                case Call(_, command):
                    if self._merges and command.merge is not None:
                        self._outcomes.append(action)
                        continue
                case Unlisten(ticket):
                    if ticket in self._listening:
                        self._listening[ticket].cancel()
                    continue
                case CancelJob(number):
                    handling = self._handling.get(number)
                    if handling is None:
                        # Not begun: it is ready, or among the actions of which a callback interrupted the sorting.
                        self._called_off.add(number)
                    elif self._jobs is not None:
                        self._jobs.cancel(handling)
                    continue
                case Stopped(error):
                    if error is not None and self._error is None:
                        self._error = ConnectionLost(error, maybe_applied=False)
                    self._stop()
                    continue
                case Listen(ticket):
                    self._listening[ticket] = anyio.CancelScope()
            if first is None:
                first = action
            else:
                self._spawn(self._carry, action)
        return first

    async def _call(self, ticket: int, command: Command[Any]) -> Event:
        try:
            if self._tracing is None:
                reply = await self._transport.perform(command)
            else:
                with self._tracing.call(ticket, command) as replied:
                    reply = replied.reply = await self._transport.perform(command)
        except BullMQError as error:
            return self._call_failed(ticket, error)
        self._contacted = True
        return Replied(ticket, reply)

    def _call_failed(self, ticket: int, error: BullMQError) -> Event:
        if isinstance(error, Closed) or (isinstance(error, _FATAL) and not self._contacted):
            # Nobody will bring the connection back. The machine gives up what it owes as after any loss.
            if self._error is None and not self._closed:
                self._error = error
            self._closed = True
            self._happen(CloseRequested(force=True))
        return CallFailed.of(ticket, error, roll=random.random())

    def _named(self) -> AsyncTransport:
        """Return the connection that waits for jobs, by whose name the worker is known."""
        if self._listener is None:
            name = self._keys.client_name(self._settings.name)
            self._listener = self._transport.dedicated(client_name=name)
        return self._listener

    async def _be_listed(self) -> None:
        """Open the named connection, which a worker that always has work would open late."""
        self._listed = False
        self._introduce_at = time.monotonic() + _INTRODUCE_S
        try:
            await self._named().perform(ping())
            self._listed = True
        except BullMQError as error:
            # It opens when the worker waits, and is told then.
            say(logging.DEBUG, "worker %s is in no list of workers yet: %s", self._id, error, extra=self._extra())

    async def _introduce(self) -> None:
        """Open the named connection again, where it may be gone and nobody waits on it."""
        if self._closed or self._machine.snapshot(clock()).listening:
            return
        scope = anyio.CancelScope()
        self._introducing.add(scope)
        try:
            with scope:
                await self._be_listed()
        except anyio.get_cancelled_exc_class():
            # asyncio: unless somebody cancelled this very task, which no other misses.
            if self._is_torn():
                raise
        finally:
            self._introducing.discard(scope)

    async def _listen(self, ticket: int, command: Command[Any]) -> Event:
        event: Event = Unlistened(ticket)
        try:
            with self._listening[ticket]:
                event = Replied(ticket, await self._named().perform(command))
        except BullMQError as error:
            event = self._call_failed(ticket, error)
        finally:
            del self._listening[ticket]
        return event

    # --- slots --------------------------------------------------------------------------------------------------------

    def _rouse(self) -> None:
        """Let a slot look for work, if there is some and none is on its way."""
        if self._rousing or self._tasks is None:
            return
        if not (self._ready or ((self._returned or self._outcomes) and self._deliveries < _MOST_DELIVERIES)):
            return
        self._rousing = True
        while self._asleep:
            wake = self._asleep.pop()
            # The future of a task that was cancelled in its wait is done.
            if not wake.done():
                wake.set_result(None)
                return
        self._spawn(self._slot)

    async def _slot(self) -> None:
        """Start jobs and deliver outcomes until the end."""
        self._rousing = False
        slot = _Slot()
        try:
            while True:
                if (self._returned or self._outcomes) and self._deliveries < _MOST_DELIVERIES:
                    await self._deliver(slot)
                elif self._ready:
                    await self._launch(slot)
                elif self._stopped is None or self._stopped.is_set():
                    return
                else:
                    await self._sleep(slot)
        except anyio.get_cancelled_exc_class():
            if self._is_torn():
                raise
            # asyncio: somebody cancelled this very task: others go on for it.
            self._hand_over(slot.call)
            if slot.started:
                self._spawn(self._await_begin, slot.started)
            self._rousing = False
            self._rouse()
        except BaseException:
            # Before the other tasks are cancelled for it: their handlers have not failed.
            self._broken = True
            raise

    # --- jobs ---------------------------------------------------------------------------------------------------------

    async def _launch(self, slot: _Slot) -> None:
        """Start tasks for jobs that are ready, and let those end that do not wait.

        Half of what may run at a time: their outcomes are on their way while the other half runs.
        """
        ready, jobs = self._ready, self._jobs
        assert jobs is not None  # it came with the tasks
        started: list[Handling] = []
        self._launching = True
        try:
            for _ in range(min(len(ready), (min(self._machine.concurrency, MOST_JOBS * 2) + 1) // 2)):
                action = ready.popleft()
                number, record = action.run, action.job
                if self._called_off and number in self._called_off:
                    self._called_off.discard(number)
                    self._returned.append(_cancelled(number))
                    continue
                job: Job[T] = Job(record, self._keys, self._transport, self._data_type, action.token, self._limits)
                handling = self._handling[number] = Handling(number, job)
                started.append(handling)
                try:
                    jobs.start(handling, f"bullmq job {record.id} of {self._keys.name}")
                except BaseException:
                    # No memory for a task: the job has not begun.
                    self._handling.pop(number, None)
                    raise
                if not ready:
                    break
        finally:
            self._launching = False
        if started and not started[-1].begun:
            slot.started = started
            # This slot is on its way.
            self._rousing = True
            await self._await_begin(started)
            slot.started = ()
            self._rousing = False

    async def _await_begin(self, started: Sequence[Handling]) -> None:
        assert self._jobs is not None  # it started them
        for handling in await self._jobs.begun(started):
            self._attended(handling, None, anyio.get_cancelled_exc_class()())

    async def _attend(self, handling: Handling) -> None:
        """Run a job's handler: what the job's own task does.

        Nothing of the library is awaited here, before or after: nothing that the handler leaves behind meets it.
        """
        handling.begun = True
        if handling.task is None and self._jobs is not None:
            self._jobs.note(handling)
        number, job = handling.number, handling.job
        event: Event | None = None
        failed: BaseException | None = None
        try:
            if handling.cancelled:
                event = _cancelled(number)
            elif self._tracing is not None:
                event = JobReturned(number, await self._traced(self._tracing, job))
            else:
                value = await self._process(job)
                event = JobReturned(number, result_text(value, self._limits))
        except BaseException as error:
            failed = error
        try:
            self._attended(handling, event, failed)
        except BaseException as fault:
            # Ctrl-C met it, or an exception that raises another whatever it is asked.
            self._handling.pop(number, None)
            self._interrupt(fault)

    def _attended(self, handling: Handling, event: Event | None, error: BaseException | None) -> None:
        """Note how a handler ended; the machine is told by a task of the library."""
        if error is not None:
            event = self._event_of(handling, error)
        if self._jobs is not None and handling.begun:
            self._jobs.left(handling)
        del self._handling[handling.number]
        if event is not None:
            self._returned.append(event)
        if not self._handling:
            if self._emptied is not None:
                self._emptied.set()
            if self._rearm is not None and self._machine.state is WorkerState.STOPPED:
                self._rearm.set()
        if not self._launching:
            self._rouse()

    def _event_of(self, handling: Handling, error: BaseException) -> Event | None:
        """Return what the machine is to be told of what a handler raised; None where that comes from another task."""
        number, job = handling.number, cast("Job[T]", handling.job)
        if is_interrupt(error):
            # trio raises it in the code that runs: it is not the job's fault.
            self._interrupt(error)
            return _cancelled(number)
        if is_one(error, _NotAsync):
            # A fault of the program, which no job should pay for.
            self._interrupt(UsageError("processor", self._processor, "must be an async function"))
            return _cancelled(number)
        if handling.cancelled:
            return None if self._is_torn() else _cancelled(number)
        is_cancellation = is_one(error, anyio.get_cancelled_exc_class())
        if not is_cancellation and self._strategy_of(job, error) is None:
            return self._raised(number, job, error)
        if self._is_torn():
            # All tasks are cancelled, and the job is given back.
            return None
        errand = Errand(partial(self._answer_later, number, job, error), partial(self._unanswered, number, job, error))
        if self._jobs is not None:
            self._send(errand, f"bullmq end of job {job.id} of {self._keys.name}", self._context.copy())
        return None

    def _unanswered(self, number: int, job: Job[T], error: BaseException, fault: BaseException | None) -> None:
        if fault is not None:
            self._interrupt(fault)
        elif self._is_torn():
            return
        self._returned.append(self._raised(number, job, error, None, "the backoff strategy was cancelled"))
        self._rouse()

    async def _answer_later(self, number: int, job: Job[T], error: BaseException) -> None:
        """Tell of what a handler raised where that takes some time."""
        event: Event
        try:
            if is_one(error, anyio.get_cancelled_exc_class()):
                # Not from us: it met a cancelled future, or all tasks are cancelled: then `run` hears of it, too.
                for _ in range(2):
                    await checkpoint()
            delay, strategy_error = await self._ask_strategy(job, error)
            event = self._raised(number, job, error, delay, strategy_error)
        except anyio.get_cancelled_exc_class():
            if self._is_torn():
                raise
            event = self._raised(number, job, error, None, "the backoff strategy was cancelled")
        except KeyboardInterrupt as interrupt:
            self._interrupt(interrupt)
            event = _cancelled(number)
        self._returned.append(event)
        self._rouse()

    async def _sleep(self, slot: _Slot) -> None:
        wake = slot.make_wake()
        self._asleep.append(wake)
        try:
            await wake
        finally:
            if wake in self._asleep:
                self._asleep.remove(wake)
        self._rousing = False

    def _react(self, events: Sequence[Event]) -> Call | None:
        """Tell the machine; return the call that the slot makes itself."""
        action = self._sort(self._feed(events))
        if isinstance(action, Listen):
            self._spawn(self._carry, action)
            return None
        return action

    async def _make(self, slot: _Slot, call: Call | None) -> None:
        """Make a call, and those that follow from its answer."""
        while call is not None:
            self._rouse()
            slot.call = call
            event = await self._call(call.ticket, call.command)
            slot.call = None
            call = self._react((event,))

    async def _deliver(self, slot: _Slot) -> None:
        """Take the outcomes that are there to the server."""
        self._deliveries += 1
        calls: list[Call] = []
        try:
            if self._handling:
                # Handlers that end in this turn of the loop come along.
                if self._ready:
                    self._rouse()
                await checkpoint()
            action = self._react(()) if self._returned else None
            if action is not None:
                self._spawn(self._carry, action)
            count = fitting(call.command for call in self._outcomes)
            calls += [self._outcomes.popleft() for _ in range(count)]
            if not calls:
                return
            self._rouse()
            if len(calls) == 1:
                events = [await self._call(calls[0].ticket, calls[0].command)]
            else:
                events = await self._call_many(calls)
        except BaseException:
            self._outcomes.extendleft(reversed(calls))
            raise
        finally:
            self._deliveries -= 1
        await self._make(slot, self._react(events))

    async def _call_many(self, calls: list[Call]) -> list[Event]:
        """Deliver several outcomes in one call; those that the server left for later go back to the others."""
        together = merged([call.command for call in calls])
        try:
            replies = together.decode(await self._transport.perform(together))
            if not 0 < len(replies) <= len(calls):
                raise UnexpectedReply("an answer for each outcome", len(replies))
        except BullMQError as error:
            return [self._call_failed(call.ticket, error) for call in calls]
        self._contacted = True
        self._outcomes.extendleft(reversed(calls[len(replies) :]))
        return [
            self._call_failed(call.ticket, reply) if isinstance(reply, ServerError) else Replied(call.ticket, reply)
            for call, reply in zip(calls, replies, strict=False)
        ]

    async def _traced(self, tracing: WorkerTracing, job: Job[T]) -> str:
        with tracing.running(job.record):
            value = result_text(await self._process(job), self._limits)
        tracing.returned(job.record)
        return value

    def _process(self, job: Job[T]) -> Awaitable[Any]:
        if self._data_type is not Any:
            try:
                _ = job.data
            except msgspec.DecodeError as error:
                raise UnrecoverableError(f"the data of the job does not fit: {error}") from error
        assert self._processor is not None
        awaitable: Awaitable[Any] = self._processor(job)
        kind: type[object] = type(awaitable)
        if kind is not CoroutineType and not inspect.isawaitable(awaitable):
            raise _NotAsync
        return awaitable

    def _strategy_of(self, job: Job[T], error: BaseException) -> str | None:
        """Return the job's type of backoff if the strategy is to be asked for the delay of its next attempt."""
        if self._strategy is None or job.attempts_made + 1 >= job.record.attempts:
            return None
        kind = custom_type(job.opts.backoff)
        if kind is None or job.discarded or failure_of(error, stack="", now_ms=0).kind is not FailureKind.ERROR:
            return None
        return kind

    async def _ask_strategy(self, job: Job[T], error: BaseException) -> tuple[float | None, str | None]:
        """Return the delay that the strategy wants, and what went wrong with it.

        A cancellation and Ctrl-C are raised. Whoever runs this gives it a task or a context of its own.
        """
        kind = self._strategy_of(job, error)
        if kind is None or self._strategy is None:
            return None, None
        awaiting = False
        try:
            answer = self._strategy(job.attempts_made + 1, kind, error, job)
            awaiting = isinstance(answer, Awaitable)
            return strategy_delay(await answer if isinstance(answer, Awaitable) else answer), None
        except BaseException as trouble:
            if is_interrupt(trouble) or (awaiting and is_one(trouble, anyio.get_cancelled_exc_class())):
                raise
            say(logging.ERROR, "worker %s: the backoff strategy failed", self._id, extra=self._extra(), trace=True)
            return None, f"the backoff strategy failed: {repr_of(trouble)}"

    def _raised(
        self,
        number: int,
        job: Job[T],
        error: BaseException,
        delay: float | None = None,
        strategy_error: str | None = None,
    ) -> JobRaised:
        failure = failure_of(error, stack=self._stacks.of(error), now_ms=clock().wall)
        if job.discarded and failure.kind is FailureKind.ERROR:
            failure = msgspec.structs.replace(failure, kind=FailureKind.UNRECOVERABLE)
        raised = JobRaised(number, failure, random.random(), delay, strategy_error, error)
        return raised if self._tracing is None or number < 0 else self._tracing.raised(job.record, raised)

    def _job(self, record: JobRecord, token: str) -> Job[T]:
        return Job(record, self._keys, self._transport, self._data_type, token, self._limits)

    # --- telling ------------------------------------------------------------------------------------------------------

    def _is_told(self, kind: type[Notice]) -> bool:
        return bool(self._callbacks.get(kind) or self._streams or _log.isEnabledFor(LOWEST_LEVEL[kind]))

    def _tell(self, notice: Notice) -> None:
        kind = type(notice)
        if _log.isEnabledFor(LOWEST_LEVEL[kind]):
            line = logline(notice)
            say(line.level, "%s", line.message, extra={**self._extra(), **line.fields})
        for callback in self._callbacks.get(kind, ()):
            context = self._context.copy()
            try:
                answer = self._call_apart(context, callback, notice)
                if answer is not None and inspect.isawaitable(answer):
                    self._take_along(context, answer, kind)
            except BaseException as error:
                self._callback_raised(kind, error)
        for stream in self._streams:
            stream.put(notice)

    def _take_along(self, context: Context, answer: Awaitable[object], kind: type[Notice]) -> None:
        """Await what an async callback returned in a task of its own."""
        if self._tasks is not None and self._jobs is not None:
            errand = Errand(partial(self._await_callback, answer, kind), partial(self._unheard, answer, kind))
            self._send(errand, f"bullmq callback for {kind.__name__} of {self._keys.name}", context)
        elif isinstance(answer, CoroutineType):
            # The tasks are gone.
            answer.close()

    async def _await_callback(self, answer: Awaitable[object], kind: type[Notice]) -> None:
        try:
            await answer
        except BaseException as error:
            if is_one(error, anyio.get_cancelled_exc_class()) and self._is_torn():
                raise
            self._callback_raised(kind, error)

    def _unheard(self, answer: Awaitable[object], kind: type[Notice], fault: BaseException | None) -> None:
        if isinstance(answer, CoroutineType):
            answer.close()
        if fault is not None:
            self._interrupt(fault)
        elif not self._is_torn():
            say(
                logging.ERROR,
                "worker %s: a callback for %s was cancelled",
                self._id,
                kind.__name__,
                extra=self._extra(),
            )

    def _call_apart(self, context: Context, function: Callable[..., Any], *args: object) -> Any:
        if self._apart is None:
            self._apart = apart()
        return self._apart(context, function, *args)

    def _callback_raised(self, kind: type[Notice], error: BaseException) -> None:
        """Only Ctrl-C ends the worker: trio raises it in the code that runs."""
        if is_interrupt(error):
            self._interrupt(error)
        else:
            say(
                logging.ERROR,
                "worker %s: a callback for %s raised",
                self._id,
                kind.__name__,
                extra=self._extra(),
                trace=True,
            )

    def _meter_by_hand(self, notice: Notice) -> None:
        if self._meter is not None:
            self._metered(self._meter, notice)

    def _meter_life(self, *, begins: bool) -> None:
        if self._meter is not None:
            self._metered(self._meter.started if begins else self._meter.ended)

    def _metered(self, tell: Callable[..., None], *notice: Notice) -> None:
        try:
            self._call_apart(self._context.copy(), tell, *notice)
        except KeyboardInterrupt:
            raise
        except BaseException:
            say(logging.ERROR, "worker %s: the metrics collector raised", self._id, extra=self._extra(), trace=True)

    def _span(
        self, operation: str, attributes: Attributes | None = None
    ) -> AbstractContextManager[TelemetrySpan, bool | None]:
        return NO_SPAN if self._tracing is None else self._tracing.own(operation, attributes)

    def _extra(self) -> dict[str, Any]:
        return {"worker_id": self._id, "queue": self._keys.name}

    def _forget(self, stream: Notices) -> None:
        self._streams = tuple(each for each in self._streams if each is not stream)

    def _end_streams(self) -> None:
        for stream in self._streams:
            stream.close()

    # --- time, start and end ------------------------------------------------------------------------------------------

    async def _keep_time(self) -> None:
        try:
            await self._tick()
        except anyio.get_cancelled_exc_class():
            if self._is_torn():
                raise
            self._spawn(self._keep_time)

    def _look_after_connection(self) -> None:
        """Tell the machine if the connection was lost while nobody waited for an answer."""
        now = time.monotonic()
        if now < self._look_at or not (self._contacted and self._machine.unattended):
            return
        self._look_at = now + _LOOK_S
        if has_ended(self._transport):
            self._happen(ConnectionEnded("the server closed the connection", random.random()))
        elif now >= self._introduce_at and (
            not self._listed or (self._listener is not None and has_ended(self._listener))
        ):
            # The loss of the other connection may never be noticed: a call that is repeated heals it.
            self._introduce_at = now + _INTRODUCE_S
            self._spawn(self._introduce)

    async def _tick(self) -> None:
        """Tell the machine when its deadline has come."""
        while self._stopped is not None and not self._stopped.is_set():
            self._armed = due = self._machine.deadline()
            self._rearm = anyio.Event()
            left = None if due is None else due / 1000 - time.monotonic()
            if left is None or left > 0:
                if self._machine.unattended:
                    left = _LOOK_S if left is None else min(left, _LOOK_S)
                with anyio.move_on_after(left):
                    await self._rearm.wait()
                self._look_after_connection()
                continue
            self._happen(Tick(random.random()))
            if self._machine.deadline() == due:
                # It has not moved: do not spin.
                await anyio.sleep(0.001)
        while self._handling:
            # Cancelled, and their jobs given back: a task cannot be stopped that goes on all the same.
            self._rearm = anyio.Event()
            with anyio.move_on_after(_FORCED_STOP_S):
                await self._rearm.wait()
                break
            self._warn_of_handlers()
        while self._errands:
            self._rearm = anyio.Event()
            with anyio.move_on_after(max(0.0, self._errands_until - time.monotonic())):
                await self._rearm.wait()
            if time.monotonic() >= self._errands_until:
                await self._end_errands()
                break
        self._rearm = None

    async def _end_errands(self) -> None:
        """The shutdown time is over: cancel what still waits beside the handlers, and wait until it has left."""
        while self._errands:
            say(
                logging.WARNING,
                "worker %s is closed, and cancels what has not ended: %s",
                self._id,
                ", ".join(sorted(set(self._errands.values()))),
                extra=self._extra(),
            )
            for errand in tuple(self._errands):
                if self._jobs is not None:
                    self._jobs.cancel(errand)
            self._rearm = anyio.Event()
            with anyio.move_on_after(_FORCED_STOP_S):
                while self._errands:
                    await self._rearm.wait()
                    self._rearm = anyio.Event()

    def _send(self, errand: Errand, name: str, context: Context) -> None:
        if self._jobs is None:
            return
        self._errands[errand] = name
        main, unheard = errand.main, errand.unheard

        async def accounted() -> None:
            try:
                await main()
            finally:
                self._forget_errand(errand)

        def gone(fault: BaseException | None) -> None:
            self._forget_errand(errand)
            unheard(fault)

        errand.main, errand.unheard = accounted, gone
        self._jobs.send(errand, name, context)

    def _forget_errand(self, errand: Errand) -> None:
        self._errands.pop(errand, None)
        if not self._errands and self._rearm is not None:
            self._rearm.set()

    def _warn_of_handlers(self) -> None:
        say(
            logging.WARNING,
            "worker %s is closed, and still waits for %d handlers that go on though they were cancelled",
            self._id,
            len(self._handling),
            extra=self._extra(),
        )

    def _is_closed(self) -> bool:
        return self._closed

    def _wake_idle(self) -> None:
        idle, self._idle = self._idle, []
        for event in idle:
            event.set()

    async def _meet_server(self) -> None:
        """Let what makes the server unusable be known at once; a server that is not there may come."""
        try:
            await check_server(self._transport, self._keys)
            await perform(self._transport, ping())
        except Closed:
            if not self._is_closed():
                raise
        except TransportError as error:
            say(logging.WARNING, "worker %s: %s", self._id, error, extra=self._extra())
        except ServerError as error:
            if isinstance(error, AuthenticationFailed):
                raise
        else:
            self._contacted = True
            await self._be_listed()

    def _stop(self) -> None:
        if self._stopped is not None:
            self._stopped.set()
        if self._rearm is not None:
            self._rearm.set()
        for scope in self._introducing:
            scope.cancel()
        self._wake_idle()
        asleep, self._asleep = self._asleep, []
        for wake in asleep:
            if not wake.done():
                wake.set_result(None)

    def _interrupt(self, error: BaseException) -> None:
        """End the worker with an error, which `run` raises when everything is given back."""
        if self._error is None or is_interrupt(error):
            self._error = error
        self._give_up()

    def _give_up(self) -> None:
        """`run` is cancelled or interrupted: give the jobs back, but not for ever."""
        self._closed = True
        if self._inner is not None:
            self._inner.deadline = anyio.current_time() + _FORCED_STOP_S
            self._happen(CloseRequested(force=True))

    async def _close_for_good(self) -> None:
        """Close the transports, whoever cancels this very task meanwhile."""
        with anyio.CancelScope(shield=True):
            try:
                await self._close_transports()
            except anyio.get_cancelled_exc_class():
                await self._close_transports()
                raise

    async def _close_transports(self) -> None:
        for transport in (self._listener, self._manual_listener):
            if transport is not None:
                await transport.aclose()
        self._listener = self._manual_listener = None
        if self._owned:
            await self._transport.aclose()
        else:
            stop_connecting(self._transport)


class _Slot:
    """What a slot is at: a call that it makes, or the jobs that it has just started."""

    __slots__ = ("call", "make_wake", "started")

    def __init__(self) -> None:
        self.call: Call | None = None
        self.started: Sequence[Handling] = ()
        self.make_wake = wake_maker()


def _cancelled(number: int) -> JobRaised:
    return JobRaised(number, Failure(kind=FailureKind.CANCELLED, message="cancelled"), random.random())


class _NotAsync(BaseException):
    """The processor returned what cannot be awaited. No `Exception`: it is not the job's failure."""


class _Interrupted(RuntimeError):
    """The worker's tasks are gone, and nobody has ended it."""


class _Background:
    """`run` in a task beside the body of an `async with`; its failure ends the body and is raised as it is."""

    def __init__(self) -> None:
        self._tasks = anyio.create_task_group()
        self._error: Exception | None = None

    async def start(self, run: Callable[[], Awaitable[None]]) -> None:
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._run, run)

    async def _run(self, run: Callable[[], Awaitable[None]]) -> None:
        try:
            await run()
        except Exception as error:
            self._error = error
            self._tasks.cancel_scope.cancel()

    async def end(
        self,
        close: Callable[[bool], Awaitable[None]],
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        if self._error is None and not isinstance(error, anyio.get_cancelled_exc_class()):
            await close(error is not None and not isinstance(error, Exception))
            await self._tasks.__aexit__(None, None, None)
            swallowed = False
        else:
            swallowed = await self._tasks.__aexit__(kind, error, trace) is True
        if self._error is not None:
            raise self._error
        return swallowed


def _root(error: BaseException) -> BaseException:
    """Return the first exception that a task group wraps; of several, Ctrl-C."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    roots = [_root(each) for each in group.exceptions]
    return next((each for each in roots if is_interrupt(each)), roots[0])


class _ByHand:
    """Where the steps of manual work go: waits to a connection of their own, the rest to the shared one."""

    def __init__(self, transport: AsyncTransport, wait: Callable[[Command[Any]], Awaitable[Any]]) -> None:
        self._transport = transport
        self._wait = wait

    async def perform(self, step: Command[Any] | Batch, /) -> Any:
        if isinstance(step, Command) and step.block_ms is not None:
            return await self._wait(step)
        return await self._transport.perform(step)

    def dedicated(self, *, client_name: str | None = None) -> AsyncTransport:
        return self._transport.dedicated(client_name=client_name)

    async def aclose(self) -> None:
        """Do nothing: the connections are the worker's."""


def _token_of(job: Job[Any]) -> str:
    if job.token is None:
        raise UsageError("job", job, "was not taken by a worker: it has no lock")
    return job.token


# Counted on from a random figure: random ones alone would meet after some thousand.
_worker_numbers = itertools.count(secrets.randbelow(1 << 24))


def _worker_id() -> str:
    tail = f"-{os.getpid()}-{next(_worker_numbers) & 0xFFFFFF:06x}"
    return socket.gethostname()[: MAX_NAME_LENGTH - len(tail)] + tail
