"""Every row of the worker options: refused when wrong, warned where said."""

from __future__ import annotations

import functools
import os
import re
import signal
import threading
from collections.abc import Awaitable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import redis

import bullmq_anyio.guard
import bullmq_anyio.net.redis_client
import bullmq_anyio.worker_ids
import bullmq_sync.guard
import bullmq_sync.net.redis_client
import bullmq_sync.primitives
import bullmq_sync.worker_ids
from bullmq_protocol.commands.fetching import Limiter
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.options import KeepJobs
from bullmq_protocol.worker.options import WorkerOptions, check_concurrency, check_processor, check_workers, hand_on

REFUSED: list[tuple[str, Any, str]] = [
    ("concurrency", 0, "at least 1"),
    ("concurrency", 1.5, "whole number"),
    ("concurrency", True, "whole number"),
    ("lock_duration", 0, "greater than 0"),
    ("lock_duration", -5, "greater than 0"),
    ("lock_duration", "30", "number of milliseconds"),
    ("lock_duration", 10**18, "ten years"),
    ("shutdown_timeout", 10**18, "ten years"),
    ("drain_delay", 10**12, "ten years"),
    ("lock_renew_time", 0, "greater than 0"),
    ("stalled_interval", 0, "greater than 0"),
    ("stalled_interval", 1.5, "whole number"),
    ("max_stalled_count", -1, "at least 0"),
    ("max_started_attempts", -1, "at least 0"),
    ("max_started_attempts", "1", "whole number"),
    ("limiter", {"max": 1}, "Limiter"),
    ("limiter", Limiter(max=0, duration=5), "at least 1"),
    ("limiter", Limiter(max=1, duration=0), "at least 1"),
    ("drain_delay", 0, "greater than 0"),
    ("drain_delay", float("inf"), "greater than 0"),
    ("drain_delay", "5", "number of seconds"),
    ("drain_delay", True, "number of seconds"),
    ("remove_on_complete", True, "KeepJobs"),
    ("remove_on_fail", 5, "KeepJobs"),
    ("remove_on_fail", KeepJobs(count=1.5), "whole number"),  # type: ignore[arg-type]
    ("remove_on_complete", KeepJobs(age=-1), "number of seconds"),
    ("remove_on_complete", KeepJobs(age=True), "number of seconds"),
    ("metrics_max_data_points", -1, "at least 0"),
    ("name", "", "must not be empty"),
    ("name", "x" * 256, "at most 255"),
    ("retry_policy", "bullmq", "RetryPolicy"),
    ("max_backoff_delay", 0, "greater than 0"),
    ("extra_jitter", 1.5, "from 0 to 1"),
    ("extra_jitter", "x", "from 0 to 1"),
    ("cancel_on_lost_lock", 1, "True or False"),
    ("max_reconnect_attempts", -1, "at least 0"),
    ("max_reconnect_delay", 0, "greater than 0"),
    ("shutdown_timeout", -1, "at least 0"),
    ("skip_stalled_check", None, "True or False"),
    ("skip_lock_renewal", "no", "True or False"),
]


@pytest.mark.parametrize(("field", "value", "rule"), REFUSED)
def test_refused(field: str, value: Any, rule: str) -> None:
    with pytest.raises(UsageError, match=rule) as caught:
        WorkerOptions(**{field: value}).checked()
    assert field in str(caught.value)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"lock_duration": 999}, "lock_duration"),
        ({"lock_renew_time": 15_001}, "lock_renew_time"),
        ({"stalled_interval": 999}, "stalled_interval"),
    ],
)
def test_warned(options: dict[str, Any], word: str) -> None:
    _, warnings = WorkerOptions(**options).checked()
    assert [word in warning for warning in warnings] == [True]


def test_defaults() -> None:
    settings, warnings = WorkerOptions().checked()
    assert warnings == ()
    assert (settings.concurrency, settings.lock_ms, settings.renew_ms) == (1, 30_000, 15_000)
    assert (settings.stalled_ms, settings.max_stalled_count, settings.max_started_attempts) == (30_000, 1, 0)
    assert (settings.drain_ms, settings.max_backoff_ms, settings.extra_jitter) == (5000, 3_600_000, None)
    assert (settings.max_reconnect_attempts, settings.max_reconnect_ms, settings.shutdown_ms) == (0, 30_000, 30_000)


def test_durations_take_timedeltas() -> None:
    settings, _ = WorkerOptions(
        lock_duration=timedelta(seconds=10),
        drain_delay=timedelta(milliseconds=250),
        max_backoff_delay=None,
        extra_jitter=0.2,
        limiter=Limiter(max=1, duration=5),
        remove_on_complete=KeepJobs(count=5, age=timedelta(hours=1)),
        remove_on_fail=KeepJobs(age=3600),
        name="w1",
        max_started_attempts=4,
        lock_renew_time=1,
    ).checked()
    assert (settings.lock_ms, settings.drain_ms, settings.max_backoff_ms) == (10_000, 250, None)
    assert (settings.renew_ms, settings.max_started_attempts) == (1, 4)
    assert WorkerOptions(remove_on_complete=KeepJobs(count=3)).checked()[0].remove_on_complete == KeepJobs(count=3)


async def _async(job: object) -> None:
    """A process function for tasks."""


def _plain(job: object) -> None:
    """A process function for threads."""


def _typed(job: object) -> Awaitable[None]:
    return _async(job)


@functools.wraps(_async)
def _wrapper(*args: Any) -> Any:
    return _async(*args)


class _Object:
    async def __call__(self, job: object) -> None:
        """A process function for tasks."""

    async def method(self, job: object) -> None:
        """A process function for tasks."""


class _PlainObject:
    def __call__(self, job: object) -> None:
        """A process function for threads."""


_ASYNC: list[Any] = [_async, functools.partial(_async), _Object(), _Object().method]
_EITHER: list[Any] = [None, _typed, _wrapper, lambda job: None, repr, dict]
_PLAIN: list[Any] = [_plain, functools.partial(functools.partial(_plain)), _PlainObject(), _PlainObject().__call__]


@pytest.mark.parametrize("processor", _ASYNC + _EITHER, ids=lambda each: type(each).__name__)
def test_processors_for_tasks(processor: Any) -> None:
    check_processor(processor, is_async=True)


@pytest.mark.parametrize("processor", _PLAIN + _EITHER, ids=lambda each: type(each).__name__)
def test_processors_for_threads(processor: Any) -> None:
    check_processor(processor, is_async=False)


@pytest.mark.parametrize("processor", _PLAIN, ids=lambda each: type(each).__name__)
def test_a_plain_processor_is_refused_for_tasks(processor: Any) -> None:
    with pytest.raises(UsageError, match=r"async def.*to_thread.*bullmq_sync"):
        check_processor(processor, is_async=True)


@pytest.mark.parametrize("processor", _ASYNC, ids=lambda each: type(each).__name__)
def test_an_async_processor_is_refused_for_threads(processor: Any) -> None:
    with pytest.raises(UsageError, match="bullmq_anyio"):
        check_processor(processor, is_async=False)


@pytest.mark.parametrize("is_async", [True, False])
def test_what_cannot_be_called_is_no_processor(is_async: bool) -> None:
    with pytest.raises(UsageError, match="must be an async function" if is_async else "must be a function") as caught:
        check_processor(7, is_async=is_async)
    assert (caught.value.field, caught.value.value) == ("processor", 7)


class Handler:
    async def __call__(self, job: object) -> None: ...


def test_a_class_is_not_an_object_of_it() -> None:
    check_processor(Handler(), is_async=True)
    for is_async in (True, False):
        with pytest.raises(
            UsageError, match=r"must take one argument, the job .*; it is a class: give an object of it"
        ):
            check_processor(Handler, is_async=is_async)


@pytest.mark.parametrize("value", [0, True, 1.0, "2", None])
def test_a_concurrency_is_a_whole_number_above_0(value: Any) -> None:
    assert check_concurrency(1) == 1
    with pytest.raises(UsageError) as caught:
        check_concurrency(value)
    assert (caught.value.field, caught.value.value) == ("concurrency", value)


@pytest.mark.parametrize("field", ["remove_on_complete", "remove_on_fail"])
def test_the_least_count_to_keep(field: str) -> None:
    WorkerOptions(**{field: KeepJobs(count=-1)}).checked()
    with pytest.raises(UsageError) as caught:
        WorkerOptions(**{field: KeepJobs(count=-2)}).checked()
    assert (caught.value.field, caught.value.value) == (f"{field}.count", -2)


def test_workers_of_one_package_are_taken() -> None:
    check_workers((1, 2), int, "p")
    with pytest.raises(UsageError, match="one or more workers"):
        check_workers((), int, "p")
    with pytest.raises(UsageError, match="must be workers of p, each an argument of its own"):
        check_workers((1, "x"), int, "p")


def _no_argument() -> None: ...
def _two_arguments(job: object, token: str) -> None: ...
def _keyword_needed(job: object, *, token: str) -> None: ...


class _Bound:
    def none(self) -> None: ...
    def one(self, job: object) -> None: ...
    def __call__(self) -> None: ...


class _NoSignature:
    """A callable whose signature cannot be read, as of some functions of C."""

    __signature__ = 7

    def __call__(self, job: object) -> None: ...


def _injecting(job: object) -> None: ...


_injecting.__wrapped__ = _two_arguments  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "processor",
    [_no_argument, _two_arguments, _keyword_needed, _Bound().none, _Bound(), partial(_Bound().one, 1), lambda: None],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_processor_that_cannot_take_the_job_alone_is_refused(processor: Any, is_async: bool) -> None:
    with pytest.raises(UsageError, match="must take one argument, the job") as caught:
        check_processor(processor, is_async=is_async)
    assert caught.value.field == "processor"


@pytest.mark.parametrize(
    "processor",
    [
        print,
        vars,
        dict,
        _Bound().one,
        partial(_two_arguments, token="t"),
        partial(_two_arguments, "job"),
        lambda job, token="t": None,
        lambda *jobs: None,
        lambda job, **more: None,
        _NoSignature(),
        _injecting,
    ],
)
def test_what_can_take_the_job_alone_passes(processor: Any) -> None:
    check_processor(processor, is_async=False)


def test_a_signal_is_handed_on_to_the_programs_own_handler_alone() -> None:
    heard: list[tuple[Any, ...]] = []

    def own(*arguments: Any) -> None:
        heard.append(arguments)

    hand_on(15, own)
    hand_on(15, partial(own, "more"))
    for other in (signal.SIG_DFL, signal.SIG_IGN, None, signal.default_int_handler):
        hand_on(15, other)
    assert heard == [(15, None), ("more", 15, None)]


@pytest.mark.parametrize("package", [bullmq_anyio, bullmq_sync])
def test_workers_that_are_given_no_id_have_each_their_own(package: Any) -> None:
    made = package.worker_ids.made_worker_id
    ids = [made() for _ in range(3)]
    assert len(set(ids)) == 3
    assert all(re.fullmatch(rf".+-{os.getpid()}-[0-9a-f]{{6}}", each) for each in ids)


def test_what_runs_beside_a_block_does_not_keep_the_process() -> None:
    ended = threading.Event()
    beside = bullmq_sync.primitives.Background(lambda: ended.wait() and None, "beside")
    beside.start()
    (thread,) = [each for each in threading.enumerate() if each.name == "beside"]
    assert (thread.daemon, beside.is_alive) == (True, True)
    ended.set()
    thread.join()
    assert (beside.is_alive, beside.error) == (False, None)


@pytest.mark.parametrize("package", [bullmq_anyio, bullmq_sync])
def test_what_a_provider_raised_is_logged_with_its_traceback(package: Any, caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("of the provider")
    except ValueError as error:
        package.guard.provider_raised(error)
        wanted = error
    (record,) = caplog.records
    assert record.getMessage() == "the telemetry provider raised"
    assert record.exc_info is not None and record.exc_info[1] is wanted
    with pytest.raises(KeyboardInterrupt):
        package.guard.provider_raised(KeyboardInterrupt())


@pytest.mark.parametrize(
    ("kind", "text", "helped"),
    [
        (redis.Connection, "Connection closed by server.", True),
        (redis.Connection, "the password is wrong", False),
        (redis.SSLConnection, "Connection closed by server.", False),
        (redis.UnixDomainSocketConnection, "Connection closed by server.", False),
    ],
)
@pytest.mark.parametrize("package", [bullmq_anyio, bullmq_sync])
def test_tls_is_thought_of_where_plain_words_end_a_connection(package: Any, kind: Any, text: str, helped: bool) -> None:
    reported = package.net.redis_client.explained_end(kind, redis.ConnectionError(text))
    assert reported.startswith(text)
    assert (reported != text) is helped
