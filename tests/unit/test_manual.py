"""Fetching and finishing by hand, step by step."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from bullmq_protocol.command import Now, Operation
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.switches import V6_7_SWITCHES
from bullmq_protocol.errors import ConnectionLost, LockMissing, ServerError
from bullmq_protocol.model.failure import failure_of
from bullmq_protocol.testing.clock import SimulatedClock
from bullmq_protocol.testing.scripted import ScriptedTransport
from bullmq_protocol.worker.manual import ManualWork, Taken
from bullmq_protocol.worker.options import WorkerOptions
from tests.support.machine_bench import NO_JOB, START, job_reply

T = TypeVar("T")
K = QueueKeys.of("q")


class Hand:
    """Manual work on a simulated clock; each call says what the server answers."""

    def __init__(self, keys: QueueKeys = K, **options: Any) -> None:
        self.clock = SimulatedClock(wall=START)
        self.work = ManualWork(keys, WorkerOptions(**options).checked(switches=keys.switches)[0])
        self.sent: list[Any] = []

    def run(self, operation: Operation[T], *exchanges: tuple[str, Any]) -> T:
        transport = ScriptedTransport(exchanges)
        resume: Any = operation.send
        value: Any = None
        while True:
            try:
                step = resume(value)
            except StopIteration as stop:
                transport.check_done()
                self.sent = transport.sent
                result: T = stop.value
                return result
            try:
                value = self.clock() if isinstance(step, Now) else transport.perform(step)
                resume = operation.send
            except Exception as error:
                value, resume = error, operation.throw

    def next(self, *exchanges: tuple[str, Any], block: bool = True) -> Taken:
        return self.run(self.work.next_job("tk", block=block), *exchanges)


def test_a_job_is_taken_with_the_callers_token() -> None:
    hand = Hand()
    taken = hand.next(("moveToActive", job_reply("1")))
    assert taken.job is not None and taken.job.id == "1"
    assert taken.token == "tk" and taken.problem is None


def test_after_an_empty_answer_it_waits_once() -> None:
    hand = Hand(drain_delay=2)
    assert hand.next(("moveToActive", NO_JOB)) == Taken()
    taken = hand.next(("BZPOPMIN", [b"k", b"0", b"0"]), ("moveToActive", job_reply("2")))
    assert hand.sent[0].block_ms == 2000
    assert taken.job is not None
    assert hand.next(("moveToActive", NO_JOB)) == Taken()
    assert hand.next(("BZPOPMIN", None), ("moveToActive", NO_JOB)) == Taken()


def test_without_blocking_it_asks_again() -> None:
    hand = Hand()
    hand.next(("moveToActive", NO_JOB))
    assert hand.next(("moveToActive", NO_JOB), block=False) == Taken()


def test_a_delay_marker_ends_the_call_and_the_next_waits_until_then() -> None:
    hand = Hand()
    hand.next(("moveToActive", NO_JOB))
    assert hand.next(("BZPOPMIN", [b"k", b"1", str(START + 700).encode()])) == Taken()
    assert hand.next(("BZPOPMIN", None), ("moveToActive", NO_JOB)) == Taken()
    assert hand.sent[0].block_ms == 700


def test_a_known_due_time_limits_the_wait_and_the_earlier_one_counts() -> None:
    hand = Hand()
    hand.next(("moveToActive", [0, 0, 0, START + 60_000]))
    assert hand.next(("BZPOPMIN", [b"k", b"1", str(START + 90_000).encode()])) == Taken()
    assert hand.sent[0].block_ms == 10_000
    assert hand.next(("BZPOPMIN", [b"k", b"1", str(START + 50_000).encode()])) == Taken()
    hand.clock.advance(50_000)
    assert hand.next(("moveToActive", NO_JOB)) == Taken()


def test_a_rate_limit_is_respected() -> None:
    hand = Hand()
    assert hand.next(("moveToActive", [0, 0, 400, 0])) == Taken()
    assert hand.next() == Taken()
    hand.clock.advance(400)
    assert hand.next(("moveToActive", job_reply("1"))).job is not None


def test_a_rate_limit_of_a_single_millisecond_is_respected() -> None:
    hand = Hand()
    assert hand.next(("moveToActive", [0, 0, 1, 0])) == Taken()
    assert hand.next() == Taken()
    hand.clock.advance(1)
    assert hand.next(("moveToActive", job_reply("1"))).job is not None


def test_completing_brings_the_next_job_on_demand() -> None:
    hand = Hand()
    job = hand.next(("moveToActive", job_reply("1"))).job
    assert job is not None
    following = hand.run(hand.work.complete(job, "tk", "5", fetch_next=True), ("moveToFinished", job_reply("2")))
    assert following.job is not None and following.job.id == "2"
    assert hand.sent[0].args[5] == "1"
    done = hand.run(hand.work.complete(following.job, "tk", "5"), ("moveToFinished", 0))
    assert done == Taken()
    assert hand.sent[0].args[5] == "0"


def test_a_refused_completion_is_raised() -> None:
    hand = Hand()
    job = hand.next(("moveToActive", job_reply("1"))).job
    assert job is not None
    with pytest.raises(LockMissing):
        hand.run(hand.work.complete(job, "tk", "5"), ("moveToFinished", -2))


def test_failing_retries_or_ends() -> None:
    hand = Hand()
    job = hand.next(("moveToActive", job_reply("1", opts='{"attempts":2}'))).job
    assert job is not None
    failure = failure_of(RuntimeError("boom"), stack="stack")
    assert hand.run(hand.work.fail(job, "tk", failure, roll=0.5, fetch_next=True), ("retryJob", 0)) == Taken()
    last = hand.next(("moveToActive", job_reply("1", opts='{"attempts":2}', atm="1"))).job
    assert last is not None
    ended = hand.run(hand.work.fail(last, "tk", failure, roll=0.5, fetch_next=True), ("moveToFinished", job_reply("2")))
    assert ended.job is not None and ended.job.id == "2"


REPEATED = {"rjk": "s", "opts": '{"repeat":{"every":1000,"count":1}}'}


def test_a_scheduler_is_advanced() -> None:
    hand = Hand()
    taken = hand.next(("moveToActive", job_reply("repeat:s:5", **REPEATED)), ("updateJobScheduler", b"repeat:s:6"))
    assert taken.job is not None


def test_an_old_repeatable_job_is_moved_on_and_added_again() -> None:
    hand = Hand()
    taken = hand.next(
        ("moveToActive", job_reply("x", name="jn", opts='{"repeat":{"every":1000}}')),
        ("updateRepeatableJobMillis", b"jn::::1000"),
        ("addDelayedJob", b"y"),
    )
    assert taken.job is not None
    gone = hand.next(
        ("moveToActive", job_reply("x", name="jn", opts='{"repeat":{"every":1000}}')),
        ("updateRepeatableJobMillis", b""),
    )
    assert gone.job is not None


def test_a_repeatable_job_that_is_not_continued_is_taken() -> None:
    hand = Hand(QueueKeys.of("q", switches=V6_7_SWITCHES))
    old = job_reply("x", name="jn", rjk="jn::::1000", opts='{"repeat":{"every":1000}}')
    taken = hand.next(("moveToActive", old), ("HGETALL", []))
    assert taken.job is not None and taken.token == "tk"
    assert taken.problem is not None and "BullMQ 6 continues no repeatable job" in taken.problem
    known = hand.next(("moveToActive", old), ("HGETALL", [b"ic", b"3"]), ("updateJobScheduler", b"y"))
    assert known.job is not None and known.problem is None


def test_an_ended_schedule_is_not() -> None:
    hand = Hand()
    ended = {"rjk": "s", "opts": '{"repeat":{"every":1000,"count":1,"limit":1}}'}
    assert hand.next(("moveToActive", job_reply("repeat:s:5", **ended))).job is not None


@pytest.mark.parametrize(
    ("fields", "answers", "word"),
    [
        ({"rjk": "s", "opts": '{"repeat":{"pattern":"* * *  * x"}}'}, [], "day of week"),
        (REPEATED, [("updateJobScheduler", ServerError("ERR broken"))], "broken"),
    ],
)
def test_what_cannot_be_scheduled_is_put_back(
    fields: dict[str, str], answers: list[tuple[str, Any]], word: str
) -> None:
    hand = Hand()
    taken = hand.next(("moveToActive", job_reply("repeat:s:5", ats="2", **fields)), *answers, ("moveToDelayed", 0))
    assert taken.job is None
    assert taken.problem is not None and word in taken.problem
    assert hand.sent[-1].args[4:6] == ("4000", "1")


def test_a_lost_connection_is_raised() -> None:
    hand = Hand()
    with pytest.raises(ConnectionLost):
        hand.next(
            ("moveToActive", job_reply("repeat:s:5", **REPEATED)),
            ("updateJobScheduler", ConnectionLost("gone", maybe_applied=True)),
        )


def test_a_marker_for_ever_is_nothing_to_wait_for() -> None:
    hand = Hand()
    hand.next(("moveToActive", NO_JOB))
    hand.next(("BZPOPMIN", [b"k", b"1", b"inf"]), ("moveToActive", NO_JOB))
    taken = hand.next(("BZPOPMIN", None), ("moveToActive", job_reply("1")))
    assert taken.job is not None


def test_hostile_options_are_reported_manually_too() -> None:
    hand = Hand()
    taken = hand.next(("moveToActive", job_reply("1", opts='{"attempts":1e16,"removeOnComplete":1.7e308}')))
    assert taken.job is not None
    hand.run(hand.work.complete(taken.job, "tk", "null"), ("moveToFinished", 0))
