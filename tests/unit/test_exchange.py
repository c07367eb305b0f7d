"""The repeat rule, scripts that the server lost, batches and time limits: one text for all connections."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from bullmq_protocol.command import Batch, Command, Repeat, Script
from bullmq_protocol.common.reply import as_text
from bullmq_protocol.errors import (
    ConnectionLost,
    ServerError,
    TransportError,
    TransportTimeout,
    UsageError,
)
from bullmq_protocol.net.exchange import (
    BLOCK_MARGIN_MS,
    Ask,
    Course,
    answer,
    answers,
    is_lost_script,
    limit_of,
    may_repeat,
    outcomes,
)

LOST = ServerError("NOSCRIPT No matching script")
OTHER = ServerError("WRONGTYPE of a key")


def plain(repeat: Repeat = Repeat.SAFE, block_ms: int | None = None) -> Command[Any]:
    return Command("PING", (), (), as_text, repeat=repeat, block_ms=block_ms)


SCRIPTED: Command[Any] = Command("addJob", (), (), as_text, script=Script("addJob", "0" * 40, 0, "return 1"))


def played(course: Course, *brought: Sequence[Any] | TransportError) -> tuple[list[Ask], Any]:
    """Return what a course asked for, and what it returned, when it is brought this."""
    asked: list[Ask] = []
    resume: Any = course.send
    value: Any = None
    rest = list(brought)
    while True:
        try:
            asked.append(resume(value))
        except StopIteration as stop:
            assert rest == []
            return asked, stop.value
        value = rest.pop(0)
        resume = course.throw if isinstance(value, TransportError) else course.send


@pytest.mark.parametrize(
    ("step", "error", "again"),
    [
        (plain(), ConnectionLost("", maybe_applied=True), True),
        (plain(), TransportTimeout("", maybe_applied=True), False),
        (plain(), TransportTimeout("", maybe_applied=False), True),
        (plain(Repeat.GUARDED), ConnectionLost("", maybe_applied=True), False),
        (plain(Repeat.UNSAFE), ConnectionLost("", maybe_applied=True), False),
        (plain(Repeat.UNSAFE), ConnectionLost("", maybe_applied=False), True),
        (Batch((plain(), plain())), ConnectionLost("", maybe_applied=True), True),
        (Batch((plain(), plain(Repeat.UNSAFE))), ConnectionLost("", maybe_applied=True), False),
    ],
)
def test_what_is_sent_once_more(step: Command[Any] | Batch, error: TransportError, again: bool) -> None:
    assert may_repeat(step, error) is again


def test_time_limits() -> None:
    assert limit_of(plain(), 3000, dedicated=False) == 3000
    assert limit_of(plain(), None, dedicated=True) is None
    assert limit_of(plain(block_ms=5000), 3000, dedicated=True) == 5000 + BLOCK_MARGIN_MS
    assert limit_of(plain(block_ms=0), 3000, dedicated=True) is None
    with pytest.raises(UsageError, match="dedicated"):
        limit_of(plain(block_ms=0), 3000, dedicated=False)


@pytest.mark.parametrize(
    ("command", "reply", "lost"),
    [
        (SCRIPTED, LOST, True),
        (SCRIPTED, OTHER, False),
        (SCRIPTED, b"NOSCRIPT", False),
        (plain(), LOST, False),
    ],
)
def test_a_script_that_the_server_lost(command: Command[Any], reply: Any, lost: bool) -> None:
    assert is_lost_script(command, reply) is lost


def test_a_lost_script_is_sent_with_its_source() -> None:
    assert played(answer(SCRIPTED, LOST), [b"1"]) == ([Ask((SCRIPTED,), afresh=True)], b"1")


def test_an_error_to_a_single_command_is_raised() -> None:
    with pytest.raises(ServerError, match="WRONGTYPE"):
        played(answer(plain(), OTHER))
    with pytest.raises(ServerError, match="WRONGTYPE"):
        played(answer(SCRIPTED, LOST), [OTHER])
    with pytest.raises(ServerError, match="NOSCRIPT"):
        played(answer(SCRIPTED, LOST), [LOST])


def test_a_batch_without_commands_sends_nothing() -> None:
    assert played(answers(Batch(()))) == ([], [])


def test_only_lost_scripts_of_a_batch_are_sent_again() -> None:
    commands = (SCRIPTED, plain(), SCRIPTED)
    asked, replies = played(answers(Batch(commands)), [LOST, OTHER, LOST], [b"1", b"3"])
    assert asked == [Ask(commands), Ask([SCRIPTED, SCRIPTED], afresh=True)]
    assert replies == [b"1", OTHER, b"3"]
    assert played(answers(Batch(commands)), [b"1", OTHER, b"3"]) == ([Ask(commands)], [b"1", OTHER, b"3"])


@pytest.mark.parametrize("kind", [ConnectionLost, TransportTimeout])
def test_a_batch_that_breaks_between_its_parts_has_run_in_part(kind: type[TransportError]) -> None:
    with pytest.raises(kind, match="broke; the command may have run") as caught:
        played(answers(Batch((SCRIPTED, plain()))), [LOST, b"2"], kind("broke", maybe_applied=False))
    assert caught.value.maybe_applied
    assert caught.value.reason == "broke"
    with pytest.raises(kind) as caught:
        played(answers(Batch((SCRIPTED, plain()))), kind("broke", maybe_applied=False))
    assert not caught.value.maybe_applied


@pytest.mark.parametrize(
    ("replies", "found"),
    [
        ([b"OK", b"QUEUED", b"QUEUED", [b"1", OTHER]], [b"1", OTHER]),
        ([b"OK", b"QUEUED", OTHER, LOST], [LOST, OTHER]),
        ([OTHER, LOST, b"ran", OTHER], [LOST, b"ran"]),
    ],
)
def test_what_a_transaction_brought(replies: list[Any], found: list[Any]) -> None:
    assert outcomes(replies) == found
    commands = (SCRIPTED, plain(), replace(SCRIPTED, script=Script("other", "1" * 40, 0, "return 2")))
    assert played(answers(Batch(commands, atomic=True)), replies) == (
        [Ask(commands, afresh=True, atomic=True)],
        found,
    )


def test_a_transaction_of_one_script_goes_without_its_source() -> None:
    commands = (SCRIPTED, plain(), SCRIPTED)
    begun = [b"OK", b"QUEUED", b"QUEUED", b"QUEUED"]
    batch = Batch(commands, atomic=True)
    asked = Ask(commands, atomic=True)
    assert played(answers(batch), [*begun, [b"1", b"2", OTHER]]) == ([asked], [b"1", b"2", OTHER])
    # Without the script nothing was done.
    assert played(answers(batch), [*begun, [LOST, b"2", LOST]], [*begun, [b"1", b"3", b"4"]]) == (
        [asked, replace(asked, afresh=True)],
        [b"1", b"3", b"4"],
    )
    assert played(answers(batch), [*begun, [LOST, b"2", LOST]], [*begun, [LOST, b"3", LOST]])[1] == [LOST, b"3", LOST]
    with pytest.raises(ConnectionLost) as caught:
        played(answers(batch), [*begun, [LOST, b"2", LOST]], ConnectionLost("broke", maybe_applied=False))
    assert not caught.value.maybe_applied


@pytest.mark.parametrize(
    "commands", [(SCRIPTED, plain(Repeat.UNSAFE)), (SCRIPTED, plain(Repeat.GUARDED)), (plain(), plain())]
)
def test_a_transaction_that_may_not_run_twice_brings_its_sources(commands: tuple[Command[Any], ...]) -> None:
    asked, found = played(answers(Batch(commands, atomic=True)), [b"OK", b"QUEUED", b"QUEUED", [LOST, b"2"]])
    assert asked == [Ask(commands, afresh=True, atomic=True)]
    assert found == [LOST, b"2"]
