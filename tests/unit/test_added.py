"""What tells whether a job was added."""

from typing import Any

import pytest

from bullmq_protocol import Deduplication, JobOptions, NewJob, ParentRef, QueueKeys
from bullmq_protocol.command import Batch, Merge, Repeat
from bullmq_protocol.commands._merging import ADDS
from bullmq_protocol.commands.adding import AddedJob, add_job, add_or_find, looks_before, were_added
from bullmq_protocol.commands.batches import add_many as add_many_call
from bullmq_protocol.errors import ParentNotFound, ParentNotReplaceable, ServerError, UnexpectedReply, UsageError
from bullmq_protocol.model.job import JobRecord, PreparedJob, prepare
from bullmq_protocol.net.merge import as_shares, merged
from bullmq_protocol.operations.add_jobs import add_each, add_many, add_one
from bullmq_protocol.scripts._lua import ADD_MANY

KEYS = QueueKeys.of("q")


def prepared(**options: Any) -> PreparedJob:
    return prepare(KEYS, NewJob("n", 1, JobOptions(**options)), now_ms=5)


def added(job: PreparedJob, *reply: Any) -> JobRecord:
    operation = add_one(KEYS, job)
    step = next(operation)
    assert isinstance(step, Batch) == (len(reply) > 1)
    with pytest.raises(StopIteration) as stop:
        operation.send(list(reply) if len(reply) > 1 else reply[0])
    record: JobRecord = stop.value.value
    return record


def test_one_job() -> None:
    assert added(prepared(), b"1").added is True
    mine = prepared(job_id="mine")
    assert [added(mine, seen, b"mine").added for seen in (0, 1, ServerError("NOPERM x"))] == [True, False, None]
    once = prepared(deduplication=Deduplication("d"))
    assert [added(once, owner, b"7").added for owner in (None, b"7", b"6")] == [True, False, True]
    both = prepared(job_id="mine", deduplication=Deduplication("d"))
    assert [added(both, 0, b"7", reply).added for reply in (b"mine", b"7")] == [True, False]


def found(job: PreparedJob, reply: Any) -> AddedJob:
    command = add_or_find(KEYS, job)
    alone = command.decode([reply])
    # The same as the part of a call for several.
    assert as_shares([reply, b"9"], 2)[0] == reply
    assert command.decode(reply) == alone
    return alone


def test_the_call_itself_tells() -> None:
    mine = prepared(job_id="mine")
    assert found(mine, b"mine") == AddedJob("mine", added=True)
    assert found(mine, [b"mine", 0]) == AddedJob("mine", added=False)
    child = prepared(job_id="mine", parent=ParentRef("p", "bull:q"))
    for reply in (-5, [-5]):
        with pytest.raises(ParentNotFound, match="bull:q:p"):
            add_or_find(KEYS, child).decode(reply)
    with pytest.raises(ServerError, match="WRONGTYPE it"):
        add_or_find(KEYS, mine).decode([[b"WRONGTYPE it"]])
    for wrong in (None, [], [b"a", b"b"], [[b"a", 1]], [b"a", 0, 0]):
        with pytest.raises(UnexpectedReply):
            add_or_find(KEYS, mine).decode(wrong)


@pytest.mark.parametrize(
    ("options", "kind"),
    [({}, "0"), ({"delay": 5}, "1"), ({"priority": 2}, "2")],
    ids=["standard", "delayed", "priority"],
)
def test_it_goes_alone_or_together(options: dict[str, Any], kind: str) -> None:
    mine, plain = prepared(job_id="mine", **options), prepared()
    command = add_or_find(KEYS, mine)
    assert command.script is ADD_MANY
    assert command.keys == add_many_call(KEYS, [add_job(KEYS, mine)]).keys
    assert command.args == (kind, mine.head, mine.data_text, mine.packed_options)
    assert command.repeat is Repeat.GUARDED
    assert add_or_find(KEYS, prepared(deduplication=Deduplication("d"))).repeat is Repeat.UNSAFE
    assert merged([add_job(KEYS, plain), command]) == add_many_call(KEYS, [add_job(KEYS, plain), add_job(KEYS, mine)])
    assert command.merge == Merge(ADDS, KEYS.base, 1, ())


def test_a_job_with_children_is_not_for_it() -> None:
    parent = prepare(KEYS, NewJob("n"), now_ms=5, has_children=True)
    with pytest.raises(UsageError, match="job: must be a job without children"):
        add_or_find(KEYS, parent)


def test_a_plain_add_beside_it_is_read_the_same() -> None:
    """An id of the counter's may be answered for two jobs only where the server says so."""
    command = add_job(KEYS, prepared())
    assert command.decode([b"7", 0]) == command.decode(b"7") == "7"
    for wrong in ([b"7", 1], [b"7"], [b"7", 0, 0]):
        with pytest.raises(UnexpectedReply):
            command.decode(wrong)


def test_many_jobs_are_reported_by_their_call() -> None:
    mine, once, plain = prepared(job_id="mine"), prepared(deduplication=Deduplication("d")), prepared()
    parent = prepare(KEYS, NewJob("n", 1, JobOptions(job_id="mum")), now_ms=5, has_children=True)
    jobs = [plain, mine, mine, once, parent, once]
    operation = add_many(KEYS, jobs)
    look, *calls = next(operation).commands  # type: ignore[union-attr]
    assert look.wire() == ("EXISTS", "bull:q:mum")
    assert [call.name for call in calls] == ["addMany"]
    with pytest.raises(StopIteration) as stop:
        operation.send([1, [b"1", b"mine", [b"mine", 0], -7, [b"mum", 0], [b"7", 0]]])
    *records, last = stop.value.value
    refused = records.pop(3)
    assert isinstance(refused, ParentNotReplaceable)
    assert [(each.id, each.added) for each in (*records, last)] == [
        *(("1", True), ("mine", True), ("mine", False), ("mum", False), ("7", False)),
    ]


def test_a_refusal_is_raised() -> None:
    operation = add_one(KEYS, prepared(job_id="mine"))
    next(operation)
    with pytest.raises(ParentNotFound):
        operation.send([0, -5])


def test_refused_jobs_of_several() -> None:
    operation = add_each(KEYS, [prepared(job_id="mine"), prepared()])
    next(operation)
    with pytest.raises(StopIteration) as stop:
        operation.send([0, -5, b"1"])
    refused, record = stop.value.value
    assert isinstance(refused, ParentNotFound)
    assert record.added is True


def test_what_is_looked_at_before() -> None:
    both = prepared(job_id="mine", deduplication=Deduplication("d"))
    looks = [(look.name, look.keys, look.args, look.repeat) for look in looks_before(KEYS, both)]
    assert looks == [("EXISTS", ("bull:q:mine",), (), Repeat.SAFE), ("GET", ("bull:q:de:d",), (), Repeat.SAFE)]
    assert looks_before(KEYS, prepared()) == ()


def test_the_second_of_a_call_gives_way_to_the_first() -> None:
    once, other = (prepared(deduplication=Deduplication(id)) for id in "de")
    assert were_added([once, other, once], [[None]] * 3, ["7", "8", "7"]) == [True, True, False]
    mine = prepared(job_id="mine")
    assert were_added([mine, prepared(), mine], [[False], (), [False]], ["mine", "1", "mine"]) == [True, True, False]
