"""Queues and jobs of both packages refuse bad arguments, naming field, value and rule, before anything is sent."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from typing import Any

import anyio
import pytest

import bullmq_anyio
import bullmq_sync
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.operations.read_dependencies import Cursor
from bullmq_protocol.testing.scripted import AsyncScriptedTransport, ScriptedTransport

K = QueueKeys.of("q")
PACKAGES = {
    "anyio": (bullmq_anyio.Queue, bullmq_anyio.Job, AsyncScriptedTransport),
    "sync": (bullmq_sync.Queue, bullmq_sync.Job, ScriptedTransport),
}

QUEUE: list[tuple[Callable[[Any], Any], str]] = [
    (lambda q: q.get_job(""), "job_id"),
    (lambda q: q.get_job(7), "job_id"),
    (lambda q: q.get_job_state(None), "job_id"),
    (lambda q: q.get_job_counts("done"), "state"),
    (lambda q: q.get_job_count_by_types("done"), "state"),
    (lambda q: q.get_counts_per_priority([-1]), "priority"),
    (lambda q: q.get_counts_per_priority([2_097_153]), "priority"),
    (lambda q: q.get_counts_per_priority([True]), "priority"),
    (lambda q: q.get_ranges("done"), "state"),
    (lambda q: q.get_ranges("failed", 0.5), "start"),
    (lambda q: q.get_jobs(["failed", "done"]), "state"),
    (lambda q: q.get_jobs("failed", "0"), "start"),
    (lambda q: q.get_waiting(end=1.5), "end"),
    (lambda q: q.iter_jobs("done"), "state"),
    (lambda q: q.iter_jobs("failed", page_size=0), "page_size"),
    (lambda q: q.remove(""), "job_id"),
    (lambda q: q.update_job_progress("7", float("nan")), "progress"),
    (lambda q: q.update_job_progress("", 1), "job_id"),
    (lambda q: q.add_job_log("7", 7), "row"),
    (lambda q: q.add_job_log("7", "x", -1), "keep_logs"),
    (lambda q: q.add_job_log("7", "x", keep_logs=1.5), "keep_logs"),
    (lambda q: q.get_job_logs("7", None), "start"),
    (lambda q: q.get_job_logs("7", 0, "9"), "end"),
    (lambda q: q.iter_logs("7", page_size=-1), "page_size"),
    (lambda q: q.iter_logs(7), "job_id"),
    (lambda q: q.get_dependencies("7", "failed"), "kind"),
    (lambda q: q.get_dependencies("7", "pending", -1), "start"),
    (lambda q: q.get_metrics("delayed"), "outcome"),
    (lambda q: q.get_metrics("failed", "0"), "start"),
    (lambda q: q.export_prometheus_metrics({"a-b": "x"}), "label"),
    (lambda q: q.drain(delayed="yes"), "delayed"),
    (lambda q: q.clean(-1), "grace"),
    (lambda q: q.clean(1.5), "grace"),
    (lambda q: q.clean("1h"), "grace"),
    (lambda q: q.clean(0, -1), "limit"),
    (lambda q: q.clean(0, None), "limit"),
    (lambda q: q.clean(0, 0, "done"), "state"),
    (lambda q: q.clean(0, page_size=0), "page_size"),
    (lambda q: q.clean(0, on_page=7), "on_page"),
    (lambda q: q.clean_pages(0, page_size=True), "page_size"),
    (lambda q: q.obliterate(count=0), "count"),
    (lambda q: q.obliterate(count=-5), "count"),
    (lambda q: q.obliterate(on_page="x"), "on_page"),
    (lambda q: q.obliterate_pages(count="all"), "count"),
    (lambda q: q.retry_jobs("delayed"), "state"),
    (lambda q: q.retry_jobs(count=0), "count"),
    (lambda q: q.retry_jobs(timestamp=-1), "timestamp"),
    (lambda q: q.retry_jobs(timestamp="now"), "timestamp"),
    (lambda q: q.retry_pages(count=None), "count"),
    (lambda q: q.promote_jobs(count=0), "count"),
    (lambda q: q.promote_pages(count=-1), "count"),
    (lambda q: q.trim_events(-1), "max_length"),
    (lambda q: q.set_global_concurrency(0), "concurrency"),
    (lambda q: q.set_global_concurrency("3"), "concurrency"),
    (lambda q: q.set_global_rate_limit(0, 1000), "maximum"),
    (lambda q: q.set_global_rate_limit(1, 0), "duration"),
    (lambda q: q.set_global_rate_limit(1, "1s"), "duration"),
    (lambda q: q.rate_limit(0), "duration"),
    (lambda q: q.get_rate_limit_ttl(-1), "maximum"),
    (lambda q: q.get_deduplication_job_id(""), "deduplication_id"),
    (lambda q: q.remove_deduplication_key(7), "deduplication_id"),
]

JOB: list[tuple[Callable[[Any], Any], str]] = [
    (lambda j: j.update_progress(float("inf")), "progress"),
    (lambda j: j.update_progress(101, strict=True), "progress"),
    (lambda j: j.update_data({1}), "data"),
    (lambda j: j.log(7), "row"),
    (lambda j: j.get_logs(1.5), "start"),
    (lambda j: j.iter_logs(0), "page_size"),
    (lambda j: j.clear_logs(-1), "keep_logs"),
    (lambda j: j.clear_logs(True), "keep_logs"),
    (lambda j: j.retry("active"), "state"),
    (lambda j: j.change_delay(-1), "delay"),
    (lambda j: j.change_delay("5s"), "delay"),
    (lambda j: j.change_delay(1.5), "delay"),
    (lambda j: j.change_priority(-1), "priority"),
    (lambda j: j.change_priority(2_097_153), "priority"),
    (lambda j: j.change_priority(1.5), "priority"),
    (lambda j: j.change_priority(1, lifo=1), "lifo"),
    (lambda j: j.move_to_delayed("soon"), "timestamp_ms"),
    (lambda j: j.move_to_waiting_children(), "token"),
    (lambda j: j.extend_lock(0), "duration"),
    (lambda j: j.get_dependencies_page(), "cursor"),
    (lambda j: j.get_dependencies_page(failed=Cursor(0, 0)), "failed.count"),
    (lambda j: j.iter_dependencies("done"), "kind"),
    (lambda j: j.iter_dependencies("failed", 0), "page_size"),
    (lambda j: j.get_dependencies_count("done"), "kind"),
]


async def settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def refused(call: Callable[[Any], Any], target: Any) -> UsageError:
    async def attempt() -> Any:
        return await settled(call(target))

    with pytest.raises(UsageError) as caught:
        anyio.run(attempt)
    assert caught.value.value is not None or gives_none(call), "the refusal does not show the value"
    return caught.value


def gives_none(call: Callable[[Any], Any]) -> bool:
    """Tell whether a call passes None, or leaves out an argument."""
    constants = [each.argval for each in dis.get_instructions(call) if each.opname == "LOAD_CONST"]
    return None in constants or not constants


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize(("call", "field"), QUEUE)
def test_queue_refuses(package: str, call: Callable[[Any], Any], field: str) -> None:
    queue, _, transport = PACKAGES[package]
    assert refused(call, queue("q", transport([]), skip_meta_update=True)).field == field


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize(("call", "field"), JOB)
def test_job_refuses(package: str, call: Callable[[Any], Any], field: str) -> None:
    _, job, transport = PACKAGES[package]
    assert refused(call, job(JobRecord("7", {}), keys=K, transport=transport([]))).field == field


@pytest.mark.parametrize("package", PACKAGES)
def test_scripts_must_be_a_source(package: str) -> None:
    queue, _, transport = PACKAGES[package]
    with pytest.raises(UsageError) as caught:
        queue("q", transport([]), scripts={})
    assert caught.value.field == "scripts"
