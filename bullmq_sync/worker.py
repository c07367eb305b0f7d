"""A worker on threads: it carries out what the machine of the core decides.

Nobody pumps: the thread that has an answer gives it to the machine, under one lock, and goes on with the first thing
that the machine wants; for the others it finds or makes further threads. One more waits for the machine's deadline.

A thread that has nothing else to do runs the jobs that are ready, one after another, and takes outcomes to the server:
those that are there when it goes are delivered in one call, and while two calls are under way, the next gathers.

Rules: (1) whoever leaves work behind and waits has roused a thread for it, or another one that is on its way sees it;
(2) what two threads touch is named with its lock where it is made, and touched under it alone; (3) the user's code is
called with no lock held, in a copy of the context in which `run` was called, and may raise anything; (4) what ends a
thread of the worker otherwise ends the worker: it gives back what it holds, and `run` raises; (5) the child of a fork
is no part of a worker that its parent runs.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import logging
import os
import random
import secrets
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from types import TracebackType, UnionType
from typing import Any, Generic, Self, TypeVar, cast

import msgspec

from bullmq_protocol.command import Batch, Command, Operation
from bullmq_protocol.commands.batches import MOST_JOBS
from bullmq_protocol.commands.finishing import move_job_from_active_to_wait
from bullmq_protocol.commands.queues import ping
from bullmq_protocol.common.codec import check_type
from bullmq_protocol.common.keys import DEFAULT_PREFIX, MAX_NAME_LENGTH, KeyLayout, QueueKeys, check_label
from bullmq_protocol.common.units import Duration, Millis, to_ms
from bullmq_protocol.errors import (
    AuthenticationFailed,
    BullMQError,
    Closed,
    ConnectionLost,
    ScriptError,
    ServerError,
    ServerTooOld,
    TransportError,
    UnexpectedReply,
    UnrecoverableError,
    UsageError,
)
from bullmq_protocol.model.backoff import custom_type, strategy_delay
from bullmq_protocol.model.categories import is_one, name_of
from bullmq_protocol.model.failure import Failure, FailureKind, failure_of
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.model.options import DEFAULT_LIMITS, Limits, result_text
from bullmq_protocol.net.merge import fitting, merged
from bullmq_protocol.net.transport import InterruptibleTransport
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
from bullmq_sync.crew import Crew, Task
from bullmq_sync.drive import Connection, check_server, clock, has_ended, perform, run, stop_connecting, transport_of
from bullmq_sync.forks import in_child
from bullmq_sync.guard import is_interrupt, provider_raised, say
from bullmq_sync.job import Job
from bullmq_sync.notices import Notices
from bullmq_sync.primitives import SHORTAGE
from bullmq_sync.zones import find_zone

T = TypeVar("T")
R = TypeVar("R")
N = TypeVar("N", bound=Notice)

_log = logging.getLogger("bullmq_sync")

BackoffStrategy = Callable[[int, str, BaseException, Job[Any]], "Millis | float | None"]
"""Called with attempt number, backoff type, error and job; returns milliseconds (-1: fail for good)."""

# What no later attempt can mend, as long as the server has never answered.
_FATAL = (AuthenticationFailed, ServerTooOld, UsageError)
_LOOK_S = 0.5
"""A signal that comes just before a wait begins does not end it: its handler runs when the wait is over."""
_FORCED_STOP_S = 10.0
_WATCH_MS: Millis = 250
"""So often a worker whose slots are all busy looks whether its connection has ended."""
_INTRODUCE_MS: Millis = 1000
"""So often it tries to open its named connection."""
_CALLBACK_S = 1.0
"""So long after the shutdown time a close waits for callbacks."""
_RETRY_S = 0.1
"""Where the system gave no thread, it is asked again so soon."""
_NAMED: tuple[type[Notice], ...] = (Paused, Resumed, Reconnected)
"""After these the named connection may be gone, and a worker that always has work makes no other."""
_MOST_DELIVERIES = 2
"""So many calls with outcomes are under way at a time: the server works on one while the next gathers."""


class Worker(Generic[T]):
    """A worker of one queue. Nothing is opened before `run`; every method may be called from any thread.

    `with worker:` runs it in the background and closes it gracefully at the end.

    Args:
        name: The queue's name: 1 to 255 characters, no colon.
        processor: A function of the `Job`. What it returns, any JSON value, becomes the job's result, and what it
            raises its failure. It runs on a thread of its own, which nothing can stop: a long one looks at
            `job.cancelled`. None, the default: jobs are only taken manually, with `get_next_job`.
        connection: A URL, options (`ConnectionOptions`, `SentinelOptions`, `ClusterOptions`), a transport, which its
            owner closes, or None, the default: the server at 127.0.0.1:6379.
        prefix: What all keys of the queue begin with, as in BullMQ `bull` by default.
        layout: Where the keys have the hash tag that a Redis Cluster needs: `KeyLayout.PLAIN` by default, nowhere.
        options: Concurrency, locks, retries and limits; see `WorkerOptions` for the defaults.
        data_type: What payloads are read into: anything that msgspec can decode. One that does not fit fails its job
            for good. None, the default: JSON values.
        worker_id: The worker's name in logs and metrics. None, the default: made of host, process id and six hex
            digits.
        backoff_strategy: A function of attempt number, backoff type, error and job, for backoff types other than
            `fixed` and `exponential`. It returns milliseconds; -1 fails the job for good. None by default.
        scripts: The source of the scripts: ours by default, or BullMQ's own from `bullmq_scripts`.
        metrics_collector: Counts and times what happens, such as `PrometheusMetrics`; see
            `bullmq_protocol.observability.metrics`. No metrics by default.
        telemetry: A provider of spans, such as `BullMQOtel`. None, the default: no spans. See
            `bullmq_protocol.observability.telemetry`.
        limits: Bounds on what processors return and write: by default 10 MiB. A result over its limit fails the job.

    Source: specs/05-worker-runtime.md#sec-2

    Examples:
        >>> def greet(job):
        ...     return f"hello {job.data['to']}"
        >>> worker = Worker("mail", greet, "redis://localhost:6379", options=WorkerOptions(concurrency=20))
        >>> worker.close()
    """

    def __init__(
        self,
        name: str,
        processor: Callable[[Job[T]], Any] | None = None,
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
        check_processor(processor, is_async=False)
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
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._due = threading.Condition(self._lock)
        self._crew = Crew(self._carry, f"bullmq {name}", on_short=self._short_of_threads, on_death=self._break)
        # guarded by _lock: the machine above all, then what it waits for and what waits for a thread
        self._machine = WorkerMachine(self._keys, self._settings, str(uuid.uuid4()), batches=self._merges)
        self._watched = 0
        self._armed: Millis | None = None
        self._listener: InterruptibleTransport | None = None
        self._listed = False
        self._introduce_at: Millis = 0
        self._handling: dict[int, Job[T]] = {}
        self._called_off: dict[int, str] = {}
        self._ready: deque[RunJob] = deque()
        self._returned: list[Event] = []
        self._outcomes: deque[Call] = deque()
        self._deliveries = 0
        self._rousing = False
        self._unlistened: set[int] = set()
        self._runner: int | None = None
        self._shortage: BaseException | None = None
        self._break_ends: float | None = None
        self._telling: dict[int, str] = {}
        self._callbacks_end: float | None = None
        self._left_behind = False
        self._manual_listener: InterruptibleTransport | None = None
        # replaced as a whole under _lock, and read without it
        self._streams: tuple[Notices, ...] = ()
        self._callbacks: dict[type[Any], tuple[Callable[[Any], object], ...]] = {}
        # set once, or to the same by whoever comes
        self._contacted = False
        # of the thread that keeps time
        self._look_at: Millis = 0
        self._closed = False
        self._paused_first = False
        self._error: BaseException | None = None
        self._context: contextvars.Context | None = None
        self._is_parents = False
        self._interrupt: BaseException | None = None
        """Ctrl-C in a callback; the main thread's own."""
        self._stopped = threading.Event()
        self._finished = threading.Event()
        self._met = threading.Event()
        self._background: _Background | None = None
        self._meter = None if metrics_collector is NO_METRICS else Meter(metrics_collector, self.name, self._id)
        if self._meter is not None:
            self._callbacks = dict.fromkeys(METERED, (self._meter,))
        self._tracing: WorkerTracing | None = None
        if telemetry is not None:
            self._tracing = WorkerTracing(
                telemetry, self._machine, self._settings, queue=self.name, worker_id=self._id, now=clock
            )
            for kind in TRACED:
                self._callbacks[kind] = (*self._callbacks.get(kind, ()), self._tracing)
        self._manual = ManualWork(self._keys, self._settings)
        self._manual_tokens = _tokens()
        self._manual_waiting = threading.Lock()
        in_child(self._forked)

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
        with self._lock:
            return self._machine.concurrency

    @concurrency.setter
    def concurrency(self, value: int) -> None:
        self._check_process()
        with self._lock:
            self._machine.concurrency = check_concurrency(value)
        self._ask(Tick(random.random()))

    @property
    def is_running(self) -> bool:
        """Whether `run` is under way."""
        with self._lock:
            return self._runner is not None and not (self._finished.is_set() or self._is_parents)

    @property
    def is_paused(self) -> bool:
        """Whether the worker itself is paused. A paused queue does not count."""
        with self._lock:
            return self._machine.state is WorkerState.PAUSED

    def __repr__(self) -> str:
        with self._lock:
            word = self._machine.word
        return f"<Worker {self.name!r}, prefix {self._keys.prefix!r}, id {self._id!r}, {word}>"

    def snapshot(self) -> WorkerSnapshot:
        """Return what the worker holds and waits for: a plain value, which `msgspec.json` can encode.

        Examples:
            >>> snapshot = worker.snapshot()
            >>> snapshot.state, snapshot.jobs, snapshot.completed
            ('stopped', (), 0)
        """
        self._check_process()
        with self._lock:
            return self._machine.snapshot(clock())

    # --- life ---------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Take and process jobs until the worker is closed. `with` does this in the background.

        An interrupt from the keyboard gives the running jobs back to the queue and is raised again.

        Raises:
            AuthenticationFailed: The server refused the login, and has never given another answer; so for the two
                below.
            ServerTooOld: The server is older than the scripts need.
            UsageError: The server cannot hold this queue, the worker has no processor, or it runs already or has ended.
            ConnectionLost: As many attempts to reconnect failed as `max_reconnect_attempts` allows.

        Source: specs/05-worker-runtime.md#sec-4-2

        Examples:
            >>> def stop(notice):
            ...     worker.close()
            >>> remove = worker.on(JobCompleted, stop)
            >>> job = queue.add("welcome", {"to": "ada"})
            >>> worker.run()
            >>> job.get_state()
            'completed'
        """
        if self._claim():
            self._work()

    def _claim(self) -> bool:
        """Note that it begins to run; False: it was closed before. What cannot be is refused before anything is
        opened."""
        if self._processor is None:
            raise UsageError("processor", None, "no process function is defined")
        self._check_process()
        with self._lock:
            if self._finished.is_set():
                raise UsageError("worker", self._id, "has ended: make a new one to work again")
            if self._runner is not None:
                raise UsageError("worker", self._id, "is already running")
            if self._closed:
                return False
            self._runner = threading.get_ident()
        self._context = contextvars.copy_context()
        return True

    def _work(self) -> None:
        """What `run` is after `_claim`, whose context is that of all handlers and callbacks."""
        with self._lock:
            self._runner = threading.get_ident()
        # Only there a signal's handler may come in at any line, also where a lock is held.
        hears_signals = threading.current_thread() is threading.main_thread()
        timer: threading.Thread | None = None
        try:
            self._meter_life(begins=True)
            self._meet_server()
            self._met.set()
            if hears_signals:
                timer = self._start_timer()
            if self._tracing is not None and not self._ended():
                self._apart(self._tracing.started)
            with self._lock:
                if self._ended():
                    if self._error is not None:
                        raise self._error
                    return
                actions = self._machine.start(clock(), paused=self._paused_first)
                self._publish(actions)
                self._due.notify_all()
            self._start(actions)
            if not hears_signals:
                self._keep_time()
            while not self._stopped.wait(_LOOK_S):
                pass
        except BaseException as error:
            self._give_up(error, keeps_time=timer is None)
            raise
        finally:
            self._leave(timer)
        if self._error is not None:
            raise self._error

    def pause(self, *, wait: bool = True) -> None:
        """Start no further job.

        Args:
            wait: True, the default: return when the running jobs are over, unless this is called from a processor or a
                callback. False: return immediately.

        Source: specs/05-worker-runtime.md#sec-14-1

        Examples:
            >>> with worker:
            ...     worker.pause()
        """
        self._check_process()
        with self._span("pause", {} if wait else {"bullmq.worker.do.not.wait.active": True}):
            self._paused_first = True
            self._ask(PauseRequested())
            if wait and not self._crew.mine():
                self._await(self._is_quiet)

    def resume(self) -> None:
        """Take jobs again after `pause`.

        Source: specs/05-worker-runtime.md#sec-14-2

        Examples:
            >>> with worker:
            ...     worker.pause()
            ...     worker.resume()
        """
        self._check_process()
        with self._span("resume"):
            self._paused_first = False
            self._ask(ResumeRequested())

    def close(self, force: bool = False) -> None:
        """Close the worker, and wait until that is done.

        Running jobs may end within `shutdown_timeout`; then they are given back to the queue. Called from a processor
        or a callback it does not wait. A processor that still runs then goes on, and its result is refused.

        Args:
            force: True gives the running jobs back at once. False by default.

        Source: specs/05-worker-runtime.md#sec-14-3

        Examples:
            >>> with worker:
            ...     worker.close(force=True)
        """
        if self._is_parents:
            # Who works is the parent.
            return
        with self._span("close", {"bullmq.worker.force.close": force}):
            if self._begin_closing(force) and not self._crew.mine() and self._runs_elsewhere():
                self._finished.wait()

    def _begin_closing(self, force: bool) -> bool:
        """Close, but wait for nothing; return whether there is something to wait for."""
        with self._lock:
            self._closed = True
            running = self._runner is not None
            begun = self._machine.state is not WorkerState.NEW
            left = _CALLBACK_S + (0.0 if force else self._settings.shutdown_ms / 1000)
            ends = time.monotonic() + left
            self._callbacks_end = ends if self._callbacks_end is None else min(ends, self._callbacks_end)
            self._due.notify_all()
        if not running:
            self._close_transports()
            self._end_streams()
            return False
        if not begun:
            self._close_transports()
        self._happen(CloseRequested(force))
        if begun:
            self._cut_loose()
        return True

    def _runs_elsewhere(self) -> bool:
        with self._lock:
            return self._runner != threading.get_ident()

    def _cut_loose(self) -> None:
        """Do not wait for a server that is not there, or has never said a word, if nothing is held."""
        with self._lock:
            adrift = self._machine.adrift or not (self._contacted or self._machine.running_jobs)
        if adrift:
            self._close_transports()

    def __enter__(self) -> Self:
        background = _Background(self._work, self.name)
        if self._claim():
            try:
                background.start()
            except BaseException:
                with self._lock:
                    self._runner = None
                raise
            self._background = background
            # The body must not begin beside a worker that cannot work: a wrong password.
            while background.is_alive() and not self._met.wait(0.01):
                pass
            if background.error is not None:
                raise background.error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        background = self._background
        self.close()
        if background is not None and not self._is_parents:
            background.join()
            if background.error is not None and error is None:
                raise background.error

    # --- what it tells ------------------------------------------------------------------------------------------------

    def on(self, kind: type[N], callback: Callable[[N], object]) -> Callable[[], None]:
        """Call a function with each notice of one kind, on the thread where it came up.

        What the function raises is logged and changes nothing.

        Args:
            kind: A class of `bullmq_protocol.worker.notices`, such as `JobCompleted` or `JobFailed`.
            callback: The function; it is given the notice.

        Returns:
            A function without arguments that ends the calls.

        Source: specs/05-worker-runtime.md#sec-16

        Examples:
            >>> remove = worker.on(JobFailed, lambda notice: print(notice.job.id, notice.reason))
            >>> remove()
        """
        check_notice(kind)
        self._check_process()
        with self._lock:
            self._callbacks = {**self._callbacks, kind: (*self._callbacks.get(kind, ()), callback)}

        def remove() -> None:
            with self._lock:
                known = list(self._callbacks.get(kind, ()))
                if callback in known:
                    known.remove(callback)
                self._callbacks = {**self._callbacks, kind: tuple(known)}

        return remove

    def notices(self, buffer: int = 1000) -> Notices:
        """Return an iterator over all notices from now on. It ends with the worker.

        Args:
            buffer: How many notices to keep for a slow reader, at least 1; 1,000 by default. Beyond that the oldest are
                dropped, and counted in `dropped`.

        Source: specs/05-worker-runtime.md#sec-16

        Examples:
            >>> job = queue.add("welcome", {"to": "ada"})
            >>> notices = worker.notices()
            >>> with worker:
            ...     for notice in notices:
            ...         if isinstance(notice, JobCompleted):
            ...             print(notice.value)
            ...             break
            "sent to ada"
        """
        if type(buffer) is not int or buffer < 1:
            raise UsageError("buffer", buffer, "must be a whole number above 0")
        self._check_process()
        stream = Notices(buffer, self._forget)
        with self._lock:
            self._streams = (*self._streams, stream)
        if self._finished.is_set():
            stream.close()
        return stream

    # --- by hand ------------------------------------------------------------------------------------------------------

    def get_next_job(self, *, block: bool = True) -> Job[T] | None:
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
            >>> job = queue.add("welcome", {"to": "ada"})
            >>> taken = worker.get_next_job()
            >>> taken.data
            {'to': 'ada'}
        """
        self._check_process()
        if self._ended():
            return None
        with self._lock:
            token = next(self._manual_tokens)
        waiting = block and self._manual_waiting.acquire(blocking=False)
        try:
            job = self._taken(self._by_hand(self._manual.next_job(token, block=waiting)))
            if job is not None and self._tracing is not None:
                self._tracing.taken(job.record, block=block)
            return job
        except Closed:
            if not self._ended():
                raise
            return None
        finally:
            if waiting:
                self._manual_waiting.release()

    def complete(self, job: Job[T], value: Any = None, *, fetch_next: bool = False) -> Job[T] | None:
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
            >>> job = queue.add("welcome", {"to": "ada"})
            >>> taken = worker.get_next_job()
            >>> worker.complete(taken, {"sent": True})
            >>> taken.get_state()
            'completed'
        """
        self._check_process()
        text = result_text(value, self._limits)
        operation = self._manual.complete(job.record, _token_of(job), text, fetch_next=fetch_next)
        with NO_SPAN if self._tracing is None else self._tracing.completing():
            taken = self._by_hand(operation)
        self._meter_by_hand(JobCompleted(job.record, text, lasted(job.record, clock().wall)))
        return self._taken(taken)

    def fail(self, job: Job[T], error: BaseException, *, fetch_next: bool = False) -> Job[T] | None:
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
            >>> job = queue.add("welcome", {"to": "ada"})
            >>> taken = worker.get_next_job()
            >>> worker.fail(taken, ValueError("no such address"))
            >>> taken.get_state()
            'failed'
        """
        self._check_process()
        record, token = job.record, _token_of(job)
        raised = contextvars.copy_context().run(self._raised, -1, job, error)
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
            taken = self._by_hand(operation)
        self._meter_by_hand(report.notice(record, lasted(record, clock().wall)))
        return self._taken(taken)

    def extend_lock(self, job: Job[T], duration: Duration | None = None) -> bool:
        """Renew the lock of a job that was taken manually.

        Args:
            job: The job.
            duration: How long the lock lives from now on, in milliseconds or as a `timedelta`, above 0. None, the
                default: the option `lock_duration`.

        Returns:
            False if the lock is not this worker's any more.

        Source: specs/03-transitions-admin-getters.md#extend-lock

        Examples:
            >>> job = queue.add("welcome", {"to": "ada"})
            >>> taken = worker.get_next_job()
            >>> worker.extend_lock(taken)
            True
        """
        self._check_process()
        return job.extend_lock(self._settings.lock_ms if duration is None else to_ms("duration", duration))

    def _ended(self) -> bool:
        return self._closed

    def _by_hand(self, operation: Operation[Taken]) -> Taken:
        return run(operation, _Performer(self._perform_by_hand))

    def _perform_by_hand(self, step: Command[Any] | Batch, /) -> Any:
        if isinstance(step, Batch) or step.block_ms is None:
            return self._transport.perform(step)
        with self._lock:
            if self._manual_listener is None:
                name = self._keys.client_name(self._settings.name)
                self._manual_listener = self._transport.dedicated(client_name=name)
            listener = self._manual_listener
        return listener.perform(step)

    def _taken(self, taken: Taken) -> Job[T] | None:
        if taken.problem is not None:
            problem = WorkerProblem(taken.problem)
            with self._lock:
                self._publish([Notify(problem)])
            self._tell(problem)
        return None if taken.job is None else self._job(taken.job, taken.token)

    # --- driving ------------------------------------------------------------------------------------------------------

    def _happen(self, event: Event) -> None:
        """Give the machine an event that is no answer."""
        self._start(self._feed((event,)))

    def _ask(self, event: Event) -> None:
        """Give the machine what the user asks for: a fault over that is the caller's to hear, and ends no worker.

        Jobs that have returned are left for the next event: what the machine decides about them is not to be lost.
        """
        self._check_process()
        try:
            with self._lock:
                actions = self._machine.handle(event, clock())
                self._publish(actions)
                self._due.notify_all()
                self._changed.notify_all()
        except KeyboardInterrupt as error:
            # At the worst moment: what was decided may be lost.
            self._break(error)
            raise
        self._start(actions)

    def _feed(self, events: Sequence[Event], *, delivered: bool = False) -> list[Action]:
        """Tell the machine, and of the jobs that have returned before; `delivered`: it was a call with outcomes."""
        self._check_process()
        try:
            with self._lock:
                if self._returned:
                    events = [*self._returned, *events]
                if delivered:
                    self._deliveries -= 1
                actions = self._machine.handle_all(events, clock())
                # Where that raised, they are told again: a run that is over ends once.
                self._returned.clear()
                if self._streams:
                    self._publish(actions)
                due = self._machine.deadline()
                if due is not None and (self._armed is None or due < self._armed):
                    self._due.notify_all()
                if self._watched:
                    self._changed.notify_all()
                if self._called_off and not self._machine.running_jobs:
                    self._called_off.clear()
        except BaseException as error:
            # Nothing of this is the user's code: a fault of the library, no memory left, or Ctrl-C at the worst moment.
            self._break(error)
            if self._stopped.is_set():
                # The machine raises whatever it is told: nobody tells it again, the jobs are given back without it.
                with self._lock:
                    self._returned.clear()
            if is_interrupt(error):
                raise
            return []
        return actions

    def _start(self, actions: list[Action]) -> None:
        task = self._sort(actions)
        if task is not None:
            self._crew.submit(task)
        self._rouse()
        if self._interrupt is not None and threading.current_thread() is threading.main_thread():
            error, self._interrupt = self._interrupt, None
            raise error

    def _carry(self, task: Task) -> None:
        """Make a call and those that follow from its answer, then run jobs and deliver outcomes as long as there are
        any; None: a thread was roused for these."""
        if task is None:
            with self._lock:
                self._rousing = False
        elif isinstance(task, (Call, Listen)):
            self._make(task)
        else:
            task()
        self._work_off()

    def _make(self, action: Call | Listen | None) -> None:
        while action is not None:
            self._rouse()
            does = self._call if isinstance(action, Call) else self._listen
            event = does(action.ticket, action.command)
            action = self._sort(self._feed((event,)))

    def _work_off(self) -> None:
        event: Event | None = None
        number = 0
        while True:
            job: Job[T] | None = None
            called_off: str | None = None
            with self._lock:
                if event is not None:
                    del self._handling[number]
                    self._returned.append(event)
                    event = None
                delivers = self._is_to_deliver()
                if delivers:
                    self._deliveries += 1
                elif self._ready:
                    action = self._ready.popleft()
                    if self._closed and not self._machine.holds(action.job):
                        # Given back while a callback held up who was to begin it.
                        continue
                    number = action.run
                    job = self._handling[number] = self._job(action.job, action.token)
                    if self._called_off:
                        called_off = self._called_off.pop(number, None)
                else:
                    return
                # Who delivers rouses when it has taken its outcomes.
                rouses = not delivers and self._is_to_rouse()
            if rouses:
                self._crew.submit(None)
            if job is None:
                self._deliver()
                continue
            event = self._apart(self._run_job, number, job, called_off)
            # It may have forked, and this be the child.
            self._check_process()
            if type(event) is not JobReturned or not self._merges:
                with self._lock:
                    del self._handling[number]
                events, event = (event,), None
                self._make(self._sort(self._feed(events)))

    def _is_to_deliver(self) -> bool:
        """Whether to take outcomes to the server now. The lock is held."""
        waiting = len(self._returned) + len(self._outcomes)
        if not waiting or self._deliveries >= _MOST_DELIVERIES:
            return False
        return not self._ready or waiting * 2 >= min(self._machine.concurrency, MOST_JOBS * 2)

    def _deliver(self) -> None:
        """Take the outcomes that are there to the server."""
        with self._lock:
            returned = bool(self._returned)
        first = self._sort(self._feed(())) if returned else None
        if first is not None:
            self._crew.submit(first)
        calls: list[Call] = []
        with self._lock:
            count = fitting(call.command for call in self._outcomes)
            calls += [self._outcomes.popleft() for _ in range(count)]
            if not calls:
                self._deliveries -= 1
        if not calls:
            return
        self._rouse()
        events = self._call_many(calls) if len(calls) > 1 else [self._call(calls[0].ticket, calls[0].command)]
        self._make(self._sort(self._feed(events, delivered=True)))

    def _call_many(self, calls: list[Call]) -> list[Event]:
        """Deliver several outcomes in one call; those that the server left for later go back to the others."""
        try:
            together = merged([call.command for call in calls])
            replies = together.decode(self._transport.perform(together))
            if not 0 < len(replies) <= len(calls):
                raise UnexpectedReply("an answer for each outcome", len(replies))
        except (BullMQError, *SHORTAGE) as error:
            return [self._call_failed(call.ticket, error) for call in calls]
        self._contacted = True
        if len(replies) < len(calls):
            with self._lock:
                self._outcomes.extendleft(reversed(calls[len(replies) :]))
        return [
            self._call_failed(call.ticket, reply) if isinstance(reply, ServerError) else Replied(call.ticket, reply)
            for call, reply in zip(calls, replies, strict=False)
        ]

    def _rouse(self) -> None:
        """Let a thread look for work, if there is some and none is on its way."""
        with self._lock:
            rouses = self._is_to_rouse()
        if rouses:
            self._crew.submit(None)

    def _is_to_rouse(self) -> bool:
        """Whether to let a thread look for work; then it counts as on its way. The lock is held."""
        deliverable = (self._returned or self._outcomes) and self._deliveries < _MOST_DELIVERIES
        if self._rousing or not (self._ready or deliverable):
            return False
        self._rousing = True
        return True

    def _sort(self, actions: list[Action]) -> Call | Listen | None:
        """Do at once what has no answer, put jobs and outcomes where the threads find them, return the first of the
        other calls, and find threads for the rest."""
        first: Call | Listen | None = None
        told: dict[type[Notice], bool] = {}
        ready: list[RunJob] = []
        outcomes: list[Call] = []
        for action in actions:
            match action:
                case RunJob():
                    ready.append(action)
                    continue
                case Notify(notice):
                    kind = type(notice)
                    if kind not in told:
                        told[kind] = self._is_told(kind)
                        if kind in _NAMED:
                            self._crew.submit(self._introduce)
                    if told[kind]:
                        # A job does not wait for the callbacks of those behind it, and begins after its own.
                        self._put(ready, outcomes)
                        self._tell(notice)
                    continue
                case Call(_, command):
                    if self._merges and command.merge is not None:
                        outcomes.append(action)
                        continue
                case Unlisten(ticket):
                    self._unlisten(ticket)
                    continue
                case CancelJob(number, reason):
                    with self._lock:
                        job = self._handling.get(number)
                        if job is None:
                            # Its handler has not begun, or is over.
                            self._called_off[number] = reason
                    if job is not None:
                        job.cancelled.cancel(reason)
                    continue
                case Stopped(error):
                    if error is not None and self._error is None:
                        self._error = ConnectionLost(error, maybe_applied=False)
                    self._stop()
                    continue
                case Listen():
                    pass
            if first is None:
                first = action
            else:
                self._crew.submit(action)
        self._put(ready, outcomes)
        return first

    def _put(self, ready: list[RunJob], outcomes: list[Call]) -> None:
        """Put jobs and outcomes where the threads find them, and empty the lists."""
        if ready or outcomes:
            with self._lock:
                self._ready += ready
                self._outcomes += outcomes
            ready.clear()
            outcomes.clear()

    def _apart(self, call: Callable[..., R], *args: Any) -> R:
        """Call the user's code in a copy of the context in which `run` was called: what it sets there reaches nobody
        else."""
        context = self._context
        return (contextvars.copy_context() if context is None else context.copy()).run(call, *args)

    def _call(self, ticket: int, command: Command[Any]) -> Event:
        try:
            if self._tracing is None:
                reply = self._transport.perform(command)
            else:
                reply = self._apart(self._traced_call, self._tracing, ticket, command)
        except (BullMQError, *SHORTAGE) as error:
            return self._call_failed(ticket, error)
        self._contacted = True
        return Replied(ticket, reply)

    def _traced_call(self, tracing: WorkerTracing, ticket: int, command: Command[Any]) -> Any:
        with tracing.call(ticket, command) as replied:
            replied.reply = self._transport.perform(command)
        return replied.reply

    def _call_failed(self, ticket: int, error: Exception) -> Event:
        if not isinstance(error, BullMQError):
            # No memory, no socket, no thread: for this call as a lost connection.
            error = ConnectionLost(f"the call could not be made: {error!r}", maybe_applied=True)
        if isinstance(error, Closed) or (isinstance(error, _FATAL) and not self._contacted):
            # Nobody will bring the connection back. The machine gives up what it owes as after any loss.
            if self._error is None and not self._closed:
                self._error = error
            self._closed = True
            self._happen(CloseRequested(force=True))
        return CallFailed.of(ticket, error, roll=random.random())

    def _listen(self, ticket: int, command: Command[Any]) -> Event:
        with self._lock:
            if ticket in self._unlistened:
                self._unlistened.discard(ticket)
                return Unlistened(ticket)
        try:
            reply = self._named_connection().perform(command)
        except (BullMQError, *SHORTAGE) as error:
            with self._lock:
                unlistened = ticket in self._unlistened
                self._unlistened.discard(ticket)
            return Unlistened(ticket) if unlistened else self._call_failed(ticket, error)
        with self._lock:
            self._unlistened.discard(ticket)
        return Replied(ticket, reply)

    def _named_connection(self) -> InterruptibleTransport:
        """Return the connection that waits for jobs, by whose name the worker is in the queue's list."""
        with self._lock:
            if self._listener is None:
                name = self._keys.client_name(self._settings.name)
                self._listener = self._transport.dedicated(client_name=name)
            return self._listener

    def _introduce(self) -> None:
        """Open the named connection: a worker that always has work never waits on it, and is to be listed too."""
        with self._lock:
            if self._closed or self._machine.snapshot().listening:
                return
            self._listed = False
            self._introduce_at = clock().mono + _INTRODUCE_MS
        # A fault there is met again by who listens, and told then.
        with contextlib.suppress(BullMQError, *SHORTAGE):
            perform(self._named_connection(), ping())
            with self._lock:
                self._listed = True

    def _unlisten(self, ticket: int) -> None:
        # Closed and not only interrupted: that also ends a wait which is just about to begin.
        with self._lock:
            self._unlistened.add(ticket)
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def _run_job(self, number: int, job: Job[T], called_off: str | None) -> Event:
        try:
            if called_off is not None:
                return JobRaised(number, Failure(kind=FailureKind.CANCELLED, message=called_off), random.random())
            return JobReturned(
                number, self._process(job) if self._tracing is None else self._traced(self._tracing, job)
            )
        except BaseException as error:
            return self._raised(number, job, error)

    def _traced(self, tracing: WorkerTracing, job: Job[T]) -> str:
        with tracing.running(job.record):
            value = self._process(job)
        tracing.returned(job.record)
        return value

    def _process(self, job: Job[T]) -> str:
        if self._data_type is not Any:
            try:
                _ = job.data
            except msgspec.DecodeError as error:
                raise UnrecoverableError(f"the data of the job does not fit: {error}") from error
        self._crew.handling(True)
        try:
            value = cast("Callable[[Job[T]], Any]", self._processor)(job)
        finally:
            self._crew.handling(False)
        return result_text(value, self._limits)

    def _raised(self, number: int, job: Job[T], error: BaseException) -> JobRaised:
        try:
            failure = failure_of(error, stack=self._stacks.of(error), now_ms=clock().wall)
        except BaseException:
            # Its own words raise, and nothing that could be caught.
            failure = Failure(kind=FailureKind.ERROR, message=name_of(error))
        if job.discarded and failure.kind is FailureKind.ERROR:
            failure = msgspec.structs.replace(failure, kind=FailureKind.UNRECOVERABLE)
        delay: float | None = None
        strategy_error: str | None = None
        kind = None if failure.kind is not FailureKind.ERROR else custom_type(job.opts.backoff)
        if kind is not None and self._strategy is not None and job.attempts_made + 1 < job.record.attempts:
            try:
                delay = strategy_delay(self._strategy(job.attempts_made + 1, kind, error, job))
            except BaseException as trouble:
                if number < 0 and not is_one(trouble, Exception):
                    # By hand: it is the caller's own thread.
                    raise
                strategy_error = f"the backoff strategy failed: {_words(trouble)}"
                message = "worker %s: the backoff strategy failed"
                say(logging.ERROR, message, self._id, extra=self._extra(), trace=True)
        raised = JobRaised(number, failure, random.random(), delay, strategy_error, error)
        return raised if self._tracing is None or number < 0 else self._tracing.raised(job.record, raised)

    def _job(self, record: JobRecord, token: str) -> Job[T]:
        return Job(record, self._keys, self._transport, self._data_type, token, self._limits)

    # --- telling ------------------------------------------------------------------------------------------------------

    def _is_told(self, kind: type[Notice]) -> bool:
        return bool(self._callbacks.get(kind)) or _log.isEnabledFor(LOWEST_LEVEL[kind])

    def _tell(self, notice: Notice) -> None:
        kind = type(notice)
        if _log.isEnabledFor(LOWEST_LEVEL[kind]):
            try:
                line = logline(notice)
                say(line.level, "%s", line.message, extra={**self._extra(), **line.fields})
            except KeyboardInterrupt as error:
                self._interrupt = error
        callbacks = self._callbacks.get(kind, ())
        if callbacks:
            self._call_back(callbacks, kind, notice)

    def _call_back(self, callbacks: Sequence[Callable[[Any], object]], kind: type[Notice], notice: Notice) -> None:
        me = threading.get_ident()
        with self._lock:
            # One may ask the worker for what calls others.
            outer = self._telling.get(me)
            self._telling[me] = kind.__name__
        try:
            self._call_each(callbacks, kind, notice)
        finally:
            with self._lock:
                if outer is None:
                    del self._telling[me]
                else:
                    self._telling[me] = outer
                self._changed.notify_all()

    def _call_each(self, callbacks: Sequence[Callable[[Any], object]], kind: type[Notice], notice: Notice) -> None:
        for callback in callbacks:
            try:
                self._apart(callback, notice)
            except BaseException as error:
                interrupt = error if is_interrupt(error) else None
                message = "worker %s: a callback for %s raised"
                try:
                    say(logging.ERROR, message, self._id, kind.__name__, extra=self._extra(), trace=True)
                except KeyboardInterrupt as another:
                    interrupt = another
                # Raised when all that was decided is under way.
                self._interrupt = interrupt or self._interrupt
            self._check_process()

    def _publish(self, actions: list[Action]) -> None:
        """Hand the notices to their readers in the order in which things happened. The lock is held."""
        for stream in self._streams:
            for action in actions:
                if isinstance(action, Notify):
                    stream.put(action.notice)

    def _meter_by_hand(self, notice: Notice) -> None:
        if self._meter is not None:
            self._meter_apart(self._meter, notice)

    def _meter_life(self, *, begins: bool) -> None:
        if self._meter is not None:
            self._meter_apart(self._meter.started if begins else self._meter.ended)

    def _meter_apart(self, call: Callable[..., None], *args: Any) -> None:
        try:
            self._apart(call, *args)
        except BaseException as error:
            say(logging.ERROR, "worker %s: the metrics collector raised", self._id, extra=self._extra(), trace=True)
            if is_interrupt(error):
                raise

    def _span(
        self, operation: str, attributes: Attributes | None = None
    ) -> AbstractContextManager[TelemetrySpan, bool | None]:
        return NO_SPAN if self._tracing is None else self._tracing.own(operation, attributes)

    def _extra(self) -> dict[str, Any]:
        return {"worker_id": self._id, "queue": self._keys.name}

    def _forget(self, stream: Notices) -> None:
        with self._lock:
            self._streams = tuple(each for each in self._streams if each is not stream)

    def _end_streams(self) -> None:
        for stream in self._streams:
            stream.close()

    # --- processes ----------------------------------------------------------------------------------------------------

    def _check_process(self) -> None:
        """Refuse what the child of a fork asks of a worker that its parent runs."""
        if self._is_parents:
            rule = "runs in the process that this one was forked from: make a new one here"
            raise UsageError("worker", self._id, rule)

    def _forked(self) -> None:
        """In the child of a fork: a worker that runs stays the parent's, one that does not becomes one of its own."""
        self._lock = threading.Lock()
        self._changed, self._due = threading.Condition(self._lock), threading.Condition(self._lock)
        self._manual_waiting = threading.Lock()
        self._stopped, self._met = threading.Event(), threading.Event()
        if self._runner is not None:
            self._is_parents = True
            self._finished = threading.Event()
            self._finished.set()
            for stream in self._streams:
                # Those who tell are in the parent. Its lock may still be a thread's of the parent.
                stream._renew()  # pyright: ignore[reportPrivateUsage]
                stream.close()
            return
        if not self._finished.is_set():
            self._finished = threading.Event()
        self._manual_tokens = _tokens()
        self._machine.rename(str(uuid.uuid4()))

    # --- time, start and end ------------------------------------------------------------------------------------------

    def _start_timer(self) -> threading.Thread | None:
        """Start the thread that keeps time, as soon as the system gives one; None: the worker is closed before."""
        told = False
        while not self._closed:
            try:
                timer = threading.Thread(target=self._keep_time_aside, name=f"bullmq {self.name} timer", daemon=True)
                timer.start()
            except SHORTAGE as error:
                if not told:
                    told = True
                    message = "worker %s: the system gives no thread to begin with (%s); it is asked again"
                    say(logging.WARNING, message, self._id, error, extra=self._extra())
                self._stopped.wait(_RETRY_S)
            else:
                return timer
        return None

    def _keep_time_aside(self) -> None:
        try:
            self._keep_time()
        except BaseException as error:
            self._break(error)

    def _look_after_connection(self) -> None:
        """Tell the machine if the connection was lost while nobody waited for an answer."""
        now = clock().mono
        if now < self._look_at:
            return
        self._look_at = now + _WATCH_MS
        with self._lock:
            looks = self._contacted and self._machine.unattended
            listener = self._listener
            due, listed = now >= self._introduce_at, self._listed
        if not looks:
            return
        if has_ended(self._transport):
            self._happen(ConnectionEnded("the server closed the connection", random.random()))
        elif due and (not listed or (listener is not None and has_ended(listener))):
            # The loss of the other connection may never be noticed: a call that is repeated heals it.
            with self._lock:
                self._introduce_at = now + _INTRODUCE_MS
            self._crew.submit(self._introduce)

    def _keep_time(self, until: float | None = None) -> None:
        """Tell the machine when its deadline has come, until the worker has stopped, or until that time."""
        short = False
        while True:
            self._look_after_connection()
            now = time.monotonic()
            with self._lock:
                self._armed = due = self._machine.deadline()
                if self._stopped.is_set():
                    return
                shortage, self._shortage = self._shortage, None
                ends = min((each for each in (until, self._break_ends) if each is not None), default=None)
                over = ends is not None and now >= ends
                lasting = self._lasting(now)
                left_ms = None if due is None else due - clock().mono
                is_due = left_ms is not None and left_ms <= 0
                if not (over or lasting or is_due or shortage):
                    limits = (
                        None if left_ms is None else left_ms / 1000,
                        None if ends is None else ends - now,
                        _RETRY_S if short else None,
                        None if self._callbacks_end is None else max(self._callbacks_end - now, _WATCH_MS / 1000),
                        _WATCH_MS / 1000 if self._machine.unattended else None,
                    )
                    self._due.wait(min((each for each in limits if each is not None), default=None))
                    if not short:
                        continue
            if lasting:
                # What else these threads were to do is done by hand.
                with self._lock:
                    self._left_behind = True
                self._crew.leave_behind(lasting)
            if over or lasting:
                self._stop()
                return
            if shortage is not None:
                short = True
                self._tell_shortage(shortage)
            if short:
                self._crew.retry()
                short = self._crew.short
            if is_due:
                self._happen(Tick(random.random()))
                with self._lock:
                    if self._machine.deadline() == due and not self._stopped.is_set():
                        # It has not moved: do not spin.
                        self._due.wait(0.001)

    def _lasting(self, now: float) -> dict[int, str]:
        """Return who is still in a callback where a close waits no longer. The lock is held."""
        ended = self._callbacks_end is not None and now >= self._callbacks_end
        return dict(self._telling) if ended else {}

    def _warn_of_callbacks(self) -> None:
        """Name the callbacks that do not return in the time that a close has for them."""
        with self._lock:
            # The thread that closes may still be telling of it.
            while self._telling and self._callbacks_end is not None and time.monotonic() < self._callbacks_end:
                self._changed.wait(self._callbacks_end - time.monotonic())
            names = ", ".join(sorted(set(self._telling.values())))
        if names:
            message = "worker %s is closed, and waits no longer for callbacks that do not return: for %s"
            say(logging.WARNING, message, self._id, names, extra=self._extra())

    def _short_of_threads(self, error: BaseException) -> None:
        """Let the timer try again; called on any thread, which has its own work to do."""
        with self._lock:
            self._shortage = error
            self._due.notify_all()

    def _tell_shortage(self, error: BaseException) -> None:
        problem = WorkerProblem(f"the system gives no new thread ({error}): what waits for one is tried again")
        with self._lock:
            self._publish([Notify(problem)])
        self._tell(problem)

    def _is_quiet(self) -> bool:
        """Whether nothing runs, and nothing is on its way. The lock is held."""
        held = self._machine.snapshot()
        return not (held.jobs or held.fetching or held.listening)

    def _await(self, holds: Callable[[], bool]) -> None:
        with self._lock:
            self._watched += 1
            try:
                self._changed.wait_for(lambda: holds() or self._stopped.is_set() or self._runner is None)
            finally:
                self._watched -= 1

    def _meet_server(self) -> None:
        """Let what makes the server unusable be known at once; a server that is not there may come."""
        try:
            check_server(self._transport, self._keys)
            perform(self._transport, ping())
        except Closed:
            if not self._ended():
                raise
        except TransportError as error:
            say(logging.WARNING, "worker %s: %s", self._id, error, extra=self._extra())
        except ServerError as error:
            if isinstance(error, AuthenticationFailed):
                raise
        except SHORTAGE as error:
            say(logging.WARNING, "worker %s: %r", self._id, error, extra=self._extra())
        else:
            self._contacted = True
            self._introduce()

    def _stop(self) -> None:
        self._stopped.set()
        with self._lock:
            self._due.notify_all()
            self._changed.notify_all()

    def _break(self, error: BaseException) -> None:
        """A thread met what it cannot go on from: give everything back, and let `run` raise it."""
        if self._is_parents:
            message = (
                "worker %s: the child of a fork left the user's code: its result is dropped, the job is the parent's"
            )
            say(logging.ERROR, message, self._id, extra=self._extra())
            return
        say(logging.ERROR, "worker %s broke", self._id, extra=self._extra(), trace=True)
        with self._lock:
            first = self._break_ends is None
            if first:
                self._break_ends = time.monotonic() + _FORCED_STOP_S
            if self._error is None:
                self._error = error
            self._closed = True
            self._due.notify_all()
        if not first:
            # The machine itself is broken.
            self._stop()
            return
        try:
            self._happen(CloseRequested(force=True))
        except BaseException:
            self._stop()
            raise

    def _give_up(self, error: BaseException, *, keeps_time: bool) -> None:
        """`run` is interrupted: give the jobs back, but not for ever."""
        if self._is_parents:
            return
        self._closed = True
        with self._lock:
            begun = self._machine.state is not WorkerState.NEW
        if begun:
            self._happen(CloseRequested(force=True))
            self._cut_loose()
            if keeps_time:
                self._keep_time(time.monotonic() + _FORCED_STOP_S)
            if not self._stopped.wait(_FORCED_STOP_S):
                say(logging.ERROR, "worker %s could not stop in order: %r", self._id, error, extra=self._extra())
        self._stop()

    def _give_back_by_hand(self) -> None:
        """The machine could not: do what it owes, and give back what is not settled."""
        with self._lock:
            calls = [action.command for action in self._machine.owed() if isinstance(action, Call)]
            held = [(job.id, job.token) for job in self._handling.values()]
            held += [(action.job.id, action.token) for action in self._ready]
            self._ready.clear()
        calls += [move_job_from_active_to_wait(self._keys, job_id, token=token or "") for job_id, token in held]
        for command in calls:
            try:
                perform(self._transport, command)
            except (ServerError, ScriptError):
                # It is settled, or another's.
                continue
        with self._lock:
            strays = self._machine.give_back_strays()
        run(strays, self._transport)

    def _leave(self, timer: threading.Thread | None) -> None:
        if self._is_parents:
            return
        self._closed = True
        self._stop()
        with self._lock:
            unsettled = self._machine.state not in (WorkerState.NEW, WorkerState.STOPPED)
            gives_back = unsettled and (self._break_ends is not None or self._left_behind)
        if gives_back:
            try:
                self._give_back_by_hand()
            except Exception:
                message = "worker %s: what it held could not be given back; it will be found stalled"
                say(logging.ERROR, message, self._id, extra=self._extra(), trace=True)
        self._crew.close()
        self._close_transports()
        if timer is not None:
            timer.join()
        self._crew.join()
        self._warn_of_callbacks()
        self._meter_life(begins=False)
        self._finished.set()
        self._end_streams()

    def _close_transports(self) -> None:
        with self._lock:
            transports = [each for each in (self._listener, self._manual_listener) if each is not None]
            self._listener = self._manual_listener = None
        for transport in transports:
            transport.close()
        if self._owned:
            self._transport.close()
        else:
            stop_connecting(self._transport)


class _Background(threading.Thread):
    """`run` in a thread, in the context of who made this; what it raises is kept for its owner."""

    def __init__(self, work: Callable[[], None], name: str) -> None:
        super().__init__(name=f"bullmq {name} worker", daemon=True)
        self._work = work
        self._context = contextvars.copy_context()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._context.run(self._work)
        except BaseException as error:
            self.error = error
            say(logging.ERROR, "the worker ended: %s", error)


class _Performer:
    """A function in the shape of a transport."""

    def __init__(self, perform: Callable[[Command[Any] | Batch], Any]) -> None:
        self.perform = perform


def _words(error: BaseException) -> str:
    try:
        return repr(error)
    except BaseException:
        return name_of(error)


def _tokens() -> Iterator[str]:
    worker = uuid.uuid4()
    return (f"{worker}:{number}" for number in itertools.count())


def _token_of(job: Job[Any]) -> str:
    if job.token is None:
        raise UsageError("job", job, "was not taken from the queue: it has no lock")
    return job.token


# Counted on from a random figure: random ones alone would meet after some thousand.
_worker_numbers = itertools.count(secrets.randbelow(1 << 24))


def _worker_id() -> str:
    tail = f"-{os.getpid()}-{next(_worker_numbers) & 0xFFFFFF:06x}"
    return socket.gethostname()[: MAX_NAME_LENGTH - len(tail)] + tail
