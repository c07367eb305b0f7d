"""What a relay waits by: a time, a socket, and the call that stops it."""

from __future__ import annotations

import contextlib
import selectors
import socket


class Wake:
    """Wakes a relay when it is to stop, or when something can be read from its database."""

    def __init__(self) -> None:
        self.is_set = False
        self._pair: tuple[socket.socket, socket.socket] | None = None

    def set(self) -> None:
        """Stop the wait, and each one after it. Any thread may call it, and the handler of a signal."""
        self.is_set = True
        pair = self._pair
        if pair is not None:
            # Full, or closed meanwhile: it is awake.
            with contextlib.suppress(OSError):
                pair[1].send(b"\0")

    def wait(self, seconds: float, readable: int | None) -> None:
        """Wait for at most this many seconds, or until a file descriptor can be read."""
        if self._pair is None:
            self._pair = socket.socketpair()
            self._pair[1].setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._pair[0], selectors.EVENT_READ)
            if readable is not None:
                selector.register(readable, selectors.EVENT_READ)
            # Set before there was a pair to write to.
            if not self.is_set:
                selector.select(seconds)

    def close(self) -> None:
        """Close its sockets."""
        pair, self._pair = self._pair, None
        for each in pair or ():
            each.close()
