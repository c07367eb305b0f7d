"""The loop of a relay: it carries out what `decisions` decides, on a database and on Redis."""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from bullmq_anyio.drive import Connection as RedisConnection
from bullmq_anyio.drive import clock, run, transport_of
from bullmq_anyio.primitives import Lock, shielded
from bullmq_outbox.aio.wake import Wake
from bullmq_outbox.decisions import Add, Execute, Pace, Relayed, Step, clean, relay_batch
from bullmq_outbox.options import RelayOptions, check_relay_options
from bullmq_outbox.statements import Statements
from bullmq_protocol.errors import BullMQError, UsageError
from bullmq_protocol.model.options import Limits
from bullmq_protocol.operations.add_jobs import add_each, add_many
from bullmq_protocol.operations.relay_entries import relay_entries
from bullmq_protocol.scripts.profile import Profile

T = TypeVar("T")

_logger = logging.getLogger("bullmq_outbox")


class Database(Protocol):
    """What a relay needs of a database: one connection, which is opened when it is used."""

    def will_pass(self, error: Exception) -> bool:
        """Tell whether to try again after an error, as after a lost connection."""
        raise NotImplementedError

    async def execute(self, statement: str, parameters: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """Run a statement in the transaction, or begin one; return its rows."""
        raise NotImplementedError

    async def commit(self) -> None:
        """Commit."""

    def fileno(self) -> int | None:
        """Return what can be read when there is a notification; None if there are none."""

    async def notified(self) -> bool:
        """Take the notifications that have come; tell whether there were any."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Close the connection, which rolls back what is open; the next statement opens another."""


class RelayLoop:
    """A relay: takes entries from a database and adds their jobs to Redis, until it is stopped."""

    def __init__(
        self,
        statements: Statements,
        database: Database,
        connection: RedisConnection,
        options: RelayOptions,
        limits: Limits,
        scripts: Profile,
    ) -> None:
        self._statements = statements
        self._settings = check_relay_options(options)
        self._database = database
        self._limits = limits
        self._transport, self._owned = transport_of(connection, scripts)
        self._add = add_many if scripts.batches else add_each
        self._switches = scripts.switches
        self._pace = Pace(self._settings)
        self._wake = Wake()
        self._lock = Lock()
        self._is_at_work = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def run(self) -> None:
        """Relay entries until `stop` is called, then close the relay.

        A lost connection, to Redis or to the database, is logged and tried again, after 100 ms, then after longer times
        up to `max_reconnect_delay`. So is a server that takes nothing for the moment (loading, out of memory). Nothing
        is lost by that: what was not committed as sent is relayed again.

        Raises:
            UsageError: It is at work already, or has run before.
            Exception: What the database raises besides: its table is missing, or may not be read.

        Examples:
            >>> await OutboxRelay(outbox, address, "redis://localhost").run()
        """
        self._begin()
        try:
            while not self._wake.is_set:
                await self._turn()
        finally:
            with shielded():
                await self.aclose()

    def stop(self) -> None:
        """Let `run` end when the entries that it holds are dealt with, without waiting for that.

        Examples:
            >>> signal.signal(signal.SIGTERM, lambda *_: relay.stop())
        """
        self._wake.set()

    async def relay_once(self) -> Relayed:
        """Take as many entries as a batch has, add their jobs and return what became of them.

        Raises:
            TransportError: Redis cannot be reached. What was added before is done with, the rest waits.
            UsageError: It is at work already.
            Exception: What the database raises.

        Examples:
            >>> (await relay.relay_once()).sent
            2
        """
        self._begin()
        try:
            return await self._relay_batch()
        finally:
            self._is_at_work = False

    async def clean_up(self) -> int:
        """Delete sent entries that were kept for as long as `keep` says; return how many. `run` does it every 10 s.

        Raises:
            UsageError: It is at work already.
            Exception: What the database raises.

        Examples:
            >>> await relay.clean_up()
            1200
        """
        self._begin()
        try:
            return await self._clean()
        finally:
            self._is_at_work = False

    async def aclose(self) -> None:
        """Close the connections that it has opened.

        Examples:
            >>> await relay.aclose()
        """
        self._wake.close()
        await self._database.aclose()
        if self._owned:
            await self._transport.aclose()

    def _begin(self) -> None:
        """Two at once would share a transaction: what one of them commits is not done yet for the other."""
        with self._lock:
            if self._is_at_work:
                raise UsageError("relay", type(self).__name__, "is at work already, or has run: make another one")
            self._is_at_work = True

    async def _relay_batch(self) -> Relayed:
        relayed = await self._drive(relay_batch(self._statements, self._settings, clock().wall))
        for each in relayed.refused:
            fate = "and given up" if each.given_up else "and will be tried again"
            _logger.error(
                "outbox entry %d was refused (attempt %d) %s: %s: %s",
                each.seq,
                each.attempts,
                fate,
                each.job,
                each.error,
            )
        return relayed

    async def _clean(self) -> int:
        return await self._drive(clean(self._statements, self._settings, clock().wall))

    async def _turn(self) -> None:
        try:
            relayed = await self._relay_batch()
            if self._pace.is_to_clean(clock().mono):
                await self._clean()
            if relayed.put_off:
                _logger.warning("%d outbox entries are put off: %s", relayed.put_off, relayed.trouble)
            elif relayed.trouble is not None:
                _logger.warning("the server takes no jobs now: %s", relayed.trouble)
            wait_ms = self._pace.after(relayed)
            # Before Redis takes jobs again a notification changes nothing.
            listens = relayed.trouble is None or relayed.put_off > 0
            if listens and wait_ms and await self._database.notified():
                return
            readable = self._database.fileno() if listens else None
            await self._pause(wait_ms, readable)
            if readable is not None:
                await self._database.notified()
        except Exception as error:
            passing = not isinstance(error, UsageError) and isinstance(error, BullMQError)
            if not passing and not self._database.will_pass(error):
                raise
            _logger.warning("the relay tries again: %s: %s", type(error).__name__, error)
            await self._pause(self._pace.after_error(), None)

    async def _pause(self, wait_ms: int, readable: int | None) -> None:
        if wait_ms:
            await self._wake.wait(wait_ms / 1_000, readable)

    async def _drive(self, steps: Generator[Step, Any, T]) -> T:
        try:
            step = next(steps)
            while True:
                try:
                    reply = await self._perform(step)
                except BullMQError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(reply)
        except StopIteration as stop:
            value: T = stop.value
            return value
        except BullMQError:
            # All is committed.
            raise
        except BaseException:
            with shielded():
                await self._database.aclose()
            raise

    async def _perform(self, step: Step) -> Any:
        if isinstance(step, Execute):
            return await self._database.execute(step.statement, step.parameters)
        if isinstance(step, Add):
            adding = relay_entries(step.entries, self._add, switches=self._switches, limits=self._limits)
            return await run(adding, self._transport)
        return await self._database.commit()


def check_limits(limits: object) -> Limits:
    """Return the bounds on written data. Raises `UsageError`."""
    if not isinstance(limits, Limits):
        raise UsageError("limits", limits, "must be a Limits")
    return limits
