"""Each builder puts on the wire what the specification says, and its decoder reads each reply."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.commands import (
    _shared,
    adding,
    cleaning,
    fetching,
    finishing,
    getters,
    jobs,
    locks,
    moving,
    queues,
    schedulers,
    settings,
)
from bullmq_protocol.commands.fetching import NOTHING, Fetched, Limiter
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import (
    ChildFailed,
    JobBelongsToScheduler,
    JobNotFound,
    LockMismatch,
    LockMissing,
    ParentNotFound,
    ParentNotReplaceable,
    PendingChildren,
    UnexpectedReply,
    WrongState,
)
from bullmq_protocol.model.job import NewJob, prepare
from bullmq_protocol.model.options import JobOptions, ParentRef
from bullmq_protocol.scripts._lua import OUR_SCRIPTS, SCRIPTS

K = QueueKeys.of("q")
NOW = 1_700_000_000_000


def keys(*names: str) -> tuple[str, ...]:
    return tuple(f"bull:q:{name}" for name in names)


def plain(**options: Any) -> Any:
    return prepare(K, NewJob("n", {}, JobOptions(**options)), now_ms=NOW)


FINISH = finishing.FinishOptions(token="tk", keep_jobs={"count": -1}, lock_ms=30_000)

SCHEDULER_KEYS = ("repeat", "delayed", "wait", "paused", "meta", "prioritized", "marker", "id", "events", "pc")

EVERY = schedulers.Schedule(name="jn", every=60000)
OLD_EVERY = schedulers.RepeatableKey(name="jn", rule="60000")
OLD_CRON = schedulers.RepeatableKey(
    name="jn", job_id="cust", end_date=1893456000000, tz="Europe/London", rule="0 0 1 1 *"
)

MOVE_KEYS = ("wait", "active", "prioritized", "events", "stalled", "limiter", "delayed", "paused", "meta", "pc")

WIRE: list[tuple[Command[Any], tuple[str, ...], tuple[Any, ...], Repeat]] = [
    (
        adding.add_job(K, plain()),
        keys("wait", "paused", "meta", "id", "completed", "delayed", "active", "events", "marker"),
        (plain().head, "{}", plain().packed_options),
        Repeat.UNSAFE,
    ),
    (
        adding.add_job(K, plain(delay=5, job_id="mine")),
        keys("marker", "meta", "id", "delayed", "completed", "events"),
        (plain(delay=5, job_id="mine").head, "{}", plain(delay=5, job_id="mine").packed_options),
        Repeat.GUARDED,
    ),
    (
        adding.add_job(K, plain(priority=5)),
        keys("marker", "meta", "id", "prioritized", "delayed", "completed", "active", "events", "pc"),
        (plain(priority=5).head, "{}", plain(priority=5).packed_options),
        Repeat.UNSAFE,
    ),
    (
        adding.add_job(K, prepare(K, NewJob("n"), now_ms=NOW, has_children=True)),
        keys("meta", "id", "delayed", "waiting-children", "completed", "events"),
        (plain().head, "{}", plain().packed_options),
        Repeat.UNSAFE,
    ),
    (
        finishing.move_to_finished(K, "7", outcome="completed", value="1", now=NOW, options=FINISH, fetch_next=True),
        keys(*MOVE_KEYS, "completed", "7", "metrics:completed", "marker"),
        ("7", NOW, "returnvalue", "1", "completed", "1", "bull:q:", FINISH.packed(), ""),
        Repeat.GUARDED,
    ),
    (
        finishing.move_to_finished(
            K,
            "7",
            outcome="failed",
            value="boom",
            now=NOW,
            options=FINISH,
            fetch_next=False,
            fields=finishing.failure_fields("boom", "[]"),
        ),
        keys(*MOVE_KEYS, "failed", "7", "metrics:failed", "marker"),
        (
            "7",
            NOW,
            "failedReason",
            "boom",
            "failed",
            "0",
            "bull:q:",
            FINISH.packed(),
            bytes.fromhex("94ac6661696c6564526561736f6ea4626f6f6daa737461636b7472616365a25b5d"),
        ),
        Repeat.GUARDED,
    ),
    (
        finishing.retry_job(K, "7", token="tk", now=NOW),
        keys("active", "wait", "paused", "7", "meta", "events", "delayed", "prioritized", "pc", "marker", "stalled"),
        ("bull:q:", NOW, "LPUSH", "7", "tk", ""),
        Repeat.GUARDED,
    ),
    (
        finishing.move_to_delayed(K, "7", token="tk", now=NOW, delay=100.7, count_attempt=True),
        keys("marker", "active", "prioritized", "delayed", "7", "events", "meta", "stalled"),
        ("bull:q:", NOW, "7", "tk", "100.7", "0", ""),
        Repeat.GUARDED,
    ),
    (
        finishing.move_job_from_active_to_wait(K, "7", token="tk"),
        keys("active", "wait", "stalled", "paused", "meta", "limiter", "prioritized", "marker", "events"),
        ("7", "tk", "bull:q:7"),
        Repeat.GUARDED,
    ),
    (locks.extend_lock(K, "7", token="tk", lock_ms=5), keys("7:lock", "stalled"), ("tk", 5, "7"), Repeat.SAFE),
    (
        locks.extend_locks(K, job_ids=["1", "2"], tokens=["tk", "tk2"], lock_ms=5),
        keys("stalled"),
        ("bull:q:", bytes.fromhex("92a2746ba3746b32"), bytes.fromhex("92a131a132"), 5),
        Repeat.SAFE,
    ),
    (locks.release_lock(K, "7", token="tk"), keys("7:lock"), ("tk", 0), Repeat.SAFE),
    (
        locks.move_stalled_jobs_to_wait(K, max_stalled_count=1, now=NOW, interval_ms=30_000),
        keys("stalled", "wait", "active", "stalled-check", "meta", "paused", "marker", "events"),
        (1, "bull:q:", NOW, 30_000),
        Repeat.SAFE,
    ),
    (
        schedulers.update_job_scheduler(
            K, "s", producer_id="repeat:s:5", data_text="{}", packed_options=b"\x80", now=NOW
        ),
        keys(
            "repeat",
            "delayed",
            "wait",
            "paused",
            "meta",
            "prioritized",
            "marker",
            "id",
            "events",
            "pc",
            "repeat:s:5",
            "active",
        ),
        ("", "s", "{}", b"\x80", NOW, "bull:q:", "repeat:s:5"),
        Repeat.GUARDED,
    ),
    (
        schedulers.update_job_scheduler(
            K, "s", producer_id="x", data_text="{}", packed_options=b"\x80", now=NOW, next_at=NOW + 5
        ),
        keys(
            "repeat",
            "delayed",
            "wait",
            "paused",
            "meta",
            "prioritized",
            "marker",
            "id",
            "events",
            "pc",
            "x",
            "active",
        ),
        (NOW + 5, "s", "{}", b"\x80", NOW, "bull:q:", "x"),
        Repeat.GUARDED,
    ),
    (jobs.get_job(K, "7"), keys("7"), (), Repeat.SAFE),
    (
        jobs.get_state(K, "7"),
        keys("completed", "failed", "delayed", "active", "wait", "paused", "waiting-children", "prioritized"),
        ("7",),
        Repeat.SAFE,
    ),
    (
        jobs.get_state_v1(K, "7"),
        keys("completed", "failed", "delayed", "active", "wait", "paused", "waiting-children", "prioritized"),
        ("7",),
        Repeat.SAFE,
    ),
    (jobs.is_finished(K, "7"), keys("completed", "failed", "7"), ("7", "1"), Repeat.SAFE),
    (jobs.update_progress(K, "7", "50"), keys("7", "events", "meta"), ("7", "50"), Repeat.UNSAFE),
    (jobs.update_data(K, "7", "{}"), keys("7"), ("{}",), Repeat.SAFE),
    (jobs.add_log(K, "7", "row"), keys("7", "7:logs"), ("7", "row", ""), Repeat.UNSAFE),
    (jobs.add_log(K, "7", "row", keep_logs=3), keys("7", "7:logs"), ("7", "row", 3), Repeat.UNSAFE),
    (jobs.save_stacktrace(K, "7", "[]", "boom"), keys("7"), ("[]", "boom"), Repeat.SAFE),
    (jobs.remove_job(K, "7"), keys("7", "repeat"), ("7", "1", "bull:q:"), Repeat.SAFE),
    (jobs.remove_job(K, "7", remove_children=False), keys("7", "repeat"), ("7", "0", "bull:q:"), Repeat.SAFE),
    (queues.get_counts(K, ["wait", "active"]), ("bull:q:",), ("wait", "active"), Repeat.SAFE),
    (
        queues.pause(K),
        keys("wait", "paused", "meta", "prioritized", "events", "delayed", "marker"),
        ("paused",),
        Repeat.UNSAFE,
    ),
    (
        queues.resume(K),
        keys("paused", "wait", "meta", "prioritized", "events", "delayed", "marker"),
        ("resumed",),
        Repeat.UNSAFE,
    ),
    (queues.is_paused(K), keys("meta"), ("paused",), Repeat.SAFE),
    (queues.is_maxed(K), keys("meta", "active"), (), Repeat.SAFE),
    (queues.get_rate_limit_ttl(K), keys("limiter", "meta"), ("0",), Repeat.SAFE),
    (queues.get_rate_limit_ttl(K, 5), keys("limiter", "meta"), (5,), Repeat.SAFE),
    (queues.obliterate_page(K, count=9, force=True), ("bull:q:meta", "bull:q:"), (9, "force"), Repeat.UNSAFE),
    (queues.obliterate_page(K, count=9, force=False), ("bull:q:meta", "bull:q:"), (9, ""), Repeat.UNSAFE),
    (
        queues.write_meta(K, max_len_events=100, version="x:1"),
        keys("meta"),
        ("opts.maxLenEvents", 100, "version", "x:1"),
        Repeat.SAFE,
    ),
    (queues.get_version(K), keys("meta"), ("version",), Repeat.SAFE),
    (queues.ping(), (), (), Repeat.SAFE),
    (fetching.wait_for_marker(K, block_ms=1500), keys("marker"), ("1.5",), Repeat.UNSAFE),
    (fetching.put_marker(K), keys("marker"), (0, "0"), Repeat.SAFE),
    (fetching.rate_limit(K, ttl_ms=50), keys("limiter"), (9007199254740991, "PX", 50), Repeat.SAFE),
    (fetching.stalled_check_ttl(K), keys("stalled-check"), (), Repeat.SAFE),
    (
        moving.move_to_waiting_children(K, "7", token="tk", now=NOW),
        keys("active", "waiting-children", "7", "7:dependencies", "7:unsuccessful", "stalled", "events"),
        ("tk", "", NOW, "7", "bull:q:"),
        Repeat.GUARDED,
    ),
    (
        moving.move_to_waiting_children(K, "7", token="tk", now=NOW, child_key="bull:p:1"),
        keys("active", "waiting-children", "7", "7:dependencies", "7:unsuccessful", "stalled", "events"),
        ("tk", "bull:p:1", NOW, "7", "bull:q:"),
        Repeat.GUARDED,
    ),
    (
        moving.move_jobs_to_wait(K, state="failed", count=5, until=NOW),
        ("bull:q:", *keys("events", "failed", "wait", "paused", "meta", "active", "marker")),
        (5, NOW, "failed"),
        Repeat.UNSAFE,
    ),
    (
        moving.move_jobs_to_wait(K, state="delayed"),
        ("bull:q:", *keys("events", "delayed", "wait", "paused", "meta", "active", "marker")),
        (1000, "1.7976931348623157e+308", "delayed"),
        Repeat.UNSAFE,
    ),
    (
        moving.reprocess_job(K, "7", state="failed"),
        keys("7", "events", "failed", "wait", "meta", "paused", "active", "marker"),
        ("7", "LPUSH", "failedReason", "failed"),
        Repeat.GUARDED,
    ),
    (
        moving.reprocess_job(K, "7", state="completed", lifo=True),
        keys("7", "events", "completed", "wait", "meta", "paused", "active", "marker"),
        ("7", "RPUSH", "returnvalue", "completed"),
        Repeat.GUARDED,
    ),
    (
        moving.change_delay(K, "7", delay=0.5, now=NOW),
        keys("delayed", "meta", "marker", "events"),
        ("0.5", NOW, "7", "bull:q:7"),
        Repeat.UNSAFE,
    ),
    (
        moving.change_priority(K, "7", priority=3),
        keys("wait", "paused", "meta", "prioritized", "active", "pc", "marker"),
        (3, "bull:q:", "7", "0"),
        Repeat.UNSAFE,
    ),
    (
        moving.change_priority(K, "7", priority=0, lifo=True),
        keys("wait", "paused", "meta", "prioritized", "active", "pc", "marker"),
        (0, "bull:q:", "7", "1"),
        Repeat.UNSAFE,
    ),
    (
        moving.promote(K, "7"),
        keys("delayed", "wait", "paused", "meta", "prioritized", "active", "pc", "events", "marker"),
        ("bull:q:", "7"),
        Repeat.GUARDED,
    ),
    (
        cleaning.drain(K),
        keys("wait", "paused", "delayed", "prioritized", "repeat"),
        ("bull:q:", "0"),
        Repeat.UNSAFE,
    ),
    (
        cleaning.drain(K, delayed=True),
        keys("wait", "paused", "delayed", "prioritized", "repeat"),
        ("bull:q:", "1"),
        Repeat.UNSAFE,
    ),
    (
        cleaning.clean_jobs_in_set(K, "failed", until=NOW, limit=0),
        keys("failed", "events", "repeat"),
        ("bull:q:", str(NOW), 0, "failed"),
        Repeat.UNSAFE,
    ),
    (
        cleaning.clean_jobs_in_set(K, "wait", until=float("-inf"), limit=9),
        keys("wait", "events", "repeat"),
        ("bull:q:", "-Infinity", 9, "wait"),
        Repeat.UNSAFE,
    ),
    (
        cleaning.remove_child_dependency(K, "7", "bull:p:1"),
        ("bull:q:",),
        ("bull:q:7", "bull:p:1"),
        Repeat.GUARDED,
    ),
    (cleaning.remove_unprocessed_children(K, "7"), keys("7", "meta"), ("bull:q:", "7"), Repeat.SAFE),
    (cleaning.clear_logs(K, "7"), keys("7:logs"), (), Repeat.SAFE),
    (cleaning.clear_logs(K, "7", keep=3), keys("7:logs"), (-3, -1), Repeat.SAFE),
    (cleaning.trim_events(K, 100), keys("events"), ("MAXLEN", "~", 100), Repeat.SAFE),
    (cleaning.remove_deduplication_key(K, "d"), keys("de:d"), (), Repeat.SAFE),
    (cleaning.remove_rate_limit_key(K), keys("limiter"), (), Repeat.SAFE),
    (cleaning.remove_deprecated_priority_key(K), keys("priority"), (), Repeat.SAFE),
    (settings.set_global_concurrency(K, 3), keys("meta"), ("concurrency", 3), Repeat.SAFE),
    (settings.get_global_concurrency(K), keys("meta"), ("concurrency",), Repeat.SAFE),
    (settings.remove_global_concurrency(K), keys("meta"), ("concurrency",), Repeat.SAFE),
    (settings.set_global_rate_limit(K, 3, 500), keys("meta"), ("max", 3, "duration", 500), Repeat.SAFE),
    (settings.get_global_rate_limit(K), keys("meta"), ("max", "duration"), Repeat.SAFE),
    (settings.remove_global_rate_limit(K), keys("meta"), ("max", "duration"), Repeat.SAFE),
    (
        getters.get_counts_per_priority(K, [0, 5, 0]),
        keys("wait", "paused", "meta", "prioritized"),
        (0, 5),
        Repeat.SAFE,
    ),
    (
        getters.get_ranges(K, ["waiting", "failed"], start=1, end=2, ascending=True),
        ("bull:q:",),
        (1, 2, "1", "wait", "failed"),
        Repeat.SAFE,
    ),
    (getters.get_ranges(K, ["active"]), ("bull:q:",), (0, -1, "0", "active"), Repeat.SAFE),
    (getters.is_job_in_list(K.wait, "7"), keys("wait"), ("7",), Repeat.SAFE),
    (getters.is_in_list(K.active, "7"), keys("active"), ("7",), Repeat.SAFE),
    (getters.is_in_set(K.failed, "7"), keys("failed"), ("7",), Repeat.SAFE),
    (getters.get_metrics(K, "completed"), keys("metrics:completed", "metrics:completed:data"), (0, -1), Repeat.SAFE),
    (getters.get_metrics(K, "failed", end=9), keys("metrics:failed", "metrics:failed:data"), (0, 9), Repeat.SAFE),
    (
        getters.get_dependency_counts(K, "7"),
        keys("7:processed", "7:dependencies", "7:failed", "7:unsuccessful"),
        ("processed", "unprocessed", "ignored", "failed"),
        Repeat.SAFE,
    ),
    (
        getters.get_dependency_counts(K, "7", ["failed"]),
        keys("7:processed", "7:dependencies", "7:failed", "7:unsuccessful"),
        ("failed",),
        Repeat.SAFE,
    ),
    (getters.paginate(K.processed("7"), start=2), keys("7:processed"), (2, -1, 0, 0, 5), Repeat.SAFE),
    (
        getters.paginate(K.dependencies("7"), start=0, end=9, cursor=8, passed=100, max_scans=1, with_hashes=True),
        keys("7:dependencies"),
        (0, 9, 8, 100, 1, "1"),
        Repeat.SAFE,
    ),
    (getters.get_children_values(K, "7"), keys("7:processed"), (), Repeat.SAFE),
    (getters.get_ignored_failures(K, "7"), keys("7:failed"), (), Repeat.SAFE),
    (getters.scan_processed(K, "7"), keys("7:processed"), (0, "COUNT", 20), Repeat.SAFE),
    (getters.scan_unprocessed(K, "7", cursor=5), keys("7:dependencies"), (5, "COUNT", 20), Repeat.SAFE),
    (getters.scan_ignored(K, "7", count=3), keys("7:failed"), (0, "COUNT", 3), Repeat.SAFE),
    (getters.range_failed(K, "7", cursor=20), keys("7:unsuccessful"), (20, 39), Repeat.SAFE),
    (getters.get_deduplication_job_id(K, "d"), keys("de:d"), (), Repeat.SAFE),
    (
        schedulers.add_job_scheduler(
            K,
            "s",
            schedule=EVERY,
            data_text="{}",
            packed_template=b"\x80",
            packed_options=b"\x81\xa1a\x01",
            now=NOW,
        ),
        keys(*SCHEDULER_KEYS, "active"),
        ("", EVERY.packed(), "s", "{}", b"\x80", b"\x81\xa1a\x01", NOW, "bull:q:", ""),
        Repeat.UNSAFE,
    ),
    (
        schedulers.add_job_scheduler(
            K,
            "s",
            schedule=EVERY,
            data_text="{}",
            packed_template=b"\x80",
            packed_options=b"\x80",
            now=NOW,
            next_at=NOW + 5,
            producer_id="7",
        ),
        keys(*SCHEDULER_KEYS, "active"),
        (NOW + 5, EVERY.packed(), "s", "{}", b"\x80", b"\x80", NOW, "bull:q:", "bull:q:7"),
        Repeat.UNSAFE,
    ),
    (
        schedulers.remove_job_scheduler(K, "s"),
        keys("repeat", "delayed", "events"),
        ("s", "bull:q:"),
        Repeat.GUARDED,
    ),
    (schedulers.get_job_scheduler(K, "s"), keys("repeat"), ("s",), Repeat.SAFE),
    (schedulers.get_scheduler_slots(K), keys("repeat"), (0, -1, "WITHSCORES"), Repeat.SAFE),
    (schedulers.get_scheduler_slots(K, end=9, ascending=True), keys("repeat"), (0, 9, "WITHSCORES"), Repeat.SAFE),
    (schedulers.read_job_scheduler(K, "s"), keys("repeat:s"), (), Repeat.SAFE),
    (schedulers.count_job_schedulers(K), keys("repeat"), (), Repeat.SAFE),
    (
        schedulers.add_repeatable_job(K, OLD_CRON, schedulers.Schedule(name="jn", tz="UTC"), next_at=NOW),
        keys("repeat", "delayed"),
        (
            NOW,
            msgspec.msgpack.encode({"name": "jn", "endDate": None, "tz": "UTC", "pattern": None, "every": None}),
            "jn:cust:1893456000000:Europe/London:0 0 1 1 *",
            "c187b2cb4eae49ccdf8b4a87420a3e8b",
            "bull:q:",
        ),
        Repeat.SAFE,
    ),
    (
        schedulers.update_repeatable_job_millis(K, "m", "jn::::60000", next_at=NOW),
        keys("repeat"),
        (NOW, "m", "jn::::60000"),
        Repeat.SAFE,
    ),
    (
        schedulers.remove_repeatable(K, OLD_EVERY),
        keys("repeat", "delayed", "events"),
        (
            "repeat:e34263c43ed31540c22bddd83144b4a9:",
            "jn::::60000",
            "45058748743d4d95ccd17fd5fb7bcfb3",
            "bull:q:",
        ),
        Repeat.GUARDED,
    ),
    (
        schedulers.remove_repeatable_by_key(K, "jn::::60000"),
        keys("repeat", "delayed", "events"),
        ("repeat:e34263c43ed31540c22bddd83144b4a9:", "jn::::60000", "jn::::60000", "bull:q:"),
        Repeat.GUARDED,
    ),
    (
        schedulers.remove_repeatable_by_key(K, "s"),
        keys("repeat", "delayed", "events"),
        ("repeat:f2de56aad9c301528a50f59e7faa58c9:", "", "s", "bull:q:"),
        Repeat.GUARDED,
    ),
]


@pytest.mark.parametrize(("command", "names", "args", "repeat"), WIRE, ids=lambda value: getattr(value, "name", ""))
def test_wire(command: Command[Any], names: tuple[str, ...], args: tuple[Any, ...], repeat: Repeat) -> None:
    assert command.keys == names
    assert command.args == args
    assert command.repeat is repeat
    script = command.script
    if script is None:
        assert command.wire() == (*command.name.split(" "), *names, *args)
    else:
        assert {**SCRIPTS, **OUR_SCRIPTS}[command.name] is script
        assert script.keys == len(names)
        assert command.wire() == ("EVALSHA", script.sha1, len(names), *names, *args)
        assert command.wire(full_source=True)[:3] == ("EVAL", script.source, len(names))


def test_every_script_has_a_builder() -> None:
    """That of `moveToActive` has a test of its own below, those for several jobs have theirs in `test_batches.py`."""
    elsewhere = {"moveToActive", "addMany", "fetchMany", "finishMany"}
    assert {command.name for command, *_ in WIRE if command.script} | elsewhere == {*SCRIPTS, *OUR_SCRIPTS}


def test_move_to_active_packs_its_options() -> None:
    bare = fetching.move_to_active(K, token="tk", lock_ms=30_000, now=NOW)
    assert bare.keys == keys(*MOVE_KEYS, "marker")
    assert bare.args[:2] == ("bull:q:", NOW)
    assert msgspec.msgpack.decode(bare.args[2]) == {
        "token": "tk",
        "lockDuration": 30_000,
        "limiter": None,
        "name": None,
    }
    full = fetching.move_to_active(
        K, token="tk", lock_ms=30_000, now=NOW, limiter=Limiter(max=3, duration=1000), worker_name="w1"
    )
    assert list(msgspec.msgpack.decode(full.args[2])) == ["token", "lockDuration", "limiter", "name"]
    assert full.repeat is Repeat.UNSAFE and full.block_ms is None


def test_finish_options_keep_their_order_and_defaults() -> None:
    assert list(msgspec.msgpack.decode(FINISH.packed()).items()) == [
        ("token", "tk"),
        ("name", None),
        ("keepJobs", {"count": -1}),
        ("limiter", None),
        ("lockDuration", 30_000),
        ("attempts", 0),
        ("maxMetricsSize", ""),
        ("fpof", False),
        ("cpof", False),
        ("idof", False),
        ("rdof", False),
    ]
    limited = finishing.FinishOptions(token="t", keep_jobs={}, limiter=Limiter(max=1, duration=2), max_metrics_size=15)
    decoded = msgspec.msgpack.decode(limited.packed())
    assert decoded["limiter"] == {"max": 1, "duration": 2}
    assert decoded["maxMetricsSize"] == 15
    assert decoded["lockDuration"] is None


def test_failure_fields_leave_out_what_is_missing() -> None:
    assert finishing.failure_fields(None, "[]") == ("stacktrace", "[]")
    assert finishing.failure_fields("x", "[]", "trace") == ("failedReason", "x", "stacktrace", "[]", "tm", "trace")


def finish() -> Command[Fetched]:
    return finishing.move_to_finished(K, "7", outcome="completed", value="1", now=NOW, options=FINISH, fetch_next=True)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (-1, JobNotFound),
        (-2, LockMissing),
        (-3, WrongState),
        (-4, PendingChildren),
        (-6, LockMismatch),
        (-9, ChildFailed),
    ],
)
def test_move_to_finished_errors(code: int, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        finish().decode(code)
    assert caught.value.code == code  # type: ignore[attr-defined]
    assert "7" in str(caught.value)


@pytest.mark.parametrize("reply", [None, 0, [0, 0, 0, 0], []])
def test_no_job(reply: Any) -> None:
    assert finish().decode(reply) == NOTHING


def test_fetched_job() -> None:
    fetched = finish().decode([[b"name", b"n", b"ats", b"1"], b"8", 0, 0])
    assert fetched.job is not None
    assert (fetched.job.id, fetched.job.name, fetched.job.attempts_started) == ("8", "n", 1)
    assert finish().decode([0, 0, 250, 0]) == Fetched(None, 250, 0)
    assert finish().decode([0, 0, 0, NOW]) == Fetched(None, 0, NOW)


def test_a_fetch_of_another_shape_is_refused() -> None:
    with pytest.raises(UnexpectedReply):
        finish().decode([1, 2, 3])
    with pytest.raises(UnexpectedReply):
        finish().decode(b"text")


@pytest.mark.parametrize(("code", "kind"), [(-5, ParentNotFound), (-7, ParentNotReplaceable)])
def test_add_errors_are_distinguished_from_ids_by_type(code: int, kind: type[Exception]) -> None:
    job = prepare(K, NewJob("n", {}, JobOptions(parent=ParentRef("P", "bull:q"))), now_ms=NOW)
    command = adding.add_job(K, job)
    with pytest.raises(kind, match="bull:q:P"):
        command.decode(code)
    assert command.decode(b"-5.5") == "-5.5"


def test_add_error_without_a_parent() -> None:
    with pytest.raises(ParentNotFound, match="undefined"):
        adding.add_job(K, plain()).decode(-5)


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (finishing.retry_job(K, "7", token="t", now=NOW), -3, "Job 7 is not in the active state. retryJob"),
        (
            finishing.move_to_delayed(K, "7", token="t", now=NOW, delay=1, count_attempt=False),
            -6,
            "Lock mismatch for job 7. Cmd moveToDelayed from active",
        ),
        (jobs.update_data(K, "7", "{}"), -1, "Missing key for job 7. updateData"),
        (jobs.remove_job(K, "7"), -8, "Job 7 belongs to a job scheduler and cannot be removed directly. removeJob"),
        (jobs.add_log(K, "7", "x"), -99, "Unknown code -99 error for 7. addLog"),
    ],
)
def test_job_codes(command: Command[Any], code: int, message: str) -> None:
    with pytest.raises(Exception, match="7") as caught:
        command.decode(code)
    assert str(caught.value) == message
    assert command.decode(0) == 0


def test_remove_job_of_a_scheduler_has_its_class() -> None:
    with pytest.raises(JobBelongsToScheduler):
        jobs.remove_job(K, "7").decode(-8)


def test_get_job() -> None:
    command = jobs.get_job(K, "7")
    assert command.decode([]) is None
    record = command.decode({b"name": b"n"})
    assert record is not None and record.name == "n" and record.id == "7"


@pytest.mark.parametrize(
    ("reply", "state"),
    [
        ([0], jobs.FinishedState("pending")),
        ([1, b"5"], jobs.FinishedState("completed", "5")),
        ([2, b"boom"], jobs.FinishedState("failed", "boom")),
        ([2, None], jobs.FinishedState("failed", None)),
    ],
)
def test_is_finished(reply: Any, state: jobs.FinishedState) -> None:
    assert jobs.is_finished(K, "7").decode(reply) == state


def test_is_finished_errors() -> None:
    with pytest.raises(JobNotFound):
        jobs.is_finished(K, "7").decode([-1, b"Missing key"])
    for reply in ([], [7]):
        with pytest.raises(UnexpectedReply):
            jobs.is_finished(K, "7").decode(reply)


def test_obliterate_codes() -> None:
    command = queues.obliterate_page(K, count=1, force=False)
    assert command.decode(1) is True
    assert command.decode(0) is False
    with pytest.raises(queues.QueueNotPaused):
        command.decode(-1)
    with pytest.raises(queues.QueueHasActiveJobs):
        command.decode(-2)


def test_marker_replies() -> None:
    command = fetching.wait_for_marker(K, block_ms=5000)
    assert command.block_ms == 5000
    assert command.decode(None) is None
    assert command.decode([b"k", b"0", b"0"]) == 0
    assert command.decode([b"k", b"1", b"1700000000007.0012"]) == 1700000000007.0012
    with pytest.raises(UnexpectedReply):
        command.decode([b"k", b"1"])


def test_commands_compare() -> None:
    assert finish() == finish()
    assert jobs.get_job(K, "1") != jobs.get_job(K, "2")


def test_a_fetched_job_with_a_text_for_an_id() -> None:
    for reply in ([[b"name", b"n"], "1", 0, 0], [[b"name", b"n"], b"1", 0, 5]):
        found = _shared.as_fetched(reply)
        assert found.job is not None
        assert (found.job.id, found.job.name) == ("1", "n")
