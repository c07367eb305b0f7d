"""A plain connection to a server, and a script that reads all keys of its database."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias, cast

import hiredis

from bullmq_protocol.net.address import parse_url

if TYPE_CHECKING:
    Reply: TypeAlias = "bool | int | float | bytes | Exception | list[Reply] | None"
else:
    Reply = Any
"""What hiredis makes of a reply; an error reply is an instance of `hiredis.ReplyError`."""

Part: TypeAlias = str | bytes | int | float
"""What a command is made of."""

# ARGV[1]: "digest" or "full", ARGV[2]: a key to leave out. Sets and hashes are sorted, stream entries lose their ids.
DUMP = """
local names, parts, clocks = redis.call('KEYS', '*'), {}, {}
table.sort(names)
for _, name in ipairs(names) do
  if name ~= ARGV[2] then
    local kind, value = redis.call('TYPE', name).ok, nil
    if kind == 'hash' then
      local flat, known, sorted = redis.call('HGETALL', name), {}, {}
      for i = 1, #flat, 2 do
        sorted[#sorted + 1] = flat[i]
        known[flat[i]] = flat[i + 1]
      end
      table.sort(sorted)
      value = {}
      for i, key in ipairs(sorted) do
        value[2 * i - 1], value[2 * i] = key, known[key]
      end
    elseif kind == 'list' then
      value = redis.call('LRANGE', name, 0, -1)
    elseif kind == 'zset' then
      value = redis.call('ZRANGE', name, 0, -1, 'WITHSCORES')
    elseif kind == 'set' then
      value = redis.call('SMEMBERS', name)
      table.sort(value)
    elseif kind == 'stream' then
      value = {}
      for i, entry in ipairs(redis.call('XRANGE', name, '-', '+')) do
        value[i] = entry[2]
      end
    else
      value = redis.call('GET', name)
    end
    local left = redis.call('PTTL', name)
    if left >= 0 then
      clocks[#clocks + 1] = left
    end
    parts[#parts + 1] = { name, kind, value, left >= 0 and 1 or 0 }
  end
end
if ARGV[1] == 'full' then
  return { parts, clocks }
end
return { redis.sha1hex(cmsgpack.pack(parts)), clocks }
"""


class Stored(NamedTuple):
    """A key as `DUMP` gives it, and its lifetime in ms where it has one."""

    name: bytes
    kind: str
    value: Reply
    left: int | None


def stored_in(dump: Reply) -> Iterator[Stored]:
    """Yield the keys of a reply to `DUMP` with `full`."""
    parts, clocks = listed(dump)
    left = iter(listed(clocks))
    for part in listed(parts):
        name, kind, value, expires = listed(part)
        yield Stored(of_bytes(name), of_bytes(kind).decode(), value, number(next(left)) if expires else None)


def listed(reply: Reply) -> list[Reply]:
    """Return a reply that is an array. Raises `TypeError`."""
    if not isinstance(reply, list):
        raise TypeError(f"the server answered {reply!r} and not an array")
    return reply


def of_bytes(reply: Reply) -> bytes:
    """Return a reply that is a bulk string. Raises `TypeError`."""
    if not isinstance(reply, bytes):
        raise TypeError(f"the server answered {reply!r} and not a bulk string")
    return reply


def number(reply: Reply) -> int:
    """Return a reply that is an integer. Raises `TypeError`."""
    if not isinstance(reply, int):
        raise TypeError(f"the server answered {reply!r} and not an integer")
    return reply


# hiredis declares it for tuples of one item, without a result.
_pack = cast(
    "Callable[[tuple[Part, ...]], bytes]",
    hiredis.pack_command,  # pyright: ignore[reportUnknownMemberType]
)
_ERROR_CLASS = re.compile(r"\b(WRONGTYPE|OOM|NOSCRIPT|NOAUTH|NOPERM|READONLY|MOVED|CROSSSLOT|BUSY|MISCONF)\b")


def error_class(error: Exception) -> str:
    """Return what of an error text is compared: the word clients act on, else `ERR`."""
    found = _ERROR_CLASS.search(str(error))
    return found[1] if found else "ERR"


class Wire:
    """A plain connection: a list of commands out in one write, the list of replies back."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()

    @classmethod
    def of_url(cls, url: str) -> Self:
        """Connect to `redis://` or `rediss://`, with its login, in its database. Raises `OSError`, `UsageError`."""
        options = parse_url(url)
        made = cls(options.host, options.port)
        if options.tls:
            made._socket = ssl.create_default_context().wrap_socket(made._socket, server_hostname=options.host)
        steps: list[tuple[Part, ...]] = [("SELECT", options.db)]
        if options.password is not None:
            steps.insert(0, ("AUTH", options.username or "default", options.password))
        for reply in made.run(steps):
            if isinstance(reply, Exception):
                made.close()
                raise ConnectionError(f"the server refuses the connection: {error_class(reply)}")
        return made

    def run(self, commands: Sequence[Sequence[Part]]) -> list[Reply]:
        """Send commands; return their replies, errors among them. Raises `OSError`."""
        self._socket.sendall(b"".join(_pack(tuple(map(_plain, command))) for command in commands))
        replies: list[Reply] = []
        while len(replies) < len(commands):
            reply: Reply = self._reader.gets()
            if reply is False:
                data = self._socket.recv(65536)
                if not data:
                    raise ConnectionError("the server closed the connection")
                self._reader.feed(data)
            else:
                replies.append(reply)
        return replies

    def load(self, script: str) -> str:
        """Load a script; return its SHA-1. Raises `ValueError` where the server does not compile it."""
        (reply,) = self.run([("SCRIPT", "LOAD", script)])
        if isinstance(reply, Exception):
            raise ValueError(f"the server does not compile the script: {reply}")
        return of_bytes(reply).decode()

    def close(self) -> None:
        self._socket.close()


def _plain(value: Part) -> Part:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
