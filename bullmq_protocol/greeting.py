"""The first commands of a connection, and what the answers to them mean: login, database, name, `INFO`.

Source: specs/05-worker-runtime.md#sec-1-3
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from bullmq_protocol.address import Login, refusal_of_login
from bullmq_protocol.command import Arg
from bullmq_protocol.errors import AuthenticationFailed, ConnectionLost, ServerError, UsageError
from bullmq_protocol.reply import Reply, as_text
from bullmq_protocol.server_info import INFO_SECTIONS, ServerInfo, read_server_info

LOGIN_CODES: Final = ("NOAUTH", "WRONGPASS", "NOPERM")
"""How refusals of a login begin."""


ASKING: Final = tuple(("INFO", section) for section in INFO_SECTIONS)
"""The commands that ask a server what it is; they come after the others."""


class Greeted(msgspec.Struct, frozen=True):
    """What a server said of itself, and what it refused without harm: the connection's name, a section of `INFO`."""

    info: ServerInfo
    unnamed: ServerError | None = None
    uninformed: ServerError | None = None


class Greeting(msgspec.Struct, frozen=True):
    """What to say first, to whom, and as whom."""

    address: str
    user: str | None
    commands: tuple[tuple[Arg, ...], ...]

    def read(self, replies: Sequence[Reply | ServerError]) -> Greeted:
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
            elif name == "INFO" and reply.code == "NOPERM":
                uninformed = reply
            elif name == "AUTH" or reply.code in LOGIN_CODES:
                told = refusal_of_login(str(reply), str(args[-1])) if name == "AUTH" else reply
                raise AuthenticationFailed(f"{told} (user {self.user or 'default'!r} at {self.address})")
            elif name == "SELECT" and reply.code == "ERR":
                raise UsageError("db", args[0], f"the server refuses this database: {reply}")
            else:
                raise ConnectionLost(f"{self.address} is not ready: {reply}", maybe_applied=False)
        info = read_server_info("\n".join(texts))
        info.require_supported()
        return Greeted(info, unnamed, uninformed)


def opening(login: Login, *, db: int = 0, client_name: str | None = None) -> tuple[tuple[Arg, ...], ...]:
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
