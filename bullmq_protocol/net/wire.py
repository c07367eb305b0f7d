"""What the connections of every adapter have in common: the bytes of commands, and commands that go together.

The packing itself, of arguments to RESP, is handed in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, Generic, Protocol, TypeVar

from bullmq_protocol.command import Arg, Command, Script
from bullmq_protocol.common.reply import Reply
from bullmq_protocol.errors import ServerError, TransportError, UsageError
from bullmq_protocol.net.merge import as_shares, cut, merged

Pack = Callable[[Sequence[Arg]], bytes]
"""Returns the bytes of one command; raises `UsageError`."""


def packer(pack_command: Callable[[tuple[Arg, ...]], bytes]) -> Pack:
    """Return a function that packs commands, given one that does so for valid text."""

    def pack(args: Sequence[Arg]) -> bytes:
        # Numbers as text: hiredis 3.4 crashes where a signal's handler raises while it makes text of one.
        args = tuple([str(arg) if type(arg) is int else arg for arg in args])
        try:
            return pack_command(args)
        except UnicodeEncodeError:
            pass
        # What `reply.as_text` read from bytes that are not UTF-8 goes back as those bytes.
        try:
            return pack_command(
                tuple(arg.encode("utf-8", "surrogateescape") if isinstance(arg, str) else arg for arg in args)
            )
        except UnicodeEncodeError as error:
            rule = "holds a lone surrogate, which has no form on the wire"
            raise UsageError("argument", error.object, rule) from None

    return pack


READ_SIZE = 1 << 16
NOTHING = object()
"""What a reader of RESP returns where it needs more bytes."""


def unasked(reply: Reply | ServerError) -> str:
    """Return what a connection dies of where a reply comes that no call waits for."""
    # A server that refuses a connection may say so before anything is asked.
    return str(reply) if isinstance(reply, ServerError) else "the server sent a reply that nobody asked for"


_MULTI: Final = b"*1\r\n$5\r\nMULTI\r\n"
_EXEC: Final = b"*1\r\n$4\r\nEXEC\r\n"


def _with_source(payload: bytes, script: Script) -> tuple[bytes, bytes, bytes]:
    """Return the parts of a script call with its source, given the one by SHA-1: both have as many arguments.

    A source is longer than most payloads, and each transaction brings those of its scripts: it is copied when the parts
    are joined, at no other time.
    """
    before, _, after = payload.partition(b"$7\r\nEVALSHA\r\n$%d\r\n%b\r\n" % (len(script.sha1), script.sha1.encode()))
    return before, _source(script), after


@lru_cache(maxsize=64)
def _source(script: Script) -> bytes:
    text = script.source.encode()
    return b"$4\r\nEVAL\r\n$%d\r\n%b\r\n" % (len(text), text)


class WaitingCall(Protocol):
    """What waits to be written: bytes, or a command that is packed only when it is sent, because it may go together
    with others."""

    payload: bytes
    replies: list[Any]

    @property
    def command(self) -> Command[Any] | None: ...


C = TypeVar("C", bound=WaitingCall)


class Wire(ABC, Generic[C]):
    """Packs for one connection: a script goes with its source the first time, then by its SHA-1."""

    def __init__(self, pack: Pack) -> None:
        self._pack = pack
        self._sourced: set[str] = set()
        self._out: list[C] = []
        """What gathers until it is written."""
        self._pending: deque[C] = deque()
        """What waits for replies, in their order."""
        self._death: tuple[type[TransportError], str] | None = None
        """What it died of."""

    @property
    def owing(self) -> bool:
        """Replies are still to come."""
        return bool(self._pending or self._out)

    def packed(self, command: Command[Any]) -> bytes:
        """Return a command's bytes."""
        script = command.script
        payload = self._pack(command.wire())
        if script is None or script.sha1 in self._sourced:
            return payload
        payload = b"".join(_with_source(payload, script))
        self._sourced.add(script.sha1)
        return payload

    def packed_all(self, commands: Iterable[Command[Any]], *, afresh: bool = False, atomic: bool = False) -> bytes:
        """Return the bytes of several commands.

        `afresh`: as if no script had been sent before them. `atomic`: between MULTI and EXEC.
        """
        known: set[str] = set() if afresh else self._sourced
        new: set[str] = set()
        pieces = [_MULTI] if atomic else []
        for command in commands:
            script = command.script
            payload = self._pack(command.wire())
            if script is None or script.sha1 in known or script.sha1 in new:
                pieces.append(payload)
            else:
                pieces += _with_source(payload, script)
                new.add(script.sha1)
        if atomic:
            pieces.append(_EXEC)
        known |= new
        return b"".join(pieces)

    def merged(self, calls: Sequence[C]) -> list[C]:
        """Return the calls to write: commands are packed, merged by kind and queue, and come last."""
        groups: dict[tuple[str, str, str], tuple[list[C], list[Command[Any]]]] = {}
        result: list[C] = []
        for call in calls:
            command = call.command
            if command is None:
                result.append(call)
                continue
            merge = command.merge
            assert merge is not None  # else its bytes would be here
            together = None if command.script is None else command.script.together
            kind = merge.into.name, merge.queue, "" if together is None else together.sha1
            group = groups.get(kind)
            if group is None:
                group = groups[kind] = [], []
            group[0].append(call)
            group[1].append(command)
        for waiting, commands in groups.values():
            at = 0
            for part in cut(commands):
                members = waiting[at : at + len(part)]
                at += len(part)
                if len(part) > 1:
                    command = merged(part)
                    try:
                        payload = self.packed(command)
                    except UsageError:
                        pass  # The one that has no form on the wire is found below.
                    else:
                        result.append(self._together(members, payload, command))
                        continue
                for call, alone in zip(members, part, strict=True):
                    try:
                        call.payload = self.packed(alone)
                        result.append(call)
                    except UsageError as error:
                        self._refuse(call, error)
        return result

    def shares(self, merged: Command[Any], reply: Reply | ServerError, count: int) -> list[Reply | ServerError]:
        """Return what each of the `count` members of a merged call gets of its reply, or of its refusal."""
        if isinstance(reply, ServerError):
            if reply.code == "NOSCRIPT" and merged.script is not None:
                # Each sends its own command again; the next ones that go together send the source.
                self._sourced.discard(merged.script.sha1)
            # One each: a traceback belongs to the caller that raises it.
            return [ServerError(str(reply)) for _ in range(count)]
        return as_shares(reply, count)

    def _die(self, kind: type[TransportError], message: str) -> None:
        """Fail every call with `kind`; only the first death counts."""
        if self._death is None:
            self._death = (kind, message)
        try:
            self._end()
        except BaseException:
            # It can be done again, from wherever it was cut short.
            self._end()
            raise

    def _loss(self, call: C, *, maybe_applied: bool) -> TransportError:
        """Return what a call gets that still waits at the death."""
        assert self._death is not None
        kind, message = self._death
        # A server that refuses a connection says why before it closes it.
        first = call.replies[0] if call.replies else None
        why = f" ({first})" if isinstance(first, ServerError) else ""
        return kind(f"{message}{why}", maybe_applied=maybe_applied)

    @abstractmethod
    def _end(self) -> None:
        """Let the waiting calls have the error, and close. It may be called again."""

    @abstractmethod
    def _together(self, members: list[C], payload: bytes, command: Command[Any]) -> C:
        """Return one call that stands for the members and makes `command`."""

    @abstractmethod
    def _refuse(self, call: C, error: UsageError) -> None:
        """Fail a call that has no form on the wire."""
