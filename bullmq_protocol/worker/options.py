"""A worker's options: as the user gives them, and checked."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET

from bullmq_protocol.commands.fetching import Limiter
from bullmq_protocol.common.keys import check_label
from bullmq_protocol.common.switches import STRICT_SWITCHES, Switches
from bullmq_protocol.common.units import Duration, Millis, to_ms
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.backoff import DEFAULT_MAX_BACKOFF_DELAY_MS
from bullmq_protocol.model.cron import Zones
from bullmq_protocol.model.failure import RetryPolicy
from bullmq_protocol.model.options import KeepJobs
from bullmq_protocol.model.schedule import no_zones

SHORT_LOCK_MS = 1_000
_AWAITABLE = ("Awaitable", "Coroutine", "Future", "Task")
LONGEST_MS = 10 * 365 * 24 * 3_600_000
"""Ten years: what timers of every kind can hold."""


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's options. Durations are in milliseconds or a `timedelta`, except that `drain_delay` is in seconds, as
    in BullMQ.

    Source: specs/05-worker-runtime.md#sec-2-1

    Examples:
        >>> WorkerOptions(concurrency=20, lock_duration=60_000).stalled_interval
        30000
    """

    concurrency: int = 1
    """How many jobs run at a time, at least 1."""
    lock_duration: Duration = 30_000
    """How long a job's lock lasts without renewal, above 0 ms."""
    lock_renew_time: Duration | None = None
    """The age at which a lock is renewed, above 0 ms. None: half of `lock_duration`."""
    stalled_interval: Duration = 30_000
    """The time between two checks for jobs whose lock has expired, above 0 ms."""
    max_stalled_count: int = 1
    """How often a job may stall, at least 0, before it fails for good."""
    max_started_attempts: int | None = None
    """How often a job may be started; a failure of the last start is not retried. None or 0: no limit. With the profile
    `STRICT` it is retried, and the job fails when it is fetched once more."""
    limiter: Limiter | None = None
    """The queue's rate limit for this worker. None: only a global one, if there is one."""
    drain_delay: float | timedelta = 5
    """The longest wait for a job in one call to the server, in **seconds**, above 0."""
    remove_on_complete: KeepJobs | None = None
    """Which completed jobs to keep, for jobs that do not set this themselves. None: all."""
    remove_on_fail: KeepJobs | None = None
    """Which failed jobs to keep, for jobs that do not set this themselves. None: all."""
    metrics_max_data_points: int = 0
    """How many minutes of metrics to keep (`Queue.get_metrics`). 0: none."""
    name: str | None = None
    """The worker's own name: stored in every job it takes, and part of the name of its connection. None: no name."""
    retry_policy: RetryPolicy = RetryPolicy.BULLMQ
    """Which failures are retried: all of them, as in BullMQ, or only transient ones (`RetryPolicy.CATEGORISING`)."""
    max_backoff_delay: Duration | None = DEFAULT_MAX_BACKOFF_DELAY_MS
    """The longest wait before a retry, above 0 ms; an hour by default. None: no limit."""
    extra_jitter: float | None = None
    """Jitter on top of the job's own, from 0 to 1: 0.2 spreads a delay by 20 % either way. None: no jitter."""
    cancel_on_lost_lock: bool = False
    """Whether to cancel a processor whose job's lock is lost."""
    max_reconnect_attempts: int = 0
    """How many consecutive attempts to reconnect may fail before the worker gives up and closes. 0: any number."""
    max_reconnect_delay: Duration = 30_000
    """The longest pause between two attempts to reconnect, above 0 ms."""
    shutdown_timeout: Duration = 30_000
    """How long a graceful close waits for running jobs before it returns them to the queue, at least 0 ms."""
    skip_stalled_check: bool = False
    """True: never check for stalled jobs. Another worker of the queue should do it."""
    skip_lock_renewal: bool = False
    """True: never renew locks. Jobs must then end within `lock_duration`."""
    trace_retries: bool = False
    """Whether log lines about attempts that will be retried have the traceback, as those about jobs that failed for
    good do."""

    def checked(
        self, *, zones: Zones = no_zones, switches: Switches = STRICT_SWITCHES
    ) -> tuple[WorkerSettings, tuple[str, ...]]:
        """Return the settings and the warnings, or raise `UsageError` with the first bad field.

        `zones` finds the zones of cron patterns; without it those with a name of their own are known alone (`UTC+3`).
        `switches` say what the queue's profile does.
        """
        warnings: list[str] = []
        lock_ms = _positive("lock_duration", self.lock_duration)
        if lock_ms < SHORT_LOCK_MS:
            warnings.append(f"lock_duration: {lock_ms} ms is short; a busy process will lose its locks")
        renew_ms = lock_ms // 2 if self.lock_renew_time is None else _positive("lock_renew_time", self.lock_renew_time)
        renew_ms = max(1, renew_ms)
        if renew_ms > lock_ms / 2:
            warnings.append(f"lock_renew_time: {renew_ms} ms is more than half of lock_duration ({lock_ms} ms)")
        stalled_ms = _positive("stalled_interval", self.stalled_interval)
        if stalled_ms < SHORT_LOCK_MS:
            warnings.append(f"stalled_interval: {stalled_ms} ms is short; every check reads all active jobs")
        if self.limiter is not None:
            _check_limiter(self.limiter)
        for field in ("remove_on_complete", "remove_on_fail"):
            value = getattr(self, field)
            if value is not None:
                _check_keep(field, value)
        name = None if self.name is None else check_label("name", self.name)
        if not isinstance(self.retry_policy, RetryPolicy):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("retry_policy", self.retry_policy, "must be a RetryPolicy")
        started = self.max_started_attempts
        most_starts = 0 if started is None else check_at_least("max_started_attempts", started, 0)
        settings = WorkerSettings(
            concurrency=check_concurrency(self.concurrency),
            lock_ms=lock_ms,
            renew_ms=renew_ms,
            stalled_ms=stalled_ms,
            max_stalled_count=check_at_least("max_stalled_count", self.max_stalled_count, 0),
            max_started_attempts=most_starts,
            last_start=0 if switches.retry_after_last_start else most_starts,
            limiter=self.limiter,
            drain_ms=_drain_ms(self.drain_delay),
            remove_on_complete=self.remove_on_complete,
            remove_on_fail=self.remove_on_fail,
            metrics_max_data_points=check_at_least("metrics_max_data_points", self.metrics_max_data_points, 0),
            name=name,
            retry_policy=self.retry_policy,
            max_backoff_ms=None
            if self.max_backoff_delay is None
            else _positive("max_backoff_delay", self.max_backoff_delay),
            extra_jitter=None if self.extra_jitter is None else _jitter(self.extra_jitter),
            cancel_on_lost_lock=_flag("cancel_on_lost_lock", self.cancel_on_lost_lock),
            max_reconnect_attempts=check_at_least("max_reconnect_attempts", self.max_reconnect_attempts, 0),
            max_reconnect_ms=_positive("max_reconnect_delay", self.max_reconnect_delay),
            shutdown_ms=_not_negative("shutdown_timeout", self.shutdown_timeout),
            skip_stalled_check=_flag("skip_stalled_check", self.skip_stalled_check),
            skip_lock_renewal=_flag("skip_lock_renewal", self.skip_lock_renewal),
            trace_retries=_flag("trace_retries", self.trace_retries),
            zones=zones,
        )
        return settings, tuple(warnings)


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Checked options, all durations in milliseconds."""

    concurrency: int
    lock_ms: Millis
    renew_ms: Millis
    stalled_ms: Millis
    max_stalled_count: int
    max_started_attempts: int
    last_start: int
    """After how many starts a failed job is not retried; 0: any number."""
    limiter: Limiter | None
    drain_ms: Millis
    remove_on_complete: KeepJobs | None
    remove_on_fail: KeepJobs | None
    metrics_max_data_points: int
    name: str | None
    retry_policy: RetryPolicy
    max_backoff_ms: Millis | None
    extra_jitter: float | None
    cancel_on_lost_lock: bool
    max_reconnect_attempts: int
    max_reconnect_ms: Millis
    shutdown_ms: Millis
    skip_stalled_check: bool
    skip_lock_renewal: bool
    trace_retries: bool
    zones: Zones


def check_concurrency(value: object) -> int:
    """Return a concurrency that is a whole number above 0."""
    return check_at_least("concurrency", value, 1)


def check_at_least(field: str, value: object, least: int) -> int:
    """Return a whole number that is not below a bound. Raises `UsageError`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(field, value, "must be a whole number")
    if value < least:
        raise UsageError(field, value, f"must be at least {least}")
    return value


def _flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise UsageError(field, value, "must be True or False")
    return value


def _positive(field: str, value: Duration) -> Millis:
    ms = to_ms(field, value)
    if ms <= 0:
        raise UsageError(field, value, "must be greater than 0")
    return _bounded(field, value, ms)


def _not_negative(field: str, value: Duration) -> Millis:
    ms = to_ms(field, value)
    if ms < 0:
        raise UsageError(field, value, "must be at least 0")
    return _bounded(field, value, ms)


def _bounded(field: str, value: object, ms: Millis) -> Millis:
    if ms > LONGEST_MS:
        raise UsageError(field, value, f"must be at most {LONGEST_MS} ms (ten years)")
    return ms


def _drain_ms(value: object) -> Millis:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise UsageError("drain_delay", value, "must be a number of seconds or a timedelta")
    if not (math.isfinite(seconds) and seconds > 0):
        raise UsageError("drain_delay", value, "must be greater than 0")
    return _bounded("drain_delay", value, max(1, round(seconds * 1000)))


def _jitter(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise UsageError("extra_jitter", value, "must be a number from 0 to 1")
    return float(value)


def _check_keep(field: str, keep: object) -> None:
    if not isinstance(keep, KeepJobs):
        raise UsageError(field, keep, "must be a KeepJobs(count=..., age=...) on a worker")
    if keep.count is not UNSET:
        check_at_least(f"{field}.count", keep.count, -1)
    if keep.age is not UNSET:
        _check_age(f"{field}.age", keep.age)
    if keep.limit is not UNSET:
        check_at_least(f"{field}.limit", keep.limit, 1)


def _check_age(field: str, age: object) -> None:
    seconds = age.total_seconds() if isinstance(age, timedelta) else age
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < math.inf:
        raise UsageError(field, age, "must be a number of seconds, at least 0, or a timedelta")


def _check_limiter(limiter: object) -> None:
    if not isinstance(limiter, Limiter):
        raise UsageError("limiter", limiter, "must be a Limiter(max=..., duration=...)")
    check_at_least("limiter.max", limiter.max, 1)
    check_at_least("limiter.duration", limiter.duration, 1)


def check_workers(workers: tuple[object, ...], kind: type, package: str) -> None:
    """Refuse anything but workers of one package. Raises `UsageError`."""
    if not workers:
        raise UsageError("workers", workers, "must be one or more workers")
    for worker in workers:
        if not isinstance(worker, kind):
            raise UsageError("workers", worker, f"must be workers of {package}, each an argument of its own")


def hand_on(number: int, handler: object) -> None:
    """Call the handler of a signal that was found, if it is the program's own.

    Not one of Python's, asyncio's or trio's, which turn Ctrl-C into an exception.
    """
    module = str(getattr(getattr(handler, "func", handler), "__module__", ""))
    if callable(handler) and module.partition(".")[0] not in ("_signal", "signal", "asyncio", "trio"):
        handler(number, None)


def _check_takes(field: str, handler: Callable[..., Any], takes: tuple[str, ...]) -> None:
    try:
        # A wrapper may hand over more than it is given.
        signature = inspect.signature(handler, follow_wrapped=False)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*takes)
    except TypeError as error:
        if len(takes) == 1:
            rule = f"must take one argument, the job (its token is job.token): called with one, {error}"
        else:
            rule = f"must take {' and '.join(takes)}: called with these, {error}"
        hint = "; it is a class: give an object of it" if isinstance(handler, type) else ""
        raise UsageError(field, handler, rule + hint) from None


def check_processor(processor: object, *, is_async: bool) -> None:
    """Refuse an object that cannot be a worker's process function, as `check_handler` does. None may be."""
    if processor is not None:
        check_handler("processor", processor, is_async=is_async)


def check_handler(field: str, handler: object, *, is_async: bool, takes: tuple[str, ...] = ("the job",)) -> None:
    """Refuse an object that cannot handle jobs, as far as that shows without calling it.

    It must take these arguments; a callable without a signature (some C functions) passes. `is_async`: for a worker on
    asyncio or trio. Anything that may still return an awaitable passes: a lambda, a function with such an annotation, a
    wrapper around an async function. Raises `UsageError`.
    """
    kind = "an async function" if is_async else "a function"
    if not callable(handler):
        raise UsageError(field, handler, f"must be {kind} of {' and '.join(takes)}")
    _check_takes(field, handler, takes)
    function: Any = handler
    while issubclass(type(function), partial):
        function = function.func
    if not inspect.isroutine(function) and not isinstance(function, type):
        function = type(function).__call__
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(field, handler, f"must be {kind} without yield: nobody would run it on; return the result")
    if not is_async:
        if inspect.iscoroutinefunction(function):
            raise UsageError(field, handler, "must be a plain function: an async one needs bullmq_anyio.Worker")
        return
    innermost = inspect.unwrap(function)
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(innermost):
        return
    if not inspect.isfunction(innermost) and not inspect.ismethod(innermost):
        return
    returns = str(innermost.__annotations__.get("return", ""))
    if innermost.__name__ != "<lambda>" and not any(word in returns for word in _AWAITABLE):
        raise UsageError(
            field,
            handler,
            "must be an async function: write `async def`, and call what blocks with anyio.to_thread.run_sync, or use "
            "bullmq_sync.Worker",
        )
