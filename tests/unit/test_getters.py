"""The decoders of moves, cleaning, settings and reads."""

from __future__ import annotations

from typing import Any

import pytest

from bullmq_protocol.command import Command
from bullmq_protocol.commands import cleaning, getters, moving, settings
from bullmq_protocol.commands.fetching import Limiter
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import (
    ChildFailed,
    JobNotFound,
    LockMissing,
    ParentNotFound,
    ServerError,
    UnexpectedReply,
    UsageError,
    WrongState,
)

K = QueueKeys.of("q")
NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("command", "reply", "value"),
    [
        (moving.move_to_waiting_children(K, "7", token="t", now=NOW), 0, True),
        (moving.move_to_waiting_children(K, "7", token="t", now=NOW), 1, False),
        (moving.move_jobs_to_wait(K, state="completed"), 1, True),
        (moving.move_jobs_to_wait(K, state="completed"), 0, False),
        (moving.reprocess_job(K, "7", state="failed"), 1, 1),
        (moving.change_delay(K, "7", delay=1, now=NOW), 0, 0),
        (moving.change_priority(K, "7", priority=1), 0, 0),
        (moving.promote(K, "7"), 0, 0),
        (cleaning.drain(K), None, None),
        (cleaning.clean_jobs_in_set(K, "failed", until=NOW, limit=5), [b"1", b"2"], ["1", "2"]),
        (cleaning.remove_child_dependency(K, "7", "bull:q:8"), 0, True),
        (cleaning.remove_child_dependency(K, "7", "bull:q:8"), 1, False),
        (cleaning.remove_unprocessed_children(K, "7"), None, None),
        (cleaning.trim_events(K, 5), 17, 17),
        (settings.get_global_concurrency(K), None, None),
        (settings.get_global_concurrency(K), b"", None),
        (settings.get_global_concurrency(K), b"3", 3),
        (settings.get_global_rate_limit(K), [b"3", b"500"], Limiter(max=3, duration=500)),
        (settings.get_global_rate_limit(K), [b"3", None], None),
        (settings.get_global_rate_limit(K), [b"", b"500"], None),
        (getters.get_counts_per_priority(K, [5, 0]), [2, 7], {5: 2, 0: 7}),
        (getters.get_ranges(K, ["waiting", "failed"]), [[b"3", b"1"], [b"9", b"1"]], ["3", "1", "9"]),
        (
            getters.get_ranges(K, ["waiting", "paused", "active", "wait", "failed"], ascending=True),
            [[b"2", b"1"], [b"4", b"3"], [b"6", b"5"], [b"1"], [b"8", b"9"]],
            ["1", "2", "3", "4", "5", "6", "8", "9"],
        ),
        (getters.is_job_in_list(K.wait, "7"), 1, True),
        (getters.is_job_in_list(K.wait, "7"), None, False),
        (getters.is_in_list(K.wait, "7"), 0, True),
        (getters.is_in_list(K.wait, "7"), None, False),
        (getters.is_in_set(K.failed, "7"), b"0", True),
        (getters.is_in_set(K.failed, "7"), None, False),
        (
            getters.get_metrics(K, "completed"),
            [[b"9", b"60000", b"8"], [b"1", b"0.5", b"x"], 3],
            getters.Metrics(9, 60000, 8, [1, 0.5, 0], 3),
        ),
        (getters.get_metrics(K, "failed"), [[None, None, None], [], 0], getters.Metrics(0, 0, 0, [], 0)),
        (
            getters.get_dependency_counts(K, "7"),
            [1, 2, 3, 4],
            {"processed": 1, "unprocessed": 2, "ignored": 3, "failed": 4},
        ),
        (
            getters.paginate("k", start=0),
            [b"0", 2, [b"a", b"b"], 2, []],
            getters.Page(0, 2, [getters.PageItem("a"), getters.PageItem("b")], 2, []),
        ),
        (
            getters.paginate("k", start=0, with_hashes=True),
            [b"17", 1, [[b"a", b"5"]], 300, [[b"name", b"n"]]],
            getters.Page(17, 1, [getters.PageItem("a", "5")], 300, [{"name": b"n"}]),
        ),
        (getters.paginate("k", start=0), [0, 0, [], 0], getters.Page(0, 0, [], 0, [])),
        (getters.get_children_values(K, "7"), [b"c", b'{"a":1}', b"d", b"null"], {"c": {"a": 1}, "d": None}),
        (getters.get_ignored_failures(K, "7"), {b"c": b"boom"}, {"c": "boom"}),
        (getters.scan_processed(K, "7"), [b"5", [b"c", b"1"]], getters.ValuesPage(5, {"c": 1})),
        (getters.scan_unprocessed(K, "7"), [b"0", [b"c"]], getters.KeysPage(0, ["c"])),
        (getters.scan_ignored(K, "7"), [b"0", [b"c", b"boom"]], getters.FailuresPage(0, {"c": "boom"})),
        (getters.range_failed(K, "7", cursor=4, count=2), [b"a", b"b"], getters.KeysPage(6, ["a", "b"])),
        (getters.range_failed(K, "7", cursor=4, count=2), [b"a"], getters.KeysPage(0, ["a"])),
        (getters.get_deduplication_job_id(K, "d"), b"7", "7"),
        (getters.get_deduplication_job_id(K, "d"), None, None),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_reply_is_read(command: Command[Any], reply: Any, value: Any) -> None:
    assert command.decode(reply) == value


@pytest.mark.parametrize(
    ("command", "code", "kind", "message"),
    [
        (
            moving.move_to_waiting_children(K, "7", token="t", now=NOW),
            -9,
            ChildFailed,
            "Cannot complete job 7 because it has at least one failed child. moveToWaitingChildren",
        ),
        (
            moving.move_to_waiting_children(K, "7", token="t", now=NOW),
            -2,
            LockMissing,
            "Missing lock for job 7. moveToWaitingChildren",
        ),
        (
            moving.reprocess_job(K, "7", state="completed"),
            -3,
            WrongState,
            "Job 7 is not in the completed state. reprocessJob",
        ),
        (
            moving.change_delay(K, "7", delay=1, now=NOW),
            -3,
            WrongState,
            "Job 7 is not in the delayed state. changeDelay",
        ),
        (moving.change_priority(K, "7", priority=1), -1, JobNotFound, "Missing key for job 7. changePriority"),
        (moving.promote(K, "7"), -3, WrongState, "Job 7 is not in the delayed state. promote"),
        (
            cleaning.remove_child_dependency(K, "7", "bull:q:8"),
            -5,
            ParentNotFound,
            "Missing key for parent job bull:q:8. removeChildDependency",
        ),
        (
            cleaning.remove_child_dependency(K, "7", ""),
            -5,
            ParentNotFound,
            "Missing key for parent job undefined. removeChildDependency",
        ),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_code_is_an_error(command: Command[Any], code: int, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        command.decode(code)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        (getters.get_counts_per_priority(K, [1]), [1, 2]),
        (getters.get_ranges(K, ["wait"]), []),
        (getters.get_dependency_counts(K, "7"), [1]),
        (getters.get_metrics(K, "failed"), [[b"1"], [], 0]),
        (getters.get_metrics(K, "failed"), [[b"1", b"2", b"3"], []]),
        (getters.paginate("k", start=0), [0, 0, []]),
        (getters.paginate("k", start=0), [0, 0, [[b"a"]], 1, []]),
        (getters.get_children_values(K, "7"), [b"c", b"{bad"]),
        (getters.scan_unprocessed(K, "7"), [b"0"]),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_another_shape_is_refused(command: Command[Any], reply: Any) -> None:
    with pytest.raises(UnexpectedReply):
        command.decode(reply)


def test_bad_values_are_refused_before_anything_is_sent() -> None:
    with pytest.raises(UsageError, match="count"):
        moving.move_jobs_to_wait(K, state="failed", count=0)
    with pytest.raises(UsageError, match="state"):
        cleaning.clean_jobs_in_set(K, "waiting", until=NOW, limit=0)
    with pytest.raises(UsageError, match="keep"):
        cleaning.clear_logs(K, "7", keep=-1)
    with pytest.raises(UsageError, match="outcome"):
        getters.get_metrics(K, "active")
    with pytest.raises(UsageError, match="kind"):
        getters.get_dependency_counts(K, "7", ["pending"])
    with pytest.raises(UsageError, match="count"):
        getters.range_failed(K, "7", count=0)


def test_logs_of_a_job() -> None:
    batch = getters.read_job_logs(K, "7", start=1, end=3)
    assert [command.wire() for command in batch.commands] == [
        ("LRANGE", "bull:q:7:logs", 1, 3),
        ("LLEN", "bull:q:7:logs"),
    ]
    assert batch.atomic
    assert getters.job_logs(batch.decode([[b"b", b"c"], 5])) == getters.JobLogs(["b", "c"], 5)


def test_logs_from_the_newest() -> None:
    batch = getters.read_job_logs(K, "7", start=0, end=1, ascending=False)
    assert batch.commands[0].args == (-2, -1)
    assert getters.job_logs(batch.decode([[b"b", b"c"], 5]), ascending=False) == getters.JobLogs(["c", "b"], 5)


def test_an_error_in_the_answer_is_raised() -> None:
    batch = getters.read_job_logs(K, "7")
    with pytest.raises(ServerError, match="WRONGTYPE"):
        getters.job_logs(batch.decode([ServerError("WRONGTYPE no list"), 5]))


def test_children_of_a_job() -> None:
    batch = getters.read_dependencies(K, "7")
    assert [command.wire() for command in batch.commands] == [
        ("HGETALL", "bull:q:7:processed"),
        ("SMEMBERS", "bull:q:7:dependencies"),
        ("HGETALL", "bull:q:7:failed"),
        ("ZRANGE", "bull:q:7:unsuccessful", 0, -1),
    ]
    answer = batch.decode([[b"a", b"1"], [b"b"], [b"c", b"boom"], [b"d"]])
    assert getters.dependencies(answer) == getters.Dependencies({"a": 1}, ["b"], {"c": "boom"}, ["d"])
