"""Commands as values: what goes on the wire, how to read the reply, and whether it may be repeated.

An operation is a generator of commands: `value = yield from some_command(...)` gives the decoded value, typed exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from enum import Enum
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from bullmq_protocol.common.reply import Reply
from bullmq_protocol.common.units import Instant, Millis
from bullmq_protocol.errors import BullMQError, ServerError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Arg: TypeAlias = bytes | str | int
"""An argument on the wire. Numbers that are not integers are written as text by `codec.number_text` first."""


class Repeat(Enum):
    """Whether a command may be sent again after its reply was lost.

    Source: requirements, "Repeating a command"
    """

    SAFE = "safe"
    """Idempotent: reads, renewals."""
    GUARDED = "guarded"
    """The lock token guards it: a second run is refused, and the refusal means "applied before, or lost"."""
    UNSAFE = "unsafe"
    """A second run takes effect twice (add without an id, fetch): never repeated automatically."""


class Script(msgspec.Struct, frozen=True):
    """A Lua script: its name, SHA-1, number of keys, and text, which its repr leaves out.

    `together` is what several of its calls are merged into, if not the script of their `Merger`: that of a profile.
    """

    name: str
    sha1: str
    keys: int
    source: str
    together: Script | None = None

    def __repr__(self) -> str:
        return f"Script(name={self.name!r}, sha1={self.sha1!r}, keys={self.keys})"


class Merger(msgspec.Struct, frozen=True):
    """How commands of one kind go together in one script call, as `bullmq_protocol.net.merge` does it.

    At most `most` of them do, and several only with payloads of at most `most_bytes`. `build` makes the call of
    `script`, given the base prefix of their queue.
    """

    name: str
    script: Script
    most: int
    most_bytes: int
    build: Callable[[str, Sequence[Command[Any]]], Command[list[Reply | ServerError]]]

    def __repr__(self) -> str:
        return f"Merger({self.name!r})"


class Merge(msgspec.Struct, frozen=True, gc=False):
    """How to merge a command with others of its kind and queue into one call that does what they would do one by one.

    `queue` is the base prefix, `size` the length of the payload, `parts` what the common call needs beside the
    arguments.
    """

    into: Merger
    queue: str
    size: int
    parts: tuple[Arg, ...]

    def __repr__(self) -> str:
        return f"Merge({self.into.name!r}, queue={self.queue!r}, size={self.size})"


class Command(msgspec.Struct, Generic[T_co], frozen=True, gc=False):
    """One Redis command or script call. Equal commands have equal wire bytes.

    `block_ms`: the server may hold the reply back for this long (0: for ever), so the command needs a connection of its
    own. `merge`: the command may be merged with others; only with our own scripts.
    """

    name: str
    keys: tuple[str, ...]
    args: tuple[Arg, ...]
    decode: Callable[[Reply], T_co]
    script: Script | None = None
    block_ms: Millis | None = None
    repeat: Repeat = Repeat.UNSAFE
    merge: Merge | None = None

    def wire(self, *, full_source: bool = False) -> tuple[Arg, ...]:
        """Return the argument tuple; a script goes by its SHA unless `full_source`."""
        script = self.script
        if script is None:
            return (*self.name.split(" "), *self.keys, *self.args)
        if full_source:
            return ("EVAL", script.source, len(self.keys), *self.keys, *self.args)
        return ("EVALSHA", script.sha1, len(self.keys), *self.keys, *self.args)

    def __iter__(self) -> Generator[Command[T_co], Any, T_co]:
        """Yield the command itself; return the decoded reply: `value = yield from command`."""
        reply = yield self
        return self.decode(reply)


class Batch(msgspec.Struct, frozen=True):
    """Several commands in one round trip; inside MULTI/EXEC when `atomic`.

    Answered with one raw reply per command, in order; an error reply stands as a `ServerError` value in its place.
    An atomic batch brings the source of each script, because one that is missing inside MULTI does not undo the rest.
    """

    commands: tuple[Command[Any], ...]
    atomic: bool = False

    @property
    def repeat(self) -> Repeat:
        """SAFE when every command is, UNSAFE otherwise."""
        return Repeat.SAFE if all(c.repeat is Repeat.SAFE for c in self.commands) else Repeat.UNSAFE

    def decode(self, replies: list[Reply | ServerError]) -> list[Any]:
        """Return one decoded value, or the `BullMQError` it raised, per command."""
        results: list[Any] = []
        for command, reply in zip(self.commands, replies, strict=True):
            if isinstance(reply, ServerError):
                results.append(reply)
                continue
            try:
                results.append(command.decode(reply))
            except BullMQError as error:
                results.append(error)
        return results

    def __iter__(self) -> Generator[Batch, Any, list[Any]]:
        replies = yield self
        return self.decode(replies)


class Now(msgspec.Struct, frozen=True):
    """Ask the driver for the time; answered with an `Instant`."""

    def __iter__(self) -> Generator[Now, Any, Instant]:
        instant: Instant = yield self
        return instant


NOW = Now()

Step: TypeAlias = Command[Any] | Batch | Now
Operation: TypeAlias = Generator[Step, Any, T]
"""A generator of steps: a function of its replies, single use, no `yield` in `finally`."""
