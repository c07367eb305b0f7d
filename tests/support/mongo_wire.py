"""A server that speaks MongoDB's wire protocol (OP_MSG, and OP_QUERY for the first hello), for tests.

`handle` answers one command: it gets the command's document, with its document sequences in place, and returns the
reply's; `CommandRefused` becomes an error reply. What every server answers alike is answered here.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from typing import Any

from bson import CodecOptions, DatetimeConversion, decode, encode
from bson.raw_bson import RawBSONDocument

from monque_protocol.errors import CommandRefused

Document = dict[str, Any]
Handle = Callable[[Document, "Peer"], Awaitable[Document]]

OPTIONS: CodecOptions[Document] = CodecOptions(
    document_class=dict, datetime_conversion=DatetimeConversion.DATETIME_MS, tz_aware=True
)
PLAIN: CodecOptions[Document] = CodecOptions(document_class=dict, tz_aware=True, tzinfo=UTC)
_HEADER = struct.Struct("<iiii")
_OP_REPLY, _OP_QUERY, _OP_MSG = 1, 2004, 2013
_MORE_TO_COME = 2
_NUMBERS = count(1)


class Peer:
    """One connection of a client; `kept` is what the handler keeps with it."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.number = next(_NUMBERS)
        self.kept: Any = None


class WireServer:
    """Listens on a port of 127.0.0.1."""

    def __init__(self, handle: Handle, *, options: CodecOptions[Document] = PLAIN) -> None:
        self._handle = handle
        self._options = options
        self._server: asyncio.Server | None = None
        self._peers: set[Peer] = set()
        self.on_leave: Callable[[Peer], Awaitable[None]] | None = None

    async def start(self, port: int = 0) -> int:
        """Listen; return the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()

    def cut(self) -> None:
        """Close all connections, without a word."""
        for peer in tuple(self._peers):
            peer.writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(writer)
        self._peers.add(peer)
        try:
            while True:
                length, request, _, opcode = _HEADER.unpack(await reader.readexactly(16))
                body = await reader.readexactly(length - 16)
                reply = await self._reply(request, opcode, body, peer)
                if reply is not None:
                    writer.write(reply)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._peers.discard(peer)
            writer.close()
            if self.on_leave is not None:
                with suppress(Exception):
                    await self.on_leave(peer)

    async def _reply(self, request: int, opcode: int, body: bytes, peer: Peer) -> bytes | None:
        if opcode == _OP_QUERY:
            end = body.index(b"\0", 4)
            command = decode(body[end + 9 :], self._options)
            packed = struct.pack("<iqii", 8, 0, 0, 1) + encode(await self._answer(command, peer))
            return _HEADER.pack(16 + len(packed), next(_NUMBERS), request, _OP_REPLY) + packed
        flags, command = _command_of(body, self._options)
        reply = encode(await self._answer(command, peer))
        if flags & _MORE_TO_COME:
            return None
        packed = struct.pack("<IB", 0, 0) + reply
        return _HEADER.pack(16 + len(packed), next(_NUMBERS), request, _OP_MSG) + packed

    async def _answer(self, command: Document, peer: Peer) -> Document:
        name = next(iter(command))
        if name.lower() in ("hello", "ismaster"):
            return _hello(peer)
        if name in ("ping", "endSessions", "killCursors"):
            return {"ok": 1.0}
        if name == "buildInfo":
            return {"version": "7.0.0", "versionArray": [7, 0, 0, 0], "ok": 1.0}
        try:
            return await self._handle(command, peer)
        except CommandRefused as error:
            return {"ok": 0.0, "errmsg": str(error), "code": error.number or 8, "codeName": "Refused"}


def _hello(peer: Peer) -> Document:
    return {
        "ismaster": True,
        "isWritablePrimary": True,
        "helloOk": True,
        "msg": "isdbgrid",
        "maxBsonObjectSize": 16 * 2**20,
        "maxMessageSizeBytes": 48_000_000,
        "maxWriteBatchSize": 100_000,
        "localTime": datetime.now(UTC),
        "logicalSessionTimeoutMinutes": 30,
        "connectionId": peer.number,
        "minWireVersion": 0,
        "maxWireVersion": 21,
        "readOnly": False,
        "ok": 1.0,
    }


def _command_of(body: bytes, options: CodecOptions[Document]) -> tuple[int, Document]:
    (flags,) = struct.unpack_from("<I", body)
    end = len(body) - (4 if flags & 1 else 0)
    at = 4
    command: Document = {}
    sequences: Document = {}
    while at < end:
        kind = body[at]
        (size,) = struct.unpack_from("<i", body, at + 1)
        if kind == 0:
            command = decode(body[at + 1 : at + 1 + size], options)
        else:
            name_end = body.index(b"\0", at + 5)
            name = body[at + 5 : name_end].decode()
            sequences[name] = _documents(body[name_end + 1 : at + 1 + size], options)
        at += 1 + size
    return flags, command | sequences


def _documents(packed: bytes, options: CodecOptions[Document]) -> list[Document]:
    found: list[Document] = []
    at = 0
    while at < len(packed):
        (size,) = struct.unpack_from("<i", packed, at)
        found.append(decode(packed[at : at + size], options))
        at += size
    return found


__all__ = ["OPTIONS", "PLAIN", "Document", "Peer", "RawBSONDocument", "WireServer"]
