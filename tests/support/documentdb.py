"""The DocumentDB engine on PostgreSQL behind a gateway of ours that speaks MongoDB's wire protocol.

`python -m tests.support.documentdb ROOT FOLDER` starts both, prints the gateway's port, and serves until its standard
input ends. ROOT is what `tools/documentdb_root.sh` makes, FOLDER an empty folder of the server's own.

Each command goes almost unchanged as BSON into one SQL function. There are no change streams; transactions are not
needed and not served. Answers of `find` and `aggregate` come whole.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
from bson import Int64, decode, encode

from monque_protocol.errors import DUPLICATE_KEY, CommandRefused
from tests.support.mongo_wire import OPTIONS, Document, Peer, WireServer

_STRIPPED = ("lsid", "$db", "txnNumber", "writeConcern", "readConcern", "$readPreference", "maxTimeMS", "$clusterTime")
_STRIPPED_API = ("apiVersion", "apiStrict", "apiDeprecationErrors", "autocommit", "startTransaction", "comment")
_RESULT = {
    "insert": "SELECT p_result::text FROM documentdb_api.insert(%s, %s::documentdb_core.bson, NULL, NULL)",
    "update": "SELECT p_result::text FROM documentdb_api.update(%s, %s::documentdb_core.bson, NULL, NULL)",
    "delete": "SELECT p_result::text FROM documentdb_api.delete(%s, %s::documentdb_core.bson, NULL, NULL)",
    "findAndModify": "SELECT p_result::text FROM documentdb_api.find_and_modify(%s, %s::documentdb_core.bson, NULL)",
    "count": "SELECT document::text FROM documentdb_api.count_query(%s, %s::documentdb_core.bson)",
    "distinct": "SELECT document::text FROM documentdb_api.distinct_query(%s, %s::documentdb_core.bson)",
}
_FIRST_PAGE = {
    "find": "find_cursor_first_page",
    "aggregate": "aggregate_cursor_first_page",
    "listIndexes": "list_indexes_cursor_first_page",
    "listCollections": "list_collections_cursor_first_page",
}
_CODES = {"M001C": DUPLICATE_KEY, "23P01": DUPLICATE_KEY, "23505": DUPLICATE_KEY}
_CODES |= {"M0001": 2, "M000E": 43, "M000S": 86, "M000U": 115, "M0019": 26}
_DEADLOCKS = ("40P01", "40001")
_TRIES = 20
_PAGE = 100_000


def packed_state(state: str) -> int:
    """Return a SQLSTATE as PostgreSQL packs it into an integer."""
    return sum(((ord(letter) - 48) & 63) << (6 * place) for place, letter in enumerate(state))


_PACKED = {packed_state(state): code for state, code in _CODES.items()}


class Gateway:
    """Answers commands by SQL."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._indexing = asyncio.Lock()

    async def handle(self, command: Document, peer: Peer) -> Document:
        database = str(command.get("$db", "test"))
        name = next(iter(command))
        for field in (*_STRIPPED, *_STRIPPED_API):
            command.pop(field, None)
        for attempt in range(_TRIES):
            try:
                return await self._perform(await self._connection(peer), database, name, command)
            except psycopg.Error as error:
                state = error.sqlstate or ""
                if state in _DEADLOCKS and attempt < _TRIES - 1:
                    await asyncio.sleep(random.random() * 0.01 * (attempt + 1))
                    continue
                raise CommandRefused(_message(error, state), _CODES.get(state, 8)) from error
        raise AssertionError

    async def leave(self, peer: Peer) -> None:
        if peer.kept is not None:
            await peer.kept.close()

    async def _connection(self, peer: Peer) -> Any:
        if peer.kept is None or peer.kept.closed:
            peer.kept = await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True)
        return peer.kept

    async def _perform(self, connection: Any, database: str, name: str, command: Document) -> Document:
        spec = "BSONHEX" + encode(command).hex()
        if name in _RESULT:
            reply = _document((await self._row(connection, _RESULT[name], database, spec))[0])
            for error in reply.get("writeErrors", ()):
                error["code"] = _PACKED.get(error["code"], error["code"])
            return {**reply, "ok": 1.0}
        if name in _FIRST_PAGE:
            return await self._pages(connection, database, name, command)
        if name == "createIndexes":
            function = "documentdb_api_internal.create_indexes_non_concurrently"
            sql = f"SELECT {function}(%s, %s::documentdb_core.bson, true)::text"
            async with self._indexing:
                # Side by side they deadlock in PostgreSQL, again and again.
                row = await self._row(connection, sql, database, spec)
            reply = _document(row[0])
            if not reply.get("ok", 1) and "code" in reply:
                raise CommandRefused(str(reply.get("errmsg")), _PACKED.get(reply["code"], reply["code"]))
            return {**reply, "ok": 1.0}
        if name == "drop":
            await self._row(connection, "SELECT documentdb_api.drop_collection(%s, %s)", database, command["drop"])
            return {"ok": 1.0}
        if name == "dropDatabase":
            await self._row(connection, "SELECT documentdb_api.drop_database(%s)", database)
            return {"ok": 1.0}
        raise CommandRefused(f"no such command: {name}", 59)

    async def _pages(self, connection: Any, database: str, name: str, command: Document) -> Document:
        if any("$changeStream" in stage for stage in command.get("pipeline", ())):
            raise CommandRefused("The $changeStream stage is only supported on replica sets", 40573)
        if name == "aggregate":
            command["cursor"] = {"batchSize": _PAGE}
        elif name == "find" and not command.get("singleBatch"):
            command["batchSize"] = _PAGE
        spec = "BSONHEX" + encode(command).hex()
        if name == "find" and not command["find"]:
            raise CommandRefused("Invalid namespace", 73)
        sql = (
            "SELECT cursorpage::text, continuation::text "
            f"FROM documentdb_api.{_FIRST_PAGE[name]}(%s, %s::documentdb_core.bson, 0)"
        )
        row = await self._row(connection, sql, database, spec)
        reply = _document(row[0])
        batch, rest = reply["cursor"]["firstBatch"], row[1]
        while rest is not None:
            sql = (
                "SELECT cursorpage::text, continuation::text "
                "FROM documentdb_api.cursor_get_more(%s, %s::documentdb_core.bson, %s::documentdb_core.bson)"
            )
            more = {"getMore": 1, "collection": command[name], "batchSize": _PAGE}
            row = await self._row(connection, sql, database, "BSONHEX" + encode(more).hex(), rest)
            batch += _document(row[0])["cursor"]["nextBatch"]
            rest = row[1]
        reply["cursor"]["id"] = Int64(0)
        return {**reply, "ok": 1.0}

    async def _row(self, connection: Any, sql: str, *values: Any) -> Any:
        cursor = await connection.execute(sql, values)
        return await cursor.fetchone()


def _document(text: str) -> Document:
    return decode(bytes.fromhex(text.removeprefix("BSONHEX")), OPTIONS)


def _message(error: psycopg.Error, state: str) -> str:
    text = error.diag.message_primary or str(error)
    return f"E11000 duplicate key error: {text}" if _CODES.get(state) == DUPLICATE_KEY else text


# --- PostgreSQL -----------------------------------------------------------------------------------------------------


def start_postgres(root: Path, folder: Path) -> tuple[int, subprocess.Popen[bytes]]:
    """Make a cluster in the folder and start it; return its port and its process.

    The folder is bound into the root, where PostgreSQL runs as the user postgres.
    """
    port = free_port()
    inside = Path("srv") / folder.name
    (root / inside).mkdir(parents=True)
    home = f"/{inside}"
    in_root = ("chroot", "--userspec=postgres:postgres", str(root), "/usr/bin/env", "HOME=/tmp", "LC_ALL=C.UTF-8")
    binaries = "/usr/lib/postgresql/18/bin"
    subprocess.run(["chroot", str(root), "chown", "postgres:postgres", home], check=True)
    make = (f"{binaries}/initdb", "-D", f"{home}/data", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8")
    subprocess.run([*in_root, *make], check=True, stdout=subprocess.DEVNULL)
    settings = {
        "shared_preload_libraries": "pg_cron,pg_documentdb_core,pg_documentdb",
        "cron.database_name": "postgres",
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "unix_socket_directories": home,
        "deadlock_timeout": "10ms",
        "fsync": "off",
        "synchronous_commit": "off",
        "full_page_writes": "off",
        "max_connections": "300",
        "dynamic_shared_memory_type": "mmap",
    }
    lines = [f"{name} = '{value}'" for name, value in settings.items()]
    with (root / inside / "data" / "postgresql.conf").open("a", encoding="utf-8") as conf:
        conf.write("\n".join(lines) + "\n")
    log = (root / inside / "log").open("wb")
    process = subprocess.Popen(
        # It ends with this process, whatever ends that.
        [*in_root, "/usr/bin/setpriv", "--pdeathsig", "INT", f"{binaries}/postgres", "-D", f"{home}/data"],
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    conninfo = f"host=127.0.0.1 port={port} user=postgres dbname=postgres"
    limit = time.monotonic() + 60
    while True:
        try:
            with psycopg.connect(conninfo, autocommit=True) as connection:
                connection.execute("create extension if not exists documentdb cascade")
            break
        except psycopg.OperationalError:
            if time.monotonic() > limit:
                sys.stderr.write((root / inside / "log").read_text(errors="replace"))
                raise
            time.sleep(0.05)
    return port, process


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


async def serve(root: Path, folder: Path) -> None:
    port, process = start_postgres(root, folder)
    try:
        gateway = Gateway(f"host=127.0.0.1 port={port} user=postgres dbname=postgres")
        server = WireServer(gateway.handle, options=OPTIONS)
        server.on_leave = gateway.leave
        sys.stdout.write(f"{await server.start()}\n")
        sys.stdout.flush()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        await server.stop()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)
        shutil.rmtree(root / "srv" / folder.name, ignore_errors=True)


def _main(arguments: Mapping[int, str]) -> None:
    asyncio.run(serve(Path(arguments[1]), Path(arguments[2])))


if __name__ == "__main__":
    _main(dict(enumerate(sys.argv)))
