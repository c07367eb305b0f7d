"""What a relay waits by: a time, a socket, and the call that stops it."""

from __future__ import annotations

import anyio


class Wake:
    """Wakes a relay when it is to stop, or when something can be read from its database."""

    def __init__(self) -> None:
        self.is_set = False
        self._scope: anyio.CancelScope | None = None

    def set(self) -> None:
        """Stop the wait, and each one after it."""
        self.is_set = True
        if self._scope is not None:
            self._scope.cancel()

    async def wait(self, seconds: float, readable: int | None) -> None:
        """Wait for at most this many seconds, or until a file descriptor can be read."""
        with anyio.move_on_after(seconds) as self._scope:
            if self.is_set:
                return
            if readable is None:
                await anyio.sleep_forever()
            else:
                await anyio.wait_readable(readable)

    def close(self) -> None:
        """Let go of what it holds: nothing here."""
