"""Operations of several steps: what they ask in which order, what they make of the answers, where they end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
import pytest

from bullmq_protocol.command import Batch, Command
from bullmq_protocol.commands import cleaning, getters, jobs, moving, queues
from bullmq_protocol.commands.adding import add_job
from bullmq_protocol.commands.batches import add_many as merged
from bullmq_protocol.commands.getters import Dependencies, JobLogs
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import BulkAddError, ParentNotFound, ServerError, UnexpectedReply, UsageError
from bullmq_protocol.model.job import JobRecord, NewJob, prepare
from bullmq_protocol.model.options import JobOptions, ParentRef
from bullmq_protocol.operations.add_jobs import add_each, add_many, add_one
from bullmq_protocol.operations.clean import Clean
from bullmq_protocol.operations.move_all import MoveAll
from bullmq_protocol.operations.obliterate import Obliterate
from bullmq_protocol.operations.paging import Plan
from bullmq_protocol.operations.read_dependencies import (
    Cursor,
    DependenciesPage,
    Dependency,
    DependencyPages,
    DependencyRange,
    RangedChild,
    get_dependencies,
    get_dependencies_page,
    get_dependency_range,
)
from bullmq_protocol.operations.read_jobs import IDS_AT_ONCE, JobPages, get_jobs
from bullmq_protocol.operations.read_logs import LogPages, get_job_logs
from bullmq_protocol.testing.scripted import Exchange, ScriptedTransport
from bullmq_sync.drive import run

T = TypeVar("T")

K = QueueKeys.of("q")
LATE = 1_700_000_000_000


def answered(operation: Any, exchanges: Iterable[Exchange]) -> Any:
    """Run an operation against a script, and see that it asked for all of it."""
    transport = ScriptedTransport(exchanges)
    result = run(operation, transport)
    transport.check_done()
    return result


def pages_of(plan: Plan[T], exchanges: Iterable[Exchange], keys: QueueKeys = K) -> list[T]:
    """Walk through all pages; each rest goes through JSON, as of a program that is started anew."""
    transport = ScriptedTransport(exchanges)
    found: list[T] = []
    left: Plan[T] | None = plan
    while left is not None:
        page = run(left.page(keys), transport)
        found.append(page.value)
        left = page.rest
        if left is not None:
            left = msgspec.json.decode(msgspec.json.encode(left), type=type(left))
    transport.check_done()
    return found


def hashes(*names: str) -> list[list[bytes]]:
    return [[b"name", name.encode()] if name else [] for name in names]


def reads(*ids: str) -> Batch:
    return Batch(tuple(jobs.get_job(K, job_id) for job_id in ids))


# --- clean ------------------------------------------------------------------------------------------------------------


def removal(state: str, limit: int, until: int = LATE) -> Command[list[str]]:
    return cleaning.clean_jobs_in_set(K, state, until=until, limit=limit)


def test_clean_of_finished_jobs_ends_with_a_page_that_is_not_full() -> None:
    plan = Clean(state="completed", until=LATE, page_size=2)
    script: list[Exchange] = [(removal("completed", 2), [b"a", b"b"]), (removal("completed", 2), [b"c"])]
    assert pages_of(plan, script) == [["a", "b"], ["c"]]


def test_clean_of_other_jobs_goes_on_while_something_goes() -> None:
    plan = Clean(state="waiting", until=LATE, page_size=2)
    count = queues.get_counts(K, ("wait",))
    script: list[Exchange] = [(removal("wait", 2), [b"a"]), (count, [4])]
    script += [(removal("wait", 2), [b"b", b"c"]), (removal("wait", 2), [b"d"]), (count, [1])]
    assert pages_of(plan, script) == [["a"], ["b", "c"], ["d"]]
    assert pages_of(plan, [(removal("wait", 2), [b"a"]), (count, [2]), (removal("wait", 2), [])]) == [["a"], []]


def test_clean_never_removes_more_than_its_limit() -> None:
    plan = Clean(state="failed", until=LATE, limit=5, page_size=3)
    script: list[Exchange] = [(removal("failed", 3), [b"a", b"b", b"c"]), (removal("failed", 2), [b"d", b"e"])]
    assert pages_of(plan, script) == [["a", "b", "c"], ["d", "e"]]


def test_clean_by_a_moment_before_all_jobs_removes_none() -> None:
    # The script compares texts, and "99..." comes after "1700000000000".
    assert pages_of(Clean(state="delayed", until=99_999_999_999), [(removal("delayed", 10_000, 0), [])]) == [[]]
    assert pages_of(Clean(state="delayed", until=-5), [(removal("delayed", 10_000, 0), [])]) == [[]]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"state": "done"}, "state"),
        ({"state": "repeat"}, "state"),
        ({"limit": -1}, "limit"),
        ({"limit": 1.5}, "limit"),
        ({"limit": True}, "limit"),
        ({"page_size": 0}, "page_size"),
        ({"page_size": "all"}, "page_size"),
        ({"until": None}, "until"),
    ],
)
def test_bad_clean_is_refused(options: dict[str, Any], field: str) -> None:
    plan = Clean(**{"state": "completed", "until": LATE} | options)
    with pytest.raises(UsageError) as caught:
        answered(plan.page(K), [])
    assert caught.value.field == field
    assert caught.value.value == options[field]


# --- retry, promote, obliterate ---------------------------------------------------------------------------------------


def test_move_all_tells_how_many_are_left() -> None:
    plan = MoveAll(state="failed", count=10, until=LATE)
    move = moving.move_jobs_to_wait(K, state="failed", count=10, until=LATE)
    count = Command("ZCOUNT", ("bull:q:failed",), (0, LATE), queues.as_int, repeat=queues.Repeat.SAFE)
    assert pages_of(plan, [(move, 1), (count, 7), (move, 0)]) == [7, 0]


def test_promote_takes_all_scores() -> None:
    move = moving.move_jobs_to_wait(K, state="delayed", count=1000)
    counts = [queues.count_until(K, "delayed", None)]
    assert counts[0].args == (0, "+inf")
    assert pages_of(MoveAll(state="delayed"), [(move, 1), (counts[0], 3), (move, 0)]) == [3, 0]


@pytest.mark.parametrize(
    ("plan", "field"),
    [
        (MoveAll(state="active", until=1), "state"),  # type: ignore[arg-type]
        (MoveAll(state="failed", count=0), "count"),
        (MoveAll(state="failed", count=-1), "count"),
        (Obliterate(count=0), "count"),
        (Obliterate(count=True), "count"),
    ],
)
def test_bad_batches_are_refused(plan: Plan[int], field: str) -> None:
    with pytest.raises(UsageError) as caught:
        answered(plan.page(K), [])
    assert caught.value.field == field


def test_obliterate_pauses_once_and_counts_what_is_left() -> None:
    page = queues.obliterate_page(K, count=7, force=True)
    script: list[Exchange] = [
        (queues.pause(K), None),
        (page, 1),
        ("getCounts", [1, 2, 3, 4, 5, 6]),
        (page, 1),
        ("getCounts", [0, 0, 0, 0, 0, 0]),
        (page, 0),
    ]
    assert pages_of(Obliterate(force=True, count=7), script) == [21, 0, 0]


# --- jobs -------------------------------------------------------------------------------------------------------------


def test_jobs_are_read_page_by_page_and_state_by_state() -> None:
    plan = JobPages(states=("completed", "waiting"), page_size=2)

    def part(state: str, start: int) -> Command[list[str]]:
        return getters.get_ranges(K, (state,), start=start, end=start + 1)

    script: list[Exchange] = [
        (part("completed", 0), [[b"1", b"2"]]),
        (reads("1", "2"), hashes("a", "")),
        (part("completed", 2), [[b"3"]]),
        (reads("3"), hashes("c")),
        (part("waiting", 0), [[]]),
        (part("paused", 0), [[b"5"]]),
        (reads("5"), hashes("e")),
    ]
    found = pages_of(plan, script)
    assert [[(job.id, job.name) for job in page] for page in found] == [[("1", "a")], [("3", "c")], [], [("5", "e")]]


def test_jobs_of_all_states_are_meant_without_states() -> None:
    page = answered(JobPages(ascending=True).page(K), [("getRanges", [[]])])
    assert page.value == []
    assert page.rest.states == queues.DEFAULT_STATES[1:]


def test_get_jobs_asks_once_for_the_places_and_leaves_out_missing_jobs() -> None:
    ids = getters.get_ranges(K, ("waiting", "failed", "paused"), start=0, end=9, ascending=True)
    script: list[Exchange] = [(ids, [[b"2", b"1"], [b"3"], []]), (reads("1", "2", "3"), hashes("a", "", "c"))]
    found = answered(get_jobs(K, ("waiting", "failed"), end=9, ascending=True), script)
    assert found == [JobRecord("1", {"name": b"a"}), JobRecord("3", {"name": b"c"})]


def test_get_jobs_reads_a_hundred_hashes_at_a_time() -> None:
    ids = [str(number) for number in range(250)]
    script: list[Exchange] = [("getRanges", [[each.encode() for each in ids]])]
    script += [(reads(*ids[at : at + 100]), hashes(*ids[at : at + 100])) for at in (0, 100, 200)]
    assert [job.id for job in answered(get_jobs(K, ("completed",)), script)] == ids


@pytest.mark.parametrize(("start", "end"), [(-3, -2), (0, -2), (5, 100)])
def test_get_jobs_of_places_that_need_no_parts_are_asked_for_at_once(start: int, end: int) -> None:
    ids = getters.get_ranges(K, ("failed",), start=start, end=end)
    assert answered(get_jobs(K, ("failed",), start=start, end=end), [(ids, [[]])]) == []


def many(first: int, count: int) -> list[list[bytes]]:
    return [[b"%d" % number for number in range(first, first + count)]]


@pytest.mark.parametrize("end", [-1, 25_000])
def test_get_jobs_of_many_asks_for_the_places_in_parts(end: int) -> None:
    step = IDS_AT_ONCE
    parts = [(0, step), (step, step), (2 * step, 3)]
    script: list[Exchange] = [(getters.get_ranges(K, ("failed",), start=0, end=step - 1), many(0, step))]
    for start, count in parts:
        last = start + step - 1 if end == -1 else min(start + step - 1, end)
        script.append((getters.get_ranges(K, ("failed",), start=start, end=last), many(start, count)))
    script += [(lambda step: isinstance(step, Batch), hashes(*["n"] * 100)) for _ in range(2 * step // 100)]
    script.append((lambda step: isinstance(step, Batch), hashes(*["n"] * 3)))
    found = answered(get_jobs(K, ("failed",), end=end), script)
    assert [job.id for job in found] == [str(number) for number in range(2 * step + 3)]


def test_get_jobs_in_parts_ends_with_its_range() -> None:
    step = IDS_AT_ONCE
    script: list[Exchange] = [
        (getters.get_ranges(K, ("failed",), start=0, end=step - 1), many(0, step)),
        (getters.get_ranges(K, ("failed",), start=0, end=step - 1), many(0, step)),
        (getters.get_ranges(K, ("failed",), start=step, end=2 * step - 1), many(step, step)),
    ]
    script += [(lambda step: isinstance(step, Batch), hashes(*[""] * 100)) for _ in range(2 * step // 100)]
    assert answered(get_jobs(K, ("failed",), end=2 * step - 1), script) == []


def test_get_jobs_of_many_states_with_few_jobs_looks_once() -> None:
    script: list[Exchange] = [("getRanges", [[b"1"], [b"2"]]), (reads("1", "2"), hashes("a", "b"))]
    assert len(answered(get_jobs(K, ("failed", "delayed"), end=50_000), script)) == 2


def test_a_job_that_cannot_be_read_is_an_error() -> None:
    script: list[Exchange] = [("getRanges", [[b"1"]]), ("HGETALL", [ServerError("WRONGTYPE no hash")])]
    with pytest.raises(ServerError, match="WRONGTYPE"):
        answered(get_jobs(K, ("failed",)), script)


@pytest.mark.parametrize(
    ("operation", "field"),
    [
        (get_jobs(K, ("done",)), "state"),
        (get_jobs(K, ("failed",), start=1.5), "start"),  # type: ignore[arg-type]
        (get_jobs(K, ("failed",), end="9"), "end"),  # type: ignore[arg-type]
        (JobPages(states=("done",)).page(K), "state"),
        (JobPages(page_size=0).page(K), "page_size"),
        (LogPages(job_id="7", page_size=0).page(K), "page_size"),
        (get_job_logs(K, "7", start=None), "start"),  # type: ignore[arg-type]
        (get_job_logs(K, "7", end=1.0), "end"),  # type: ignore[arg-type]
        (DependencyPages(job_id="7", kind="processed", page_size=0).page(K), "page_size"),
        (DependencyPages(job_id="7", kind="processed", cursor=-1).page(K), "cursor"),
        (DependencyPages(job_id="7", kind="done").page(K), "kind"),  # type: ignore[arg-type]
        (get_dependencies_page(K, "7"), "cursor"),
        (get_dependencies_page(K, "7", failed=Cursor(-1)), "failed.cursor"),
        (get_dependencies_page(K, "7", failed=Cursor(0, 0)), "failed.count"),
        (get_dependencies_page(K, "7", processed=Cursor(0, -5)), "processed.count"),
        (get_dependency_range(K, "7", "failed"), "kind"),  # type: ignore[arg-type]
        (get_dependency_range(K, "7", "pending", start=-1), "start"),
        (get_dependency_range(K, "7", "pending", end=-2), "end"),
    ],
)
def test_bad_reads_are_refused(operation: Any, field: str) -> None:
    with pytest.raises(UsageError) as caught:
        answered(operation, [])
    assert caught.value.field == field


# --- logs -------------------------------------------------------------------------------------------------------------


def test_logs_are_read_page_by_page() -> None:
    script: list[Exchange] = [
        (getters.read_job_logs(K, "7", start=0, end=1), [[b"a", b"b"], 5]),
        (getters.read_job_logs(K, "7", start=2, end=3), [[b"c", b"d"], 5]),
        (getters.read_job_logs(K, "7", start=4, end=5), [[b"e"], 5]),
    ]
    assert pages_of(LogPages(job_id="7", page_size=2), script) == [["a", "b"], ["c", "d"], ["e"]]


def test_logs_from_the_newest() -> None:
    script: list[Exchange] = [
        (getters.read_job_logs(K, "7", start=0, end=1, ascending=False), [[b"b", b"c"], 3]),
        (getters.read_job_logs(K, "7", start=2, end=3, ascending=False), [[b"a"], 3]),
    ]
    assert pages_of(LogPages(job_id="7", page_size=2, ascending=False), script) == [["c", "b"], ["a"]]
    assert answered(get_job_logs(K, "7"), [(None, [[b"a"], 1])]) == JobLogs(["a"], 1)


def test_logs_that_vanish_end() -> None:
    assert pages_of(LogPages(job_id="7", page_size=2), [(None, [[], 5])]) == [[]]


# --- children ---------------------------------------------------------------------------------------------------------


def test_all_children_at_once() -> None:
    reply = [[b"bull:q:a", b"1"], [b"bull:q:b"], [b"bull:q:c", b"boom"], [b"bull:q:d"]]
    found = answered(get_dependencies(K, "7"), [(getters.read_dependencies(K, "7"), reply)])
    assert found == Dependencies({"bull:q:a": 1}, ["bull:q:b"], {"bull:q:c": "boom"}, ["bull:q:d"])


@pytest.mark.parametrize(
    ("kind", "replies", "found"),
    [
        (
            "processed",
            [[b"5", [b"bull:q:a", b"1"]], [b"0", [b"bull:q:b", b"[]"]]],
            [[Dependency("bull:q:a", 1)], [Dependency("bull:q:b", [])]],
        ),
        ("unprocessed", [[b"0", [b"bull:q:a"]]], [[Dependency("bull:q:a")]]),
        ("ignored", [[b"0", [b"bull:q:a", b"boom"]]], [[Dependency("bull:q:a", "boom")]]),
        (
            "failed",
            [[b"bull:q:a", b"bull:q:b"], [b"c"]],
            [list(map(Dependency, ("bull:q:a", "bull:q:b"))), [Dependency("c")]],
        ),
    ],
)
def test_children_of_one_kind_in_pages(kind: Any, replies: list[Any], found: list[Any]) -> None:
    plan = DependencyPages(job_id="7", kind=kind, page_size=2)
    assert pages_of(plan, [(None, reply) for reply in replies]) == found


def test_a_page_of_several_kinds() -> None:
    batch = Batch(
        (
            getters.scan_processed(K, "7", cursor=3, count=20),
            getters.scan_unprocessed(K, "7"),
            getters.scan_ignored(K, "7"),
            getters.range_failed(K, "7", cursor=1, count=1),
        ),
        atomic=True,
    )
    replies = [[b"0", [b"a", b"1"]], [b"4", [b"b"]], [b"0", []], [b"d"]]
    operation = get_dependencies_page(
        K, "7", processed=Cursor(3), unprocessed=Cursor(), ignored=Cursor(), failed=Cursor(1, 1)
    )
    assert answered(operation, [(batch, replies)]) == DependenciesPage(
        processed=getters.ValuesPage(0, {"a": 1}),
        unprocessed=getters.KeysPage(4, ["b"]),
        ignored=getters.FailuresPage(0, {}),
        failed=getters.KeysPage(2, ["d"]),
    )
    only = answered(get_dependencies_page(K, "7", ignored=Cursor()), [("HSCAN", [[b"0", []]])])
    assert only == DependenciesPage(ignored=getters.FailuresPage(0, {}))


def test_a_value_that_is_no_json_is_an_error() -> None:
    with pytest.raises(UnexpectedReply):
        answered(get_dependencies_page(K, "7", processed=Cursor()), [(None, [[b"0", [b"a", b"?"]]])])


def test_children_by_their_place_with_their_jobs() -> None:
    first = getters.paginate("bull:q:7:processed", start=1, end=3, with_hashes=True)
    second = getters.paginate("bull:q:7:processed", start=2, end=3, cursor=9, passed=2, with_hashes=True)
    script: list[Exchange] = [
        (first, [b"9", 2, [[b"bull:q:a:b", b"1"]], 6, [[b"name", b"n"]]]),
        (second, [b"0", 6, [[b"bull:r:c", b"?"], [b"bull:q:d", b"2"]], 6, [[b"name", b"m"], []]]),
    ]
    found = answered(get_dependency_range(K, "7", "processed", start=1, end=3), script)
    assert found.items[0] == RangedChild("bull:q:a:b", 1)
    assert (found.items[1].key, found.items[1].value) == ("bull:r:c", None)
    assert "JSON" in found.items[1].error
    assert [job and (job.id, job.name) for job in found.jobs] == [("a:b", "n"), ("c", "m"), None]
    assert found.total == 6


def test_enough_children_end_the_reading() -> None:
    script: list[Exchange] = [(None, [b"9", 2, [b"bull:q:a"], 6, [[]]])]
    assert answered(get_dependency_range(K, "7", "pending", end=0), script) == DependencyRange(
        [RangedChild("bull:q:a")], [None], 6
    )
    nothing: list[Exchange] = [(getters.paginate("bull:q:7:dependencies", start=0, with_hashes=True), [0, 0, [], 0])]
    assert answered(get_dependency_range(K, "7", "pending"), nothing) == DependencyRange([], [], 0)


# --- adding -----------------------------------------------------------------------------------------------------------


def test_added_jobs_have_the_ids_of_the_replies() -> None:
    options = JobOptions(delay=5, parent=ParentRef("p", "bull:q"))
    first, second = (prepare(K, NewJob("n", {"a": 1}, each), now_ms=LATE) for each in (options, JobOptions(priority=3)))
    record = answered(add_one(K, first), [(add_job(K, first), b"11")])
    assert (record.id, record.name, record.data, record.delay) == ("11", "n", {"a": 1}, 5)
    assert (record.timestamp, record.parent_key, record.priority) == (LATE, "bull:q:p", None)
    batch = Batch((add_job(K, first), add_job(K, second)))
    refused, added = answered(add_each(K, [first, second]), [(batch, [-5, b"12"])])
    assert isinstance(refused, ParentNotFound)
    assert (added.id, added.priority) == ("12", 3)
    assert answered(add_each(K, []), []) == answered(add_many(K, []), []) == []
    error = BulkAddError([refused, added])
    assert error.results == [refused, added]
    assert str(error).startswith("1 of 2 jobs were not added; the first error: Missing key for parent job bull:q:p")


def test_many_added_jobs_share_a_script_call() -> None:
    plain, child = (
        prepare(K, NewJob("n", {}, each), now_ms=LATE)
        for each in (JobOptions(), JobOptions(parent=ParentRef("p", "bull:q")))
    )
    adds = [add_job(K, each) for each in (plain, child, plain)]
    batch = Batch((merged(K, adds),))
    first, refused, broken = answered(add_many(K, [plain, child, plain]), [(batch, [[b"1", -5, [b"WRONGTYPE it"]]])])
    assert first.id == "1"
    assert isinstance(refused, ParentNotFound)
    assert isinstance(broken, ServerError)
    nothing = answered(add_many(K, [plain, plain]), [(Batch((merged(K, adds[:1] * 2),)), [ServerError("OOM full")])])
    assert [each.code for each in nothing] == ["OOM", "OOM"]
    flow = prepare(K, NewJob("n"), now_ms=LATE, has_children=True)
    batch = Batch((merged(K, [adds[0], add_job(K, flow)]),))
    refused, parent = answered(add_many(K, [plain, flow]), [(batch, [[[b"OOM full"], b"2"]])])
    assert isinstance(refused, ServerError)
    assert parent.id == "2"


@pytest.mark.parametrize(("atomic", "last"), [(False, "addStandardJob"), (True, "addMany")])
def test_a_transaction_of_adds_runs_one_script(atomic: bool, last: str) -> None:
    jobs = [prepare(K, NewJob("n"), now_ms=LATE)] * 51
    batch = next(add_many(K, jobs, atomic=atomic))
    assert isinstance(batch, Batch)
    assert [each.name for each in batch.commands] == ["addMany", last]
    last_reply: Any = [b"51"] if atomic else b"51"
    added = answered(add_many(K, jobs, atomic=atomic), [(batch, [[b"1"] * 50, last_reply])])
    assert [each.id for each in added] == ["1"] * 50 + ["51"]


def test_children_without_their_hashes_are_refused() -> None:
    with pytest.raises(UnexpectedReply, match="a hash beside each element"):
        answered(get_dependency_range(K, "7", "pending"), [(None, [b"0", 1, [b"bull:q:a"], 1, []])])


def test_bounds_of_pages() -> None:
    assert next(LogPages(job_id="1", page_size=1).page(K))
    assert next(Obliterate(count=1).page(K))
    for pages in (LogPages(job_id="1", page_size=0), Obliterate(count=0)):
        with pytest.raises(UsageError):
            next(pages.page(K))


def test_a_range_that_ends_with_the_first_id_of_a_part() -> None:
    asked: list[tuple[Any, ...]] = []
    operation = get_jobs(K, ["completed"], start=0, end=IDS_AT_ONCE)
    step: Any = next(operation)
    ids = [b"%d" % number for number in range(IDS_AT_ONCE + 1)]
    while isinstance(step, Command):
        asked.append(step.args)
        first, last = (int(str(arg)) for arg in step.args[:2])
        step = operation.send([ids[first : last + 1]])
    assert [tuple(map(int, args[:2])) for args in asked] == [
        (0, IDS_AT_ONCE - 1),
        (0, IDS_AT_ONCE - 1),
        (IDS_AT_ONCE, IDS_AT_ONCE),
    ]
