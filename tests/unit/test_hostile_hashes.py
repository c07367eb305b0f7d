"""What other programs may have stored, case by case, and what the machine does about a fault of its own."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from bullmq_protocol.commands.fetching import due_of
from bullmq_protocol.commands.locks import extend_locks
from bullmq_protocol.common.codec import MAX_SAFE_INTEGER, clean_text, double, doubles, pack_known
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.backoff import Backoff, backoff_delay, limit_delay
from bullmq_protocol.model.cron import CronError, parse_cron
from bullmq_protocol.model.failure import Fail, Failure, Retry, failure_of, stacktrace_json
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.model.options import JobOptions, KeepJobs, stored, validate
from bullmq_protocol.model.schedule import next_iteration, number_of
from bullmq_protocol.worker import _fetching, _running, _upkeep
from bullmq_protocol.worker._contact import Contact
from bullmq_protocol.worker._fetching import Fetching
from bullmq_protocol.worker._running import Running
from bullmq_protocol.worker._shared import Shared
from bullmq_protocol.worker._upkeep import Upkeep
from bullmq_protocol.worker.events import CloseRequested, JobRaised, JobReturned, Tick
from bullmq_protocol.worker.notices import HandlerAbandoned, JobCompleted, JobFailed, StalledCheckSkipped, WorkerProblem
from bullmq_protocol.worker.outcome import Finishing, keep_jobs
from tests.support.decisions import decided
from tests.support.machine_bench import KEYS, NO_JOB, START, Bench, job_reply

MAX = "1.7976931348623157e+308"
HUGE = 10**400


def busy(fields: dict[str, str] | None = None, **options: Any) -> Bench:
    bench = Bench(skip_stalled_check=True, **options)
    bench.reply("moveToActive", job_reply("1", **(fields or {})))
    return bench


def finish(bench: Bench) -> Any:
    return msgspec.msgpack.decode(bench.call("moveToFinished").command.args[7])


# --- values


@pytest.mark.parametrize(
    ("value", "held"),
    [(2**53 - 1, 2**53 - 1), (2**53 + 1, 2.0**53), (HUGE, math.inf), (-HUGE, -math.inf), (0.5, 0.5), (1e308, 1e308)],
)
def test_numbers_are_held_as_javascript_holds_them(value: Any, held: Any) -> None:
    assert double(value) == held
    assert doubles({"a": [value, True, None, "x"]}) == {"a": [held, True, None, "x"]}


def test_text_that_utf8_cannot_hold_becomes_a_replacement() -> None:
    assert clean_text("é\udcff\ud800") == "é��"
    assert clean_text("plain") == "plain"


def test_ids_that_are_no_utf8_go_as_their_bytes() -> None:
    command = extend_locks(KEYS, job_ids=["\udcff"], tokens=["t"], lock_ms=1)
    assert b"\xdb\x00\x00\x00\x01\xff" in bytes(command.args[2])
    with pytest.raises(UsageError, match="lone surrogates"):
        pack_known(["\ud800"])


@pytest.mark.parametrize(
    ("score", "due"), [(1.9, 1), (math.inf, None), (-math.inf, None), (math.nan, None), (1e300, None)]
)
def test_moment_of_a_marker(score: float, due: int | None) -> None:
    assert due_of(score) == due


@pytest.mark.parametrize(
    ("text", "attempts"),
    [("10000000000000000", 1e16), (MAX, 1.7976931348623157e308), ("9" * 400, 0), ("1e400", 0), ('"3"', 0), ("2.0", 2)],
)
def test_attempts_of_another_program(text: str, attempts: float) -> None:
    job = JobRecord.from_fields("1", {"opts": f'{{"attempts":{text}}}'.encode()})
    assert job.attempts == attempts


@pytest.mark.parametrize(
    ("option", "kept"),
    [
        (MAX, {"count": -1}),
        ("-5", {"count": -1}),
        ("1.5", {"count": 2}),
        ("0.5", {"count": 1}),
        ("0", {"count": 0}),
        ("3", {"count": 3}),
        ('{"age":1e300}', {"age": 1e300}),
        ('{"age":1e400}', {}),
        (f'{{"count":{"9" * 400},"age":5}}', {"age": 5}),
        (f'{{"count":{MAX},"age":5,"x":[1]}}', {"count": -1, "age": 5}),
        ('{"count":"x"}', {}),
        ("{}", {}),
        ('"x"', {"count": 7}),
        ("null", {"count": 7}),
    ],
)
def test_retention_of_another_program(option: str, kept: dict[str, Any]) -> None:
    job = JobRecord.from_fields("1", {"opts": f'{{"removeOnFail":{option}}}'.encode()})
    assert keep_jobs(job.opts.remove_on_fail, KeepJobs(count=7)) == kept


@pytest.mark.parametrize("completed", [True, False])
def test_the_workers_own_retention_is_that_of_the_outcome(completed: bool) -> None:
    settings = Bench(remove_on_complete=KeepJobs(count=3), remove_on_fail=KeepJobs(count=5)).settings
    options = Finishing(settings).options(JobRecord("1", {}), "t", completed=completed)
    assert msgspec.msgpack.decode(options.packed())["keepJobs"] == {"count": 3 if completed else 5}
    own = JobRecord("1", {"opts": b'{"removeOnComplete":1,"removeOnFail":2}'})
    options = Finishing(settings).options(own, "t", completed=completed)
    assert msgspec.msgpack.decode(options.packed())["keepJobs"] == {"count": 1 if completed else 2}


# --- retries


@pytest.mark.parametrize("delay", [math.nan, -math.inf, math.inf, HUGE, -5.5, 0])
def test_a_delay_is_finite_and_a_number(delay: float) -> None:
    for jitter in (None, 0.2):
        found = limit_delay(delay, roll=0.3, max_delay_ms=None, extra_jitter=jitter)
        assert -MAX_SAFE_INTEGER <= found <= MAX_SAFE_INTEGER
    assert limit_delay(math.nan, roll=0.3, max_delay_ms=5, extra_jitter=None) == 0


def test_jitter_beyond_all_measure_retries_at_once() -> None:
    assert backoff_delay(Backoff("fixed", 10, 1e308), 1, roll=0.3) == 0


@pytest.mark.parametrize("attempt", [0, -1, True, 1.5])
def test_attempts_begin_with_one(attempt: Any) -> None:
    with pytest.raises(UsageError, match="attempt: must be"):
        backoff_delay(1000, attempt, roll=0.0)


@pytest.mark.parametrize("atm", ["-5", "-" + "9" * 308, "9" * 309])
def test_any_count_of_attempts_made(atm: str) -> None:
    options = f'{{"attempts":{MAX},"backoff":{{"type":"exponential","delay":100}}}}'
    job = JobRecord("1", {"opts": options.encode(), "atm": atm.encode()})
    assert isinstance(decided(job, Failure(message="m"), roll=0.0), Fail if atm[0] == "9" else Retry)


@pytest.mark.parametrize(
    ("backoff", "delay"),
    [
        (Backoff("exponential", 1000, max_delay=3_000), 3_000),
        (Backoff("exponential", 1000, max_delay=5_000), 4_000),
        (Backoff("fixed", 1000, max_delay=10), 10),
        (Backoff("fixed", 1000, 0.5, max_delay=700), 500),
        (Backoff("fixed", 1000, max_delay=-1), 1000),
    ],
)
def test_a_job_caps_its_own_backoff(backoff: Backoff, delay: float) -> None:
    assert backoff_delay(backoff, 3, roll=0.0) == delay


def test_the_jobs_cap_holds_for_a_strategy_too() -> None:
    job = JobRecord("1", {"opts": b'{"attempts":3,"backoff":{"type":"mine","maxDelay":70}}'})
    assert job.opts.backoff == Backoff("mine", max_delay=70)
    for answer in (900, HUGE, math.inf):
        assert decided(job, Failure(message="m"), roll=0.0, strategy_delay_ms=answer) == Retry(70)


def test_the_jobs_cap_is_stored_and_checked() -> None:
    options = JobOptions(attempts=2, backoff=Backoff("fixed", 1000, max_delay=50))
    assert stored(options)["backoff"] == {"type": "fixed", "delay": 1000, "maxDelay": 50}
    assert validate(options) == []
    with pytest.raises(UsageError, match=r"backoff\.max_delay: must be"):
        validate(JobOptions(backoff=Backoff("fixed", 1000, max_delay=0)))


# --- what is stored of an exception


class _Code(Exception):
    def __str__(self) -> str:
        return "0"


class _Spoken(KeyError):
    def __str__(self) -> str:
        return "no such account"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no such account"), "no such account"),
        (ValueError(""), "ValueError"),
        (ValueError(), "ValueError"),
        (KeyError("k"), "KeyError: 'k'"),
        (KeyError("k", "l"), "('k', 'l')"),
        (ValueError("0"), "ValueError: 0"),
        (ValueError(0), "ValueError: 0"),
        (ValueError(None), "ValueError: None"),
        (ValueError(ValueError("inner")), "ValueError: inner"),
        (ValueError("404 not found"), "404 not found"),
        (ValueError("ошибка"), "ошибка"),
        (ValueError("..."), "ValueError: ..."),
        (OSError(2, "No such file"), "[Errno 2] No such file"),
        (_Code(), "_Code: 0"),
        (_Spoken("k"), "no such account"),
        (ValueError("a", 1), "('a', 1)"),
    ],
)
def test_reason_of_a_failure(error: Exception, reason: str) -> None:
    assert failure_of(error).message == reason


@pytest.mark.parametrize("old", ["[99999999999999999999]", "[1e999]", "[" * 900 + "]" * 900, '["\udcff"]', "{bad", "7"])
def test_old_stack_traces_of_another_program(old: str) -> None:
    rows = msgspec.json.decode(stacktrace_json(old, "new"))
    assert rows[-1] == "new"
    if old == '["\udcff"]':
        assert rows[0] == "�"


# --- schedules


def test_numbers_of_a_stored_rule() -> None:
    assert number_of(HUGE) is None
    assert number_of(True) is None
    assert number_of("1") is None
    assert number_of(2**60) == 2.0**60
    assert next_iteration({"count": 1e300}, now=START, end=None) == 1e300


def test_a_hexadecimal_number_without_end_in_a_pattern() -> None:
    with pytest.raises(CronError):
        parse_cron("0x" + "f" * 400 + " * * * *")


@pytest.mark.parametrize("every", ["1e300", MAX, "5e-324"])
def test_a_slot_that_never_comes_ends_the_schedule(every: str) -> None:
    bench = busy({"opts": f'{{"repeat":{{"every":{every},"key":"k"}}}}'})
    assert len(bench.handlers) == 1


@pytest.mark.parametrize("opts", ["{bad", "[1]", "7", "", '{"repeat":{"pattern":"0x' + "f" * 400 + ' * * * *"}}'])
def test_a_schedule_that_cannot_be_followed_is_put_back(opts: str) -> None:
    bench = busy({"opts": opts, "rjk": "s", "ats": "-" + "9" * 308})
    assert bench.call("moveToDelayed").command.args[4] == "1.953125"
    assert bench.said(WorkerProblem)[0].exception is None


def test_a_second_command_that_cannot_be_made_puts_the_job_back() -> None:
    bench = busy({"opts": '{"x":"\\ud800","repeat":{"every":1000,"key":"k"}}'})
    bench.reply("updateRepeatableJobMillis", b"k")
    assert bench.has("moveToDelayed")
    assert "the job was delayed" in bench.said(WorkerProblem)[0].message


def test_a_name_that_is_no_utf8_goes_on_in_the_next_job() -> None:
    bench = Bench(skip_stalled_check=True)
    reply = job_reply("1", opts='{"repeat":{"every":1000,"key":"k"}}')
    reply[0][1] = b"\xff"
    bench.reply("moveToActive", reply)
    bench.reply("updateRepeatableJobMillis", b"k")
    added = bench.call("addDelayedJob").command
    assert msgspec.msgpack.decode(added.args[0])[2] == "�"


# --- the machine


def test_a_deferred_failure_that_is_no_utf8() -> None:
    bench = Bench(skip_stalled_check=True)
    reply = job_reply("1")
    reply[0] += [b"defa", b"bad \xff\xfe"]
    bench.reply("moveToActive", reply)
    assert bench.call("moveToFinished").command.args[3] == "bad ��"


def test_what_a_driver_tells_of_a_failure_is_cleaned() -> None:
    bench = busy({"opts": '{"attempts":2,"backoff":{"type":"mine"}}'})
    failure = failure_of(ValueError("m"))
    bench.handlers.clear()
    bench.tell(JobRaised(1, failure, roll=0.0, strategy_error="\ud800", telemetry="\ud800"))
    command = bench.call("moveToFinished").command
    assert command.args[3] == "�"
    assert msgspec.msgpack.decode(command.args[8])[-2:] == ["tm", "�"]


def test_a_marker_for_ever_is_nothing_to_wait_for() -> None:
    bench = Bench(skip_stalled_check=True)
    bench.reply("moveToActive", NO_JOB)
    bench.marker([b"k", b"1", b"inf"])
    assert bench.machine.snapshot().next_due_at is None
    assert bench.wait is not None


def test_a_snapshot_of_hostile_jobs_can_be_encoded() -> None:
    bench = Bench(skip_stalled_check=True)
    reply = job_reply("1", ats="9" * 308)
    reply[0][1], reply[1] = b"\xff", b"\xfe"
    bench.reply("moveToActive", reply)
    held = msgspec.json.decode(msgspec.json.encode(bench.machine.snapshot()))["held"][0]
    assert (held["id"], held["name"], held["attempt"]) == ("�", "�", MAX_SAFE_INTEGER)


# --- faults of our own


def plant(monkeypatch: pytest.MonkeyPatch, name: str, times: int = 100) -> list[int]:
    """Let a method of a part of the machine, or a function that it calls, raise this many times."""
    left = [times]
    holders: tuple[Any, ...] = (Fetching, Running, Upkeep, Contact, _fetching, _running, _upkeep)
    holder = next(each for each in holders if hasattr(each, name))
    real = getattr(holder, name)

    def broken(*args: Any, **options: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise LookupError("planted")
        return real(*args, **options)

    monkeypatch.setattr(holder, name, broken)
    return left


def faults(bench: Bench) -> list[str]:
    return [notice.message for notice in bench.said(WorkerProblem) if notice.exception is not None]


def test_elsewhere_a_fault_is_loud(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "schedule_of")
    with pytest.raises(LookupError, match="planted"):
        busy()


@pytest.mark.contained
def test_a_job_that_cannot_be_begun_fails_with_its_own_options(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "schedule_of", 1)
    bench = busy({"opts": '{"attempts":5,"removeOnFail":3}'})
    assert finish(bench)["keepJobs"] == {"count": 3}
    command = bench.call("moveToFinished").command
    assert command.args[3:5] == ("the worker met a fault of its own: LookupError: planted", "failed")
    bench.reply("moveToFinished", job_reply("2"))
    assert bench.said(JobFailed)[0].permanent
    assert [run.job.id for run in bench.handlers.values()] == ["2"]
    assert faults(bench) == ["the worker met a fault of its own: LookupError: planted"]
    assert bench.said(WorkerProblem)[0].job_id == "1"


@pytest.mark.contained
def test_a_report_that_cannot_be_made_is_one_that_holds_nothing_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = busy({"opts": '{"removeOnFail":3,"fpof":true}'})
    plant(monkeypatch, "failure_report")
    bench.handlers.clear()
    bench.tell(JobRaised(1, failure_of(ValueError("m")), roll=0.0))
    packed = finish(bench)
    assert (packed["keepJobs"], packed["fpof"]) == ({"count": -1}, False)
    assert bench.call("moveToFinished").command.args[5] == "0"
    bench.reply("moveToFinished", 0)
    assert bench.said(JobFailed)
    assert bench.machine.running_jobs == 0


@pytest.mark.contained
def test_a_report_that_cannot_be_made_at_all_is_left_to_the_stalled_check(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = busy()
    plant(monkeypatch, "failure_report")
    plant(monkeypatch, "plain_failure")
    bench.handlers.clear()
    bench.tell(JobRaised(1, failure_of(ValueError("m")), roll=0.0))
    assert bench.machine.running_jobs == 0
    assert len(faults(bench)) == 3
    assert bench.has("moveToActive")


@pytest.mark.contained
def test_a_lost_job_is_not_reported_for_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = busy()
    bench.tick()
    bench.reply("extendLocks", [b"1"])
    plant(monkeypatch, "_drop_lost", 1)
    bench.returned("1")
    assert bench.machine.running_jobs == 0
    assert not bench.has("moveToFinished")


@pytest.mark.contained
def test_a_running_job_is_let_go_where_it_cannot_be_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = busy(concurrency=2)
    bench.reply("moveToActive", job_reply("2"))
    plant(monkeypatch, "move_job_from_active_to_wait", 1)
    bench.close(force=True)
    assert bench.said(HandlerAbandoned)[0].job.id == "1"
    # The other one is given back all the same.
    bench.reply("moveJobFromActiveToWait", 0)
    assert bench.stopped is not None


@pytest.mark.contained
def test_a_job_whose_call_is_under_way_is_settled_by_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = busy({"rjk": "s", "opts": '{"repeat":{"every":1000}}'})
    real = Shared.call

    def broken(*args: Any, **options: Any) -> None:
        real(*args, **options)
        raise LookupError("planted")

    bench.reply("updateJobScheduler", 5)
    assert bench.has("moveToDelayed") or len(bench.handlers) == 1
    bench = Bench(skip_stalled_check=True)
    monkeypatch.setattr(Shared, "call", broken)
    bench.reply("moveToActive", job_reply("1", rjk="s", opts='{"repeat":{"every":1000}}'))
    monkeypatch.undo()
    assert faults(bench)
    bench.reply("updateJobScheduler", None)
    assert len(bench.handlers) == 1


@pytest.mark.contained
@pytest.mark.parametrize(
    ("method", "call", "answer"),
    [
        ("marked", None, [b"k", b"0", b"0"]),
        ("renewed", "extendLocks", []),
        ("restored", "PING", b"PONG"),
        ("stalled_check_ttl", "moveStalledJobsToWait", []),
        ("begin", "moveToActive", NO_JOB),
        ("moved", "moveJobFromActiveToWait", 0),
    ],
)
def test_an_answer_that_cannot_be_handled_leaves_nothing_under_way(
    monkeypatch: pytest.MonkeyPatch, method: str, call: str | None, answer: Any
) -> None:
    bench = Bench(skip_stalled_check=method != "stalled_check_ttl")
    if method != "begin":
        bench.reply("moveToActive", NO_JOB if call is None else job_reply("1"))
    if method in ("renewed", "restored"):
        bench.tick()
    if method == "restored":
        bench.lose("extendLocks")
        bench.tick()
    if method == "moved":
        bench.close(force=True)
    plant(monkeypatch, method, 1)
    if call is None:
        bench.marker(answer)
    else:
        bench.reply(call, answer)
    assert len(faults(bench)) == 1
    # It goes on, and comes to its end.
    for _ in range(12):
        bench.mono += 6_000
        bench.tell(Tick(0.5))
        for pending in list(bench.calls.values()):
            name = pending.command.name
            bench.reply(name, [] if name in ("moveStalledJobsToWait", "extendLocks") else 0)
    if bench.stopped is None:
        bench.tell(CloseRequested())
        for run in list(bench.handlers):
            del bench.handlers[run]
            bench.tell(JobReturned(run, "null"))
        while bench.stopped is None:
            if bench.wait is not None:
                bench.end_wait()
            for pending in list(bench.calls.values()):
                name = pending.command.name
                bench.reply(name, [] if name in ("moveStalledJobsToWait", "extendLocks") else 0)
            bench.mono += 40_000
            bench.tell(Tick(0.5))
    assert bench.stopped.error is None


def unreadable(bench: Bench, name: str) -> None:
    """Answer a call with what its own decoder breaks over, before anything of it is noted."""

    def broken(_: object) -> Any:
        raise LookupError("planted")

    wait = bench.wait if name == "BZPOPMIN" else None
    ticket = bench.call(name).ticket if wait is None else wait.ticket
    msgspec.structs.force_setattr(bench.machine._shared.pending[ticket].command, "decode", broken)
    if wait is not None:
        bench.marker(None)
    else:
        bench.reply(name, None)


@pytest.mark.contained
def test_a_fetch_whose_answer_is_unreadable_is_made_again_ever_later() -> None:
    bench = Bench(skip_stalled_check=True)
    for wait in (100, 200, 400, 800):
        unreadable(bench, "moveToActive")
        assert not bench.has("moveToActive")
        assert bench.machine.deadline() == bench.mono + wait
        bench.tick()
    bench.reply("moveToActive", NO_JOB)
    assert bench.wait is not None
    assert len(faults(bench)) == 4


@pytest.mark.contained
def test_a_wait_whose_answer_is_unreadable_is_over() -> None:
    """It may have brought a marker, so that it is looked for jobs."""
    bench = Bench(skip_stalled_check=True)
    bench.reply("moveToActive", NO_JOB)
    unreadable(bench, "BZPOPMIN")
    bench.reply("moveToActive", NO_JOB)
    assert bench.wait is not None


@pytest.mark.contained
def test_a_renewal_whose_answer_is_unreadable_is_made_again() -> None:
    bench = busy()
    bench.tick()
    unreadable(bench, "extendLocks")
    assert bench.machine.deadline() is not None and not bench.has("extendLocks")
    bench.tick()
    assert bench.has("extendLocks")


@pytest.mark.contained
@pytest.mark.parametrize("call", ["moveStalledJobsToWait", "PTTL"])
def test_a_stalled_check_whose_answer_is_unreadable_is_made_again(call: str) -> None:
    bench = Bench()
    bench.reply("moveToActive", NO_JOB)
    if call == "PTTL":
        bench.reply("moveStalledJobsToWait", [])
    unreadable(bench, call)
    assert bench.machine.deadline() == bench.mono + 5_000
    bench.tick()
    assert bench.has("moveStalledJobsToWait")
    assert bench.said(StalledCheckSkipped) == []


@pytest.mark.contained
def test_a_probe_whose_answer_is_unreadable_is_made_again() -> None:
    bench = busy()
    bench.tick()
    bench.lose("extendLocks")
    bench.tick()
    unreadable(bench, "PING")
    assert bench.machine.deadline() == bench.mono + 100
    bench.tick()
    bench.reply("PING", b"PONG")
    assert bench.machine.word == "running"


@pytest.mark.contained
def test_a_tick_that_cannot_be_handled_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = busy()
    plant(monkeypatch, "renew", 1)
    bench.mono += 10_000
    bench.tell(Tick(0.5))
    deadline = bench.machine.deadline()
    assert faults(bench) and deadline is not None and deadline > bench.mono
    bench.mono = deadline
    bench.tell(Tick(0.5))
    assert bench.has("extendLocks")


@pytest.mark.contained
def test_a_stalled_check_that_cannot_be_made_is_made_later(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.settle_stalled()
    plant(monkeypatch, "check_stalled", 1)
    bench.mono += 40_000
    bench.tell(Tick(0.5))
    deadline = bench.machine.deadline()
    assert faults(bench) and deadline is not None and deadline > bench.mono


@pytest.mark.contained
def test_a_report_that_goes_out_again_after_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = busy()
    bench.returned("1")
    bench.lose("moveToFinished")
    plant(monkeypatch, "_resume", 1)
    bench.tick()
    bench.reply("PING", b"PONG")
    # What was to go out again counts as failed.
    assert bench.call("moveToFinished").command.args[4] == "failed"
    bench.reply("moveToFinished", 0)
    assert not bench.said(JobCompleted)
