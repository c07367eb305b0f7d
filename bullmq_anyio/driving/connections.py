"""The connections of a worker."""

from __future__ import annotations

from bullmq_anyio.drive import check_server, has_ended, perform, stop_connecting
from bullmq_anyio.primitives import Lock, in_each_process
from bullmq_protocol.commands.queues import ping
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import ConnectionLost
from bullmq_protocol.net.transport import AsyncTransport


class Connections:
    """The shared connection of a worker, and those on which it waits for jobs. By the name of these it is listed."""

    def __init__(self, transport: AsyncTransport, keys: QueueKeys, name: str | None, *, owned: bool) -> None:
        self.transport = transport
        self._owned = owned
        self._keys = keys
        self._client_name = keys.client_name(name)
        self.given_up = False
        """Whether a shared connection is open for others alone: a call of this worker that has not begun would begin
        another attempt to connect."""
        # guarded by _lock
        self._waiting: dict[bool, AsyncTransport] = {}
        """By whether the wait is for a job that is taken manually: the two do not block each other."""
        in_each_process(self._renew)

    def _renew(self) -> None:
        self._lock = Lock()

    def named(self, *, manual: bool = False) -> AsyncTransport:
        """Return a connection that waits for jobs; made at first use."""
        self.check_open()
        with self._lock:
            found = self._waiting.get(manual)
            if found is None:
                found = self._waiting[manual] = self.transport.dedicated(client_name=self._client_name)
            return found

    def check_open(self) -> None:
        """Raise `ConnectionLost` for a call that begins after the end."""
        if self.given_up:
            raise ConnectionLost("the worker is closed", maybe_applied=False)

    def has_ended(self) -> bool:
        """Look whether the shared connection was lost since it was used last."""
        return has_ended(self.transport)

    def named_has_ended(self) -> bool:
        """Look whether that on which the worker waits was lost since then."""
        with self._lock:
            found = self._waiting.get(False)
        return found is not None and has_ended(found)

    async def meet(self) -> None:
        """Let what makes the server unusable be known. Raises it, and whatever connecting raises."""
        await check_server(self.transport, self._keys)
        await perform(self.transport, ping())

    async def introduce(self) -> None:
        """Open the connection on which the worker waits."""
        await perform(self.named(), ping())

    async def drop(self) -> None:
        """Close the connection on which the worker waits. The next wait is on another one."""
        with self._lock:
            found = self._waiting.pop(False, None)
        if found is not None:
            await found.aclose()

    async def aclose(self) -> None:
        """Close them. Clients that were handed over stay open, but attempts to connect for this worker end."""
        self.given_up = not self._owned
        with self._lock:
            waiting = tuple(self._waiting.values())
        for each in waiting:
            await each.aclose()
        with self._lock:
            self._waiting.clear()
        if self._owned:
            await self.transport.aclose()
        else:
            stop_connecting(self.transport)
