"""The first commands of a connection, and what the answers to them mean: login, database, name, `INFO`.

Source: specs/05-worker-runtime.md#sec-1-3
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from bullmq_protocol.command import Arg
from bullmq_protocol.common.reply import Reply, as_text
from bullmq_protocol.errors import (
    AuthenticationFailed,
    ConnectionLost,
    ServerError,
    TransportError,
    TransportTimeout,
    UsageError,
)
from bullmq_protocol.net.address import Login, refusal_of_login
from bullmq_protocol.net.server_info import INFO_SECTIONS, ServerInfo, read_server_info

LOGIN_CODES: Final = ("NOAUTH", "WRONGPASS", "NOPERM")
"""How refusals of a login begin."""


_PLAIN_WORDS: Final = "WRONG_VERSION_NUMBER"
_ENDINGS: Final = ("reading failed", "writing failed", "the server closed the connection", "the server sent no RESP")
INFO_COMMANDS: Final = tuple(("INFO", section) for section in INFO_SECTIONS)
"""The commands that read a server's version and role; they come last."""


WITH_TLS: Final = "(a port with TLS? then rediss in place of redis, or tls=True)"
NO_TLS: Final = "the handshake of TLS got no answer (a port without TLS? then redis in place of rediss, or tls=False)"
"""A server without TLS takes the first bytes for the beginning of a command, and waits for the rest."""


def without_tls(error: OSError) -> OSError:
    """Return the error of a handshake of TLS; where the server answered in plain text, one that says so."""
    if _PLAIN_WORDS not in str(error):
        return error
    return OSError(f"{error}: a port without TLS (redis in place of rediss, or tls=False)")


def why_no_handshake(reason: str, *, tls: bool) -> str:
    """Return why a server did not answer the first commands: one with TLS closes the connection on plain text."""
    return reason if tls or not reason.startswith(_ENDINGS) else f"{reason} {WITH_TLS}"


def unanswered(address: str, error: TransportError, *, tls: bool) -> TransportError:
    """Return the error for first commands that got no answer: `TransportTimeout` if their time ran out.

    `tls`: it has TLS, or is known to have none.
    """
    kind = TransportTimeout if isinstance(error, TransportTimeout) else ConnectionLost
    return kind(f"{address}: {why_no_handshake(error.reason, tls=tls)}", maybe_applied=False)


class HandshakeResult(msgspec.Struct, frozen=True):
    """What a handshake found out: the server's properties, and refusals that do no harm (the connection's name,
    `INFO`)."""

    info: ServerInfo
    unnamed: ServerError | None = None
    uninformed: ServerError | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to log, once for a connection and all that are made from it."""
        unchecked = None
        if self.uninformed is not None:
            unchecked = f"cannot check version and eviction policy: {self.uninformed}"
        return tuple(each for each in (unchecked, self.info.eviction_warning) if each is not None)


class Handshake(msgspec.Struct, frozen=True):
    """The first commands of a connection, the address, and the user."""

    address: str
    user: str | None
    commands: tuple[tuple[Arg, ...], ...]

    def read(self, replies: Sequence[Reply | ServerError]) -> HandshakeResult:
        """Return what the replies to `commands` mean.

        Raises `AuthenticationFailed`, `ServerTooOld`, `UsageError` for the database, and `ConnectionLost` for a server
        that is not ready.
        """
        texts: list[str] = []
        unnamed = uninformed = None
        for (name, *args), reply in zip(self.commands, replies, strict=True):
            if not isinstance(reply, ServerError):
                if name == "INFO":
                    texts.append(as_text(reply))
            elif name == "CLIENT":
                unnamed = reply
            elif name == "INFO" and (reply.code == "NOPERM" or "unknown command" in reply.message):
                # A server for tests may not have it, one for hire may have renamed it.
                uninformed = reply
            elif name == "AUTH" or reply.code in LOGIN_CODES:
                refusal = refusal_of_login(str(reply), str(args[-1])) if name == "AUTH" else reply
                raise AuthenticationFailed(f"{refusal} (user {self.user or 'default'!r} at {self.address})")
            elif name == "SELECT" and reply.code == "ERR":
                raise UsageError("db", args[0], f"the server refuses this database: {reply}")
            else:
                raise ConnectionLost(f"{self.address} is not ready: {reply}", maybe_applied=False)
        info = read_server_info("\n".join(texts))
        info.require_supported()
        return HandshakeResult(info, unnamed, uninformed)


def login_commands(login: Login, *, db: int = 0, client_name: str | None = None) -> tuple[tuple[Arg, ...], ...]:
    """Return the commands that log in, choose the database and name the connection."""
    user, password = login
    commands: list[tuple[Arg, ...]] = []
    if user is not None:
        commands.append(("AUTH", user, password or ""))
    elif password is not None:
        commands.append(("AUTH", password))
    if db:
        commands.append(("SELECT", db))
    if client_name is not None:
        commands.append(("CLIENT", "SETNAME", client_name))
    return tuple(commands)
