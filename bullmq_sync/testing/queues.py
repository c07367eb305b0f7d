"""What tests do with a queue on a real server: work it off, look what it holds, and let time pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET

from bullmq_protocol.common.units import Duration, check_flag
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.job_type import JobType
from bullmq_protocol.testing.clock import SimulatedClock, span_ms
from bullmq_protocol.testing.expiry import shorten_expiry
from bullmq_protocol.testing.jobs import (
    PENDING,
    STATES,
    Outcomes,
    QueuedJob,
    WorkedOff,
    find_added,
    queued_jobs,
    refuse_added,
    wanted,
)
from bullmq_protocol.worker.ending import Idle
from bullmq_protocol.worker.notices import JobCompleted, JobFailed, JobMoved
from bullmq_protocol.worker.options import WorkerOptions
from bullmq_sync.drive import unscripted
from bullmq_sync.job import Job
from bullmq_sync.queue import Parts, Queue, parts_of
from bullmq_sync.worker import Worker


def work_off(
    queue: Queue[Any],
    processor: Callable[[Job[Any, Any, Any]], Any],
    *,
    raise_on_failure: bool = True,
    options: WorkerOptions = WorkerOptions(),  # noqa: B008
    max_jobs: int | None = None,
    **worker: Any,
) -> WorkedOff:
    """Process what the queue holds, with a worker of its own, until there is nothing left to do; return what became of
    it.

    Jobs that are added meanwhile are processed too, and retries that are due at once. Jobs that are delayed for later,
    those of a queue that is paused or rate limited, and those that others hold stay where they are: `clock.advance` and
    `travel` let time pass.

    Args:
        queue: The queue. The worker has its connection, profile, clock, `data_type` and limits.
        processor: What the application's worker has: a function of the `Job`, or a `Router`.
        raise_on_failure: True, the default: an exception of the processor is raised here when all is processed,
            unless a later attempt of the same job went well; of several jobs an `ExceptionGroup`. False: nothing is
            raised.
        options: Options of the worker; those of `WorkerOptions` by default, so that one job runs after the other.
        max_jobs: After how many jobs, at least 1, it ends. None, the default: it has no limit.
        worker: Further arguments of the `Worker`, such as `middleware`, `lifespan` and `backoff_strategy`.

    Returns:
        What completed, failed, was retried, and left without an outcome.

    Raises:
        UsageError: An argument is wrong.

    Source: specs/05-worker-runtime.md#sec-4-2

    Examples:
        >>> def greet(job):
        ...     return f"hello {job.data['to']}"
        >>> done = work_off(queue, greet)
        >>> [each.result for each in done.completed]
        ['hello ada']
    """
    check_flag("raise_on_failure", raise_on_failure)
    parts = _parts(queue)
    keys, outcomes = queue.keys, Outcomes()
    given: dict[str, Any] = {"data_type": parts.data_type, "limits": parts.limits, "clock": parts.clock, **worker}
    made: Worker[Any, Any] = Worker(
        keys.name,
        processor,
        unscripted(parts.transport),
        prefix=keys.prefix,
        options=options,
        scripts=parts.scripts,
        **given,
    )
    made.on(JobCompleted, outcomes.add)
    made.on(JobFailed, outcomes.add)
    made.on(JobMoved, outcomes.add)
    made.run(until=Idle(1, limited=True), max_jobs=max_jobs)
    if raise_on_failure:
        outcomes.check()
    return outcomes.worked_off()


def queued(queue: Queue[Any], states: str | Sequence[str] = PENDING) -> list[QueuedJob]:
    """Return the jobs that the queue holds, as plain values, the next to run first.

    Args:
        queue: The queue.
        states: One state or several. By default those of jobs that no worker has taken: `waiting` (also of a paused
            queue), `prioritized`, `delayed` and `waiting-children`.

    Raises:
        UsageError: There is no such state.

    Source: specs/03-transitions-admin-getters.md#sec-11-3

    Examples:
        >>> job = queue.add("welcome", {"to": "ada"})
        >>> [(each.name, each.data, each.state) for each in queued(queue)]
        [('welcome', {'to': 'ada'}, 'waiting')]
    """
    _parts(queue)
    return queue.run(queued_jobs(queue.keys, (states,) if isinstance(states, str) else states))


def assert_added(queue: Queue[Any], name: str | JobType[Any, Any], /, data: Any = UNSET, **members: Any) -> QueuedJob:
    """Assert that a job was added, in whatever state it is now; return the last one that fits.

    A job that was removed at its end is not found.

    Args:
        queue: The queue.
        name: The job's name, or its `JobType`.
        data: The whole payload, as JSON values. By default nothing is said of it.
        members: Members that the payload has, besides others.

    Raises:
        AssertionError: There is none. It names the nearest jobs, and what is otherwise in them.

    Source: specs/03-transitions-admin-getters.md#sec-11-3

    Examples:
        >>> job = queue.add("welcome", {"to": "ada", "cc": []})
        >>> found = assert_added(queue, "welcome", to="ada")
        >>> found.id == job.id
        True
    """
    asked = wanted(name, data, members)
    return find_added(queued(queue, STATES), asked, queue.name)


def assert_not_added(queue: Queue[Any], name: str | JobType[Any, Any], /, data: Any = UNSET, **members: Any) -> None:
    """Assert that no such job is in the queue, in any state.

    Args:
        queue: The queue.
        name: The job's name, or its `JobType`.
        data: The whole payload, as in `assert_added`; by default nothing is said of it.
        members: Members of the payload, as in `assert_added`.

    Raises:
        AssertionError: There is one.

    Source: specs/03-transitions-admin-getters.md#sec-11-3

    Examples:
        >>> assert_not_added(queue, "farewell")
    """
    refuse_added(queued(queue, STATES), wanted(name, data, members), queue.name)


def travel(
    clock: SimulatedClock,
    *queues: Queue[Any],
    ms: Duration = 0,
    seconds: float = 0,
    minutes: float = 0,
    hours: float = 0,
    days: float = 0,
    locks: bool = False,
) -> None:
    """Let time pass for a clock, and for what expires by the server's clock: rate limits, deduplication with a `ttl`,
    and the check for stalled jobs.

    `clock.advance` alone moves delays, backoff, schedulers and everything else that the library decides.

    Args:
        clock: The clock of the queues and their workers.
        queues: The queues whose keys are to expire earlier.
        ms: How much, in milliseconds or as a `timedelta`; 0 by default. The others are added to it.
        seconds: In seconds; 0 by default.
        minutes: In minutes; 0 by default.
        hours: In hours; 0 by default.
        days: In days of 24 hours; 0 by default.
        locks: True: the locks of active jobs expire as well, as if their workers had died. False, the default: they
            stay, since a worker that lives renews them.

    Raises:
        UsageError: The time is negative, or no whole number of milliseconds.

    Examples:
        >>> clock = SimulatedClock()
        >>> travel(clock, queue, hours=1)
        >>> clock.mono
        3600000
    """
    if not isinstance(clock, SimulatedClock):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError("clock", clock, "must be a SimulatedClock")
    passed = span_ms(ms, seconds=seconds, minutes=minutes, hours=hours, days=days)
    check_flag("locks", locks)
    for queue in queues:
        _parts(queue)
        queue.run(shorten_expiry(queue.keys, passed, locks=locks))
    clock.advance(passed)


def _parts(queue: object) -> Parts:
    if not isinstance(queue, Queue):
        raise UsageError("queue", queue, "must be a Queue")
    return parts_of(queue)  # pyright: ignore[reportUnknownArgumentType]
