"""A scripted MongoDB with change streams: a collection in memory behind the wire protocol, for one test's use.

The commands are executed by `monque_model`; what they change is what a change stream reports. `refuse` and `cut` make
its change streams fail; that real servers' streams look like this is not shown here.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from bson import ObjectId

from monque_protocol.errors import CommandRefused
from tests.support.mongo_wire import Document, Peer, WireServer
from tests.support.monque_model import Collection

_WAIT_S = 0.5


class Scripted:
    """The server's memory, and what its change streams shall do."""

    def __init__(self) -> None:
        self.collection = Collection(ObjectId)
        self.refuses = False
        self.opened = 0
        self.url = ""
        self._changes: list[Document] = []
        self._cursors = count(1)
        self._read: dict[int, int] = {}
        self._done: dict[Any, Document] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server = WireServer(self._handle)

    def cut(self) -> None:
        """Close all connections."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._server.cut)

    def forget_cursors(self) -> None:
        """Let every change stream fail at its next question, so that the driver does not resume it."""
        self._read.clear()

    async def _handle(self, command: Document, peer: Peer) -> Document:
        name = next(iter(command))
        if name == "aggregate" and "$changeStream" in command["pipeline"][0]:
            if self.refuses:
                raise CommandRefused("The $changeStream stage is only supported on replica sets", 40573)
            self.opened += 1
            cursor = next(self._cursors)
            self._read[cursor] = len(self._changes)
            return self._batch(cursor, "firstBatch", [])
        if name == "getMore":
            return await self._more(command["getMore"])
        # A retryable write that is sent again gets the reply that was lost, as servers with sessions give it.
        session: Any = command.get("lsid", {})
        once = (bytes(session["id"]), command["txnNumber"]) if "txnNumber" in command else None
        if once is not None and once in self._done:
            return self._done[once]
        if name == "drop":
            self.collection.documents.clear()
            return {"ok": 1.0}
        before = {each["_id"]: dict(each) for each in self.collection.documents}
        reply = self.collection.run(command)
        for each in self.collection.documents:
            if before.get(each["_id"]) != each:
                self._changes.append(self._change(before.get(each["_id"]), each))
        if once is not None:
            self._done[once] = reply
        return reply

    async def _more(self, cursor: int) -> Document:
        limit = asyncio.get_running_loop().time() + _WAIT_S
        while asyncio.get_running_loop().time() < limit:
            if cursor not in self._read:
                raise CommandRefused("cursor was killed", 11601)
            at = self._read[cursor]
            found = self._changes[at:]
            if found:
                self._read[cursor] = at + len(found)
                return self._batch(cursor, "nextBatch", found)
            await asyncio.sleep(0.005)
        return self._batch(cursor, "nextBatch", [])

    def _batch(self, cursor: int, name: str, batch: list[Document]) -> Document:
        token = {"_data": f"{len(self._changes):08x}"}
        return {"cursor": {"id": cursor, "ns": "x.jobs", name: batch, "postBatchResumeToken": token}, "ok": 1.0}

    def _change(self, before: Document | None, after: Document) -> Document:
        updated = {key: value for key, value in after.items() if before is None or before.get(key) != value}
        return {
            "_id": {"_data": f"{len(self._changes):08x}"},
            "operationType": "insert" if before is None else "update",
            "fullDocument": dict(after),
            "documentKey": {"_id": after["_id"]},
            "updateDescription": {"updatedFields": updated, "removedFields": []},
        }

    def serve(self, ready: threading.Event, over: threading.Event) -> None:
        asyncio.run(self._serve(ready, over))

    async def _serve(self, ready: threading.Event, over: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self.url = f"mongodb://127.0.0.1:{await self._server.start()}"
        ready.set()
        await self._loop.run_in_executor(None, over.wait)
        await self._server.stop()
        await asyncio.sleep(0)


@contextmanager
def scripted() -> Iterator[Scripted]:
    """Give a scripted server."""
    made = Scripted()
    ready, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=made.serve, args=(ready, over))
    thread.start()
    try:
        ready.wait()
        yield made
    finally:
        over.set()
        thread.join()
