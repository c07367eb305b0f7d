"""The event reader against a stream that grows and is trimmed, over connections that break."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bullmq_protocol.command import Batch
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import ConnectionLost
from bullmq_protocol.events.stream import EventsMissed, WaitingEvent, entry_place
from bullmq_protocol.operations.read_events import EventReader

KEYS = QueueKeys.of("q")

moves = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 2500)),
        st.tuples(st.just("trim"), st.integers(0, 50)),
        st.tuples(st.just("read"), st.sampled_from(["", "not sent", "no reply"])),
    ),
    max_size=30,
)


class Stream:
    """What the server holds: numbers of entries, and how many were ever written."""

    def __init__(self) -> None:
        self.kept: list[int] = []
        self.written = 0

    def write(self, count: int) -> None:
        self.kept += range(self.written + 1, self.written + count + 1)
        self.written += count

    def trim(self, length: int) -> None:
        self.kept = self.kept[-length:] if length else []

    def reply(self, command: Any) -> Any:
        if command.name in ("XRANGE", "XREVRANGE"):
            return [entry(self.kept[0 if command.name == "XRANGE" else -1])] if self.kept else []
        count = int(command.name.split()[2])
        after = entry_place(command.args[0])[0]
        found = [number for number in self.kept if number > after][:count]
        return [[b"bull:q:events", list(map(entry, found))]] if found else None


def entry(number: int) -> list[Any]:
    return [b"%d-0" % number, [b"event", b"waiting", b"jobId", b"%d" % number]]


@given(moves, st.integers(0, 5), st.sampled_from([None, "0-0"]))
def test_every_entry_comes_once_and_in_order_or_is_reported_as_missed(
    steps: list[tuple[str, Any]], before: int, start: str | None
) -> None:
    stream = Stream()
    stream.write(before)
    reader = EventReader(KEYS, last_event_id=start)
    reported: list[Any] = []

    def read(fault: str) -> None:
        step = reader.step()
        if not fault or fault == "no reply":
            commands = step.commands if isinstance(step, Batch) else (step,)
            replies = [stream.reply(command) for command in commands]
            if not fault:
                reported.extend(reader.answered(replies if isinstance(step, Batch) else replies[0]))
                return
        assert reader.failed(ConnectionLost("gone", maybe_applied=bool(fault)), 0.5) >= 100

    if start is None:
        read("")
        begin = before
    else:
        begin = 0
    for kind, argument in steps:
        if kind == "write":
            stream.write(argument)
        elif kind == "trim":
            stream.trim(argument)
        else:
            read(argument)
    for _ in range(100):
        read("")
    at = begin
    gap = False
    for each in reported:
        if isinstance(each, EventsMissed):
            assert entry_place(each.after)[0] == at
            gap = True
            continue
        assert isinstance(each, WaitingEvent)
        number = int(each.job_id)
        # Without a word the next one follows; a reader that has heard nothing yet may begin late in a trimmed stream.
        assert number == at + 1 or (gap and number > at) or at == 0
        at, gap = number, False
    assert not stream.kept or at == stream.written
