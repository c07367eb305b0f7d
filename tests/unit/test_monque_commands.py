"""Monque's commands and operations: their documents, replies, and the golden vectors of specs/vectors/monque."""

import json
from collections.abc import Callable, Generator
from typing import Any

import pytest
from bson import ObjectId

from bullmq_protocol.errors import BullMQError, ConnectionLost, UnexpectedReply, UsageError
from monque_protocol import commands, operations
from monque_protocol.commands import Change, Command, ListFilter, Repeat, Selector
from monque_protocol.cursor import Sort
from monque_protocol.document import read_job, to_date
from monque_protocol.errors import (
    AggregationTimeoutError,
    CommandRefused,
    JobStateError,
    MonqueConnectionError,
)
from monque_protocol.options import JobRetention, SchedulerOptions, settings_of
from tests.support import monque_vectors as vectors
from tests.support.monque_model import Collection

C, NOW = vectors.C, vectors.NOW


def collection() -> Collection:
    made = Collection(ObjectId)
    made.documents = vectors.documents()
    made.indexes = commands.indexes(retention=False)
    return made


def run(operation: Generator[Command[Any], Any, Any], on: Collection) -> Any:
    try:
        step = next(operation)
        while True:
            step = operation.send(on.run(step.document))
    except StopIteration as stop:
        return stop.value


# --- vectors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", vectors.FILES)
def test_vectors_are_up_to_date(name: str) -> None:
    stored = (vectors.FOLDER / f"{name}.json").read_text(encoding="utf-8")
    assert stored == vectors.text(name), "run python -m tests.support.monque_vectors"


def test_there_are_vectors_of_every_command() -> None:
    found = [json.loads((vectors.FOLDER / f"{name}.json").read_text(encoding="utf-8")) for name in vectors.FILES]
    assert sum(len(each["vectors"]) for each in found) >= 150
    made = {each["function"] for each in found[0]["vectors"]}
    public = {
        name
        for name, value in vars(commands).items()
        if callable(value)
        and getattr(value, "__module__", "") == commands.__name__
        and not name.startswith(("_", "as_", "check_"))
        and not isinstance(value, type)
    }
    assert made == public - {"indexes", "watch"}
    # A vector that changes nothing, and one that does, for each command that writes.
    for function in ("claim", "complete", "release", "cancel", "retry", "reschedule", "delete", "recover_stale"):
        seen = {
            bool(each["changed"] or each["removed"]) for each in found[0]["vectors"] if each["function"] == function
        }
        assert seen == {True, False}, function


# --- documents --------------------------------------------------------------------------------------------------------


def test_a_claim_is_the_document_of_the_specification() -> None:
    at = to_date(NOW)
    command = commands.claim(C, "mail", me="me", now=NOW, heartbeat_ms=30_000)
    assert (command.name, command.repeat, command.merge) == ("findAndModify", Repeat.UNSAFE, None)
    assert command.document == {
        "findAndModify": C,
        "query": {"name": "mail", "status": "pending", "nextRunAt": {"$lte": at}},
        "update": {
            "$set": {
                "status": "processing",
                "claimedBy": "me",
                "lockedAt": at,
                "lastHeartbeat": at,
                "heartbeatInterval": 30_000,
                "updatedAt": at,
            }
        },
        "sort": {"nextRunAt": 1},
        "new": True,
        "upsert": False,
    }


def test_an_insert_returns_its_own_document() -> None:
    command = commands.insert(C, ObjectId(), "mail", {"a": 1}, next_run_at=NOW, now=NOW)
    job = command.decode({"n": 1})
    assert (job.name, job.data, job.status, job.key) == (
        "mail",
        {"a": 1},
        "pending",
        command.document["documents"][0]["_id"],
    )


def test_indexes_have_default_names() -> None:
    names = [index["name"] for index in commands.indexes(retention=True)]
    assert len(names) == 11
    assert {"status_1_nextRunAt_1", "name_1_uniqueKey_1", "createdAt_-1__id_-1", "status_1_updatedAt_1"} <= set(names)
    assert all(index["background"] for index in commands.indexes(retention=False))


@pytest.mark.parametrize(
    ("decode", "reply"),
    [
        (commands.as_job, {}),
        (commands.as_job, {"value": 5}),
        (commands.as_new_job, {"value": None}),
        (commands.as_documents, {}),
        (commands.as_documents, {"cursor": {"firstBatch": None}}),
        (commands.as_modified, {"n": 1}),
        (commands.as_modified, {"nModified": True}),
        (commands.as_deleted, {"n": "1"}),
        (commands.get_stats(C, None).decode, {"cursor": {"firstBatch": []}}),
        (commands.get_summaries(C).decode, {"cursor": {"firstBatch": [{"_id": "a"}]}}),
    ],
)
def test_any_other_reply_is_unexpected(decode: Callable[[Any], Any], reply: Any) -> None:
    with pytest.raises(UnexpectedReply):
        decode(reply)


def test_what_is_no_job_is_left_out_of_lists() -> None:
    batch = [{"_id": 1}, {"_id": 2, "name": "a"}, 5]
    assert [job.id for job in commands.as_jobs({"cursor": {"firstBatch": batch}})] == ["2"]


def test_counts_are_rounded_as_javascript_does_and_unknown_states_count_in_total() -> None:
    batch = [
        {
            "statusCounts": [
                {"_id": each, "count": 2 - index} for index, each in enumerate(("pending", "odd", ["pending"]))
            ],
            "avgDuration": [{"_id": None, "avgMs": 2.5}],
            "total": [{"count": 3}],
        }
    ]
    stats = commands.get_stats(C, None).decode({"cursor": {"firstBatch": batch}})
    assert (stats.pending, stats.total, stats.avg_processing_duration_ms) == (2, 3, 3)
    groups = [{"_id": "b", "total": 1}, {"_id": None, "total": 5}, {"_id": "a", "total": 2}]
    assert [each.name for each in commands.get_summaries(C).decode({"cursor": {"firstBatch": groups}})] == ["a", "b"]


def test_selectors_are_checked() -> None:
    assert Selector(name="").query() == {}
    assert Selector(status="failed").among(("failed", "cancelled")) == ["failed"]
    for wrong in (Selector(status="odd"), Selector(status=["failed", "odd"]), Selector(older_than="now")):
        with pytest.raises(UsageError):
            wrong.query()
    # A document would be a condition of its own.
    for wrong in ({"$ne": ""}, 5):
        for call in (Selector(name=wrong).query, Selector(status=wrong).query, ListFilter(name=wrong).query):  # type: ignore[arg-type]
            with pytest.raises(UsageError, match=r"^(name|status): "):
                call()
        with pytest.raises(UsageError, match=r"^name: "):
            commands.get_stats(C, wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^status: "):
        Selector(status=["failed", {"$ne": ""}]).query()  # type: ignore[list-item]
    for check in (commands.check_selector, commands.check_filter):
        with pytest.raises(UsageError, match=r"^(selector|filter): must be a"):
            check({"name": "x"})
    assert (commands.check_selector(Selector()), commands.check_filter(ListFilter())) == (Selector(), ListFilter())
    with pytest.raises(UsageError, match=r"^created_at_from"):
        ListFilter(created_at_from="x").query()


def test_changes_are_read_as_hints() -> None:
    def change(**fields: Any) -> dict[str, Any]:
        return {"operationType": "update", "fullDocument": {"_id": 1, "name": "a", **fields}}

    batch = [
        change(status="pending", nextRunAt=to_date(NOW)),
        change(status="pending"),
        change(status="completed"),
        change(status="failed"),
        change(status="processing"),
        {"operationType": "insert"},
    ]
    found = commands.watch(C).decode({"cursor": {"firstBatch": batch}})
    assert found == [Change("a", NOW), Change("a", 0), Change("a", None), Change("a", None)]


# --- operations -------------------------------------------------------------------------------------------------------


def test_start_up_makes_indexes_recovers_and_looks_for_its_own_name() -> None:
    on = collection()
    on.indexes = []
    options = SchedulerOptions(scheduler_instance_id="new", job_retention=JobRetention(completed=1))
    assert run(operations.initialize(settings_of(options, random_id=""), lambda: NOW), on) == 2
    assert len(on.indexes) == 11
    assert {each["status"] for each in on.documents if each["_id"] in (vectors.oid(7), vectors.oid(9))} == {"pending"}
    me = SchedulerOptions(
        scheduler_instance_id="me", skip_index_creation=True, recover_stale_jobs=False, heartbeat_interval=60_000
    )
    with pytest.raises(MonqueConnectionError, match='using schedulerInstanceId "me"'):
        run(operations.initialize(settings_of(me, random_id=""), lambda: NOW), on)


def test_one_job_is_cancelled_retried_and_rescheduled() -> None:
    on = collection()
    done = run(operations.cancel(C, vectors.oid(1), now=NOW), on)
    assert (done.job.status, done.previous_status) == ("cancelled", "pending")
    again = run(operations.cancel(C, vectors.oid(1), now=NOW), on)
    assert (again.job.status, again.previous_status) == ("cancelled", None)
    retried = run(operations.retry(C, vectors.oid(1), now=NOW), on)
    assert (retried.job.status, retried.previous_status) == ("pending", "cancelled")
    assert retried.job == read_job(next(each for each in on.documents if each["_id"] == vectors.oid(1)))
    moved = run(operations.reschedule(C, vectors.oid(1), run_at=NOW + 5, now=NOW), on)
    assert moved.job.next_run_at == NOW + 5


@pytest.mark.parametrize("action", ["cancel", "retry", "reschedule"])
def test_another_state_is_an_error_and_no_job_is_none(action: str) -> None:
    more = {"run_at": NOW} if action == "reschedule" else {}
    on = collection()
    with pytest.raises(JobStateError, match=f"^Cannot {action} job in status 'processing'"):
        run(getattr(operations, action)(C, vectors.oid(5), now=NOW, **more), on)
    assert run(getattr(operations, action)(C, vectors.oid(77), now=NOW, **more), on) is None


def test_many_are_retried_and_their_times_read() -> None:
    on = collection()
    count, jobs = run(operations.retry_many(C, Selector(), now=NOW), on)
    assert (count, [job.name for job in jobs]) == (3, ["report", "clean", "clean"])
    assert run(operations.retry_many(C, Selector(status="pending"), now=NOW), on) == (0, [])
    assert run(operations.retry_many(C, Selector(name="none"), now=NOW), on) == (0, [])


def test_a_retry_into_an_occupied_key_is_refused() -> None:
    on = collection()
    upsert = commands.upsert(C, "clean", 1, unique_key="k3", next_run_at=NOW, now=NOW)
    assert upsert.decode(on.run(upsert.document)).data == 1
    with pytest.raises(CommandRefused) as raised:
        run(operations.retry(C, vectors.oid(13), now=NOW), on)
    error = operations.wrapped("retry job", raised.value)
    assert isinstance(error, MonqueConnectionError) and error.number == 11000
    assert str(error).startswith("Failed to retry job: E11000")


def page(on: Collection, cursor: str | None, direction: str = "forward", sort: Sort | None = None) -> Any:
    operation = operations.get_page(
        C, ListFilter(), sort or Sort(), cursor=cursor, direction=direction, limit=5, key_of=ObjectId
    )
    return run(operation, on)


@pytest.mark.parametrize("sort", vectors.sorts(), ids=str)
def test_pages_forward_hold_every_job_once(sort: Sort) -> None:
    on = collection()
    seen: list[str] = []
    cursor, first = None, True
    while True:
        found = page(on, cursor, sort=sort)
        assert found.has_previous_page is not first
        seen += [job.id for job in found.jobs]
        cursor, first = found.cursor, False
        if not found.has_next_page:
            break
    assert sorted(seen) == sorted(str(each["_id"]) for each in on.documents)
    assert (
        seen[0] == str(vectors.oid(1 if sort.direction == "asc" or sort.by == "x" else 14)) or sort.by != "identifier"
    )


def test_a_page_backward_stands_in_the_asked_order() -> None:
    on = collection()
    last = page(on, None, "backward")
    assert [int(job.id, 16) & 0xFF for job in last.jobs] == [10, 11, 12, 13, 14]
    assert (last.has_next_page, last.has_previous_page) == (False, True)
    before = page(on, last.cursor, "backward")
    assert [int(job.id, 16) & 0xFF for job in before.jobs] == [9, 10, 11, 12, 13]
    on.documents = []
    assert page(on, None) == operations.Page(jobs=[], cursor=None, has_next_page=False, has_previous_page=False)


def test_errors_of_a_call_have_monques_texts() -> None:
    def wrapped(what: str, error: BullMQError) -> BullMQError:
        return operations.wrapped(what, error)

    lost = wrapped(operations.ENQUEUE, ConnectionLost("cut", maybe_applied=True))
    assert isinstance(lost, MonqueConnectionError) and lost.maybe_applied
    assert str(lost) == "Failed to enqueue job: cut"
    assert isinstance(wrapped(operations.STATS, CommandRefused("slow", 50)), AggregationTimeoutError)
    assert str(wrapped(operations.SCHEDULE, CommandRefused("slow", 50))) == "Failed to schedule job: slow"
    own = JobStateError("x", "failed", "cancel")
    assert wrapped("cancel job", own) is own


def test_ids_are_24_hexadecimal_digits() -> None:
    assert operations.check_id(str(vectors.oid(1))) and not operations.check_id("x")
    with pytest.raises(UsageError):
        operations.check_id(5)
