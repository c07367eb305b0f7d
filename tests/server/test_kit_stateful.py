"""`QueueStateMachine` on a real server: it lives with a right program, and finds a wrong one."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

from bullmq_sync import Queue
from bullmq_sync.testing.stateful import QueueStateMachine
from tests.support.servers import Server

pytestmark = pytest.mark.any_server

SETTINGS = settings(max_examples=max(settings().max_examples // 5, 5), stateful_step_count=15, deadline=None)
SOME = settings(max_examples=30, stateful_step_count=15, deadline=None, print_blob=False)


def _play(server: Server, kind: type[QueueStateMachine], chosen: settings = SOME) -> None:
    run_state_machine_as_test(type(kind.__name__, (kind,), {"url": server.url}), settings=chosen)  # type: ignore[no-untyped-call]


class Flaky(QueueStateMachine):
    """A program with rules of its own, whose processor fails now and then."""

    @initialize()
    def begin(self) -> None:
        self.handled: list[str] = []

    @rule(to=st.sampled_from(["ada", "grace"]))
    def welcome(self, to: str) -> None:
        self.expect(self.queue.add("welcome", {"to": to}))

    def handle(self, job: Any) -> Any:
        self.handled.append(job.id)
        if job.attempts_made == 0 and job.name != "welcome":
            raise ValueError("not at once")
        return job.name

    @invariant()
    def what_completed_was_handled(self) -> None:
        assert {job.id for job in self.done.completed} <= set(getattr(self, "handled", ()))


def test_a_right_program_lives(server: Server) -> None:
    _play(server, Flaky, SETTINGS)
    with Queue[Any]("queue", server.url) as queue:
        assert queue.get_jobs() == []


class Loses(QueueStateMachine):
    """Its processor removes other jobs."""

    def handle(self, job: Any) -> None:
        self.queue.drain(delayed=True)


class Hides(QueueStateMachine):
    """It does not tell of a job that it adds."""

    @rule()
    def add_in_secret(self) -> None:
        self.queue.add("secret")


@pytest.mark.parametrize("kind", [Loses, Hides])
def test_a_wrong_program_is_found(kind: type[QueueStateMachine], server: Server) -> None:
    with pytest.raises(AssertionError, match="found \\["):
        _play(server, kind)
