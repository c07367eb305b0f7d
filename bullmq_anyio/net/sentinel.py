"""A connection to the master that sentinels name, and to the next one after a failover.

At each attempt to connect all sentinels are asked at once. The word of the latest epoch counts, and the server that is
named must say itself that it is a master. All of them are listened to: a word of a failover, or the end of one, lets
them be asked anew. The first such word comes before the next master is one; its promotion is waited for, while nothing
is sent to the old one. That closes the seconds in which a master that is replaced as planned still takes commands,
which are lost afterwards.

Source: specs/05-worker-runtime.md#sec-1
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from time import monotonic
from typing import Any

import anyio
import msgspec

from bullmq_anyio.net.connection import SharedConnection, TlsContexts, check_tls, dial, greeting_of, may_have_tls
from bullmq_anyio.net.link import Link, SocketLink, pack
from bullmq_protocol.command import Batch, Command
from bullmq_protocol.errors import (
    AuthenticationFailed,
    BullMQError,
    Closed,
    ConnectionLost,
    ServerError,
    ServerTooOld,
    TransportError,
    UsageError,
)
from bullmq_protocol.net.handshake import LOGIN_CODES, NO_TLS, why_no_greeting
from bullmq_protocol.net.topology import (
    SENTINEL_EVENTS,
    Named,
    Place,
    SentinelOptions,
    is_deposed,
    ranked,
    read_sentinel,
    sentinel_question,
)

_LOOK_S = 0.05
"""So often a connection in use looks whether its sentinels have spoken."""
_PAUSE_S = 1.0
_ALONE_S = 10.0
"""So often a connection whose sentinels are all gone looks for one."""
_SOME_S = 60.0
"""So often a connection looks for those that are missing."""
_GRACE_S = 0.25
"""So long after the first answer the other sentinels are waited for."""
_PROMOTION_S = 1.0
"""So long the promotion of the chosen replica is waited for: a tenth of that is what it takes."""
_ASK_AGAIN_S = 0.01


class SentinelConnection(SharedConnection):
    """A connection as `Connection`, to whatever server is the master of `service`.

    A command that a server refuses because it is not the master any more is sent to the next one, whatever its repeat
    class: it did not run. Beside each connection to a master there is one to each sentinel.
    """

    def __init__(self, options: SentinelOptions) -> None:
        server = options.server
        check_tls(server.tls)
        if options.sentinel_tls is not None:
            check_tls(options.sentinel_tls)
        super().__init__(
            options.address,
            connect_timeout_ms=server.connect_timeout_ms,
            command_timeout_ms=server.command_timeout_ms,
            client_name=server.client_name,
        )
        self._options = options
        self._tls = TlsContexts()
        self._sentinels = options.sentinels
        self._master: Place | None = None
        self._watches: list[SocketLink] = []
        self._doubtful = False
        self._look_at = 0.0
        self._complete_at = math.inf
        """When to look for the sentinels that are missing."""
        self._retired: list[Link] = []

    @property
    def options(self) -> SentinelOptions:
        """The options it was made with."""
        return self._options

    def _twin(self, client_name: str | None) -> SentinelConnection:
        server = msgspec.structs.replace(self._options.server, client_name=client_name)
        return SentinelConnection(msgspec.structs.replace(self._options, server=server))

    async def aclose(self) -> None:
        """Close this connection and those made by `dedicated`. Waiting calls raise `Closed`. Idempotent."""
        await super().aclose()
        self._stop_listening()
        for link in self._retired:
            link.die(Closed, "the client is closed")
        self._retired.clear()

    async def perform(self, step: Command[Any] | Batch, /) -> Any:
        """Send one step to the master and return its raw reply, as `Connection.perform`."""
        if self._parent is None or isinstance(step, Batch) or step.block_ms is None:
            return await super().perform(step)
        link = self._ready() or await self._connected()
        reply: Any = None
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._guard, link)
            try:
                reply = await super().perform(step)
            except Exception as error:
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return reply

    # --- the master, and the sentinels that are listened to -----------------------------------------------------------

    def _ready(self) -> Link | None:
        link = super()._ready()
        if link is None or self._doubtful:
            return None
        now = monotonic()
        if now >= self._look_at:
            self._look_at = now + _LOOK_S
            self._prune()
            if now >= self._complete_at or self._have_spoken():
                self._doubtful = True
                return None
        return link

    def _have_spoken(self) -> bool:
        return any(watch.has_ended() for watch in self._watches)

    async def _open(self) -> Link:
        """Ask the sentinels; connect to the master they name, unless that is the one this is connected to."""
        self._tls.awaits = None
        answers, failures = await self._ask_all()
        present = None if self._link is None or self._link.dead else self._link
        chosen, places = ranked(answers)
        if chosen is not None and (link := await self._promoted(chosen)) is not None:
            return self._settle(chosen, link)
        for place in places:
            if present is not None and place == self._master:
                return self._settle(place, present)
            try:
                link = await self._connect_to(place)
            except BullMQError as error:
                failures[f"they name {place[0]}:{place[1]}"] = error
            else:
                return self._settle(place, link)
        if present is not None:
            # No news is no reason to leave a master that answers.
            self._meet()
            return present
        raise self._failure(failures)

    async def _promoted(self, chosen: Place) -> Link | None:
        """Wait until a replica says that it is the master, and return a link to it; None if that does not happen."""
        with anyio.move_on_after(_PROMOTION_S):
            while True:
                try:
                    return await self._connect_to(chosen)
                except (AuthenticationFailed, ServerTooOld, UsageError):
                    break
                except BullMQError:
                    # No master yet, or just now: then the sentinel ends all connections to it.
                    await anyio.sleep(_ASK_AGAIN_S)
        return None

    def _settle(self, place: Place, link: Link) -> Link:
        self._master = place
        if self._link is not None and self._link is not link:
            self._retire(self._link)
        self._meet()
        return link

    def _meet(self) -> None:
        now = monotonic()
        self._doubtful = False
        self._look_at = now + _LOOK_S
        missing = len(self._sentinels) - len(self._watches)
        self._complete_at = math.inf if not missing else now + (_SOME_S if self._watches else _ALONE_S)
        if self._closed:
            self._stop_listening()

    def _stop_listening(self) -> None:
        watches, self._watches = self._watches, []
        _end(watches)

    def _retire(self, link: Link) -> None:
        """Let the calls end that are under way, and close it then."""
        self._retired.append(link)
        self._prune()

    def _prune(self) -> None:
        for link in self._retired:
            if not link.owing:
                link.die(Closed, "its server is not the master any more")
        self._retired = [link for link in self._retired if not link.dead]

    async def _ask_all(self) -> tuple[list[Named], dict[str, BullMQError]]:
        """Ask all sentinels at once, and listen to those that answer; return answers, and failures by address."""
        self._stop_listening()
        answers: list[Named] = []
        failures: dict[str, BullMQError] = {}
        watches: list[SocketLink] = []

        async def ask(sentinel: Place) -> None:
            shown = f"{sentinel[0]}:{sentinel[1]}"
            failures[shown] = ConnectionLost("no answer in time", maybe_applied=False)
            tls = TlsContexts(self._tls)
            try:
                named, watch = await self._ask(sentinel, tls)
            except (BullMQError, OSError) as error:
                failures[shown] = _ours(error)
                return
            finally:
                # If the whole attempt is cut off.
                self._tls.awaits = self._tls.awaits or tls.awaits
            del failures[shown]
            answers.append(named)
            if watch is not None:
                watches.append(watch)
            if named.place is not None:
                tasks.cancel_scope.deadline = min(tasks.cancel_scope.deadline, anyio.current_time() + _GRACE_S)

        try:
            async with anyio.create_task_group() as tasks:
                for sentinel in self._sentinels:
                    tasks.start_soon(ask, sentinel)
        except BaseException:
            _end(watches)
            raise
        # A guard and an attempt to connect may have asked at the same time.
        self._stop_listening()
        self._watches = watches
        if self._closed:
            self._stop_listening()
        return answers, failures

    async def _ask(self, sentinel: Place, tls: TlsContexts) -> tuple[Named, SocketLink | None]:
        """Return what one sentinel says, and a link that ends when it tells of a failover."""
        options = self._options.sentinel(sentinel)
        greeting, user = await greeting_of(options, None)
        questions = sentinel_question(self._options.service)
        payload = b"".join(map(pack, (*greeting, *questions)))
        with anyio.move_on_after(self._connect_timeout_ms / 1000 / (len(self._sentinels) + 1)):
            link = await dial(options, tls, exclusive=False)
            try:
                replies = await link.exchange(payload, len(greeting) + len(questions), None)
                greeted, told = replies[: len(greeting)], replies[len(greeting) : -len(SENTINEL_EVENTS)]
                for reply in (*greeted, told[0]):
                    if isinstance(reply, ServerError):
                        if greeted or reply.code in LOGIN_CODES:
                            raise AuthenticationFailed(f"{reply} (user {user or 'default'!r} of the sentinel)")
                        raise reply
                named = read_sentinel(told)
                if named.place is not None and not any(
                    isinstance(reply, ServerError) for reply in replies[-len(SENTINEL_EVENTS) :]
                ):
                    return named, link
            except TransportError as error:
                link.die(Closed, "not needed")
                why = why_no_greeting(error.reason, tls=bool(options.tls))
                raise ConnectionLost(why, maybe_applied=False) from error
            except BaseException:
                link.die(Closed, "not needed")
                raise
            link.die(Closed, "not needed")
            return named, None
        raise ConnectionLost("no answer in time" if tls.awaits is None else NO_TLS, maybe_applied=False)

    async def _connect_to(self, place: Place) -> Link:
        """Connect and log in; refuse a server that is no master. Raises our errors."""
        server = msgspec.structs.replace(self._options.server, host=place[0], port=place[1])
        greeting, user = await greeting_of(server, self._client_name)
        try:
            link = await dial(server, self._tls, exclusive=self._parent is not None)
        except OSError as error:
            raise ConnectionLost(str(error), maybe_applied=False) from error
        try:
            await self._greet(link, greeting, user, server.address, tls=not may_have_tls(server))
            if self._info is not None and self._info.role not in ("", "master"):
                raise ConnectionLost(f"{server.address} is no master", maybe_applied=False)
        except BaseException:
            link.die(ConnectionLost, "the handshake failed")
            raise
        return link

    def _why_late(self) -> str:
        return "" if self._tls.awaits is None else f": {self._tls.awaits}: {NO_TLS}"

    def _failure(self, failures: dict[str, BullMQError]) -> BullMQError:
        """Return the error for an attempt at which no master was found."""
        for error in failures.values():
            if isinstance(error, (AuthenticationFailed, ServerTooOld, UsageError)):
                return error
        if not failures and self._info is None:
            return UsageError("service", self._options.service, f"is not known to the sentinels at {self._address}")
        told = "; ".join(f"{who}: {error}" for who, error in failures.items())
        return ConnectionLost(
            f"no master of {self._options.service!r} is to be had: {told or 'the sentinels do not know it'}",
            maybe_applied=False,
        )

    async def _guard(self, link: Link) -> None:
        """While a blocking command waits: end it when another master is named."""
        while not link.dead:
            await self._word()
            chosen, places = ranked((await self._ask_all())[0])
            self._meet()
            if chosen is not None or (places and places[0] != self._master):
                self._doubtful = True
                link.die(ConnectionLost, "the sentinels name another master")
                return

    async def _word(self) -> None:
        """Wait until a sentinel speaks or ends, or until it is time to look for those that are missing."""
        missing = len(self._sentinels) - len(self._watches)
        limit_s = None if not missing else _SOME_S if self._watches else _PAUSE_S
        with anyio.move_on_after(limit_s):
            if not self._watches:
                await anyio.sleep_forever()
            async with anyio.create_task_group() as tasks:

                async def listen(watch: SocketLink) -> None:
                    await watch.ended()
                    tasks.cancel_scope.cancel()

                for watch in self._watches:
                    tasks.start_soon(listen, watch)

    # --- a master that is none any more -------------------------------------------------------------------------------

    async def _refused(self, link: Link, command: Command[Any], error: ServerError) -> Any:
        if not is_deposed(error):
            return await super()._refused(link, command, error)
        other = await self._after(link)
        reply = await other.request(other.packed(command), self._limit(command))
        return reply if not isinstance(reply, ServerError) else await super()._refused(other, command, reply)

    async def _run_batch(self, link: Link, batch: Batch) -> list[Any]:
        replies = await super()._run_batch(link, batch)
        refused = [number for number, reply in enumerate(replies) if is_deposed(reply)]
        if not refused:
            return replies
        if batch.atomic:
            # Its other replies, if they are no refusals, are those of reads.
            return await super()._run_batch(await self._after(link), batch)
        try:
            other = await self._after(link)
            late = await super()._run_batch(other, Batch(tuple(batch.commands[number] for number in refused)))
        except TransportError as error:
            if len(refused) == len(replies):
                raise
            raise type(error)(error.reason, maybe_applied=True) from error
        for number, reply in zip(refused, late, strict=True):
            replies[number] = reply
        return replies

    async def _after(self, link: Link) -> Link:
        """Return a link to the next master."""
        if self._link is link:
            self._link = self._master = None
            self._retire(link)
        return await self._connected()


def _end(links: Iterable[Link | None]) -> None:
    for link in links:
        if link is not None:
            link.die(Closed, "not needed any more")


def _ours(error: BullMQError | OSError) -> BullMQError:
    return error if isinstance(error, BullMQError) else ConnectionLost(str(error), maybe_applied=False)
