"""Reading the event stream and waiting for jobs, without a server."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest

from bullmq_protocol.command import Batch, Command
from bullmq_protocol.commands.events import (
    as_entries,
    last_event_id,
    publish_event,
    read_events,
    read_events_back,
    wait_for_events,
)
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import (
    AuthenticationFailed,
    BullMQError,
    Closed,
    ConnectionLost,
    JobFailedError,
    JobNotFound,
    ServerError,
    ServerTooOld,
    UnexpectedReply,
    UsageError,
    WaitTimeout,
)
from bullmq_protocol.events.stream import (
    AddedEvent,
    CompletedEvent,
    CustomEvent,
    EventsMissed,
    FailedEvent,
    ProgressEvent,
    RawEntry,
    RemovedEvent,
    UndecodableEvent,
    WaitingEvent,
    check_entry_id,
    entry_place,
    read_entry,
)
from bullmq_protocol.events.waiters import MISSING, Answer, Finished, Waiter, Waiters, check_reader, result_of
from bullmq_protocol.operations.ask_finished import PAGES_BACK, ask_again, ask_finished
from bullmq_protocol.operations.read_events import PAGE, EventReader

KEYS = QueueKeys.of("q")


def entry(entry_id: str, *fields: str) -> list[Any]:
    return [entry_id.encode(), [field.encode() for field in fields]]


def waiting(entry_id: str, job_id: str = "1") -> list[Any]:
    return entry(entry_id, "event", "waiting", "jobId", job_id)


def stream(*entries: list[Any]) -> list[Any]:
    return [[b"bull:q:events", list(entries)]]


# --- commands ---------------------------------------------------------------------------------------------------------


def test_commands_have_the_wire_form_of_the_specification() -> None:
    assert last_event_id(KEYS).wire() == ("XREVRANGE", "bull:q:events", "+", "-", "COUNT", 1)
    blocking = wait_for_events(KEYS, "1-2", count=5, block_ms=700)
    assert blocking.wire() == ("XREAD", "COUNT", "5", "BLOCK", "700", "STREAMS", "bull:q:events", "1-2")
    assert blocking.block_ms == 700
    assert [command.wire() for command in read_events(KEYS, "1-2", count=5).commands] == [
        ("XRANGE", "bull:q:events", "-", "+", "COUNT", 1),
        ("XREAD", "COUNT", "5", "STREAMS", "bull:q:events", "1-2"),
    ]
    published = publish_event(KEYS, "said", {"a": "x", "b": 1.5, "c": True, "d": False, "e": None}, max_events=7)
    assert published.wire()[:6] == ("XADD", "bull:q:events", "MAXLEN", "~", 7, "*")
    assert published.wire()[6:] == ("event", "said", "a", "x", "b", "1.5", "c", "true", "d", "false", "e", "")


@pytest.mark.parametrize(
    ("name", "fields"), [("", {}), ("x", {"": 1}), ("x", {"event": 1}), ("x", {"a": [1]}), ("x", [("a", 1)])]
)
def test_bad_event_is_refused(name: str, fields: Any) -> None:
    with pytest.raises(UsageError):
        publish_event(KEYS, name, fields)


def test_entries_are_read_in_both_protocols() -> None:
    found = (RawEntry("1-0", [b"a", b"b"]), RawEntry("2-0", {b"a": b"b"}))
    assert as_entries([[b"s", [[b"1-0", [b"a", b"b"]], [b"2-0", {b"a": b"b"}]]]]) == found
    assert as_entries({b"s": [[b"1-0", [b"a", b"b"]], [b"2-0", {b"a": b"b"}]]}) == found
    assert as_entries(None) == ()
    for wrong in ([[b"s"]], [[b"s", [[b"1-0"]]]], 5):
        with pytest.raises(UnexpectedReply):
            as_entries(wrong)
    assert last_event_id(KEYS).decode([]) == "0-0"
    assert last_event_id(KEYS).decode([[b"7-1", []]]) == "7-1"


# --- entries ----------------------------------------------------------------------------------------------------------


def test_entry_that_bullmq_cannot_decode_is_reported() -> None:
    def read(*fields: str) -> Any:
        return read_entry(RawEntry("1-0", [field.encode() for field in fields]))

    assert isinstance(read("event", "completed", "jobId", "1", "returnvalue", "1"), CompletedEvent)
    assert isinstance(read("event", "progress", "jobId", "1", "data", "{}"), ProgressEvent)
    assert isinstance(read("event", "waiting", "jobId", "1"), WaitingEvent)
    assert isinstance(read("event", "mine"), CustomEvent)
    bad = read("event", "completed", "jobId", "1", "returnvalue", "{")
    assert (bad.name, bad.fields) == ("completed", {"jobId": "1", "returnvalue": "{"})
    bad = read("event", "progress", "jobId", "1", "data", "{")
    assert (bad.name, bad.fields) == ("progress", {"jobId": "1", "data": "{"})
    for bad in (read("event"), read_entry(RawEntry("1-0", None))):
        assert isinstance(bad, UndecodableEvent)
        assert (bad.entry_id, bad.name, bad.fields) == ("1-0", "", {})


def test_ids_of_entries() -> None:
    assert entry_place("12-3") == (12, 3)
    assert entry_place("12") == (12, 0)
    assert check_entry_id("id", "12-3") == "12-3"
    for wrong in ("$", "1-", "-1", "a", 5, "1-2-3", None):
        with pytest.raises(UsageError):
            check_entry_id("id", wrong)


# --- the reader -------------------------------------------------------------------------------------------------------


def test_reader_fixes_its_start_and_goes_on_from_each_entry() -> None:
    reader = EventReader(KEYS, block_ms=300)
    assert reader.step() == last_event_id(KEYS)
    assert reader.answered([waiting("5-0")]) == []
    assert reader.position == "5-0"
    assert reader.step() == read_events(KEYS, "5-0", count=PAGE)
    assert reader.answered([[waiting("5-0")], None]) == []
    assert reader.step() == wait_for_events(KEYS, "5-0", count=1, block_ms=300)
    # What woke it is read with all that came with it.
    assert reader.answered(stream(waiting("6-0"))) == []
    assert reader.step() == read_events(KEYS, "5-0", count=PAGE)
    assert reader.answered([[waiting("5-0")], stream(waiting("6-0"), waiting("6-1", "2"))]) == [
        WaitingEvent("6-0", "1"),
        WaitingEvent("6-1", "2"),
    ]
    assert reader.step() == wait_for_events(KEYS, "6-1", count=1, block_ms=300)
    assert reader.answered(None) == []
    assert reader.step() == read_events(KEYS, "6-1", count=PAGE)


def test_reader_reads_page_after_page_until_it_has_caught_up() -> None:
    reader = EventReader(KEYS, last_event_id="0-0")
    page = [waiting(f"1-{n}") for n in range(PAGE)]
    reader.step()
    assert len(reader.answered([[page[0]], stream(*page)])) == PAGE
    assert reader.step() == read_events(KEYS, f"1-{PAGE - 1}", count=PAGE)
    assert reader.answered([[page[0]], stream(waiting("2-0"))]) == [WaitingEvent("2-0", "1")]
    assert isinstance(reader.step(), Command)


def test_reader_tells_of_a_trimmed_stream() -> None:
    reader = EventReader(KEYS, last_event_id="5-0")
    reader.step()
    assert reader.answered([[waiting("8-0")], stream(waiting("8-0"))]) == [
        EventsMissed("5-0", "8-0"),
        WaitingEvent("8-0", "1"),
    ]
    fresh = EventReader(KEYS, last_event_id="0-0")
    fresh.step()
    assert fresh.answered([[waiting("8-0")], stream(waiting("8-0"))]) == [WaitingEvent("8-0", "1")]


def test_reader_asks_again_from_where_it_was_after_a_failure() -> None:
    reader = EventReader(KEYS, last_event_id="5-0", max_delay_ms=1000)
    lost = ConnectionLost("gone", maybe_applied=True)
    reader.step()
    reader.answered([[[b"5-0", []]], None])
    assert isinstance(reader.step(), Command)
    assert [reader.failed(lost, 0.5) for _ in range(6)] == [100, 200, 400, 800, 1000, 1000]
    assert [reader.failed(lost, roll) for roll in (0.0, 1.0)] == [800, 1200]
    assert reader.step() == read_events(KEYS, "5-0", count=PAGE)
    reader.answered([[], None])
    assert reader.failed(ServerError("LOADING wait"), 0.5) == 100
    assert reader.failed(UnexpectedReply("x", 1), 0.5) == 200
    assert reader.failed(AuthenticationFailed("NOAUTH"), 0.5) == 400
    assert reader.failed(ServerTooOld("old"), 0.5) == 800
    with pytest.raises(Closed):
        reader.failed(Closed(), 0.5)
    with pytest.raises(UsageError):
        reader.failed(UsageError("a", 1, "b"), 0.5)


@pytest.mark.parametrize("error", [AuthenticationFailed("NOAUTH"), ServerTooOld("old")])
def test_reader_gives_up_on_what_nothing_can_mend_before_the_first_answer(error: BullMQError) -> None:
    with pytest.raises(type(error)):
        EventReader(KEYS).failed(error, 0.5)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"last_event_id": "x"}, "last_event_id"),
        ({"block_ms": 0}, "blocking_timeout"),
        ({"max_delay_ms": 0}, "max_reconnect_delay"),
    ],
)
def test_reader_refuses(given: dict[str, Any], field: str) -> None:
    with pytest.raises(UsageError) as caught:
        EventReader(KEYS, **given)
    assert (caught.value.field, caught.value.value) == (field, next(iter(given.values())))


def test_an_answer_about_the_start_is_contact() -> None:
    reader = EventReader(KEYS)
    reader.step()
    assert reader.failed(ServerError("ERR x"), 0.5) == 100
    reader.step()
    reader.answered([])
    assert reader.failed(AuthenticationFailed("NOAUTH"), 0.5) == 100


def test_reader_raises_an_error_within_a_batch() -> None:
    reader = EventReader(KEYS, last_event_id="5-0")
    reader.step()
    with pytest.raises(ServerError):
        reader.answered([ServerError("WRONGTYPE x"), ServerError("WRONGTYPE x")])
    assert reader.position == "5-0"


# --- waiting ----------------------------------------------------------------------------------------------------------


class Caller:
    def __init__(self, waiters: Waiters, job_id: str = "1") -> None:
        self.woken = 0
        self.waiter = waiters.add(job_id, self.wake)

    def wake(self) -> None:
        self.woken += 1


def test_events_settle_all_callers_of_a_job() -> None:
    waiters = Waiters()
    one, two, other = Caller(waiters), Caller(waiters), Caller(waiters, "2")
    for each in (one, two, other):
        waiters.answer(each.waiter, Answer("5-0"))
    waiters.take(AddedEvent("5-1", "1", "n"))
    waiters.take(CompletedEvent("6-0", "1", "7"))
    waiters.take(FailedEvent("6-1", "1", "late"))
    assert one.waiter.finished == two.waiter.finished == Finished("completed", "7")
    assert (one.woken, two.woken, other.woken) == (1, 1, 0)
    waiters.take(FailedEvent("6-2", "2", "no"))
    assert other.waiter.finished == Finished("failed", "no")
    assert len(waiters) == 3
    for each in (one, two, other):
        waiters.discard(each.waiter)
    assert len(waiters) == 0
    waiters.take(FailedEvent("6-3", "2", "no"))


def test_event_older_than_the_state_is_of_an_earlier_life() -> None:
    waiters = Waiters()
    caller = Caller(waiters)
    waiters.take(FailedEvent("4-0", "1", "before"))
    waiters.answer(caller.waiter, Answer("5-0"))
    waiters.take(FailedEvent("5-0", "1", "before"))
    assert caller.waiter.finished is None
    waiters.take(CompletedEvent("5-1", "1", "1"))
    assert caller.waiter.finished == Finished("completed", "1")


def test_event_that_comes_while_the_state_is_read_counts() -> None:
    waiters = Waiters()
    caller = Caller(waiters)
    waiters.take(CompletedEvent("5-1", "1", "1"))
    waiters.take(RemovedEvent("5-2", "1"))
    waiters.answer(caller.waiter, Answer("5-0"))
    assert caller.waiter.finished == Finished("completed", "1")


def test_state_that_was_read_counts() -> None:
    waiters = Waiters()
    caller = Caller(waiters)
    waiters.answer(caller.waiter, Answer("5-0", Finished("failed", "no")))
    assert caller.waiter.finished == Finished("failed", "no")


def test_job_that_is_gone_may_have_its_end_on_the_way() -> None:
    waiters = Waiters()
    waiters.reached("3-0")
    gone = Answer("5-0", Finished(MISSING))
    early, late, never = Caller(waiters), Caller(waiters, "2"), Caller(waiters, "3")
    waiters.take(CompletedEvent("4-0", "1", "1"))
    for each in (early, late, never):
        waiters.answer(each.waiter, gone)
    assert early.waiter.finished == Finished("completed", "1")
    waiters.take(CompletedEvent("4-1", "2", "2"))
    assert late.waiter.finished == Finished("completed", "2")
    waiters.reached("4-1")
    assert never.waiter.finished is None
    waiters.reached("5-0")
    assert never.waiter.finished == Finished(MISSING)
    behind = Caller(waiters, "4")
    waiters.answer(behind.waiter, gone)
    assert behind.waiter.finished == Finished(MISSING)


def test_removal_and_undecodable_end_settle() -> None:
    waiters = Waiters()
    one, two = Caller(waiters), Caller(waiters, "2")
    for each in (one, two):
        waiters.answer(each.waiter, Answer("5-0"))
    waiters.take(RemovedEvent("6-0", "1"))
    assert one.waiter.finished == Finished(MISSING)
    waiters.take(UndecodableEvent("6-1", "progress", {"jobId": "2"}, "bad"))
    assert two.waiter.finished is None
    waiters.take(UndecodableEvent("6-2", "completed", {"jobId": "2"}, "bad"))
    assert two.waiter.finished == Finished("completed")


def test_missed_events_let_all_ask_again_and_the_end_wakes_all() -> None:
    waiters = Waiters()
    caller = Caller(waiters)
    caller.waiter.must_ask = False
    waiters.take(EventsMissed("1-0", "5-0"))
    assert (caller.waiter.must_ask, caller.woken, waiters.closed) == (True, 1, False)
    waiters.close()
    assert (caller.woken, waiters.closed) == (2, True)


def test_results_and_errors() -> None:
    class Value(msgspec.Struct):
        n: int

    assert result_of(Finished("completed", '{"n":1}'), "1", Value) == Value(1)
    assert result_of(Finished("completed", "{"), "1", Any) is None
    assert result_of(Finished("completed"), "1", Any) is None
    with pytest.raises(msgspec.ValidationError):
        result_of(Finished("completed", "[]"), "1", Value)
    with pytest.raises(JobFailedError, match="no") as failed:
        result_of(Finished("failed", "no"), "1", Any)
    assert (failed.value.job_id, failed.value.reason) == ("1", "no")
    with pytest.raises(JobFailedError, match="job 1 failed without a reason"):
        result_of(Finished("failed"), "1", Any)
    with pytest.raises(JobNotFound, match="Missing key for job 1"):
        result_of(Finished(MISSING), "1", Any)
    assert isinstance(WaitTimeout("1", 5), TimeoutError)


def test_reader_of_another_queue_is_refused() -> None:
    class Reader:
        keys = QueueKeys.of("other")

    with pytest.raises(UsageError, match="must be a QueueEvents"):
        check_reader(None, Reader, KEYS)
    with pytest.raises(UsageError, match="bull:q"):
        check_reader(Reader(), Reader, KEYS)
    check_reader(Reader(), Reader, QueueKeys.of("other"))


def asked(*replies: Any, job_id: str = "1", look_back: bool = False) -> Answer:
    operation = ask_finished(KEYS, job_id, look_back=look_back)
    next(operation)
    for reply in replies:
        try:
            operation.send(reply)
        except StopIteration as stop:
            answer: Answer = stop.value
            return answer
    raise AssertionError("not over")


def test_asking_for_the_end_of_a_job() -> None:
    newest = [[b"5-0", []]]
    assert asked([newest, [0]]) == Answer("5-0")
    assert asked([newest, [1, b"7"]]) == Answer("5-0", Finished("completed", "7"))
    assert asked([newest, [2, b"no"]]) == Answer("5-0", Finished("failed", "no"))
    assert asked([newest, [-1]], [[b"6-0", []]]) == Answer("6-0", Finished(MISSING))
    for replies in ([ServerError("ERR a"), [0]], [newest, ServerError("ERR b")]):
        with pytest.raises(ServerError):
            asked(replies)


def numbered(number: int, *fields: bytes) -> list[Any]:
    return [b"%d-0" % number, list(fields)]


@pytest.mark.parametrize(
    ("entries", "finished"),
    [
        ([], Finished(MISSING)),
        ([(b"event", b"completed", b"jobId", b"2", b"returnvalue", b"7")], Finished(MISSING)),
        ([(b"event", b"completed", b"jobId", b"1", b"returnvalue", b"7")], Finished("completed", "7")),
        ([(b"event", b"completed", b"jobId", b"1")], Finished("completed")),
        ([(b"event", b"failed", b"jobId", b"1", b"failedReason", b"no\xff")], Finished("failed", "no\udcff")),
        ([(b"event", b"drained"), (b"odd",), (b"event", b"completed", b"jobId", b"1")], Finished("completed")),
        (
            [(b"event", b"removed", b"jobId", b"1"), (b"event", b"completed", b"jobId", b"1", b"returnvalue", b"7")],
            Finished("completed", "7"),
        ),
        (
            [(b"event", b"added", b"jobId", b"1"), (b"event", b"completed", b"jobId", b"1", b"returnvalue", b"7")],
            Finished(MISSING),
        ),
    ],
)
def test_reading_back_for_the_end_of_a_job(entries: list[tuple[bytes, ...]], finished: Finished) -> None:
    page = [numbered(90 - index, *fields) for index, fields in enumerate(entries)]
    answer = asked([[], [-1]], page, look_back=True)
    assert (answer.newest_id, answer.finished) == ("90-0" if entries else "0-0", finished)
    assert answer.certain == any(b"1" in fields for fields in entries)


def test_reading_back_for_an_id_that_is_not_utf8() -> None:
    page = [numbered(9, b"event", b"completed", b"jobId", b"j\xff")]
    assert asked([[], [-1]], page, job_id="j\udcff", look_back=True).finished == Finished("completed")


def test_reading_back_has_a_bound() -> None:
    operation = ask_finished(KEYS, "1", look_back=True)
    next(operation)
    step = operation.send([[], [-1]])
    assert step == read_events_back(KEYS, count=100)
    newest = number = 20_000
    for count, following in pairwise((*PAGES_BACK, 0)):
        page = [numbered(number - index, b"event", b"drained") for index in range(count)]
        number -= count
        if following:
            assert operation.send(page) == read_events_back(KEYS, f"{number + 1}-0", count=following)
        else:
            with pytest.raises(StopIteration) as stop:
                operation.send(page)
            assert stop.value.value == Answer(f"{newest}-0", Finished(MISSING))
    assert newest - number == 10_000


def test_waiting_for_a_job_that_does_not_exist_yet() -> None:
    waiters = Waiters()
    waiter = waiters.add("1", list, may_not_exist=True)
    waiters.answer(waiter, Answer("5-0", Finished(MISSING)))
    waiters.reached("9-0")
    assert waiter.finished is None
    waiters.take(CompletedEvent("4-0", "1", "4"))
    assert waiter.finished is None
    waiters.take(CompletedEvent("9-1", "1", "7"))
    assert waiter.finished == Finished("completed", "7")


@pytest.mark.parametrize(("place", "status"), [("4-0", MISSING), ("6-0", "completed")])
def test_what_was_heard_before_the_answer_may_tell_of_an_earlier_life(place: str, status: str) -> None:
    waiters = Waiters()
    waiter = waiters.add("1", list)
    waiters.take(CompletedEvent(place, "1", "7"))
    waiters.answer(waiter, Answer("5-0", Finished(MISSING), certain=True))
    assert waiter.finished is not None
    assert waiter.finished.status == status


def asked_again(*replies: Any) -> dict[str, Answer]:
    operation = ask_again(KEYS, ["1", "2", "3"])
    step = next(operation)
    assert isinstance(step, Batch)
    assert len(step.commands) == 4
    for reply in replies:
        try:
            operation.send(reply)
        except StopIteration as stop:
            answers: dict[str, Answer] = stop.value
            return answers
    raise AssertionError("not over")


def test_asking_again_for_many_jobs_in_one_round_trip() -> None:
    newest = [[b"5-0", []]]
    done, missing = Finished("completed", "7"), Finished(MISSING)
    assert asked_again([newest, [0], [1, b"7"], [0]]) == {
        "1": Answer("5-0"),
        "2": Answer("5-0", done),
        "3": Answer("5-0"),
    }
    # What is newest after a job was found gone is asked once more, for all of them.
    assert asked_again([newest, [-1], [1, b"7"], [-1]], [[b"6-0", []]]) == {
        "1": Answer("6-0", missing),
        "2": Answer("5-0", done),
        "3": Answer("6-0", missing),
    }
    # One that cannot be answered harms no other.
    assert asked_again([newest, ServerError("ERR b"), [0], [0]]) == {"2": Answer("5-0"), "3": Answer("5-0")}
    with pytest.raises(ServerError):
        asked_again([ServerError("ERR a"), [0], [0], [0]])


def test_for_whom_to_ask_again() -> None:
    waiters = Waiters()
    first, second, third = (waiters.add(job_id, lambda: None) for job_id in "123")
    # Each asks for itself first, and looks back further.
    assert waiters.to_ask(everyone=True) == []
    for waiter in (first, second, third):
        waiters.answer(waiter, Answer("1-0"))
    first.must_ask = third.must_ask = False
    third.settle(Finished("completed"))
    assert waiters.to_ask(everyone=False) == [second]
    assert waiters.to_ask(everyone=False) == []
    assert waiters.to_ask(everyone=True) == [first, second]
    waiters.take(EventsMissed("1-0", "9-0"))
    assert waiters.to_ask(everyone=False) == [first, second]


def test_an_entry_needs_an_id() -> None:
    with pytest.raises(UnexpectedReply, match="an entry's id"):
        as_entries([[b"bull:q:events", [[b"not an id", [b"event", b"drained"]]]]])


def test_a_caller_that_has_not_asked_expects_nothing() -> None:
    waiter = Waiter("1", lambda: None)
    assert not waiter.expects((9, 9))
    waiter.answered(Answer("5-0", Finished(MISSING)))
    assert waiter.expects((4, 9))
    assert not waiter.expects((5, 0))
    assert waiter.finished == Finished(MISSING)


def test_a_wake_up_of_another_shape_is_an_error() -> None:
    reader = EventReader(KEYS, last_event_id="5-0")
    step = reader.step()
    while isinstance(step, Batch):
        reader.answered([[], None])
        step = reader.step()
    with pytest.raises(UnexpectedReply):
        reader.answered(5)
