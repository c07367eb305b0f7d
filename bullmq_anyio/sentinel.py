"""A connection to the master that sentinels name, and to the next one after a failover.

At each attempt to connect the sentinels are asked one after the other, until the server that one of them names says
itself that it is a master. The sentinel that named it is then listened to: a word of a switch, or its end, lets the
sentinels be asked anew. That closes the seconds in which a master that was replaced as planned still takes commands,
which are lost afterwards.

Source: specs/05-worker-runtime.md#sec-1
"""

from __future__ import annotations

from time import monotonic
from typing import Any

import anyio
import msgspec

from bullmq_anyio.connection import SharedConnection, TlsContexts, check_tls, dial, greeting_of
from bullmq_anyio.link import Link, SocketLink, pack
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
from bullmq_protocol.greeting import LOGIN_CODES
from bullmq_protocol.topology import Place, SentinelOptions, is_deposed, read_master

_LOOK_S = 0.05
"""So often a connection in use looks whether its sentinel has spoken."""
_PAUSE_S = 1.0
_ALONE_S = 10.0
"""So often a connection whose sentinels are all gone looks for one."""


class SentinelConnection(SharedConnection):
    """A connection as `Connection`, to whatever server is the master of `service`.

    A command that a server refuses because it is not the master any more is sent to the next one, whatever its repeat
    class: it did not run. Beside each connection to a master there is one to a sentinel.
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
        self._watch: SocketLink | None = None
        self._doubtful = False
        self._look_at = 0.0
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
        self._listen_to(None)
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

    # --- the master, and the sentinel that is listened to -------------------------------------------------------------

    def _ready(self) -> Link | None:
        link = super()._ready()
        if link is None or self._doubtful:
            return None
        now = monotonic()
        if now >= self._look_at:
            self._look_at = now + (_ALONE_S if self._watch is None else _LOOK_S)
            self._prune()
            if self._watch is None or self._watch.has_ended():
                self._doubtful = True
                return None
        return link

    async def _open(self) -> Link:
        """Ask the sentinels; connect to the master they name, unless that is the one this is connected to."""
        self._listen_to(None)
        present = None if self._link is None or self._link.dead else self._link
        failures: dict[Place, BullMQError] = {}
        tried: set[Place] = set()
        for sentinel in self._sentinels:
            watch: SocketLink | None = None
            try:
                place, watch = await self._ask(sentinel)
                if place is not None and place not in tried:
                    tried.add(place)
                    link = present if place == self._master and present is not None else await self._connect_to(place)
                    return self._settle(sentinel, place, link, watch)
                if watch is not None:
                    watch.die(Closed, "not needed")
            except BaseException as error:
                if watch is not None:
                    watch.die(Closed, "not needed")
                if not isinstance(error, (BullMQError, OSError)):
                    raise
                failures[sentinel] = _ours(error)
        if present is not None:
            # No news is no reason to leave a master that answers.
            self._meet(None)
            return present
        raise self._failure(failures)

    def _settle(self, sentinel: Place, place: Place, link: Link, watch: SocketLink | None) -> Link:
        # The one that knew is asked first next time.
        self._sentinels = (sentinel, *(each for each in self._sentinels if each != sentinel))
        self._master = place
        if self._link is not None and self._link is not link:
            self._retire(self._link)
        self._meet(watch)
        return link

    def _meet(self, watch: SocketLink | None) -> None:
        self._listen_to(watch)
        self._doubtful = False
        self._look_at = monotonic() + (_ALONE_S if watch is None else _LOOK_S)

    def _listen_to(self, watch: SocketLink | None) -> None:
        if self._watch is not None:
            self._watch.die(Closed, "not needed any more")
        self._watch = watch
        if watch is not None and self._closed:
            watch.die(Closed, "the client is closed")

    def _retire(self, link: Link) -> None:
        """Let the calls end that are under way, and close it then."""
        self._retired.append(link)
        self._prune()

    def _prune(self) -> None:
        for link in self._retired:
            if not link.owing:
                link.die(Closed, "its server is not the master any more")
        self._retired = [link for link in self._retired if not link.dead]

    async def _ask(self, sentinel: Place) -> tuple[Place | None, SocketLink | None]:
        """Return the master that one sentinel names, and a link that ends when it tells of a switch."""
        options = self._options.sentinel(sentinel)
        greeting, user = await greeting_of(options, None)
        question = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._options.service)
        payload = b"".join(map(pack, (*greeting, question, ("SUBSCRIBE", "+switch-master"))))
        with anyio.move_on_after(self._connect_timeout_ms / 1000 / (len(self._sentinels) + 1)):
            link = await dial(options, self._tls, exclusive=False)
            try:
                *greeted, answer, subscribed = await link.exchange(payload, len(greeting) + 2, None)
                for reply in (*greeted, answer):
                    if isinstance(reply, ServerError):
                        if greeted or reply.code in LOGIN_CODES:
                            raise AuthenticationFailed(f"{reply} (user {user or 'default'!r} of the sentinel)")
                        raise reply
                place = read_master(answer)
                if place is not None and not isinstance(subscribed, ServerError):
                    return place, link
            except BaseException:
                link.die(Closed, "not needed")
                raise
            link.die(Closed, "not needed")
            return place, None
        raise ConnectionLost("no answer in time", maybe_applied=False)

    async def _connect_to(self, place: Place) -> Link:
        server = msgspec.structs.replace(self._options.server, host=place[0], port=place[1])
        greeting, user = await greeting_of(server, self._client_name)
        try:
            link = await dial(server, self._tls, exclusive=self._parent is not None)
        except OSError as error:
            raise ConnectionLost(f"names {place[0]}:{place[1]}: {error}", maybe_applied=False) from error
        try:
            await self._greet(link, greeting, user)
            if self._info is not None and self._info.role not in ("", "master"):
                raise ConnectionLost(f"names {place[0]}:{place[1]}, which is no master", maybe_applied=False)
        except BaseException:
            link.die(ConnectionLost, "the handshake failed")
            raise
        return link

    def _failure(self, failures: dict[Place, BullMQError]) -> BullMQError:
        """Return the error for an attempt at which no master was found."""
        for error in failures.values():
            if isinstance(error, (AuthenticationFailed, ServerTooOld, UsageError)):
                return error
        if not failures and self._info is None:
            return UsageError("service", self._options.service, f"is not known to the sentinels at {self._address}")
        told = "; ".join(f"{host}:{port}: {error}" for (host, port), error in failures.items())
        return ConnectionLost(
            f"no master of {self._options.service!r} is to be had: {told or 'the sentinels do not know it'}",
            maybe_applied=False,
        )

    async def _guard(self, link: Link) -> None:
        """While a blocking command waits: end it when another master is named."""
        while not link.dead:
            if self._watch is None:
                await anyio.sleep(_PAUSE_S)
            else:
                await self._watch.ended()
                self._listen_to(None)
            for sentinel in self._sentinels:
                try:
                    place, watch = await self._ask(sentinel)
                except (BullMQError, OSError):
                    continue
                if place is None:
                    continue
                self._meet(watch)
                if place != self._master:
                    self._doubtful = True
                    link.die(ConnectionLost, "the sentinels name another master")
                    return
                break

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


def _ours(error: BullMQError | OSError) -> BullMQError:
    return error if isinstance(error, BullMQError) else ConnectionLost(str(error), maybe_applied=False)
