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
from collections.abc import Sequence
from functools import partial
from time import monotonic
from typing import Any

import msgspec

from bullmq_anyio.net.answer import Answer
from bullmq_anyio.net.connection import SharedConnection, login_commands_of
from bullmq_anyio.net.dialling import Attempt, at_once, dial, watched
from bullmq_anyio.net.link import Link, SocketLink
from bullmq_anyio.net.resp import pack
from bullmq_anyio.net.sockets import TlsContexts, check_tls
from bullmq_anyio.primitives import Lock
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
from bullmq_protocol.net.handshake import LOGIN_CODES, NO_TLS, why_no_handshake
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
"""How often a connection in use checks for messages of its sentinels."""
_PAUSE_S = 1.0
_ALONE_S = 10.0
"""How often a connection whose sentinels are all gone looks for one."""
_SOME_S = 60.0
"""How often a connection looks for missing sentinels."""
_GRACE_S = 0.25
"""How long to wait for the other sentinels after the first answer."""
_PROMOTION_S = 1.0
"""How long to wait for the promotion of the chosen replica: it takes a tenth of that."""
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

    def _begin(self) -> None:
        super()._begin()
        self._keeping = Lock()
        """Guards the links that are retired. A caller that has the connection's lock may take it."""
        self._watches: list[SocketLink] = []
        self._retired: list[Link] = []
        self._named: Place | None = None
        """The master that the attempt under way is about."""
        self._master: Place | None = None
        self._doubtful = False
        self._look_at = 0.0
        self._complete_at = math.inf
        """When to look for the sentinels that are missing."""

    @property
    def options(self) -> SentinelOptions:
        """The options it was made with."""
        return self._options

    def _twin(self, client_name: str | None) -> SentinelConnection:
        server = msgspec.structs.replace(self._options.server, client_name=client_name)
        return SentinelConnection(msgspec.structs.replace(self._options, server=server))

    async def perform(self, step: Command[Any] | Batch, /) -> Any:
        """Send one step to the master and return its raw reply, as `Connection.perform`."""
        if self._parent is None or isinstance(step, Batch) or step.block_ms is None:
            return await super().perform(step)
        link = self._ready() or await self._connected()
        return await watched(link, self._vigil, self._look_again, partial(super().perform, step))

    # --- the master, and the sentinels that are listened to -----------------------------------------------------------

    def _ready(self) -> Link | None:
        link = super()._ready()
        if link is None or self._doubtful:
            return None
        now = monotonic()
        if now >= self._look_at:
            self._look_at = now + _LOOK_S
            self._prune()
            if now >= self._complete_at or any(watch.has_ended() for watch in self._watches):
                self._doubtful = True
                return None
        return link

    async def _open(self, attempt: Attempt) -> Link:
        """Ask the sentinels; connect to the master they name, unless that is the one this is connected to."""
        answers, failures = await self._ask_all(attempt)
        present = None if self._link is None or self._link.dead else self._link
        chosen, places = ranked(answers)
        if chosen is not None and (link := await self._promoted(chosen, attempt)) is not None:
            self._named = chosen
            return link
        for place in places:
            self._named = place
            if present is not None and place == self._master:
                return present
            try:
                return await self._connect_to(place, attempt)
            except BullMQError as error:
                failures[f"they name {place[0]}:{place[1]}"] = error
        if present is not None:
            # No news is no reason to leave a master that answers.
            self._named = self._master
            return present
        raise self._failure(failures)

    async def _promoted(self, chosen: Place, attempt: Attempt) -> Link | None:
        """Wait until a replica says that it is the master, and return a link to it; None if that does not happen."""
        part = attempt.part(_PROMOTION_S)
        with part.scope:
            while True:
                try:
                    return await self._connect_to(chosen, part)
                except (AuthenticationFailed, ServerTooOld, UsageError):
                    break
                except BullMQError:
                    # No master yet, or just now: then the sentinel ends all connections to it.
                    await part.pause(_ASK_AGAIN_S)
        return None

    async def _connect_to(self, place: Place, attempt: Attempt) -> Link:
        """Connect and log in; refuse a server that is no master. Raises our errors."""
        server = msgspec.structs.replace(self._options.server, host=place[0], port=place[1])
        try:
            link = await self._reach(server, self._tls, attempt)
        except OSError as error:
            why = str(error) if attempt.awaits is None else NO_TLS
            raise ConnectionLost(why, maybe_applied=False) from error
        if self._info is not None and self._info.role not in ("", "master"):
            why = f"{server.address} is no master"
            link.die(ConnectionLost, why)
            raise ConnectionLost(why, maybe_applied=False)
        return link

    def _use(self, link: Link) -> None:
        if self._link is not None and self._link is not link:
            self._retire(self._link)
        self._master = self._named
        super()._use(link)
        self._meet()

    def _end(self, attempt: Attempt) -> None:
        if attempt.link is None or attempt.link is not self._link:
            # Whatever was found out before it was cut short.
            self._doubtful = True
        super()._end(attempt)

    def _meet(self) -> None:
        now = monotonic()
        self._doubtful = False
        self._look_at = now + _LOOK_S
        missing = len(self._options.sentinels) - len(self._watches)
        self._complete_at = math.inf if not missing else now + (_SOME_S if self._watches else _ALONE_S)

    def _links(self) -> tuple[Link, ...]:
        return (*super()._links(), *self._watches, *self._retired)

    def _stop_listening(self) -> None:
        watches, self._watches = self._watches, []
        for watch in watches:
            watch.die(Closed, "not needed any more")

    def _retire(self, link: Link) -> None:
        """Let the calls end that are under way, and close it then."""
        with self._keeping:
            self._retired.append(link)
        self._prune()

    def _prune(self) -> None:
        with self._keeping:
            for link in self._retired:
                if not link.owing:
                    # A caller that is just about to send something on it sends it to the next master.
                    link.die(ConnectionLost, "its server is not the master any more")
            self._retired = [link for link in self._retired if not link.dead]

    async def _ask_all(self, attempt: Attempt) -> tuple[list[Named], dict[str, BullMQError]]:
        """Ask all sentinels at once, and listen to those that answer; return answers, and failures by address."""
        self._stop_listening()
        sentinels = self._options.sentinels
        outcomes = await at_once(
            attempt,
            [partial(self._ask, sentinel) for sentinel in sentinels],
            self._connect_timeout_ms / 1000 / (len(sentinels) + 1),
            _GRACE_S,
        )
        answers: list[Named] = []
        failures: dict[str, BullMQError] = {}
        watches: list[SocketLink] = []
        for (host, port), outcome in zip(sentinels, outcomes, strict=True):
            if isinstance(outcome, BullMQError):
                failures[f"{host}:{port}"] = outcome
                continue
            answers.append(outcome.named)
            if outcome.watch is not None:
                watches.append(outcome.watch)
        # A guard and an attempt to connect may have asked at the same time.
        self._stop_listening()
        self._watches = watches
        if self._closed:
            self._stop_listening()
        return answers, failures

    async def _ask(self, sentinel: Place, attempt: Attempt) -> Answer:
        """Return one sentinel's answer, and a link that ends when it announces a failover."""
        options = self._options.sentinel(sentinel)
        commands, user = await login_commands_of(options, None)
        questions = sentinel_question(self._options.service)
        payload = b"".join(map(pack, (*commands, *questions)))
        link: SocketLink | None = None
        try:
            link = await dial(options, self._tls, attempt, exclusive=False)
            try:
                replies = await link.exchange(payload, len(commands) + len(questions), attempt.left_ms)
            except TransportError as error:
                why = why_no_handshake(error.reason, tls=bool(options.tls))
                raise ConnectionLost(why, maybe_applied=False) from error
            logins, answers = replies[: len(commands)], replies[len(commands) : -len(SENTINEL_EVENTS)]
            for reply in (*logins, answers[0]):
                if isinstance(reply, ServerError):
                    if logins or reply.code in LOGIN_CODES:
                        raise AuthenticationFailed(f"{reply} (user {user or 'default'!r} of the sentinel)")
                    raise reply
            named = read_sentinel(answers)
            refused = any(isinstance(reply, ServerError) for reply in replies[-len(SENTINEL_EVENTS) :])
            if named.place is None or refused:
                link.die(Closed, "not needed")
                return Answer(named)
            return Answer(named, link)
        except BaseException:
            if link is not None:
                link.die(Closed, "not needed")
            raise

    def _why_late(self, attempt: Attempt) -> str:
        return "" if attempt.awaits is None else f": {attempt.awaits}: {NO_TLS}"

    def _failure(self, failures: dict[str, BullMQError]) -> BullMQError:
        """Return the error for an attempt at which no master was found."""
        for error in failures.values():
            if isinstance(error, (AuthenticationFailed, ServerTooOld, UsageError)):
                return error
        if not failures and self._info is None:
            return UsageError("service", self._options.service, f"is not known to the sentinels at {self._address}")
        reasons = "; ".join(f"{who}: {error}" for who, error in failures.items())
        return ConnectionLost(
            f"no master of {self._options.service!r} is to be had: {reasons or 'the sentinels do not know it'}",
            maybe_applied=False,
        )

    # --- while a blocking command waits -------------------------------------------------------------------------------

    def _vigil(self) -> tuple[Sequence[SocketLink], float | None]:
        """Return the links to the sentinels, and after how many seconds to look for those that are missing."""
        missing = len(self._options.sentinels) - len(self._watches)
        return self._watches, None if not missing else _SOME_S if self._watches else _PAUSE_S

    async def _look_again(self, link: Link, attempt: Attempt) -> None:
        """End the wait on a link when another master is named."""
        chosen, places = ranked((await self._ask_all(attempt))[0])
        self._meet()
        if chosen is not None or (places and places[0] != self._master):
            self._doubtful = True
            link.die(ConnectionLost, "the sentinels name another master")

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
        with self._lock:
            if self._link is link:
                self._link = self._master = None
                self._retire(link)
        return await self._connected()
