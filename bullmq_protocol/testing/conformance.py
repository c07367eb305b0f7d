"""What every transport must do, as cases that run in both adapters: put your own transport through them.

A case is a generator of acts (`Perform`, `Begin`, `Abort`, ...); a runner carries them out on transports that you make:
`bullmq_anyio.testing.run_case` and `bullmq_sync.testing.run_case`. `CASES` holds them all; `Case.needs` says what a
case needs beyond a server: a `Network` that spoils connections, or calls that can be cancelled.

    @pytest.mark.parametrize("case", CASES, ids=str)
    async def test_transport(case: Case) -> None:
        await run_case(case, MyTransport, "redis://localhost")
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

import msgspec

from bullmq_protocol.command import Arg, Batch, Command, Repeat, Script
from bullmq_protocol.common.reply import as_none, as_text
from bullmq_protocol.errors import (
    AuthenticationFailed,
    Closed,
    ConnectionLost,
    ServerError,
    ServerTooOld,
    TransportError,
    TransportTimeout,
    UsageError,
)

E = TypeVar("E", bound=Exception)


class Where(Enum):
    """Which transport an act is for. Each is made at its first use and closed after the case."""

    MAIN = "main"
    DEDICATED = "dedicated"
    """`dedicated(client_name=CLIENT_NAME)` of MAIN."""
    OBSERVER = "observer"
    """Another one to the same server."""
    CUT = "cut"
    """Through the network that can fail."""
    STRANGER = "stranger"
    """With a user name and a password that the server refuses."""


class Fault(Enum):
    """What a network does to the next write that holds the marker, or to all connections."""

    NONE = "none"
    CUT_BEFORE = "cut before forwarding"
    CUT_AFTER = "cut after forwarding, before the reply"
    CUT_MID_REPLY = "cut in the middle of the reply"
    SWALLOW = "take the bytes and answer nothing"
    REFUSE = "close all connections and refuse new ones"
    OLD_VERSION = "write another version into the reply to INFO"


class Network(Protocol):
    """A proxy before the server. `url` leads through it."""

    url: str

    def arm(self, fault: Fault, marker: str = "", times: int = 1) -> None:
        """Spoil the next `times` writes that hold `marker`; `REFUSE`, `NONE` and `OLD_VERSION` hold until changed."""
        ...


class Need(Enum):
    """What a case needs beyond a server and a transport."""

    NETWORK = "network"
    CANCEL = "cancel"
    """Calls on the shared transport that can be cancelled (asyncio, trio)."""


# --- acts -------------------------------------------------------------------------------------------------------------


class Outcome(msgspec.Struct, frozen=True):
    """How a call ended: with a reply, with an exception, or cancelled (`error` is None then too)."""

    reply: Any = None
    error: Exception | None = None
    cancelled: bool = False


class Perform(msgspec.Struct, frozen=True):
    """Perform the step; answered with its `Outcome`."""

    step: Command[Any] | Batch
    where: Where = Where.MAIN


class Gather(msgspec.Struct, frozen=True):
    """Perform all steps at once; answered with the list of their `Outcome`s."""

    steps: tuple[Command[Any] | Batch, ...]
    where: Where = Where.MAIN


class Begin(msgspec.Struct, frozen=True):
    """Perform the step aside, under this name."""

    name: str
    step: Command[Any] | Batch
    where: Where = Where.MAIN


class Settle(msgspec.Struct, frozen=True):
    """Wait for the call of that name; answered with its `Outcome`."""

    name: str


class Abort(msgspec.Struct, frozen=True):
    """Cancel the call of that name; in threads, `interrupt()` its dedicated transport."""

    name: str
    where: Where


class Await(msgspec.Struct, frozen=True):
    """Perform the command on OBSERVER again and again until `holds(reply)`, for at most five seconds."""

    command: Command[Any]
    holds: Callable[[Any], bool]


class Arm(msgspec.Struct, frozen=True):
    """Arm the network."""

    fault: Fault
    marker: str = ""
    times: int = 1


class Close(msgspec.Struct, frozen=True):
    """Close the transport."""

    where: Where


Act: TypeAlias = Perform | Gather | Begin | Settle | Abort | Await | Arm | Close
Play: TypeAlias = Generator[Act, Any, None]


class Case(msgspec.Struct, frozen=True):
    """One thing that a transport must do. `play(key)` gives its acts; `key` is a key name that nobody else uses."""

    play: Callable[[str], Play]
    needs: frozenset[Need] = frozenset()

    @property
    def name(self) -> str:
        return self.play.__name__

    def __str__(self) -> str:
        return self.name


# --- what the cases send ----------------------------------------------------------------------------------------------

CLIENT_NAME: Final = "conformance-dedicated"


def _command(*wire: Arg, repeat: Repeat = Repeat.UNSAFE, block_ms: int | None = None) -> Command[None]:
    name, *args = wire
    return Command(str(name), (), tuple(args), as_none, block_ms=block_ms, repeat=repeat)


def _script(name: str, source: str) -> Script:
    return Script(name, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest(), 1, source)


_APPEND = _script("append", "return redis.call('APPEND', KEYS[1], ARGV[1])")
_ADD = _script("add", "return redis.call('INCRBY', KEYS[1], ARGV[1])")
_SLOW = _script("slow", "for _ = 1, ARGV[1] do redis.call('EXISTS', KEYS[1]) end return 'slow'")


def _append(key: str, text: str) -> Command[None]:
    return Command("append", (key,), (text,), as_none, _APPEND)


def _add(key: str, amount: int, repeat: Repeat = Repeat.UNSAFE) -> Command[None]:
    return Command("add", (key,), (amount,), as_none, _ADD, repeat=repeat)


def _wait(key: str, block_ms: int) -> Command[None]:
    return _command("BLPOP", key, str(block_ms / 1000), block_ms=block_ms)


def _hang(key: str) -> Command[None]:
    """A command that is answered once the list `key` has an element, on a transport that does not know it blocks."""
    return _command("BLPOP", key, 0)


_LIST = _command("CLIENT", "LIST", repeat=Repeat.SAFE)


# --- how the cases judge ----------------------------------------------------------------------------------------------


def _expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise AssertionError(f"{what}: expected {wanted!r}, found {found!r}")


def _plain(reply: Any) -> Any:
    """Return a reply with its text as bytes and its arrays as lists, as a transport may give either."""
    if isinstance(reply, str):
        return reply.encode("utf-8", "surrogateescape")
    if isinstance(reply, (list, tuple)):
        return [_plain(item) for item in cast("list[Any]", reply)]
    return reply


def _reply(outcome: Outcome) -> Any:
    if outcome.error is not None:
        raise AssertionError(f"expected a reply, found {outcome.error!r}") from outcome.error
    return _plain(outcome.reply)


def _failure(outcome: Outcome, kind: type[E]) -> E:
    if not isinstance(outcome.error, kind):
        raise AssertionError(f"expected {kind.__name__}, found {outcome!r}") from outcome.error
    return outcome.error


def _ask(step: Command[Any] | Batch, where: Where = Where.MAIN) -> Generator[Act, Any, Any]:
    return _reply((yield Perform(step, where)))


def _blocked(reply: Any) -> int:
    return sum(" flags=b" in line for line in as_text(reply).splitlines())


def _hanging(name: str, step: Command[Any], where: Where) -> Play:
    """Begin a call that the server does not answer yet, and wait until the server has it."""
    before = _blocked((yield from _ask(_LIST, Where.OBSERVER)))
    yield Begin(name, step, where)
    yield Await(_LIST, lambda reply: _blocked(reply) > before)


# --- replies ----------------------------------------------------------------------------------------------------------


def replies_of_every_shape(key: str) -> Play:
    """Integers, strings, nil and nested arrays come as they are, errors are raised, and cost no connection."""
    _expect("OK", (yield from _ask(_command("SET", key, "7"))), b"OK")
    _expect("an integer", (yield from _ask(_command("INCR", key))), 8)
    _expect("a bulk string", (yield from _ask(_command("GET", key))), b"8")
    _expect("nil", (yield from _ask(_command("GET", f"{key}-no"))), None)
    nested = _command("EVAL", "return {1, {'two', {}}, false, 'four'}", 0)
    wanted: list[Any] = [1, [b"two", []], None, b"four"]
    _expect("an array", (yield from _ask(nested)), wanted)
    for wire, code in (
        (("LPUSH", key, "x"), "WRONGTYPE"),
        (("INCRBY", key), "ERR"),
        (("EVALSHA", "0" * 40, 0), "NOSCRIPT"),
        (("EVAL", "return redis.error_reply('MY own words')", 0), "MY"),
    ):
        _expect("the error's code", _failure((yield Perform(_command(*wire))), ServerError).code, code)
    _expect("a reply after errors", (yield from _ask(_command("GET", key))), b"8")


def bytes_come_back_as_they_went(key: str) -> Play:
    """NUL, line ends, bytes that are not UTF-8, and text of all planes."""
    raw = bytes(range(256)) + b"\r\n$-1\r\n"
    yield from _ask(_command("SET", key, raw))
    _expect("raw bytes", (yield from _ask(_command("GET", key))), raw)
    for text in ("", "\x00", "grün 東京 🐂", b"\xff\xc3".decode("utf-8", "surrogateescape")):
        yield from _ask(_command("SET", key, text))
        wanted = text.encode("utf-8", "surrogateescape")
        _expect("text", (yield from _ask(_command("GET", key))), wanted)


def big_values(key: str) -> Play:
    """Four megabytes each way, and an array of ten thousand items."""
    value = b"0123456789abcde\n" * (1 << 18)
    yield from _ask(_command("SET", key, value))
    _expect("the same length", len((yield from _ask(_command("GET", key)))), len(value))
    count = 10_000
    many = _command("EVAL", "local t = {} for i = 1, ARGV[1] do t[i] = i end return t", 0, count)
    _expect("all items", (yield from _ask(many)), list(range(1, count + 1)))


def each_caller_gets_its_own_reply(key: str) -> Play:
    """Three hundred calls at once, single ones and batches."""
    steps: list[Command[Any] | Batch] = []
    for number in range(300):
        echo = _command("ECHO", f"{key}-{number}")
        steps.append(Batch((echo, echo)) if number % 3 == 0 else echo)
    outcomes = yield Gather(tuple(steps))
    for number, outcome in enumerate(outcomes):
        text = f"{key}-{number}".encode()
        _expect("its own reply", _reply(outcome), [text, text] if number % 3 == 0 else text)


# --- batches and scripts ----------------------------------------------------------------------------------------------


def batch_keeps_its_order(key: str) -> Play:
    """Commands of a batch run one after the other, atomic or not; an empty batch is no round trip."""
    for atomic in (False, True):
        letters = tuple(_command("RPUSH", key, letter) for letter in "abc")
        replies = yield from _ask(
            Batch((*letters, _command("LRANGE", key, 0, -1), _command("DEL", key)), atomic=atomic)
        )
        _expect("the replies", replies, [1, 2, 3, [b"a", b"b", b"c"], 1])
        _expect("no replies", (yield from _ask(Batch((), atomic=atomic))), [])


def errors_stand_as_values_in_a_batch(key: str) -> Play:
    """An error reply does not stop the commands after it, and stands in its place."""
    for atomic in (False, True):
        counter = f"{key}-{atomic}"
        batch = Batch((_add(counter, 5), _command("LPUSH", counter, "x"), _add(counter, 1)), atomic=atomic)
        first, second, third = yield from _ask(batch)
        _expect("the replies around it", (first, third), (5, 6))
        _expect("an error in its place", isinstance(second, ServerError) and second.code, "WRONGTYPE")


def refused_transaction_runs_nothing(key: str) -> Play:
    """A command that cannot be queued undoes the whole atomic batch; every place holds an error."""
    replies = yield from _ask(Batch((_command("SET", key, 1), _command("INCRBY", key)), atomic=True))
    _expect("errors only", [isinstance(reply, ServerError) for reply in replies], [True, True])
    _expect("nothing was written", (yield from _ask(_command("EXISTS", key))), 0)


def script_is_sent_again_after_a_flush(key: str) -> Play:
    """A script that the server has lost still runs, once."""
    for round_ in (1, 2, 3):
        _expect("the counter", (yield from _ask(_add(key, 1))), round_)
        yield from _ask(_command("SCRIPT", "FLUSH"), Where.OBSERVER)


def batch_of_scripts_after_a_flush(key: str) -> Play:
    """The same for the scripts of a batch, in its order."""
    for atomic in (False, True):
        text = f"{key}-{atomic}"
        batch = Batch(tuple(_append(text, letter) for letter in "abc"), atomic=atomic)
        _expect("lengths", (yield from _ask(batch)), [1, 2, 3])
        yield from _ask(_command("SCRIPT", "FLUSH"), Where.OBSERVER)
        _expect("lengths", (yield from _ask(batch)), [4, 5, 6])
        _expect("the order", (yield from _ask(_command("GET", text))), b"abcabc")


# --- blocking, cancelling, closing ------------------------------------------------------------------------------------


def blocking_call_is_answered(key: str) -> Play:
    """A dedicated transport waits under its name, and others are not held up."""
    yield from _hanging("wait", _wait(key, 0), Where.DEDICATED)
    _expect("named", f" name={CLIENT_NAME} " in as_text((yield from _ask(_LIST, Where.OBSERVER))), True)
    _expect("the element pushed", (yield from _ask(_command("RPUSH", key, "x"))), 1)
    _expect("the element", _reply((yield Settle("wait"))), [key.encode(), b"x"])


def blocking_call_runs_out(key: str) -> Play:
    """Without an element the reply is nil, also with a block time above the time limit of other commands."""
    _expect("nil", (yield from _ask(_wait(key, 50), Where.DEDICATED)), None)
    _expect("nil", (yield from _ask(_wait(key, 1200), Where.DEDICATED)), None)


def blocking_call_needs_a_dedicated_transport(key: str) -> Play:
    """On the shared one it would hold up everybody."""
    _failure((yield Perform(_wait(key, 10))), UsageError)


def interrupted_blocking_call(key: str) -> Play:
    """It ends at once, the server forgets it, and the transport can be used again."""
    for name in ("first", "second"):
        yield from _hanging(name, _wait(key, 0), Where.DEDICATED)
        yield Abort(name, Where.DEDICATED)
        outcome: Outcome = yield Settle(name)
        _expect("interrupted", outcome.cancelled or isinstance(outcome.error, ConnectionLost), True)
        yield Await(_LIST, lambda reply: _blocked(reply) == 0)
    yield from _ask(_command("RPUSH", key, "x"))
    _expect("the element is still there", (yield from _ask(_command("LLEN", key))), 1)
    _expect("the element", (yield from _ask(_wait(key, 0), Where.DEDICATED)), [key.encode(), b"x"])


def cancelled_call_leaves_the_others_alone(key: str) -> Play:
    """The reply to a cancelled call goes to nobody; calls before and after it get theirs."""
    for number in range(5):
        yield Begin(f"cancelled {number}", Command("slow", (key,), (30_000,), as_none, _SLOW))
        yield Begin(f"kept {number}", _command("ECHO", f"{number}"))
        yield Abort(f"cancelled {number}", Where.MAIN)
        _expect("its own reply", (yield from _ask(_command("ECHO", key))), key.encode())
        _expect("its own reply", _reply((yield Settle(f"kept {number}"))), f"{number}".encode())
        yield Settle(f"cancelled {number}")


def close_ends_waiting_calls(key: str) -> Play:
    """Waiting calls and later ones raise `Closed`, on the dedicated transports too; closing twice is fine."""
    yield from _hanging("main", _hang(key), Where.MAIN)
    yield from _hanging("dedicated", _wait(key, 0), Where.DEDICATED)
    yield Close(Where.MAIN)
    _expect("it may have run", _failure((yield Settle("main")), Closed).maybe_applied, True)
    _failure((yield Settle("dedicated")), Closed)
    for where in (Where.MAIN, Where.DEDICATED):
        _expect("nothing was sent", _failure((yield Perform(_add(key, 1), where)), Closed).maybe_applied, False)
        yield Close(where)


def closing_a_dedicated_transport_leaves_the_shared_one(key: str) -> Play:
    """Each dedicated transport has a connection of its own."""
    yield from _hanging("dedicated", _wait(key, 0), Where.DEDICATED)
    yield Close(Where.DEDICATED)
    _failure((yield Settle("dedicated")), Closed)
    _expect("the shared one", (yield from _ask(_add(key, 1))), 1)


# --- losses -----------------------------------------------------------------------------------------------------------


def _lost(key: str, fault: Fault, ran: int) -> Play:
    # The server knows the script from here on: a transport may send its SHA-1 alone first.
    yield from _ask(_add(key, 0), Where.CUT)
    applied = 0
    for repeat in Repeat:
        yield Arm(fault, key)
        outcome = yield Perform(_add(key, 1, repeat), Where.CUT)
        applied += ran
        if repeat is Repeat.SAFE:
            applied += 1
            _expect("the reply to the second sending", _reply(outcome), applied)
        else:
            _expect("it may have run", _failure(outcome, ConnectionLost).maybe_applied, True)
        _expect("the server's count", int((yield from _ask(_command("GET", key), Where.OBSERVER)) or 0), applied)
    _expect("the connection is back", (yield from _ask(_add(key, 0), Where.CUT)), applied)


def lost_before_the_server_got_it(key: str) -> Play:
    """Only a SAFE command is sent again; the others say that they may have run."""
    yield from _lost(key, Fault.CUT_BEFORE, 0)


def lost_before_the_reply(key: str) -> Play:
    """The same, and it did run: nothing else runs twice."""
    yield from _lost(key, Fault.CUT_AFTER, 1)


def lost_in_the_middle_of_the_reply(key: str) -> Play:
    """The same; half a reply counts as none, and does not spoil the next one."""
    yield from _lost(key, Fault.CUT_MID_REPLY, 1)


def sent_again_only_once(key: str) -> Play:
    """A SAFE command that is lost twice raises."""
    yield Arm(Fault.CUT_AFTER, key, 5)
    outcome = yield Perform(_command("INCR", key, repeat=Repeat.SAFE), Where.CUT)
    _failure(outcome, ConnectionLost)
    yield Arm(Fault.NONE)
    _expect("two runs and one more", (yield from _ask(_command("INCR", key), Where.CUT)), 3)


def no_reply_in_time(key: str) -> Play:
    """Every waiting call raises, none is sent again, and the next one gets a new connection."""
    yield from _ask(_command("PING"), Where.CUT)
    # Once for each: a transport may send them one after the other.
    yield Arm(Fault.SWALLOW, key, len(Repeat))
    for outcome in (yield Gather(tuple(_command("SETNX", key, 1, repeat=repeat) for repeat in Repeat), Where.CUT)):
        _expect("it may have run", _failure(outcome, TransportError).maybe_applied, True)
    yield Arm(Fault.SWALLOW, key)
    _failure((yield Perform(_command("SETNX", key, 1, repeat=Repeat.SAFE), Where.CUT)), TransportTimeout)
    _expect("it never ran", (yield from _ask(_command("EXISTS", key), Where.OBSERVER)), 0)
    _expect("the connection is back", (yield from _ask(_command("PING"), Where.CUT)), b"PONG")


def nobody_listens(key: str) -> Play:
    """Nothing was sent, so nothing ran; when the server is back, so is the transport."""
    yield Arm(Fault.REFUSE)
    outcome = yield Perform(_add(key, 1), Where.CUT)
    _expect("nothing was sent", _failure(outcome, TransportError).maybe_applied, False)
    yield Arm(Fault.NONE)
    _expect("it ran once", (yield from _ask(_add(key, 1), Where.CUT)), 1)


def wrong_password(key: str) -> Play:
    """Raised at the first call, by name."""
    del key
    _failure((yield Perform(_command("PING"), Where.STRANGER)), AuthenticationFailed)


def server_too_old(key: str) -> Play:
    """Raised at the first call, with the version found; a call after the server's upgrade works."""
    yield Arm(Fault.OLD_VERSION)
    error = _failure((yield Perform(_add(key, 1), Where.CUT)), ServerTooOld)
    _expect("the version in the message", "5." in str(error), True)
    yield Arm(Fault.NONE)
    _expect("it ran once", (yield from _ask(_add(key, 1), Where.CUT)), 1)


_NETWORK = frozenset({Need.NETWORK})

CASES: Final[tuple[Case, ...]] = (
    Case(replies_of_every_shape),
    Case(bytes_come_back_as_they_went),
    Case(big_values),
    Case(each_caller_gets_its_own_reply),
    Case(batch_keeps_its_order),
    Case(errors_stand_as_values_in_a_batch),
    Case(refused_transaction_runs_nothing),
    Case(script_is_sent_again_after_a_flush),
    Case(batch_of_scripts_after_a_flush),
    Case(blocking_call_is_answered),
    Case(blocking_call_runs_out),
    Case(blocking_call_needs_a_dedicated_transport),
    Case(interrupted_blocking_call),
    Case(cancelled_call_leaves_the_others_alone, frozenset({Need.CANCEL})),
    Case(close_ends_waiting_calls),
    Case(closing_a_dedicated_transport_leaves_the_shared_one),
    Case(lost_before_the_server_got_it, _NETWORK),
    Case(lost_before_the_reply, _NETWORK),
    Case(lost_in_the_middle_of_the_reply, _NETWORK),
    Case(sent_again_only_once, _NETWORK),
    Case(no_reply_in_time, _NETWORK),
    Case(nobody_listens, _NETWORK),
    Case(wrong_password),
    Case(server_too_old, _NETWORK),
)
