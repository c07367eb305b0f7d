"""What a relay decides: which entries it takes, in which order they are added, and what becomes of each.

It does no I/O and reads no clock. What touches the database or Redis is a step that a driver carries out; steps follow
each other as a generator, so there is one text for all drivers.

Order. An entry with a key is added when no earlier one of its key waits, but for those that this relay adds before it:
each call to Redis has at most one entry of a key, and one that is refused keeps the later ones of its key back. On
PostgreSQL an entry that another relay holds still waits, as long as that relay's transaction lasts; on SQLite it is not
due until its lease ends, and `take` passes over what comes after it.

Source: specs/08-batches.md#outbox
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from bullmq_outbox.options import RelaySettings
from bullmq_outbox.statements import Statements
from bullmq_protocol.common.units import Millis, reconnect_ms
from bullmq_protocol.errors import BullMQError, ServerError, UsageError, without_login
from bullmq_protocol.model.outbox import OutboxEntry

BLOCKED_MS: Final = 20
"""How long a relay waits that found nothing but entries which come after those of another."""
CLEAN_MS: Final = 10_000
"""The time between two looks for sent entries that were kept for long enough."""
_CLEANED: Final = 1_000
_PASSES: Final = 8
_LONGEST_ERROR: Final = 1_000
# What is the server's state, or the relay's login, whatever entry it answers: no entry is refused by it.
_OF_THE_ENTRY: Final = frozenset(("ERR", "WRONGTYPE"))
# What may be about some queues alone: their entries must not hold up those of others for as long as it lasts.
_OF_THE_QUEUE: Final = frozenset(("NOPERM",))


class Execute(msgspec.Struct, frozen=True):
    """Run a statement; the reply is its rows. The first one begins a transaction."""

    statement: str
    parameters: Mapping[str, Any]


class Commit(msgspec.Struct, frozen=True):
    """Commit. The reply is of no account."""


class Add(msgspec.Struct, frozen=True):
    """Relay entries to Redis; the reply has for each of them an error, or anything else if its job is there."""

    entries: tuple[OutboxEntry, ...]


Step: TypeAlias = Execute | Commit | Add


class Refusal(msgspec.Struct, frozen=True):
    """An entry that Redis or this library refused.

    Attributes:
        seq: Its number in the table.
        job: What job it is, as far as it can be read; without its payload.
        error: Why.
        attempts: How often it has been refused.
        given_up: Whether it was the last attempt: its state is `refused` now.
    """

    seq: int
    job: str
    error: BullMQError
    attempts: int
    given_up: bool


class Relayed(msgspec.Struct, frozen=True):
    """What one turn of a relay did.

    Attributes:
        sent: How many entries have their jobs in Redis, and are done with.
        refused: Those that were refused.
        more: Whether more may be waiting: as many as a batch has were found.
        blocked: Whether entries were left because they come after those of another relay.
        trouble: What Redis said to entries without counting as a refusal, because it was not about them; or None. They
            are left as they were, but for those that are put off.
        put_off: How many are tried again later, as the relay's login may not use the keys of their queues.
    """

    sent: int = 0
    refused: tuple[Refusal, ...] = ()
    more: bool = False
    blocked: bool = False
    trouble: BullMQError | None = None
    put_off: int = 0


class Row(msgspec.Struct, frozen=True, array_like=True):
    """An entry as it was taken."""

    seq: int
    key: str | None
    attempts: int
    entry: str


def relay_batch(statements: Statements, settings: RelaySettings, now_ms: Millis) -> Generator[Step, Any, Relayed]:
    """Take entries, add their jobs and note what became of them. Raises what `Add` raises, after what was done is
    noted.

    Source: specs/08-batches.md#outbox-turn
    """
    found, ready = yield from _taken(statements, settings, now_ms)
    if not ready:
        yield Commit()
        return Relayed(blocked=bool(found))
    if statements.claim is not None:
        until = now_ms + settings.lease_ms
        yield Execute(statements.claim, {"until": until, "seqs": _json([row.seq for row in ready])})
        yield Commit()
    outcome = _Outcome(settings, now_ms)
    try:
        for wave in waves(ready):
            entries, rows = outcome.readable(wave)
            if entries:
                outcome.note(rows, entries, (yield Add(tuple(entries))))
    except BullMQError as error:
        outcome.failed = error
    yield from _settled(statements, settings, now_ms, outcome, ready)
    yield Commit()
    if outcome.failed is not None:
        raise outcome.failed
    return Relayed(
        sent=len(outcome.sent),
        refused=tuple(outcome.refused),
        more=len(found) >= settings.batch,
        blocked=len(ready) < len(found),
        trouble=outcome.trouble,
        put_off=len(outcome.put_off),
    )


def clean(statements: Statements, settings: RelaySettings, now_ms: Millis) -> Generator[Step, Any, int]:
    """Delete sent entries that were kept for long enough, a thousand in each transaction; return how many.

    Source: specs/08-batches.md#outbox-outcomes
    """
    count = 0
    while True:
        before = {"before": now_ms - settings.keep_ms, "most": _CLEANED}
        rows = yield Execute(statements.clean, before)
        yield Commit()
        count += len(rows)
        if len(rows) < _CLEANED:
            return count


def in_order(rows: Sequence[Row], waiting: Iterable[tuple[str, int]]) -> list[Row]:
    """Leave out the rows with a key that come after one which waits and is not among them."""
    held = {row.seq for row in rows}
    first: dict[str, int] = {}
    for key, seq in waiting:
        if seq not in held:
            first[key] = min(seq, first.get(key, seq))
    return [row for row in rows if row.key is None or row.key not in first or row.seq < first[row.key]]


def waves(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Yield the rows in groups that are added one after the other; no group has a key twice."""
    groups: list[list[Row]] = []
    depth: dict[str, int] = {}
    for row in rows:
        place = 0
        if row.key is not None:
            place = depth.get(row.key, 0)
            depth[row.key] = place + 1
        if place == len(groups):
            groups.append([])
        groups[place].append(row)
    yield from groups


class Pace:
    """When a relay takes its next turn."""

    def __init__(self, settings: RelaySettings) -> None:
        self._settings = settings
        self._failures = 0
        self._cleaned: Millis | None = None

    def after(self, relayed: Relayed) -> Millis:
        """Return how long to wait after a turn; 0: not at all."""
        if relayed.trouble is not None and not relayed.put_off:
            return self.after_error()
        self._failures = 0
        if relayed.more:
            return 0
        return min(BLOCKED_MS, self._settings.poll_ms) if relayed.blocked else self._settings.poll_ms

    def after_error(self) -> Millis:
        """Return how long to wait after a turn that failed: longer each time."""
        self._failures += 1
        return reconnect_ms(self._failures - 1, self._settings.max_reconnect_ms)

    def is_to_clean(self, now_ms: Millis) -> bool:
        """Tell whether to look for sent entries that were kept for long enough; the caller does."""
        due = self._cleaned is None or not 0 <= now_ms - self._cleaned < CLEAN_MS
        if due:
            self._cleaned = now_ms
        # Also where none is kept: an earlier relay may have kept some.
        return due


class _Outcome:
    """What becomes of the entries of a batch.

    Source: specs/08-batches.md#outbox-outcomes
    """

    def __init__(self, settings: RelaySettings, now_ms: Millis) -> None:
        self.sent: list[int] = []
        self.refused: list[Refusal] = []
        self.put_off: list[dict[str, Any]] = []
        """Those that are tried again later without being refused, as the table has them."""
        self.trouble: BullMQError | None = None
        self.failed: BullMQError | None = None
        self._settings = settings
        self._now = now_ms
        self._stopped: set[str] = set()

    def readable(self, wave: list[Row]) -> tuple[list[OutboxEntry], list[Row]]:
        """Return the entries to add, and their rows; those that cannot be read are refused."""
        entries: list[OutboxEntry] = []
        rows: list[Row] = []
        for row in wave:
            if row.key in self._stopped:
                continue
            try:
                entries.append(OutboxEntry.from_json(row.entry))
            except UsageError as error:
                self._refuse(row, "", error)
            else:
                rows.append(row)
        return entries, rows

    def note(self, rows: list[Row], entries: list[OutboxEntry], replies: Sequence[object]) -> None:
        for row, entry, reply in zip(rows, entries, replies, strict=True):
            if not isinstance(reply, BullMQError):
                self.sent.append(row.seq)
            elif isinstance(reply, ServerError) and reply.code not in _OF_THE_ENTRY:
                self.trouble = self.trouble or reply
                self._stop(row)
                if reply.code in _OF_THE_QUEUE:
                    # No refusals are counted: the delay grows as the entry grows older.
                    waited = max(self._now - entry.timestamp, self._settings.retry_ms)
                    due = self._now + min(waited, self._settings.max_retry_ms)
                    self.put_off.append(_stored(row.seq, row.attempts, reply, due_at=due))
            else:
                self._refuse(row, repr(entry), reply)

    def _refuse(self, row: Row, job: str, error: BullMQError) -> None:
        attempts = row.attempts + 1
        most = self._settings.max_attempts
        self.refused.append(Refusal(row.seq, job, error, attempts, most is not None and attempts >= most))
        if not self.refused[-1].given_up:
            self._stop(row)

    def _stop(self, row: Row) -> None:
        if row.key is not None:
            self._stopped.add(row.key)

    def stored(self) -> list[dict[str, Any]]:
        """Return the entries that were refused or put off, as the table has them."""
        refused = [
            _stored(each.seq, each.attempts, each.error, settled_at=self._now)
            if each.given_up
            else _stored(each.seq, each.attempts, each.error, due_at=self._now + self._delay(each.attempts))
            for each in self.refused
        ]
        return [*refused, *self.put_off]

    def _delay(self, attempts: int) -> Millis:
        return min(self._settings.retry_ms << min(attempts - 1, 40), self._settings.max_retry_ms)


def _taken(
    statements: Statements, settings: RelaySettings, now_ms: Millis
) -> Generator[Step, Any, tuple[list[Row], list[Row]]]:
    """Return the rows that were found, and those of them that may be added now."""
    yield Execute(statements.begin, {})
    passed: set[str] = set()
    rows: list[Row] = []
    for _ in range(_PASSES):
        parameters = {"now": now_ms, "most": settings.batch, "passed": _json(sorted(passed))}
        rows = [Row(*row) for row in (yield Execute(statements.take, parameters))]
        keys = {row.key for row in rows if row.key is not None}
        if not keys or statements.ahead is None:
            return rows, rows
        below = max(row.seq for row in rows if row.key is not None)
        waiting = yield Execute(statements.ahead, {"keys": _json(sorted(keys)), "below": below})
        ready = in_order(rows, waiting)
        if ready:
            return rows, ready
        # Another relay is at all of these keys: there may be others behind them.
        passed |= keys
    return rows, []


def _settled(
    statements: Statements, settings: RelaySettings, now_ms: Millis, outcome: _Outcome, ready: list[Row]
) -> Generator[Step, Any, None]:
    if outcome.sent:
        seqs = {"seqs": _json(outcome.sent)}
        if settings.keep_ms:
            yield Execute(statements.mark, {"now": now_ms, **seqs})
        else:
            yield Execute(statements.delete, seqs)
    changed = outcome.stored()
    if changed:
        yield Execute(statements.refuse, {"refused": _json(changed)})
    if statements.claim is not None:
        done = {*outcome.sent, *(each["seq"] for each in changed)}
        if left := [row.seq for row in ready if row.seq not in done]:
            yield Execute(statements.claim, {"until": 0, "seqs": _json(left)})


def _stored(
    seq: int, attempts: int, error: BullMQError, *, due_at: Millis = 0, settled_at: Millis | None = None
) -> dict[str, Any]:
    state = "waiting" if settled_at is None else "refused"
    changed: dict[str, Any] = {"seq": seq, "attempts": attempts, "state": state, "error": _error_text(error)}
    return {**changed, "due_at": due_at, "settled_at": settled_at}


def _error_text(error: BullMQError) -> str:
    text = without_login(f"{type(error).__name__}: {error}")
    # PostgreSQL takes no text with NUL, and no database half a surrogate pair.
    text = text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _LONGEST_ERROR else f"{text[: _LONGEST_ERROR - 3]}..."


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
