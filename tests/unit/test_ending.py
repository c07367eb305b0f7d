"""Workers that end although nobody closes them: with nothing left to do, or after a number of jobs."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from bullmq_protocol.commands.fetching import Limiter
from bullmq_protocol.errors import RateLimitError, UsageError
from bullmq_protocol.worker.actions import Stopped
from bullmq_protocol.worker.ending import Ending, Idle, Together, shared_end
from bullmq_protocol.worker.events import Tick
from bullmq_protocol.worker.notices import Closing
from tests.support.machine_bench import NO_JOB, START, Bench, job_reply

DONE = [0, 0, 0, 0]


def working(**options: Any) -> Bench:
    return Bench(skip_stalled_check=True, **options)


def test_an_empty_queue_ends_it_at_once() -> None:
    bench = working(until="idle")
    bench.reply("moveToActive", NO_JOB)
    assert bench.said(Closing) and isinstance(bench.stopped, Stopped)
    assert bench.sent == ["moveToActive"]


def test_it_asks_once_more_after_the_last_job() -> None:
    bench = working(until="idle")
    bench.reply("moveToActive", job_reply("1"))
    bench.returned("1")
    # The report brings the next job, or none: what the job itself has added may have come after that.
    bench.reply("moveToFinished", DONE)
    assert bench.stopped is None
    bench.reply("moveToActive", job_reply("2"))
    bench.returned("2")
    bench.reply("moveToFinished", DONE)
    bench.reply("moveToActive", NO_JOB)
    assert bench.stopped is not None


def test_a_limited_queue_ends_it_where_that_is_asked_for() -> None:
    bench = working(until=Idle(1, limited=True), limiter=Limiter(max=1, duration=60_000))
    bench.reply("moveToActive", job_reply("1"))
    bench.returned("1")
    bench.reply("moveToFinished", [0, 0, 60_000, 0])
    assert bench.stopped is not None
    bench = working(until=Idle(1, limited=True), limiter=Limiter(max=1, duration=60_000))
    bench.reply("moveToActive", [0, 0, 60_000, 0])
    assert bench.stopped is not None


def test_a_limit_of_a_handler_ends_it_without_another_fetch() -> None:
    bench = working(until=Idle(1, limited=True))
    bench.reply("moveToActive", job_reply("1"))
    bench.raised("1", RateLimitError())
    # Without a limiter a worker is given the same job again.
    bench.reply("moveJobFromActiveToWait", 60_000)
    assert bench.stopped is not None and bench.sent == ["moveToActive", "moveJobFromActiveToWait"]


def test_a_limited_worker_waits_for_those_that_end_with_it() -> None:
    bench = working(until=Idle(2, limited=True))
    bench.reply("moveToActive", job_reply("1"))
    bench.raised("1", RateLimitError())
    bench.reply("moveJobFromActiveToWait", 60_000)
    assert bench.stopped is None and bench.sent == ["moveToActive", "moveJobFromActiveToWait"]


def test_a_limited_queue_holds_up_others() -> None:
    bench = working(until="idle", limiter=Limiter(max=1, duration=60_000))
    bench.reply("moveToActive", [0, 0, 60_000, 0])
    assert bench.stopped is None
    with pytest.raises(UsageError, match="limited: must be True or False"):
        Idle(1, limited=1)  # type: ignore[arg-type]


def test_it_waits_for_more_jobs_while_it_holds_one() -> None:
    bench = working(until="idle", concurrency=2)
    bench.reply("moveToActive", job_reply("1"))
    bench.reply("moveToActive", NO_JOB)
    assert bench.wait is not None and bench.stopped is None
    bench.returned("1")
    bench.reply("moveToFinished", DONE)
    # The wait is interrupted, and whatever it may have seen is asked for.
    assert bench.wait_cancelled
    bench.end_wait()
    bench.reply("moveToActive", NO_JOB)
    assert bench.stopped is not None


def test_a_job_that_is_delayed_for_later_does_not_hold_it_up() -> None:
    bench = working(until="idle")
    bench.reply("moveToActive", [0, 0, 0, START + 60_000])
    assert bench.stopped is not None


def test_a_rate_limit_does_while_jobs_wait() -> None:
    bench = working(until="idle")
    bench.reply("moveToActive", [0, 0, 400, 0])
    assert bench.stopped is None
    bench.advance(400)
    bench.tell(Tick())
    bench.reply("moveToActive", NO_JOB)
    assert bench.stopped is not None


def test_a_lost_connection_does_not_end_it() -> None:
    bench = working(until="idle")
    bench.lose("moveToActive", maybe_applied=False)
    assert bench.stopped is None and bench.machine.word == "disconnected"


def test_workers_end_together() -> None:
    end = Idle(2)
    first, second = working(until=end), working(until=end)
    first.reply("moveToActive", NO_JOB)
    # The second may have work that brings work for the first.
    assert first.wait is not None and first.stopped is None
    assert first.wait.command.args[-1] in (0.25, "0.25", b"0.25")
    first.tell(Tick())
    assert first.sent == ["moveToActive"] and first.wait is not None and not first.wait_cancelled
    # Again, now that both are known.
    first.marker(None)
    first.reply("moveToActive", NO_JOB)
    second.reply("moveToActive", job_reply("1"))
    second.returned("1")
    second.reply("moveToFinished", DONE)
    second.reply("moveToActive", NO_JOB)
    # The first has not asked since.
    assert second.wait is not None and second.stopped is None
    first.marker(None)
    first.reply("moveToActive", NO_JOB)
    assert first.stopped is not None
    second.marker(None)
    second.reply("moveToActive", NO_JOB)
    assert second.stopped is not None


def test_what_is_asked_while_another_holds_a_job_does_not_count() -> None:
    end = Idle(2)
    first, second = working(until=end), working(until=end)
    second.reply("moveToActive", job_reply("1"))
    first.reply("moveToActive", NO_JOB)
    first.marker(None)
    first.reply("moveToActive", NO_JOB)
    # The job adds one to the queue of the first, after that has asked.
    second.returned("1")
    second.reply("moveToFinished", DONE)
    second.reply("moveToActive", NO_JOB)
    assert second.stopped is None and first.stopped is None
    first.marker(None)
    first.reply("moveToActive", job_reply("2"))
    assert first.stopped is None


def test_while_one_asks_the_others_do_not_end() -> None:
    end = Idle(2)
    first, second = working(until=end), working(until=end)
    first.reply("moveToActive", NO_JOB)
    first.marker(None)
    first.reply("moveToActive", NO_JOB)
    first.marker(None)
    assert first.has("moveToActive")
    second.reply("moveToActive", NO_JOB)
    assert second.stopped is None
    first.reply("moveToActive", NO_JOB)
    assert first.stopped is not None


def test_after_its_jobs_it_takes_no_more() -> None:
    bench = working(max_jobs=2)
    bench.reply("moveToActive", job_reply("1"))
    bench.returned("1")
    bench.reply("moveToFinished", job_reply("2"))
    assert bench.stopped is None
    bench.advance(3_600_000)
    assert not bench.said(Closing)
    bench.returned("2")
    bench.reply("moveToFinished", 0)
    assert bench.stopped is not None
    assert (bench.machine.snapshot().taken, bench.machine.snapshot().completed) == (2, 2)


def test_it_never_asks_for_more_than_it_may_take() -> None:
    bench = working(max_jobs=5, concurrency=4, batches=True)
    bench.reply("fetchMany", [job_reply("1"), job_reply("2"), job_reply("3"), NO_JOB])
    assert bench.wait is not None
    # Two are left: one that the report of each of two jobs may bring.
    for number in "123":
        bench.returned(number)
    bench.reply("moveToFinished", job_reply("4"))
    bench.reply("moveToFinished", job_reply("5"))
    bench.reply("moveToFinished", 0)
    assert not bench.has("moveToActive") and not bench.has("fetchMany")
    bench.returned("4")
    bench.returned("5")
    bench.reply("moveToFinished", 0)
    assert bench.stopped is None
    bench.reply("moveToFinished", 0)
    if bench.wait is not None:
        bench.end_wait()
    assert bench.stopped is not None and bench.machine.snapshot().taken == 5


def test_a_fetch_is_as_large_as_what_is_left() -> None:
    bench = working(max_jobs=3, concurrency=8, batches=True)
    bench.reply("fetchMany", [job_reply("1"), job_reply("2"), job_reply("3")])
    assert not bench.has("moveToActive") and bench.wait is None
    assert len(bench.handlers) == 3
    assert not bench.said(Closing)


@pytest.mark.parametrize(("max_jobs", "fetches"), [(2, "0"), (3, "1")])
def test_a_report_brings_no_job_that_a_fetch_may_bring(max_jobs: int, fetches: str) -> None:
    bench = working(max_jobs=max_jobs, concurrency=2)
    bench.reply("moveToActive", job_reply("1"))
    assert bench.has("moveToActive")
    bench.returned("1")
    assert bench.call("moveToFinished").command.args[5] == fetches


@pytest.mark.parametrize(
    ("until", "max_jobs", "rule"),
    [
        ("empty", None, 'until: must be None, "idle" or an Idle'),
        (True, None, "until: must be"),
        (None, 0, "max_jobs: must be at least 1"),
        (None, "3", "max_jobs: must be a whole number"),
        (None, True, "max_jobs: must be a whole number"),
    ],
)
def test_wrong_ends_are_refused(until: Any, max_jobs: Any, rule: str) -> None:
    with pytest.raises(UsageError) as caught:
        Ending(until, max_jobs)
    field, _, words = rule.partition(": ")
    assert caught.value.field == field and words in str(caught.value)


def test_an_end_is_shared_by_as_many_as_were_said() -> None:
    end = Idle(1)
    Ending(end, None)
    with pytest.raises(UsageError, match="is shared by 1 workers already"):
        Ending(end, None)
    with pytest.raises(UsageError, match="must be at least 1"):
        Idle(0)
    with pytest.raises(UsageError, match='must be None or "idle"'):
        shared_end("empty", 2)
    assert isinstance(shared_end("idle", 2), Idle)


@pytest.mark.parametrize(
    ("until", "max_jobs", "ends_all"), [(None, None, False), ("idle", None, True), (None, 1, True), ("idle", 2, True)]
)
def test_of_workers_that_run_together_the_first_to_end_ends_the_others_where_that_was_asked(
    until: Literal["idle"] | None, max_jobs: int | None, ends_all: bool
) -> None:
    together = Together[str, str](("a", "b"), until, max_jobs)
    assert (together.workers, together.max_jobs, together.ends_all) == (("a", "b"), max_jobs, ends_all)
    assert (together.until is None) == (until is None)


def test_workers_that_run_together_end_by_the_first_signal_and_the_first_error() -> None:
    together = Together[str, str](("a", "b"), None, None)
    assert [together.signalled(each) for each in ("TERM", "INT", "INT")] == [False, True, True]
    first = ValueError("first")
    together.failed(first)
    together.failed(ValueError("second"))
    assert (together.signal, together.error) == ("TERM", first)
