"""What one of several sentinels answers that are asked at the same time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import msgspec

from bullmq_anyio.net.link import SocketLink
from bullmq_protocol.errors import BullMQError, Closed, ConnectionLost
from bullmq_protocol.net.handshake import NO_TLS
from bullmq_protocol.net.topology import Named


class Part(Protocol):
    """A part of an attempt to connect: one of several calls."""

    @property
    def scope(self) -> AbstractContextManager[Any]:
        """What ends its body when the time is over."""
        ...

    @property
    def awaits(self) -> str | None:
        """The peer that has not answered the handshake of TLS."""
        ...


P = TypeVar("P", bound=Part)


class Answer(msgspec.Struct, frozen=True, eq=False):
    """What a sentinel says, and the link that ends when it has more to say."""

    named: Named
    watch: SocketLink | None = None

    @property
    def suffices(self) -> bool:
        """Whether the others are waited for only a moment longer."""
        return self.named.place is not None

    def discard(self) -> None:
        """Listen to it no more."""
        if self.watch is not None:
            self.watch.die(Closed, "not needed")


def failure_of(error: BullMQError | OSError | None, awaits: str | None) -> BullMQError:
    """Return why there is no answer. `awaits` is the peer that has not answered the handshake of TLS; None for no
    error: no time was left."""
    if isinstance(error, BullMQError):
        return error
    why = NO_TLS if awaits is not None else "no answer in time" if error is None else str(error)
    return ConnectionLost(why, maybe_applied=False)


async def outcome_of(part: P, call: Callable[[P], Awaitable[Answer]]) -> Answer | BullMQError:
    """Make a call in its part of an attempt; return the answer, or why there is none."""
    error: BullMQError | OSError | None = None
    try:
        with part.scope:
            return await call(part)
    except (BullMQError, OSError) as caught:
        error = caught
    return failure_of(error, part.awaits)
