"""A queue under random use, for hypothesis: extend it with what your program does. Needs the extra `testing`."""

from __future__ import annotations

import uuid
from typing import Any, ClassVar

try:
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"the state machine needs hypothesis ({error.name} is missing): pip install 'bullmq-protocol[testing]'",
        name=error.name,
    ) from error

from bullmq_protocol.model.job import NewJob
from bullmq_protocol.model.options import JobOptions
from bullmq_protocol.testing.clock import SimulatedClock
from bullmq_protocol.testing.jobs import STATES, WorkedOff
from bullmq_protocol.testing.strategies import json_values, texts
from bullmq_sync.clocks import clock as system_clock
from bullmq_sync.job import Job
from bullmq_sync.queue import Queue
from bullmq_sync.testing.queues import queued, travel, work_off


class QueueStateMachine(RuleBasedStateMachine):
    """Jobs are added, processed, retried, paused and removed in random order, while time passes; after each step every
    job is in exactly one state, and none is lost.

    Set `url` in a subclass, give it your processor as `handle`, and add rules and invariants of your own. Each example
    has a queue and a clock of its own: `queue`, `clock`. `expected` maps the ids of jobs that must be there to their
    names; `done` has what was processed in the last step.

    Source: specs/03-transitions-admin-getters.md#sec-11-3

    Examples:
        >>> class Invoices(QueueStateMachine):
        ...     url = "redis://localhost:6379"
        ...     def handle(self, job):
        ...         return send_invoice(job.data)
        >>> TestInvoices = Invoices.TestCase
    """

    url: ClassVar[str] = ""
    """Where the server is; "", the default: the one that `BULLMQ_URL` names, else 127.0.0.1:6379."""
    queue_name: ClassVar[str] = "queue"

    def __init__(self) -> None:
        super().__init__()
        self.clock = SimulatedClock(along=system_clock)
        self.prefix = f"test-{uuid.uuid4().hex[:16]}"
        self.queue: Queue[Any] = Queue(self.queue_name, self.url or None, prefix=self.prefix, clock=self.clock)
        self.expected: dict[str, str] = {}
        self.done = WorkedOff()

    def handle(self, job: Job[Any]) -> Any:
        """Process a job; a subclass does it its own way. This returns the payload."""
        return job.data

    def teardown(self) -> None:
        """Remove what an example has left."""
        self.queue.obliterate(force=True)
        self.queue.close()

    # --- rules --------------------------------------------------------------------------------------------------------

    @rule(
        name=texts(min_size=1),
        data=json_values(max_leaves=5),
        delay=st.sampled_from([0, 0, 1_000, 3_600_000]),
        priority=st.sampled_from([0, 0, 1, 7]),
        attempts=st.integers(1, 3),
        lifo=st.booleans(),
    )
    def add(self, name: str, data: Any, delay: int, priority: int, attempts: int, lifo: bool) -> None:
        """Add a job."""
        options = JobOptions(delay=delay, priority=priority, attempts=attempts, lifo=lifo)
        self.expect(self.queue.add(name, data, options))

    @rule(names=st.lists(texts(min_size=1), min_size=1, max_size=5))
    def add_bulk(self, names: list[str]) -> None:
        """Add several jobs."""
        for job in self.queue.add_bulk([NewJob(name) for name in names]):
            self.expect(job)

    @rule()
    def work_off(self) -> None:
        """Process all that is ready."""
        self.done = work_off(self.queue, self.handle, raise_on_failure=False)
        paused = self.queue.is_paused()
        left = queued(self.queue, ("waiting", "prioritized"))
        assert paused or not left, f"these were left: {left}"

    @rule(seconds=st.sampled_from([1, 60, 3_600]))
    def let_time_pass(self, seconds: int) -> None:
        """Let time pass."""
        travel(self.clock, self.queue, seconds=seconds)

    @rule()
    def pause(self) -> None:
        """Pause the queue."""
        self.queue.pause()

    @rule()
    def resume(self) -> None:
        """Resume the queue."""
        self.queue.resume()

    @rule()
    def retry_failed(self) -> None:
        """Let failed jobs be tried again."""
        self.queue.retry_jobs()

    @rule()
    def promote_delayed(self) -> None:
        """Let delayed jobs run now."""
        self.queue.promote_jobs()

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        """Remove a job."""
        if self.expected:
            job_id = data.draw(st.sampled_from(sorted(self.expected)), label="job_id")
            job = self.queue.get_job(job_id)
            assert job is not None, f"job {job_id} is gone"
            assert job.remove(), f"job {job_id} cannot be removed"
            del self.expected[job_id]

    # --- what must hold -----------------------------------------------------------------------------------------------

    def expect(self, job: Job[Any]) -> None:
        """Note a job that must be there from now on."""
        self.expected[job.id] = job.name

    @invariant()
    def every_job_is_in_one_state(self) -> None:
        """Look where the jobs are."""
        found = [(job.id, job.name, job.state) for job in queued(self.queue, STATES)]
        names = {job_id: name for job_id, name, _ in found}
        assert len(names) == len(found), f"a job is in two states: {found}"
        assert names == self.expected, f"expected {self.expected}, found {found}"
