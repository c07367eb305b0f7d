"""What the commands on a whole queue read and refuse, and the text for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.commands import cleaning, getters, jobs, moving, queues, settings
from bullmq_protocol.commands.events import as_entries
from bullmq_protocol.commands.queues import QueueSummary
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.switches import FLEET_SWITCHES, V6_7_SWITCHES
from bullmq_protocol.common.units import check_flag, check_whole
from bullmq_protocol.errors import UnexpectedReply, UsageError
from bullmq_protocol.model.job import JobRecord

K = QueueKeys.of("q")
FLEET = QueueKeys.of("q", switches=FLEET_SWITCHES)
V6 = QueueKeys.of("q", switches=V6_7_SWITCHES)


@pytest.mark.parametrize(
    ("names", "expanded"),
    [
        ((), queues.DEFAULT_STATES),
        (["waiting"], ("waiting", "paused")),
        (["waiting", "completed", "waiting"], ("waiting", "completed", "paused")),
        (["wait", "repeat"], ("wait", "repeat")),
        (["paused", "waiting"], ("paused", "waiting")),
        ("failed", ("failed",)),
    ],
)
def test_names_of_states(names: Any, expanded: tuple[str, ...]) -> None:
    assert queues.expand_states(K, names) == expanded


def test_wait_brings_paused_where_jobs_may_be_in_both() -> None:
    assert queues.expand_states(FLEET, ["wait"]) == ("wait", "paused")
    assert queues.expand_states(V6, ["wait"]) == ("wait",)


def test_a_pause_counts_what_is_left_in_later_versions() -> None:
    for command, word in ((queues.pause, "paused"), (queues.resume, "resumed")):
        assert command(K).args == (word,) == command(K, again=True).args
        assert command(K).decode(None) is None
        for keys in (FLEET, V6):
            assert command(keys).args == (word, "1")
            assert command(keys, again=True).args == (word, "0")
            assert command(keys).decode(7) == 7
            with pytest.raises(UnexpectedReply):
                command(keys).decode(None)
    healing = queues.heal(FLEET)
    assert (healing.keys, healing.args) == (queues.resume(FLEET).keys, ("healed", "0"))
    assert (healing.decode(3), healing.repeat) == (3, Repeat.SAFE)


def test_delayed_jobs_are_counted_up_to_a_moment() -> None:
    command = queues.get_job_counts(FLEET, ("delayed",), due_before=1_700_000_000_000)
    assert command.args == (1_700_000_000_000, "delayed")
    assert command.decode([4]) == {"delayed": 4}
    with pytest.raises(UsageError, match=r"due_before: needs a profile of later versions.*scripts=FLEET"):
        queues.get_job_counts(K, ("delayed",), due_before=5)
    with pytest.raises(UsageError, match="due_before"):
        queues.get_job_counts(FLEET, ("delayed",), due_before=-1)


def test_counts_are_named_as_asked() -> None:
    command = queues.get_job_counts(K, ("waiting", "wait", "failed"))
    assert command.args == ("wait", "wait", "failed", "paused")
    assert command.decode([3, 3, None, 1]) == {"waiting": 3, "wait": 3, "failed": 0, "paused": 1}
    with pytest.raises(UnexpectedReply):
        command.decode([1])


def test_five_figures() -> None:
    command = queues.get_summary(K)
    assert command.args == ("wait", "prioritized", "active", "delayed", "completed", "failed", "paused")
    assert command.decode([1, 20, 3, 4, 5, 6, 300]) == QueueSummary(321, 3, 4, 5, 6)


CLIENTS = b"""id=1 addr=a:1 name=bull:cQ== age=3 flags=
id=2 addr=a:2 name=bull:cQ==:w:one resp=2
id=3 addr=a:3 name=bull:cQ==:qe
id=4 addr=a:4 name=bull:cWE=
id=5 addr=a:5 name=
noise
"""


def test_workers_and_listeners_are_known_by_their_names() -> None:
    found = queues.get_workers(K).decode(CLIENTS)
    assert found == [
        {"id": "1", "addr": "a:1", "name": "q", "age": "3", "flags": "", "rawname": "bull:cQ=="},
        {"id": "2", "addr": "a:2", "name": "q", "resp": "2", "rawname": "bull:cQ==:w:one"},
    ]
    assert [row["id"] for row in queues.get_queue_events(K).decode(CLIENTS.decode())] == ["3"]


def test_text_for_prometheus() -> None:
    text = queues.prometheus_text("q", {"active": 0, "waiting-children": 5}, {"env": "prod", "x": 'a"b\\c\nd'})
    assert text == (
        "# HELP bullmq_job_count Number of jobs in the queue by state\n"
        "# TYPE bullmq_job_count gauge\n"
        'bullmq_job_count{queue="q", state="active", env="prod", x="a\\"b\\\\c\\nd"} 0\n'
        'bullmq_job_count{queue="q", state="waiting-children", env="prod", x="a\\"b\\\\c\\nd"} 5'
    )
    assert queues.prometheus_text("q", {"active": 1}).endswith('{queue="q", state="active"} 1')


@pytest.mark.parametrize("label", ["", "1a", "a-b", "ä", "queue", "state", 7])
def test_names_of_labels(label: Any) -> None:
    with pytest.raises(UsageError, match="label"):
        queues.prometheus_text("q", {}, {label: "x"})


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: queues.get_job_counts(K, ("done",)), "state"),
        (lambda: cleaning.clean_jobs_in_set(K, "waiting", until=1, limit=1), "state"),
        (lambda: cleaning.clear_logs(K, "7", keep=-1), "keep"),
        (lambda: cleaning.clear_logs(K, "7", keep=True), "keep"),
        (lambda: cleaning.trim_events(K, -1), "max_length"),
        (lambda: cleaning.trim_events(K, "9"), "max_length"),  # type: ignore[arg-type]
        (lambda: cleaning.drain(K, delayed=1), "delayed"),  # type: ignore[arg-type]
        (lambda: settings.set_global_concurrency(K, 0), "concurrency"),
        (lambda: settings.set_global_concurrency(K, 1.5), "concurrency"),  # type: ignore[arg-type]
        (lambda: settings.set_global_rate_limit(K, 0, 1000), "maximum"),
        (lambda: settings.set_global_rate_limit(K, 5, 0), "duration"),
        (lambda: moving.change_priority(K, "7", priority=-1), "priority"),
        (lambda: moving.change_priority(K, "7", priority=2_097_153), "priority"),
        (lambda: moving.change_priority(K, "7", priority=1.5), "priority"),  # type: ignore[arg-type]
        (lambda: moving.change_priority(K, "7", priority=1, lifo="yes"), "lifo"),  # type: ignore[arg-type]
        (lambda: moving.reprocess_job(K, "7", state="active"), "state"),  # type: ignore[arg-type]
        (lambda: moving.move_jobs_to_wait(K, state="active"), "state"),  # type: ignore[arg-type]
        (lambda: moving.move_jobs_to_wait(K, state="failed", count=0), "count"),
        (lambda: getters.get_counts_per_priority(K, [1, 2_097_153]), "priority"),
        (lambda: getters.get_counts_per_priority(K, [-1]), "priority"),
        (lambda: getters.get_counts_per_priority(K, ["1"]), "priority"),  # type: ignore[list-item]
        (lambda: getters.get_ranges(K, ["failed"], start=0.5), "start"),  # type: ignore[arg-type]
        (lambda: getters.get_ranges(K, ["failed"], end=None), "end"),  # type: ignore[arg-type]
        (lambda: getters.get_metrics(K, "delayed"), "outcome"),
        (lambda: getters.get_metrics(K, "failed", start=True), "start"),
        (lambda: getters.get_metrics(K, "failed", end="x"), "end"),  # type: ignore[arg-type]
        (lambda: getters.range_failed(K, "7", count=0), "count"),
        (lambda: jobs.add_log(K, "7", "x", keep_logs=-1), "keep_logs"),
    ],
)
def test_bad_arguments_are_refused(build: Callable[[], Command[Any]], field: str) -> None:
    with pytest.raises(UsageError) as caught:
        build()
    assert caught.value.field == field


def test_whole_numbers_and_flags() -> None:
    assert check_whole("n", 3, least=3, most=3) == 3
    assert check_flag("f", False) is False
    for wrong in (2, 4, True, 3.0, "3", None):
        with pytest.raises(UsageError, match="n: must be"):
            check_whole("n", wrong, least=3, most=3)
    with pytest.raises(UsageError, match="f: must be"):
        check_flag("f", 1)


def test_a_job_can_forget_its_parent() -> None:
    opts = b'{"attempts":3,"parent":{"id":"p","queue":"bull:q"}}'
    job = JobRecord("7", {"name": b"n", "opts": opts, "parentKey": b"bull:q:p", "parent": b'{"id":"p"}'})
    alone = job.without_parent()
    assert job.parent_key == "bull:q:p"
    assert (alone.parent_key, alone.parent) == (None, None)
    assert alone.fields == {"name": b"n", "opts": b'{"attempts":3}'}
    assert JobRecord("7", {"name": b"n"}).without_parent().fields == {"name": b"n"}


@pytest.mark.parametrize("reply", [[], [b"1"], [b"1", b"2", b"3"]])
def test_a_limiter_is_two_values(reply: list[bytes]) -> None:
    command = settings.get_global_rate_limit(QueueKeys.of("q"))
    with pytest.raises(UnexpectedReply, match="two values"):
        command.decode(reply)


def test_entries_are_those_of_one_stream() -> None:
    assert as_entries({}) == ()
    with pytest.raises(UnexpectedReply, match="one stream's entries"):
        as_entries({b"a": [], b"b": []})


def test_listeners_are_named_by_their_queue() -> None:
    own = queues.get_queue_events(K)
    name = f"{K.client_name()}:qe"
    found = own.decode(f"id=1 name={name} age=5\nid=2 name={K.client_name()} age=6\n")
    assert found == [{"id": "1", "name": "q", "rawname": name, "age": "5"}]


def test_a_page_of_failed_children_ends_before_the_next() -> None:
    assert getters.range_failed(K, "1", cursor=40, count=20).args == (40, 59)


def test_the_newest_rows_of_a_log_are_kept() -> None:
    command = cleaning.clear_logs(K, "1", keep=5)
    assert (command.name, command.args, command.decode(b"OK")) == ("LTRIM", (-5, -1), None)
