"""Whatever a server answers, an operation returns or raises `BullMQError`; and `clean` keeps to its limits."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bullmq_protocol.command import Batch, Command, Now
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import BullMQError, ServerError
from bullmq_protocol.operations.clean import Clean
from bullmq_protocol.operations.move_all import MoveAll
from bullmq_protocol.operations.obliterate import Obliterate
from bullmq_protocol.operations.read_dependencies import (
    Cursor,
    DependencyPages,
    get_dependencies,
    get_dependencies_page,
    get_dependency_range,
)
from bullmq_protocol.operations.read_jobs import JobPages, get_jobs
from bullmq_protocol.operations.read_logs import LogPages, get_job_logs
from bullmq_protocol.testing import strategies as values

K = QueueKeys.of("q")
STEPS = 8

OPERATIONS = {
    "clean": lambda: Clean(state="wait", until=10**12, page_size=2).page(K),
    "move_all": lambda: MoveAll(state="failed", until=5).page(K),
    "obliterate": lambda: Obliterate(count=3).page(K),
    "job_pages": lambda: JobPages(page_size=2).page(K),
    "get_jobs": lambda: get_jobs(K, ("waiting", "failed")),
    "log_pages": lambda: LogPages(job_id="7", page_size=2).page(K),
    "get_job_logs": lambda: get_job_logs(K, "7", ascending=False),
    "get_dependencies": lambda: get_dependencies(K, "7"),
    "get_dependencies_page": lambda: get_dependencies_page(
        K, "7", processed=Cursor(), unprocessed=Cursor(), ignored=Cursor(), failed=Cursor()
    ),
    "get_dependency_range": lambda: get_dependency_range(K, "7", "processed", end=4),
    "processed": lambda: DependencyPages(job_id="7", kind="processed").page(K),
    "unprocessed": lambda: DependencyPages(job_id="7", kind="unprocessed").page(K),
    "ignored": lambda: DependencyPages(job_id="7", kind="ignored").page(K),
    "failed": lambda: DependencyPages(job_id="7", kind="failed").page(K),
}


@given(name=st.sampled_from(sorted(OPERATIONS)), data=st.data())
def test_any_reply_is_answered(name: str, data: st.DataObject) -> None:
    operation: Any = OPERATIONS[name]()
    reply: Any = None
    try:
        for _ in range(STEPS):
            step = operation.send(reply)
            assert not isinstance(step, Now)
            reply = data.draw(_replies(step))
    except (StopIteration, BullMQError):
        return
    operation.close()


def _replies(step: Command[Any] | Batch) -> st.SearchStrategy[Any]:
    if isinstance(step, Command):
        # As a server answers, every now and then, so that the later steps are reached too.
        return st.one_of(values.replies(), st.integers(0, 2), st.lists(st.lists(st.just(b"1"), max_size=3), max_size=9))
    one = st.one_of(values.replies(), st.just([b"name", b"n"]), st.just(ServerError("WRONGTYPE no")))
    few = st.lists(one, min_size=1, max_size=4)
    return few.map(lambda replies: [replies[index % len(replies)] for index in range(len(step.commands))])


@given(
    removable=st.lists(st.booleans(), max_size=40),
    limit=st.integers(0, 30),
    page_size=st.integers(1, 10),
    state=st.sampled_from(["completed", "wait"]),
)
def test_clean_stays_within_its_limits(removable: list[bool], limit: int, page_size: int, state: str) -> None:
    """Against a model: `completed` holds what goes first, of `wait` only the first ones are looked at."""
    left = sorted(removable, reverse=True) if state == "completed" else list(removable)
    plan: Any = Clean(state=state, until=10**12, limit=limit, page_size=page_size)
    removed = 0
    while plan is not None:
        operation = plan.page(K)
        step = next(operation)
        try:
            while True:
                if step.name == "cleanJobsInSet":
                    size = int(step.args[2])
                    assert 0 < size <= page_size
                    gone = sum(left[:size])
                    left = [each for each in left[:size] if not each] + left[size:]
                    removed += gone
                    step = operation.send([b"x"] * gone)
                else:
                    step = operation.send([len(left)])
        except StopIteration as stop:
            plan = stop.value.rest
    assert removed <= (limit or len(removable))
    if state == "completed":
        assert removed == min(limit or len(removable), sum(removable))
    elif not limit or removed < limit:
        # It ended because the first page holds nothing more that goes, or a last page of a smaller size did.
        assert not any(left[: min(page_size, limit - removed) if limit else page_size])
