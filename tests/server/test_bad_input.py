"""What queues and workers refuse before anything is sent, on every adapter: each row by name."""

import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from bullmq_protocol import Backoff, JobOptions, Limiter, UsageError, WorkerOptions
from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.common.reply import as_int
from tests.support.adapters import Adapter
from tests.support.servers import Server

URL = "redis://localhost"
"""Where nobody connects."""

QUEUES: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    (("",), {}, "queue name"),
    (("a:b",), {}, "queue name"),
    (("x" * 256,), {}, "queue name"),
    ((7,), {}, "queue name"),
    (("q", "http://localhost"), {}, "url"),
    (("q", "redis://localhost:port"), {}, "url"),
    (("q", "redis://localhost/one"), {}, "db"),
    (("q",), {"prefix": 7}, "prefix"),
    (("q",), {"max_len_events": -1}, "max_len_events"),
    (("q",), {"max_len_events": "many"}, "max_len_events"),
    (("q",), {"default_job_options": {"attempts": 3}}, "default_job_options"),
]
JOBS: list[tuple[str, Any, dict[str, Any], str]] = [
    ("", {}, {}, "name"),
    ("x" * 256, {}, {}, "name"),
    ("a", {"x": float("nan")}, {}, "data"),
    ("a", {"x": {1, 2}}, {}, "data"),
    ("a", {1: 2}, {}, "data"),
    ("a", {"x": object()}, {}, "data"),
    ("a", {"x": 2**60}, {}, "data"),
    ("a", {"x": "y" * (10 << 20)}, {}, "data"),
    ("a", {}, {"attempts": 0}, "attempts"),
    ("a", {}, {"attempts": "3"}, "attempts"),
    ("a", {}, {"delay": -1}, "delay"),
    ("a", {}, {"priority": -1}, "priority"),
    ("a", {}, {"priority": 2_097_153}, "priority"),
    ("a", {}, {"priority": 1.5}, "priority"),
    ("a", {}, {"job_id": "12"}, "job_id"),
    ("a", {}, {"job_id": "0"}, "job_id"),
    ("a", {}, {"job_id": "a:b"}, "job_id"),
    ("a", {}, {"job_id": "x" * 256}, "job_id"),
    ("a", {}, {"timestamp": 0}, "timestamp"),
    ("a", {}, {"backoff": Backoff("fixed", -1)}, "backoff.delay"),
    ("a", {}, {"backoff": Backoff("fixed", 10, 2)}, "backoff.jitter"),
    ("a", {}, {"lifo": "yes"}, "lifo"),
]
OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"concurrency": 0}, "concurrency"),
    ({"concurrency": 1.5}, "concurrency"),
    ({"concurrency": True}, "concurrency"),
    ({"lock_duration": 0}, "lock_duration"),
    ({"lock_duration": "30"}, "lock_duration"),
    ({"lock_renew_time": 0}, "lock_renew_time"),
    ({"stalled_interval": 0}, "stalled_interval"),
    ({"max_stalled_count": -1}, "max_stalled_count"),
    ({"max_started_attempts": -1}, "max_started_attempts"),
    ({"limiter": {"max": 1}}, "limiter"),
    ({"limiter": Limiter(max=0, duration=1)}, "limiter.max"),
    ({"limiter": Limiter(max=1, duration=0)}, "limiter.duration"),
    ({"drain_delay": 0}, "drain_delay"),
    ({"drain_delay": timedelta(seconds=-1)}, "drain_delay"),
    ({"remove_on_complete": True}, "remove_on_complete"),
    ({"remove_on_fail": 100}, "remove_on_fail"),
    ({"metrics_max_data_points": -1}, "metrics_max_data_points"),
    ({"name": ""}, "name"),
    ({"retry_policy": "all"}, "retry_policy"),
    ({"max_backoff_delay": 0}, "max_backoff_delay"),
    ({"max_reconnect_attempts": -1}, "max_reconnect_attempts"),
    ({"max_reconnect_delay": 0}, "max_reconnect_delay"),
    ({"shutdown_timeout": -1}, "shutdown_timeout"),
    ({"cancel_on_lost_lock": 1}, "cancel_on_lost_lock"),
    ({"skip_stalled_check": "no"}, "skip_stalled_check"),
    ({"skip_lock_renewal": None}, "skip_lock_renewal"),
]
WORKERS: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    (("",), {}, "queue name"),
    (("a:b",), {}, "queue name"),
    (("q", 7), {}, "processor"),
    (("q", None, "http://localhost"), {}, "url"),
    (("q",), {"options": {"concurrency": 3}}, "options"),
    (("q",), {"worker_id": ""}, "worker_id"),
    (("q",), {"worker_id": "x" * 256}, "worker_id"),
    (("q",), {"backoff_strategy": 7}, "backoff_strategy"),
    (("q",), {"prefix": None}, "prefix"),
]
DOUBTFUL: list[tuple[dict[str, Any], str]] = [
    ({"lock_duration": 500}, "lock_duration"),
    ({"lock_renew_time": 20_000}, "lock_renew_time"),
    ({"stalled_interval": 500}, "stalled_interval"),
]


async def nothing(job: Any) -> None:
    """A processor that has nothing to do."""


@pytest.fixture
async def queue(adapter: Adapter, server: Server, name: str) -> AsyncIterator[Any]:
    queue = adapter.Queue(name, server.url)
    yield queue
    await queue.obliterate(force=True)
    await queue.aclose()


async def test_bad_queues_are_refused(adapter: Adapter) -> None:
    for arguments, options, field in QUEUES:
        with pytest.raises(UsageError) as caught:
            adapter.Queue(*arguments, **options)
        assert caught.value.field == field, (arguments, options)
        assert str(caught.value).startswith(field)


@pytest.mark.any_server
async def test_bad_jobs_are_refused(queue: Any) -> None:
    for name, data, options, field in JOBS:
        with pytest.raises(UsageError) as caught:
            await queue.add(name, data, JobOptions(**options))
        assert caught.value.field == field, (name, options)
    exists = Command("EXISTS", (), (queue.keys.id,), as_int, repeat=Repeat.SAFE)
    assert await queue.call(exists) == 0


async def test_bad_ids_are_refused(adapter: Adapter) -> None:
    async with adapter.Queue("q", URL, skip_meta_update=True) as queue:
        for job_id in ("", None, 7):
            for method in (queue.get_job, queue.get_state, queue.remove):
                with pytest.raises(UsageError, match="job_id"):
                    await method(job_id)


async def test_bad_options_of_workers_are_refused(adapter: Adapter) -> None:
    for options, field in OPTIONS:
        with pytest.raises(UsageError) as caught:
            adapter.Worker("q", nothing, URL, options=WorkerOptions(**options))
        assert caught.value.field == field, options


async def test_bad_workers_are_refused(adapter: Adapter) -> None:
    for arguments, options, field in WORKERS:
        with pytest.raises(UsageError) as caught:
            adapter.Worker(*arguments, **options)
        assert caught.value.field == field, (arguments, options)


async def test_doubtful_options_are_warned_about(adapter: Adapter, caplog: pytest.LogCaptureFixture) -> None:
    for options, words in DOUBTFUL:
        caplog.clear()
        with caplog.at_level(logging.WARNING, adapter.logger):
            adapter.Worker("q", nothing, URL, options=WorkerOptions(**options))
        assert any(words in record.getMessage() for record in caplog.records), options


async def test_callbacks_are_for_kinds_of_notices(adapter: Adapter) -> None:
    worker = adapter.Worker("q", nothing, URL)
    for kind in ("completed", 5, Exception):
        with pytest.raises(UsageError, match="JobCompleted"):
            worker.on(kind, print)
    await worker.aclose()
