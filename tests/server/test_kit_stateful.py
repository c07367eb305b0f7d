"""`QueueStateMachine` on a real server: it lives with a right program, and finds a wrong one."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

from bullmq_protocol import RateLimitError
from bullmq_protocol.testing.jobs import STATES
from bullmq_sync.testing import queued
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
    with redis.Redis.from_url(server.url) as client:
        before = {*client.scan_iter("test-*")}
        _play(server, Flaky, SETTINGS)
        # Each example has a prefix of its own.
        assert {*client.scan_iter("test-*")} == before


@pytest.fixture
def machine(server: Server) -> Iterator[QueueStateMachine]:
    made = type("Plain", (QueueStateMachine,), {"url": server.url, "handle": _handle})()
    yield made
    made.teardown()


def _handle(machine: QueueStateMachine, job: Any) -> Any:
    if job.name == "limited":
        machine.queue.rate_limit(3_600_000)
        raise RateLimitError
    if job.name == "bad" and job.attempts_made == 0:
        raise ValueError("not at once")


def _states(machine: QueueStateMachine) -> list[tuple[str, str]]:
    machine.every_job_is_in_one_state()
    return [(job.name, job.state) for job in queued(machine.queue, STATES)]


def test_each_rule_does_what_it_says(machine: QueueStateMachine) -> None:
    machine.add("soon", 1, 60_000, 0, 1, False)
    machine.add("later", 2, 3_600_000, 0, 1, False)
    before = machine.clock.wall
    machine.let_time_pass(60)
    assert machine.clock.wall >= before + 60_000
    machine.work_off()
    assert _states(machine) == [("later", "delayed"), ("soon", "completed")]
    machine.promote_delayed()
    assert _states(machine) == [("later", "waiting"), ("soon", "completed")]
    machine.pause()
    machine.work_off()
    assert machine.queue.is_paused() and machine.done.completed == ()
    machine.resume()
    machine.work_off()
    assert [job.name for job in machine.done.completed] == ["later"]
    machine.add("bad", 3, 0, 0, 1, False)
    machine.work_off()
    assert [job.reason for job in machine.done.failed] == ["not at once"]
    machine.retry_failed()
    machine.work_off()
    assert [job.name for job in machine.done.completed] == ["bad"]
    left = dict(list(machine.expected.items())[1:])
    draws: Any = SimpleNamespace(draw=lambda ids, label: next(iter(machine.expected)))
    machine.remove(draws)
    assert machine.expected == left and len(_states(machine)) == 2


def test_what_is_left_is_found(machine: QueueStateMachine) -> None:
    machine.add("limited", 1, 0, 0, 1, False)
    with pytest.raises(AssertionError, match=r"these were left: .*limited"):
        machine.work_off()


def test_a_job_in_two_states_is_found(machine: QueueStateMachine, server: Server) -> None:
    machine.add("n", 1, 3_600_000, 0, 1, False)
    [job_id] = machine.expected
    with redis.Redis.from_url(server.url) as client:
        client.lpush(machine.queue.keys.wait, job_id)
    with pytest.raises(AssertionError, match="a job is in two states"):
        machine.every_job_is_in_one_state()


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
