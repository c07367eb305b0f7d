"""Run one handler alone, without a server: on a job that records what the handler does with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec import UNSET, Struct

from bullmq_protocol.common.codec import parse_json
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.payloads import DataType, payload_type
from bullmq_protocol.common.units import check_whole
from bullmq_protocol.model.failure import FailureKind, failure_of
from bullmq_protocol.model.job import JobRecord, NewJob, prepare
from bullmq_protocol.model.options import DEFAULT_LIMITS, JobOptions, result_text
from bullmq_protocol.net.transport import Clock
from bullmq_protocol.observability.current import CURRENT
from bullmq_protocol.testing.recording import Answer, Recorded, RecordingTransport, Unanswered
from bullmq_protocol.worker.failures import check_payload
from bullmq_sync.base import lend_state
from bullmq_sync.clocks import clock as system_clock
from bullmq_sync.job import Job

T = TypeVar("T")

TOKEN = "fake"


class FakeJob(Job[T, Any, Any]):
    """A job that no server knows. `recorded` has what a handler did with it: `progress`, `logs`, `data`, `moves`."""

    recorded: Recorded


class HandlerRun(Struct, frozen=True, kw_only=True):
    """How a handler ended.

    Args:
        status: `completed`, `failed`, `delayed`, `waiting`, `waiting-children` or `rate-limited`.
        result: What it returned, as JSON values; None by default.
        error: What it raised; None where it returned.
    """

    status: str
    result: Any = None
    error: BaseException | None = None


def fake_job(
    data: Any = UNSET,
    *,
    name: str = "job",
    queue: str = "queue",
    job_id: str = "1",
    attempts_made: int = 0,
    options: JobOptions = JobOptions(),  # noqa: B008
    data_type: DataType[Any] | None = None,
    state: object = UNSET,
    clock: Clock | None = None,
    answers: Mapping[str, Answer] = MappingProxyType({}),
) -> FakeJob[Any]:
    """Make a job for a handler that runs alone. It is checked as `Queue.add` does.

    Args:
        data: The payload: any value with a JSON form; `{}` by default.
        name: The job's name; `job` by default.
        queue: The name of its queue; `queue` by default.
        job_id: The job's id; `1` by default.
        attempts_made: How many attempts have failed before; 0 by default.
        options: The job's options; none by default.
        data_type: What the payload is read into, as with a `Worker`. None, the default: JSON values.
        state: What the worker's `lifespan` would yield. By default there is none.
        clock: What tells the time, as with a `Worker`. None, the default: the system's clocks.
        answers: Raw replies to commands that are not recorded, by their names: `{"getStateV2": b"active"}`. None by
            default.

    Returns:
        The job. Its `recorded` has what the handler did: `progress`, `logs`, `data`, `moves`.

    Raises:
        UsageError: An argument is wrong.

    Examples:
        >>> def resize(job):
        ...     job.update_progress(50)
        ...     return job.data["width"] * 2
        >>> job = fake_job({"width": 21}, name="resize", attempts_made=1)
        >>> resize(job)
        42
        >>> job.recorded.progress, job.attempts_made
        ([50], 1)
    """
    keys = QueueKeys.of(queue)
    own = system_clock if clock is None else clock
    made = check_whole("attempts_made", attempts_made, least=0)
    kind = payload_type("data_type", data_type)
    prepared = prepare(keys, NewJob(name, data, options), now_ms=own().wall, data_type=kind, generated_id=job_id)
    moment = b"%d" % own().wall
    fields = {
        **prepared.shown,
        "data": prepared.data_text.encode(),
        "timestamp": b"%d" % prepared.timestamp,
        "processedOn": moment,
        "ats": b"%d" % (made + 1),
        "atm": b"%d" % made,
    }
    transport = RecordingTransport(answers)
    job: FakeJob[Any] = FakeJob(JobRecord(prepared.job_id, fields), keys, transport, kind, TOKEN, DEFAULT_LIMITS, clock)
    job.recorded = transport.recorded
    if state is not UNSET:
        lend_state(job, state)
    return job


def run_handler(processor: Callable[[Any], Any], job: Job[Any, Any, Any]) -> HandlerRun:
    """Run a handler as a worker does, and return how it ended: what it raises is a value.

    `current_job` is the job meanwhile, and the payload and the result are checked.

    Args:
        processor: What the application's worker has: a function of the `Job`, or a `Router`.
        job: The job, such as `fake_job` makes.

    Raises:
        Unanswered: It asked for what a fake job has no answer to: give it one (`answers=`).

    Source: specs/05-worker-runtime.md#sec-8-2

    Examples:
        >>> def later(job):
        ...     job.move_to_delayed(job.timestamp + 60_000)
        ...     raise DelayedError
        >>> job = fake_job()
        >>> (run_handler(later, job)).status, job.recorded.moves
        ('delayed', ['delayed'])
    """
    token = CURRENT.set(job)
    try:
        check_payload(job)
        return HandlerRun(status="completed", result=parse_json(result_text(processor(job), DEFAULT_LIMITS)))
    except Unanswered:
        raise
    except Exception as error:
        failure = failure_of(error)
        if failure.kind is FailureKind.MOVED:
            return HandlerRun(status=failure.moved_to, error=error)
        status = "rate-limited" if failure.kind is FailureKind.RATE_LIMIT else "failed"
        return HandlerRun(status=status, error=error)
    finally:
        CURRENT.reset(token)
