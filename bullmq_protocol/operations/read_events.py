"""The reader of an event stream as a machine: what to ask next, and what an answer means. It waits for nothing itself.

Every entry after the start comes once and in order, whatever connection it comes over: the next question always names
the last entry that was given out. The start, if none is given, is fixed once as the stream's newest entry.
"""

from __future__ import annotations

from typing import Any, Final

from bullmq_protocol.command import Batch, Command
from bullmq_protocol.commands.events import NO_ENTRY, last_event_id, read_events, wait_for_events
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.units import Millis, check_whole
from bullmq_protocol.errors import (
    AuthenticationFailed,
    BullMQError,
    Closed,
    ServerError,
    ServerTooOld,
    TransportError,
    UnexpectedReply,
)
from bullmq_protocol.events.stream import EventsMissed, RawEntry, ReadEvent, check_entry_id, entry_place, read_entry

PAGE: Final = 1000
FIRST_DELAY_MS: Final[Millis] = 100
MAX_DELAY_MS: Final[Millis] = 30_000
JITTER: Final = 0.2


class EventReader:
    """Where a reader of a queue's events stands.

    Perform `step`, give its raw reply to `answered` or its error to `failed`.

    Source: specs/04-schedulers-flows-events.md#sec-8-1
    """

    def __init__(
        self,
        keys: QueueKeys,
        *,
        last_event_id: str | None = None,
        block_ms: Millis = 10_000,
        max_delay_ms: Millis = MAX_DELAY_MS,
    ) -> None:
        self._keys = keys
        self.position = None if last_event_id is None else check_entry_id("last_event_id", last_event_id)
        self._block_ms = check_whole("blocking_timeout", block_ms, least=1)
        self._max_delay_ms = check_whole("max_reconnect_delay", max_delay_ms, least=1)
        self._caught_up = False
        self._step: Command[Any] | Batch | None = None
        self.contacted = False
        self.failures = 0

    def step(self) -> Command[Any] | Batch:
        """Return the next command: it asks first for the start, then for the entries there are, then for new ones."""
        if self.position is None:
            self._step = last_event_id(self._keys)
        elif self._caught_up:
            self._step = wait_for_events(self._keys, self.position, count=1, block_ms=self._block_ms)
        else:
            self._step = read_events(self._keys, self.position, count=PAGE)
        return self._step

    def answered(self, reply: Any) -> list[ReadEvent]:
        """Return the events of a reply, and continue after them.

        Raises `ServerError` and `UnexpectedReply`, which are for `failed`.
        """
        step = self._step
        assert step is not None
        if self.position is None:
            assert isinstance(step, Command)
            self.position = step.decode(reply)
            self._contact()
            return []
        found: list[ReadEvent] = []
        if isinstance(step, Command):
            # What woke it is read anew, with a look at the stream's beginning, which a blocking read cannot have.
            step.decode(reply)
            self._caught_up = False
        else:
            oldest: str
            entries: tuple[RawEntry, ...]
            oldest, entries = _unwrapped(step.decode(reply))
            # Entries older than the oldest are gone. After 0-0 nothing is missing: it means all that are there.
            if entries and self.position != NO_ENTRY and entry_place(oldest) > entry_place(self.position):
                found.append(EventsMissed(self.position, oldest))
            found += map(read_entry, entries)
            if entries:
                self.position = entries[-1].entry_id
            self._caught_up = len(entries) < PAGE
        self._contact()
        return found

    def failed(self, error: BullMQError, roll: float) -> Millis:
        """Return how long to wait before `step` is asked again; `roll` in [0, 1) is the dice for the jitter.

        Raises the error if no later attempt can mend it: closed, or refused before there was any answer.
        """
        fatal = (AuthenticationFailed, ServerTooOld)
        if isinstance(error, Closed) or (isinstance(error, fatal) and not self.contacted):
            raise error
        if not isinstance(error, (TransportError, ServerError, ServerTooOld, UnexpectedReply)):
            raise error
        self._caught_up = False
        base = min(FIRST_DELAY_MS << min(self.failures, 30), self._max_delay_ms)
        self.failures += 1
        return max(1, round(base * (1 - JITTER + 2 * JITTER * roll)))

    def _contact(self) -> None:
        self.contacted = True
        self.failures = 0


def _unwrapped(answer: list[Any]) -> list[Any]:
    for each in answer:
        if isinstance(each, BullMQError):
            raise each
    return answer
