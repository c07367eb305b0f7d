"""What sockets and TLS need before they connect."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from bullmq_protocol.errors import UsageError
from bullmq_protocol.net.address import ConnectionOptions

Addresses: TypeAlias = Sequence[tuple[int, int, int, str, Any]]
"""What `socket.getaddrinfo` returns."""

let_others_run: Callable[[], None] = getattr(os, "sched_yield", lambda: None)
"""What looks at a socket without waiting may occupy the very processor on which the server is to run next. Windows
has no such call."""


class TlsContexts:
    """Makes the context of the system's authorities once, when it is needed: reading them takes a while."""

    def __init__(self) -> None:
        self._default: ssl.SSLContext | None = None

    def of(self, options: ConnectionOptions) -> ssl.SSLContext | None:
        """Return the context to use, None without TLS."""
        if not options.tls:
            return None
        if isinstance(options.tls, ssl.SSLContext):
            return options.tls
        if self._default is None:
            self._default = ssl.create_default_context()
        return self._default


def may_have_tls(options: ConnectionOptions) -> bool:
    """Tell whether plain words are sent to a port which may speak TLS."""
    return not options.tls and options.unix_path is None


def check_tls(tls: object) -> None:
    """Raise `UsageError` for anything but a flag or a context."""
    if not isinstance(tls, (bool, ssl.SSLContext)):
        raise UsageError("tls", tls, "must be True, False or an ssl.SSLContext")


def numeric(options: ConnectionOptions) -> Addresses | None:
    """Return where to connect to if the host is an address in figures: that needs no look-up, hence no thread."""
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    try:
        return socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM, flags=flags)
    except socket.gaierror:
        return None


def set_up(sock: socket.socket) -> None:
    """Send small writes at once, and notice a peer that is gone."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def no_address(failure: OSError | None) -> OSError:
    """Return what to raise when no address of a host could be connected to."""
    return failure or OSError("the host has no address")
