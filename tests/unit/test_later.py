"""What the core does by the profiles `fleet` and `6.7`: keys and arguments, refusals, and a worker's calls."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from bullmq_protocol import Deduplication, JobOptions, KeepJobs, ParentRef, QueueKeys, UsageError
from bullmq_protocol.command import Batch, Command, Repeat
from bullmq_protocol.commands import cleaning, getters, moving, queues
from bullmq_protocol.commands.finishing import move_to_delayed
from bullmq_protocol.common.reply import as_optional_text
from bullmq_protocol.common.switches import (
    FLEET_SWITCHES,
    STRICT_SWITCHES,
    V5_81_SWITCHES,
    V6_7_SWITCHES,
    Switches,
)
from bullmq_protocol.errors import ServerError, UnexpectedReply
from bullmq_protocol.model.failure import Failure, FailureKind
from bullmq_protocol.model.flow import FlowNode, prepare_flow
from bullmq_protocol.model.job import JobRecord, NewJob, check_options, prepare
from bullmq_protocol.model.options import stored, stored_options_from, validate
from bullmq_protocol.model.schedule import no_zones
from bullmq_protocol.operations.add_flow import add_flow
from bullmq_protocol.operations.clean import Clean
from bullmq_protocol.operations.pausing import pause_queue, resume_queue
from bullmq_protocol.operations.read_jobs import get_jobs
from bullmq_protocol.operations.remove_orphans import RemoveOrphans
from bullmq_protocol.worker.advance import Schedule, Unschedulable, advance, schedule_of
from bullmq_protocol.worker.events import CancelRequested, JobRaised
from bullmq_protocol.worker.notices import WorkerProblem
from bullmq_protocol.worker.options import WorkerOptions
from bullmq_protocol.worker.outcome import ReportKind, failure_report
from bullmq_sync.drive import run
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
    for switches in (FLEET_SWITCHES, V6_7_SWITCHES, V5_81_SWITCHES):
        assert validate(JobOptions(priority=2_097_151), switches=switches) == []
        said = r"priority: must be a whole number from 0 to 2097151: the profile STRICT alone takes 2097152"
        with pytest.raises(UsageError, match=said):
            validate(JobOptions(priority=2_097_152), switches=switches)
        with pytest.raises(UsageError, match=r"priority: must be a whole number from 0 to 2097151 \(got"):
            validate(JobOptions(priority=2_097_153), switches=switches)
    assert moving.change_priority(K, "7", priority=2_097_152).args[0] == 2_097_152
    with pytest.raises(UsageError, match=said):
        moving.change_priority(FLEET, "7", priority=2_097_152)
    for keys, most in ((K, 2_097_152), (FLEET, 2_097_151)):
        for priority in (-1, 2_097_153):
            with pytest.raises(UsageError, match=rf"priority: must be a whole number from 0 to {most} \(got"):
                moving.change_priority(keys, "7", priority=priority)


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
    assert schedule_of(oldest, STRICT_SWITCHES) == Schedule(None)
    assert schedule_of(oldest, FLEET_SWITCHES) == Schedule(None, "a:b:c:d:e")
    assert schedule_of(JobRecord("1", {"opts": b"{}", "rjk": b"s"}), FLEET_SWITCHES) == Schedule("s")


@pytest.mark.parametrize(
    ("key", "is_looked_up"),
    [
        ("n::::1000", True),
        ("n::17:tz:1000", True),
        ("n:::UTC:* * * * *", True),
        ("n:::UTC:1:2 3", True),
        ("n::x:tz:1000", False),
        ("n::1x:tz:1000", False),
        ("n:::tz:1x", False),
        ("n:::tz:", False),
        ("a:b:c:d", False),
        ("n:::1000", False),
    ],
)
def test_a_worker_of_6_knows_the_oldest_generation_by_its_keys(key: str, is_looked_up: bool) -> None:
    job = JobRecord("1", {"opts": b'{"repeat":{"every":1000}}', "rjk": key.encode()})
    assert schedule_of(job, V6_7_SWITCHES) == (Schedule(None, key) if is_looked_up else Schedule(key))


@pytest.mark.parametrize(("pattern", "other"), [("1,1 * * * *", V6), ("@minutely", K)])
def test_a_worker_of_a_fleet_goes_on_with_what_it_would_not_upsert(pattern: str, other: QueueKeys) -> None:
    """The scheduler of a peer: what one dialect refuses, the other reads."""
    opts = msgspec.json.encode({"repeat": {"pattern": pattern, "tz": "UTC", "count": 1}, "prevMillis": 1000})
    job = JobRecord("repeat:s:1000", {"name": b"n", "data": b"{}", "opts": opts, "rjk": b"s"})
    found = advance(FLEET, job, Schedule("s"), now=2000, zones=no_zones)
    assert found is not None
    assert found.command.args[0] == 60_000
    with pytest.raises(Unschedulable, match="pattern"):
        advance(other, job, Schedule("s"), now=2000, zones=no_zones)


def _oldest(keys: QueueKeys, record: list[bytes], options: str = '{"repeat":{"every":1000,"count":1}}') -> Bench:
    """Fetch a job with the key of a repeatable one, and answer what its record is."""
    bench = Bench(keys=keys, skip_stalled_check=True, skip_lock_renewal=True)
    bench.reply("moveToActive", job_reply("x", name="jn", rjk="jn::::1000", opts=options))
    assert bench.call("HGETALL").command.keys == (f"{K.repeat}:jn::::1000",)
    bench.reply("HGETALL", record)
    return bench


def test_a_scheduler_with_the_key_of_a_repeatable_job_is_continued_as_one() -> None:
    for keys in (FLEET, V6):
        bench = _oldest(keys, [b"name", b"jn", b"ic", b"3", b"every", b"1000"])
        assert bench.call("updateJobScheduler").command.args[1] == "jn::::1000"
        bench.reply("updateJobScheduler", b"y")
        assert bench.run_of("x") is not None


def test_only_before_6_a_repeatable_job_is_continued() -> None:
    bench = _oldest(FLEET, [b"name", b"jn"])
    bench.reply("updateRepeatableJobMillis", b"jn::::1000")
    bench.reply("addDelayedJob", b"y")
    assert bench.run_of("x") is not None and not bench.said(WorkerProblem)
    bench = _oldest(FLEET, [], "{}")
    assert bench.run_of("x") is not None and not bench.has("updateRepeatableJobMillis")
    bench = _oldest(V6, [b"name", b"jn"])
    assert bench.run_of("x") is not None and not bench.has("updateRepeatableJobMillis")
    (problem,) = bench.said(WorkerProblem)
    assert (
        "'jn::::1000' is no job scheduler, and BullMQ 6 continues no repeatable job; this one runs" in problem.message
    )


@pytest.mark.parametrize(
    ("keys", "starts", "ends"),
    [(K, "2", False), (FLEET, "1", False), (FLEET, "2", True), (FLEET, "3", True), (V6, "2", True)],
)
def test_a_job_that_was_started_as_often_as_is_said_is_not_retried(keys: QueueKeys, starts: str, ends: bool) -> None:
    """A job of 6.7.0 with `attempts` 4 and `maxStartedAttempts` 2 ends with its second failure."""
    settings, _ = WorkerOptions(max_started_attempts=2).checked(switches=keys.switches)
    job = JobRecord("1", {"opts": b'{"attempts":4}', "ats": starts.encode()})
    failure = Failure(message="boom")
    report = failure_report(job, failure, settings, roll=0.5)
    assert (report.kind is ReportKind.FAILED, report.value) == (ends, "boom")
    assert not report.exhausted
    unlimited, _ = WorkerOptions().checked(switches=keys.switches)
    assert failure_report(job, failure, unlimited, roll=0.5).kind is ReportKind.RETRY


def test_a_deduplicated_job_has_neither_parent_nor_children() -> None:
    once = JobOptions(deduplication=Deduplication("d"))
    below = JobOptions(deduplication=Deduplication("d"), parent=ParentRef("p", "bull:q"))
    rule = "deduplication: cannot be used together with parent, which BullMQ refuses since 5.70.4; the profile STRICT"

    def flow(switches: Switches, *, above: bool) -> Any:
        child = FlowNode("c", "q", options=JobOptions() if above else once)
        tree = FlowNode("p", "q", options=once if above else JobOptions(), children=[child])
        return prepare_flow([tree], new_id=lambda: "7", now_ms=5, switches=switches)

    for switches in (FLEET_SWITCHES, V6_7_SWITCHES, V5_81_SWITCHES):
        with pytest.raises(UsageError, match=rule):
            check_options(JobOptions(), below, switches=switches)
        with pytest.raises(UsageError, match=rf"flow\[0\]\.children\[0\]: {rule}"):
            flow(switches, above=False)
    for switches in (FLEET_SWITCHES, V6_7_SWITCHES):
        with pytest.raises(
            UsageError, match=r"flow\[0\]: options.deduplication: cannot be used together with children"
        ):
            flow(switches, above=True)
    flow(V5_81_SWITCHES, above=True)
    for above in (False, True):
        flow(STRICT_SWITCHES, above=above)
    assert check_options(JobOptions(), below).parent_key == "bull:q:p"


# --- jobs that are cancelled


def test_a_cancelled_handler_fails_its_job_with_the_reason() -> None:
    bench = Bench(skip_stalled_check=True, concurrency=2, batches=False)
    bench.reply("moveToActive", job_reply("1", opts='{"attempts":2}'))
    bench.reply("moveToActive", job_reply("2"))
    assert (bench.machine.handlers_of("1"), bench.machine.handlers_of(None), bench.machine.handlers_of("3")) == (
        1,
        2,
        0,
    )
    bench.tell(CancelRequested("1", "no longer wanted"))
    assert list(bench.cancelled.values()) == ["no longer wanted"]
    event = JobRaised(bench.run_of("1"), Failure(kind=FailureKind.CANCELLED, message="cancelled"), 0.5)
    bench.tell(event)
    fields = msgspec.msgpack.decode(bench.call("retryJob").command.args[-1])
    assert fields[:2] == ["failedReason", "no longer wanted"]
    bench.reply("retryJob", 0)
    bench.tell(CancelRequested(None, "the end"))
    assert list(bench.cancelled.values()) == ["no longer wanted", "the end"]
    # A handler may return all the same.
    bench.returned("2", "5")
    assert bench.call("moveToFinished").command.args[3:5] == ("5", "completed")


def test_no_strategy_is_needed_for_a_cancelled_handler() -> None:
    bench = Bench(skip_stalled_check=True)
    bench.reply("moveToActive", job_reply("1", opts='{"attempts":2,"backoff":{"type":"own"}}'))
    bench.tell(CancelRequested("1", "x"))
    bench.tell(JobRaised(bench.run_of("1"), Failure(kind=FailureKind.CANCELLED, message="cancelled"), 0.5))
    assert bench.has("retryJob")


def test_a_cancellation_that_nobody_asked_for_keeps_its_words() -> None:
    bench = Bench(skip_stalled_check=True)
    bench.reply("moveToActive", job_reply("1"))
    bench.tell(JobRaised(bench.run_of("1"), Failure(kind=FailureKind.CANCELLED, message="cancelled"), 0.5))
    assert bench.call("moveToFinished").command.args[3] == "cancelled"


# --- flows


def flow_of(switches: Switches, *roots: FlowNode) -> Any:
    numbers = itertools.count(1)
    return prepare_flow(roots, new_id=lambda: f"id-{next(numbers)}", now_ms=1000, switches=switches)


TALL = FlowNode(
    "root",
    "q",
    options=JobOptions(parent=ParentRef("repeat:s:1", "bull:other")),
    children=[
        FlowNode("a", "q", children=[FlowNode("a1", "q"), FlowNode("a2", "q")]),
        FlowNode("b", "q"),
    ],
)


def test_a_flow_lets_its_parents_go_at_its_end_each_once() -> None:
    flow = flow_of(FLEET_SWITCHES, TALL)
    heads = [msgspec.msgpack.decode(node.job.head) for node in flow.nodes]
    assert {len(head) for head in heads} == {10} and {head[9] for head in heads} == {"1"}
    calls = next(add_flow(flow)).commands
    last = calls[len(flow.nodes) :]
    assert {each.name for each in last} == {"releaseParentIfNoPendingDependencies"}
    assert [each.keys for each in last] == [
        ("bull:other:repeat:s:1", "bull:other:repeat:s:1:dependencies"),
        ("bull:q:id-1", "bull:q:id-1:dependencies"),
        ("bull:q:id-2", "bull:q:id-2:dependencies"),
    ]
    assert last[0].args == ("bull:other", "repeat:s:1", 1000)
    assert last[0].decode(None) is None
    strict = flow_of(STRICT_SWITCHES, TALL)
    assert {len(msgspec.msgpack.decode(node.job.head)) for node in strict.nodes} == {9}
    assert len(next(add_flow(strict)).commands) == len(strict.nodes)


def test_the_replies_of_the_releases_are_no_nodes() -> None:
    def added(*last: Any) -> Any:
        flow = flow_of(FLEET_SWITCHES, TALL)
        operation = add_flow(flow)
        next(operation)
        try:
            operation.send([*(node.job.job_id for node in flow.nodes), *last])
        except StopIteration as stop:
            return stop.value
        raise AssertionError

    assert [node.job_id for node in added(None, None, None)] == ["id-1", "id-2", "id-3", "id-4", "id-5"]
    with pytest.raises(ServerError, match="WRONGTYPE"):
        added(None, ServerError("WRONGTYPE x"), None)


def test_the_last_add_of_an_active_job_has_no_place_below_a_root() -> None:
    kept = JobOptions(deduplication=Deduplication("d", keep_last_if_active=True))
    flow_of(FLEET_SWITCHES, FlowNode("n", "q", options=kept))
    with pytest.raises(UsageError, match=r"flow\[0\]\.children\[0\]: options.deduplication.keep_last_if_active"):
        flow_of(Switches(keep_last_if_active=True), FlowNode("n", "q", children=[FlowNode("c", "q", options=kept)]))


# --- commands that came after 5.62.0


def test_a_job_gives_up_its_own_deduplication_key() -> None:
    command = cleaning.remove_own_deduplication_key(K, "d", "7")
    assert (short(command), command.args, command.name) == ("de:d", ("7",), "removeDeduplicationKey")
    assert (command.decode(1), command.decode(0)) == (True, False)


def test_orphans_are_asked_for_by_states_and_parts() -> None:
    command = cleaning.remove_orphaned_jobs(K, ["7", "8"])
    count = command.args[0]
    assert isinstance(count, int)
    states = command.args[1 : count + 1]
    assert {"wait", "paused", "active", "waiting-children"} <= set(states)
    assert command.args[count + 1 :] == (6, *cleaning.JOB_PARTS, "7", "8")
    assert command.decode(2) == 2


def test_jobs_are_read_by_their_place_in_one_call() -> None:
    asked = getters.get_jobs_at(FLEET, ("waiting", "paused"), start=0, end=9)
    assert asked.args == (0, 9, "0", 5, "wait", "paused")
    fields = [b"name", b"n"]
    found = answered(get_jobs(FLEET, "waiting", start=0, end=9), [(asked, [[[b"1", fields]], [[b"1", fields]]])])
    assert [job.id for job in found] == ["1"]
    for bad in ([[]], [[[b"1"]], []], [[1], []]):
        with pytest.raises(UnexpectedReply):
            asked.decode(bad)
    assert getters.get_jobs_at(FLEET, ["failed"], start=0, end=9, ascending=True).args[2] == "1"
    # More than 100 at once, and places from the end, are read as before.
    for start, end in ((0, 100), (-3, -1), (5, 4)):
        ranged = getters.get_ranges(FLEET, ("failed",), start=start, end=end)
        assert answered(get_jobs(FLEET, ["failed"], start=start, end=end), [(ranged, [[]])]) == []


def test_the_sweep_takes_nothing_but_jobs() -> None:
    def stamp(job_id: str) -> Command[Any]:
        return Command("HGET", (f"bull:q:{job_id}",), ("timestamp",), as_optional_text, repeat=Repeat.SAFE)

    class Server:
        """Answers a sweep."""

        def __init__(self, *parts: tuple[bytes, list[bytes]]) -> None:
            self.parts = list(parts)
            self.asked: list[Any] = []

        def perform(self, step: Any) -> Any:
            self.asked.append(step)
            if isinstance(step, Batch):
                stamps = {"bull:q:1": b"5", "bull:q:2": b"5", "bull:q:meta": None}
                return [stamps.get(each.keys[0], ServerError("WRONGTYPE no hash")) for each in step.commands]
            return 2 if step.name == "removeOrphanedJobs" else list(self.parts.pop(0))

    named = [
        b"bull:q:" + each for each in (b"1", b"meta", b"wait", b"2", b"1", b"1:logs", b"metrics:failed", b"dn:d", b"")
    ]
    server = Server((b"17", named), (b"9", [b"bull:q:wait"]), (b"0", []))
    plan: Any = RemoveOrphans(count=50)
    values: list[int] = []
    while plan is not None:
        page = run(plan.page(K), server)
        values.append(page.value)
        plan = page.rest
    assert values == [2, 0, 0]
    scan, stamps, sweep = server.asked[:3]
    assert (scan.name, scan.args) == ("SCAN", ("0", "MATCH", "bull:q:*", "COUNT", 50))
    assert [each.keys[0] for each in stamps.commands] == [f"bull:q:{each}" for each in ("1", "meta", "wait", "2")]
    assert stamps.commands[0] == stamp("1")
    assert sweep == cleaning.remove_orphaned_jobs(K, ["1", "2"])
    strange = next(RemoveOrphans().page(QueueKeys.of("a*[b]-?", prefix="x\\^")))
    assert strange.args[2] == r"x\\\^:a\*\[b\]\-\?:*"
    with pytest.raises(UnexpectedReply):
        strange.decode([b"0"])
    with pytest.raises(UsageError, match="count"):
        next(RemoveOrphans(count=0).page(K))


def test_the_sweep_of_a_cluster_goes_to_the_node_of_the_queue() -> None:
    page = RemoveOrphans(in_cluster=True).page(K)
    asked = next(page)
    assert isinstance(asked, Batch) and asked.atomic
    assert [(each.name, each.keys) for each in asked.commands] == [("HGET", (K.meta,)), ("SCAN", ())]
    stamps = page.send([None, [b"0", [b"bull:q:1"]]])
    assert isinstance(stamps, Batch) and not stamps.atomic
    sweep = page.send([b"5"])
    assert sweep == cleaning.remove_orphaned_jobs(K, ["1"], in_cluster=True)
    assert isinstance(sweep, Command) and {K.base, K.wait, K.active, K.delayed} <= set(sweep.keys)
    page = RemoveOrphans(in_cluster=True).page(K)
    next(page)
    with pytest.raises(ServerError, match="TRYAGAIN"):
        page.send([None, ServerError("TRYAGAIN later")])
