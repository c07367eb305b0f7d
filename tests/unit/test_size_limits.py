"""Whatever way data enters, what is over the limit of the queue is refused before anything is sent."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import anyio
import pytest

import bullmq_anyio
import bullmq_sync
from bullmq_protocol import FlowNode, Limits, NewJob, RepeatOptions
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.model.options import MAX_PAYLOAD_BYTES, result_text, within_size

PACKAGES = {"anyio": bullmq_anyio, "sync": bullmq_sync}
BIG = "\u00e9" * (MAX_PAYLOAD_BYTES // 2)  # fits in characters, not in bytes with its quotes


class Recorder:
    def perform(self, step: Any) -> Any:
        raise AssertionError(f"sent {type(step).__name__}")

    server_info = perform

    def dedicated(self, *, client_name: str | None = None) -> Recorder:
        return self


def queue(package: Any) -> Any:
    return package.Queue("q", Recorder(), skip_meta_update=True)


def job(package: Any) -> Any:
    return package.Job(JobRecord("7", {"name": b"n"}), QueueKeys.of("q"), Recorder())


def flows(package: Any) -> Any:
    return package.FlowProducer(Recorder())


def publisher(package: Any) -> Any:
    return package.QueueEventsProducer("q", Recorder())


WAYS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], str]] = {
    "add": (queue, lambda q: q.add("n", BIG), "data"),
    "add_bulk": (queue, lambda q: q.add_bulk([NewJob("n", 1), NewJob("n", BIG)]), "jobs[1]: data"),
    "scheduler": (queue, lambda q: q.upsert_job_scheduler("s", RepeatOptions(every=1000), "n", BIG), "data"),
    "queue progress": (queue, lambda q: q.update_job_progress("7", BIG), "progress"),
    "queue log": (queue, lambda q: q.add_job_log("7", BIG + "x"), "row"),
    "flow root": (flows, lambda f: f.add(FlowNode("n", "q", BIG)), "flow[0]: data"),
    "flow child": (flows, lambda f: f.add(FlowNode("n", "q", children=[FlowNode("n", "q", BIG)])), "children[0]: data"),
    "update_data": (job, lambda j: j.update_data(BIG), "data"),
    "update_progress": (job, lambda j: j.update_progress(BIG), "progress"),
    "log": (job, lambda j: j.log(BIG + "x"), "row"),
    "event": (publisher, lambda p: p.publish("mine", {"a": BIG + "x"}), "a"),
}


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_in_has_the_limit(package: str, way: str) -> None:
    make, call, field = WAYS[way]

    async def attempt() -> None:
        answer = call(make(PACKAGES[package]))
        if inspect.isawaitable(answer):
            await answer

    with pytest.raises(UsageError, match=r"exceeds? the limit") as caught:
        anyio.run(attempt)
    assert field in caught.value.field
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("package", PACKAGES)
def test_jobs_have_the_limits_of_their_queue(package: str) -> None:
    module = PACKAGES[package]

    async def attempt(limits: Limits, text: str) -> None:
        own = module.Queue("q", Recorder(), skip_meta_update=True, limits=limits)
        answer = own._job(JobRecord("7", {})).update_data(text)
        if inspect.isawaitable(answer):
            await answer

    with pytest.raises(UsageError, match="exceeds the limit 10 bytes, has 22"):
        anyio.run(attempt, Limits(max_payload_bytes=10), "x" * 20)
    with pytest.raises(AssertionError, match="sent Command"):
        anyio.run(attempt, Limits(max_payload_bytes=None), BIG)


def test_bytes_are_counted() -> None:
    limits = Limits(max_payload_bytes=4)
    assert within_size("x", "\u00e9\u00e9", limits) == "\u00e9\u00e9"
    assert within_size("x", "abcd", limits) == "abcd"
    for over in ("\u00e9\u00e9a", "abcde", "\ud800ab"):
        with pytest.raises(UsageError, match="exceeds the limit 4 bytes, has 5"):
            within_size("x", over, limits)


def test_results_have_a_limit_of_their_own() -> None:
    limits = Limits(max_payload_bytes=1, max_result_bytes=4)
    assert result_text(None, limits) == "null"
    assert result_text("ab", limits) == '"ab"'
    with pytest.raises(UsageError, match="returnvalue: exceeds the limit 4 bytes, has 5"):
        result_text("abc", limits)
    assert len(result_text("x" * (11 << 20), Limits(max_result_bytes=None))) == (11 << 20) + 2


@pytest.mark.parametrize("package", PACKAGES)
def test_limits_of_a_worker_are_limits(package: str) -> None:
    with pytest.raises(UsageError, match="limits: must be Limits"):
        PACKAGES[package].Worker("q", None, Recorder(), limits=10)
