"""What the core does by the profiles `fleet` and `6.7`: keys and arguments, refusals, and a worker's calls."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bullmq_protocol import Deduplication, JobOptions, KeepJobs, QueueKeys, UsageError
from bullmq_protocol.commands import cleaning, getters, moving, queues
from bullmq_protocol.commands.finishing import move_to_delayed
from bullmq_protocol.common.switches import (
    FLEET_SWITCHES,
    STRICT_SWITCHES,
    V5_81_SWITCHES,
    V6_7_SWITCHES,
)
from bullmq_protocol.model.job import JobRecord, NewJob, prepare
from bullmq_protocol.model.options import stored, stored_options_from, validate
from bullmq_protocol.operations.clean import Clean
from bullmq_protocol.operations.pausing import pause_queue, resume_queue
from bullmq_protocol.worker.advance import Schedule, schedule_of
from bullmq_protocol.worker.notices import WorkerProblem
from tests.support.machine_bench import NO_JOB, Bench, job_reply
from tests.unit.test_operations import answered, pages_of

K = QueueKeys.of("q")
FLEET = QueueKeys.of("q", switches=FLEET_SWITCHES)
V6 = QueueKeys.of("q", switches=V6_7_SWITCHES)
V5_81 = QueueKeys.of("q", switches=V5_81_SWITCHES)
LATER = r"needs a profile of later versions of BullMQ: scripts=FLEET or scripts=V6_7"


def short(command: Any) -> str:
    """Return the names of the keys of a command."""
    return " ".join(key.removeprefix("bull:q:") for key in command.keys)


# --- keys and arguments


def test_the_keys_of_a_retry() -> None:
    def retry(keys: QueueKeys, **flags: bool) -> Any:
        return moving.reprocess_job(keys, "7", state="failed", **flags)

    assert short(retry(K)) == "7 events failed wait meta paused active marker" == short(retry(V5_81))
    assert short(retry(FLEET)) == "7 events failed wait meta paused active marker prioritized pc"
    assert short(retry(V6)) == "7 events failed wait meta active marker prioritized pc"
    assert retry(K).args[4:] == ()
    for keys in (V5_81, FLEET, V6):
        assert retry(keys).args[4:] == ("0", "0")
        assert retry(keys, reset_attempts_made=True).args[4:] == ("1", "0")
        assert retry(keys, reset_attempts_started=True).args[4:] == ("0", "1")
    for flag in ("reset_attempts_made", "reset_attempts_started"):
        with pytest.raises(UsageError, match=f"{flag}: {LATER}"):
            retry(K, **{flag: True})
        with pytest.raises(UsageError, match=f"{flag}: must be True or False"):
            retry(FLEET, **{flag: "yes"})  # type: ignore[arg-type]


def test_the_keys_of_a_delay() -> None:
    def delay(keys: QueueKeys) -> Any:
        return move_to_delayed(keys, "7", token="t", now=5, delay=1, count_attempt=True)

    strict = "marker active prioritized delayed 7 events meta stalled"
    assert short(delay(K)) == strict
    assert short(delay(V5_81)) == short(delay(FLEET)) == f"{strict} wait limiter paused pc"
    assert short(delay(V6)) == f"{strict} wait limiter pc"
    assert (delay(K).args[7:], delay(FLEET).args[7:]) == ((), ("0", ""))
    assert (delay(K).decode(0), delay(FLEET).decode(0).job) == (0, None)


def test_the_keys_of_counts_per_priority() -> None:
    assert short(getters.get_counts_per_priority(FLEET, [0])) == "wait paused meta prioritized"
    assert short(getters.get_counts_per_priority(V6, [0])) == "wait prioritized"


# --- what a profile refuses


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (JobOptions(deduplication=Deduplication("d", keep_last_if_active=True)), "deduplication.keep_last_if_active"),
        (JobOptions(deduplication=Deduplication("d", reschedule=True)), "deduplication.reschedule"),
        (JobOptions(remove_on_complete=KeepJobs(age=5, limit=9)), "remove_on_complete.limit"),
        (JobOptions(remove_on_fail=KeepJobs(age=5, limit=9)), "remove_on_fail.limit"),
    ],
)
def test_options_of_later_versions_need_a_profile_that_knows_them(options: JobOptions, field: str) -> None:
    with pytest.raises(UsageError, match=f"{field}: {LATER}"):
        validate(options)
    with pytest.raises(UsageError, match=f"{field}: {LATER}"):
        prepare(K, NewJob("n", {}, options), now_ms=1)
    for keys in (FLEET, V6):
        assert validate(options, switches=keys.switches) == []
        prepare(keys, NewJob("n", {}, options), now_ms=1)


def test_options_of_later_versions_are_stored_by_their_names() -> None:
    given = JobOptions(
        deduplication=Deduplication("d", keep_last_if_active=True, reschedule=False),
        remove_on_complete=KeepJobs(age=5, limit=9),
    )
    assert stored(given) == {
        "attempts": 0,
        "de": {"id": "d", "keepLastIfActive": True, "reschedule": False},
        "removeOnComplete": {"age": 5, "limit": 9},
    }
    assert stored_options_from(stored(given)) == msgspec.structs.replace(given, attempts=0)
    for bad in (0, -1, 2.5, "9"):
        with pytest.raises(UsageError, match=r"remove_on_fail\.limit: must be a whole number"):
            validate(JobOptions(remove_on_fail=KeepJobs(limit=bad)), switches=FLEET_SWITCHES)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"deduplication\.reschedule: must be True or False"):
        validate(JobOptions(deduplication=Deduplication("d", reschedule=1)))  # type: ignore[arg-type]
    # What says nothing new may be given everywhere.
    assert validate(JobOptions(deduplication=Deduplication("d", keep_last_if_active=False))) == []


def test_the_largest_priority_is_that_of_the_profile() -> None:
    assert validate(JobOptions(priority=2_097_152)) == []
    for switches in (FLEET_SWITCHES, V6_7_SWITCHES):
        assert validate(JobOptions(priority=2_097_151), switches=switches) == []
        said = r"priority: must be a whole number from 0 to 2097151: the profile STRICT alone takes 2097152"
        with pytest.raises(UsageError, match=said):
            validate(JobOptions(priority=2_097_152), switches=switches)
    assert moving.change_priority(K, "7", priority=2_097_152).args[0] == 2_097_152
    with pytest.raises(UsageError, match=r"priority: must be .* 2097151"):
        moving.change_priority(FLEET, "7", priority=2_097_152)


# --- both lists


def test_pausing_and_resuming_go_on_until_nothing_is_left() -> None:
    for operation, command in ((pause_queue, queues.pause), (resume_queue, queues.resume)):
        assert answered(operation(K), [(command(K), None)]) is None
        again = command(FLEET, again=True)
        answered(operation(FLEET), [(command(FLEET), 8000), (again, 1000), (again, 0)])


def test_waiting_jobs_are_cleaned_in_both_lists() -> None:
    plan = Clean(state="waiting", until=1_700_000_000_000, limit=3, page_size=2)

    def clean(state: str, limit: int) -> Any:
        return cleaning.clean_jobs_in_set(FLEET, state, until=plan.until, limit=limit)

    asked = [(clean("wait", 2), [b"1", b"2"]), (clean("wait", 1), []), (clean("paused", 1), [b"3"])]
    assert pages_of(plan, asked, FLEET) == [["1", "2"], [], ["3"]]
    assert pages_of(Clean(state="paused", until=plan.until), [(clean("paused", 10_000), [])], FLEET) == [[]]
    # The limit is reached in the first list.
    short_one = Clean(state="wait", until=plan.until, limit=1)
    assert pages_of(short_one, [(clean("wait", 1), [b"1"])], FLEET) == [["1"]]


# --- a worker


def test_a_worker_heals_until_nothing_is_left_and_again_with_each_check() -> None:
    bench = Bench(keys=FLEET, skip_stalled_check=True)
    assert bench.call("pause").command == queues.heal(FLEET)
    bench.reply("pause", 8000)
    assert bench.call("pause").command == queues.heal(FLEET)
    bench.reply("pause", 0)
    assert not bench.has("pause")
    checking = Bench(keys=FLEET, stalled_interval=1000)
    checking.reply("pause", 0)
    checking.reply("moveToActive", NO_JOB)
    checking.reply("moveStalledJobsToWait", [])
    checking.reply("PTTL", 500)
    checking.advance(501)
    checking.tick()
    assert checking.has("pause") and checking.has("moveStalledJobsToWait")
    # One at a time: a check does not begin a second one.
    checking.reply("moveStalledJobsToWait", [])
    checking.reply("PTTL", 500)
    checking.advance(501)
    checking.tick()
    assert checking.sent.count("pause") == 2
    assert not Bench(skip_stalled_check=True).has("pause")
    assert not Bench(keys=V6, skip_stalled_check=True).has("pause")


def test_a_worker_that_ends_heals_no_further() -> None:
    bench = Bench(keys=FLEET, skip_stalled_check=True)
    bench.reply("moveToActive", NO_JOB)
    bench.close()
    bench.end_wait()
    bench.reply("pause", 8000)
    assert bench.stopped is not None


def test_a_heal_that_fails_is_made_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(keys=FLEET, stalled_interval=1000)
    bench.refuse("pause", "NOPERM no")
    assert [notice.message for notice in bench.said(WorkerProblem)] == ["jobs left in a paused list: NOPERM no"]
    upkeep = bench.machine._upkeep
    assert not upkeep.healing
    upkeep.heal()
    assert upkeep.healing
    monkeypatch.setattr(type(upkeep), "healed", lambda *_: 1 / 0)
    call = bench.machine._shared.pending[max(bench.machine._shared.pending)]
    call.abandoned()
    assert not upkeep.healing


def failed(keys: QueueKeys, **options: Any) -> Bench:
    bench = Bench(keys=keys, skip_stalled_check=True, **options)
    bench.reply("moveToActive", job_reply("1", opts='{"attempts":3,"backoff":{"type":"fixed","delay":50}}'))
    bench.raised("1", ValueError("boom"))
    return bench


def test_a_delayed_retry_brings_the_next_job() -> None:
    bench = failed(FLEET)
    assert bench.call("moveToDelayed").command.args[7] == "1"
    bench.reply("moveToDelayed", job_reply("2"))
    assert [run.job.id for run in bench.handlers.values()] == ["2"]
    (again,) = bench.handlers.values()
    assert again.token == "w:0"
    assert not bench.has("moveToActive")


def test_a_delayed_retry_without_a_job_is_followed_by_a_fetch() -> None:
    bench = failed(FLEET)
    bench.reply("moveToDelayed", 0)
    assert bench.has("moveToActive")
    strict = failed(K)
    assert strict.call("moveToDelayed").command.args[7:] == ()
    strict.reply("moveToDelayed", 0)
    assert strict.has("moveToActive")


def test_a_worker_that_pauses_delays_without_a_fetch() -> None:
    bench = Bench(keys=FLEET, skip_stalled_check=True)
    bench.reply("moveToActive", job_reply("1", opts='{"attempts":3,"backoff":{"type":"fixed","delay":50}}'))
    bench.pause()
    bench.raised("1", ValueError("boom"))
    assert bench.call("moveToDelayed").command.args[7:] == ("0", "")


def test_a_job_that_repeats_for_nobody_is_an_ordinary_one() -> None:
    """As BullMQ 6 adds it, which passes over `repeat`; 5.62.0 begins a series that nobody can list."""
    stray = JobRecord("1", {"opts": b'{"repeat":{"every":1000}}'})
    assert schedule_of(stray, STRICT_SWITCHES) == Schedule(None)
    assert schedule_of(stray, FLEET_SWITCHES) is None
    oldest = JobRecord("1", {"opts": b'{"repeat":{"every":1000}}', "rjk": b"a:b:c:d:e"})
    assert schedule_of(oldest, FLEET_SWITCHES) == Schedule(None)
    assert schedule_of(JobRecord("1", {"opts": b"{}", "rjk": b"s"}), FLEET_SWITCHES) == Schedule("s")
