"""The bytes of commands, and adds that go together, without a connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from bullmq_protocol.command import Arg, Command, Script
from bullmq_protocol.commands.adding import add_job
from bullmq_protocol.commands.queues import ping
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import ConnectionLost, ServerError, TransportError, TransportTimeout, UsageError
from bullmq_protocol.model.job import NewJob, prepare
from bullmq_protocol.model.options import JobOptions
from bullmq_protocol.net.wire import Wire, packer, unasked
from bullmq_protocol.scripts._lua import ADD_MANY
from bullmq_protocol.scripts.profile import Profile

ONE, OTHER = QueueKeys.of("one"), QueueKeys.of("other")


def pack_bulks(args: tuple[Arg, ...]) -> bytes:
    bulks = [arg if isinstance(arg, bytes) else str(arg).encode() for arg in args]
    return b"*%d\r\n" % len(bulks) + b"".join(b"$%d\r\n%b\r\n" % (len(bulk), bulk) for bulk in bulks)


pack = packer(pack_bulks)


class Waiting:
    def __init__(self, command: Command[Any] | None, payload: bytes = b"", members: Sequence[Waiting] = ()) -> None:
        self.command = command
        self.payload = payload
        self.members = members
        self.replies: list[Any] = []
        self.error: Exception | None = None


class Bytes(Wire[Waiting]):
    interrupts = 0

    def _end(self) -> None:
        if self.interrupts:
            self.interrupts -= 1
            raise KeyboardInterrupt
        for call in self._pending:
            call.error = self._loss(call, maybe_applied=True)

    def die(self, kind: type[TransportError], message: str) -> None:
        self._die(kind, message)

    def _together(self, members: list[Waiting], payload: bytes, command: Command[Any]) -> Waiting:
        return Waiting(command, payload, members)

    def _refuse(self, call: Waiting, error: UsageError) -> None:
        call.error = error


def adding(keys: QueueKeys, text: str = "x", **options: Any) -> Waiting:
    job = prepare(keys, NewJob("n", text, JobOptions(**options)), now_ms=1)
    return Waiting(add_job(keys, job))


def add_script() -> Script:
    command = adding(ONE).command
    assert command is not None
    assert command.script is not None
    return command.script


def called(call: Waiting) -> tuple[bytes, bytes]:
    """Return name and first argument of what a call writes."""
    _, _, name, _, first, _ = call.payload.split(b"\r\n", 5)
    return name, first


def bad() -> Waiting:
    """Return an add that has no form on the wire."""
    good = adding(ONE).command
    assert good is not None
    return Waiting(replace(good, args=(good.args[0], "\ud800", good.args[2])))


def test_text_is_packed_as_it_was_read() -> None:
    assert pack(("GET", "a", 1, b"\xff")) == b"*4\r\n$3\r\nGET\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\n\xff\r\n"
    assert pack(("GET", "\udcff", b"b")) == b"*3\r\n$3\r\nGET\r\n$1\r\n\xff\r\n$1\r\nb\r\n"
    with pytest.raises(UsageError, match="lone surrogate"):
        pack(("GET", "\ud800"))


def test_numbers_are_handed_over_as_text() -> None:
    seen: list[tuple[Arg, ...]] = []

    def record(args: tuple[Arg, ...]) -> bytes:
        seen.append(args)
        return b""

    packer(record)(["SET", "a", 1, b"b"])
    assert seen == [("SET", "a", "1", b"b")]


def test_a_script_goes_with_its_source_once() -> None:
    wire = Bytes(pack)
    add = adding(ONE).command
    assert add is not None
    assert add.script is not None
    with_source = pack(("EVAL", add.script.source, len(add.keys), *add.keys, *add.args))
    assert wire.packed(add) == with_source
    assert wire.packed(add) == pack(("EVALSHA", add.script.sha1, len(add.keys), *add.keys, *add.args))
    assert Bytes(pack).packed(add) == with_source
    assert wire.packed(ping()) == pack(("PING",))


def test_arguments_that_look_like_the_call_stay() -> None:
    text = b"".join(pack(("EVALSHA", add_script().sha1)).splitlines(keepends=True)[1:]).decode()
    add = adding(ONE, text).command
    assert add is not None
    assert Bytes(pack).packed(add) == pack(add.wire(full_source=True))


def test_a_transaction_stands_in_one_piece_with_its_sources() -> None:
    wire = Bytes(pack)
    add = adding(ONE).command
    assert add is not None
    in_full = pack(add.wire(full_source=True))
    assert wire.packed(add) == in_full
    written = wire.packed_all([add, ping(), add], afresh=True, atomic=True)
    assert written == b"".join([pack(("MULTI",)), in_full, pack(("PING",)), pack(add.wire()), pack(("EXEC",))])


def test_several_commands_have_each_source_once() -> None:
    wire = Bytes(pack)
    add = adding(ONE).command
    assert add is not None
    assert add.script is not None
    source = add.script.source.encode()
    assert wire.packed_all([add, ping(), add]).count(source) == 1
    assert wire.packed_all([add]).count(source) == 0
    assert wire.packed_all([add, add], afresh=True).count(source) == 1
    fresh = Bytes(pack)
    assert fresh.packed_all([add], afresh=True).count(source) == 1
    assert fresh.packed_all([add]).count(source) == 1


@pytest.mark.parametrize("together", [False, True])
def test_the_source_of_what_was_not_packed_is_still_to_be_sent(together: bool) -> None:
    wire = Bytes(pack)
    add, wrong = adding(ONE).command, bad().command
    assert add is not None
    assert add.script is not None
    assert wrong is not None
    with pytest.raises(UsageError, match="lone surrogate"):
        wire.packed_all([add, wrong]) if together else wire.packed(wrong)
    assert add.script.source.encode() in wire.packed(add)


def test_adds_of_one_queue_go_together_and_last() -> None:
    calls = [adding(ONE), Waiting(None, b"PING\n"), adding(OTHER), adding(ONE, delay=5), adding(ONE, priority=1)]
    first, plain, alone, *more = calls
    written = Bytes(pack).merged(calls)
    assert written[0] is plain
    assert written[1].members == [first, *more]
    assert called(written[1])[0] == b"EVAL"
    assert written[2] is alone
    assert called(alone)[0] == b"EVAL"
    assert len(written) == 3


def test_adds_of_two_profiles_go_apart() -> None:
    other = Profile("other", {"addMany": Script("addMany", "0", ADD_MANY.keys, "return 1")}, batches=True)
    calls = [adding(ONE), adding(ONE), adding(ONE), adding(ONE)]
    for call in calls[1:3]:
        assert call.command is not None
        call.command = other.applied(call.command)
    written = Bytes(pack).merged(calls)
    assert [each.members for each in written] == [[calls[0], calls[3]], [calls[1], calls[2]]]
    assert called(written[1]) == (b"EVAL", b"return 1")


def test_more_than_fit_go_in_several_calls() -> None:
    calls = [adding(ONE) for _ in range(101)]
    written = Bytes(pack).merged(calls)
    assert [len(each.members) for each in written] == [50, 50, 0]
    assert written[2] is calls[100]


def test_what_has_no_form_is_refused_alone() -> None:
    calls = [adding(ONE), bad(), adding(ONE)]
    assert Bytes(pack).merged(calls) == [calls[0], calls[2]]
    assert [type(call.error) for call in calls] == [type(None), UsageError, type(None)]
    alone = bad()
    assert Bytes(pack).merged([alone]) == []
    assert isinstance(alone.error, UsageError)


def test_each_gets_its_share() -> None:
    wire = Bytes(pack)
    calls = [adding(ONE), adding(ONE)]
    merged = wire.merged(calls)[0].command
    assert merged is not None
    assert wire.shares(merged, [b"1", b"2"], 2) == [b"1", b"2"]
    refused = wire.shares(merged, ServerError("OOM no memory"), 2)
    assert [str(each) for each in refused] == ["OOM no memory"] * 2
    assert refused[0] is not refused[1]
    assert called(wire.merged(calls)[0]) == (b"EVALSHA", ADD_MANY.sha1.encode())


def test_a_script_that_the_server_lost_is_sent_again() -> None:
    wire = Bytes(pack)
    calls = [adding(ONE), adding(ONE)]
    merged = wire.merged(calls)[0]
    assert called(merged)[0] == b"EVAL"
    assert merged.command is not None
    wire.shares(merged.command, ServerError("NOSCRIPT No matching script"), 2)
    assert called(wire.merged(calls)[0])[0] == b"EVAL"


def test_what_has_no_form_is_shown() -> None:
    with pytest.raises(UsageError) as caught:
        packer(pack_bulks)(("GET", "a\ud800"))
    assert caught.value.value == "a\ud800"


def test_replies_are_owed_for_what_was_sent_and_for_what_gathers() -> None:
    wire = Bytes(pack)
    assert not wire.owing
    wire._out.append(Waiting(None, b"1"))
    assert wire.owing
    wire._pending.append(wire._out.pop())
    assert wire.owing


def test_a_reply_that_nobody_asked_for_is_shown_where_it_is_a_refusal() -> None:
    assert unasked(ServerError("ERR max number of clients reached")) == "ERR max number of clients reached"
    assert unasked(b"+OK") == "the server sent a reply that nobody asked for"


def test_a_call_that_waits_gets_what_the_connection_died_of_first() -> None:
    wire = Bytes(pack)
    waiting, answered, refused = Waiting(None), Waiting(None), Waiting(None)
    answered.replies.append(b"+OK")
    refused.replies.append(ServerError("ERR max number of clients reached"))
    wire._pending += [waiting, answered, refused]
    wire.die(ConnectionLost, "the server closed the connection")
    wire.die(TransportTimeout, "later")
    why = [str(call.error).partition(";")[0] for call in (waiting, answered, refused)]
    closed = "the server closed the connection"
    assert why == [closed, closed, f"{closed} (ERR max number of clients reached)"]
    assert all(isinstance(call.error, ConnectionLost) and call.error.maybe_applied for call in wire._pending)


def test_an_interrupt_as_a_connection_dies_leaves_nobody_waiting() -> None:
    wire = Bytes(pack)
    wire._pending.append(Waiting(None))
    wire.interrupts = 1
    with pytest.raises(KeyboardInterrupt):
        wire.die(ConnectionLost, "reading failed")
    assert isinstance(wire._pending[0].error, ConnectionLost)
