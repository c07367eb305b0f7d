"""Run commands of `monque_protocol` by pymongo's own methods, with the user's client, write concern and codecs.

The driver repeats reads and writes as it is configured to (`retryWrites`), which makes a claim whose reply was lost
safe to repeat; nothing is repeated here.
"""

from __future__ import annotations

from typing import Any

from bson import DatetimeConversion
from bson.errors import BSONError
from pymongo import IndexModel, ReturnDocument
from pymongo.errors import (
    AutoReconnect,
    ConnectionFailure,
    DocumentTooLarge,
    InvalidOperation,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WaitQueueTimeoutError,
    WTimeoutError,
)

from bullmq_protocol.errors import BullMQError, Closed, ConnectionLost
from monque_protocol.commands import Command
from monque_protocol.document import Document
from monque_protocol.errors import CommandRefused

FAULTS = (PyMongoError, BSONError, OverflowError, UnicodeEncodeError, RecursionError)
"""What pymongo raises for a command."""
STREAM_WAIT_MS = 500
"""How long the server waits for a change before it answers."""


async def perform(database: Any, command: Command[Any]) -> Document:
    """Run one command; return the reply as a document.

    Raises `TransportError`, or `CommandRefused`, from the error of pymongo.
    """
    try:
        return await _perform(database, command)
    except FAULTS as error:
        raise failure_of(error) from error


async def _perform(database: Any, command: Command[Any]) -> Document:
    document = command.document
    collection = database.get_collection(document[command.name], codec_options=_reading(database.codec_options))
    match command.name:
        case "insert":
            await collection.insert_one(document["documents"][0])
            return {"n": 1}
        case "findAndModify":
            found = await collection.find_one_and_update(
                document["query"],
                document["update"],
                sort=list(document.get("sort", {}).items()) or None,
                upsert=document["upsert"],
                return_document=ReturnDocument.AFTER if document["new"] else ReturnDocument.BEFORE,
            )
            return {"value": found}
        case "update":
            (update,) = document["updates"]
            method = collection.update_many if update.get("multi") else collection.update_one
            done = await method(update["q"], update["u"])
            return {"n": done.matched_count, "nModified": done.modified_count}
        case "delete":
            (delete,) = document["deletes"]
            method = collection.delete_one if delete["limit"] else collection.delete_many
            return {"n": (await method(delete["q"])).deleted_count}
        case "find":
            cursor = collection.find(
                document["filter"],
                document.get("projection"),
                sort=list(document.get("sort", {}).items()) or None,
                skip=document.get("skip", 0),
                limit=document.get("limit", 0),
            )
            return {"cursor": {"firstBatch": await cursor.to_list()}}
        case "aggregate":
            cursor = await collection.aggregate(document["pipeline"], maxTimeMS=document["maxTimeMS"])
            return {"cursor": {"firstBatch": await cursor.to_list()}}
        case _:
            models = [
                IndexModel(list(index["key"].items()), **{name: each for name, each in index.items() if name != "key"})
                for index in document["indexes"]
            ]
            await collection.create_indexes(models)
            return {}


def _reading(options: Any) -> Any:
    """Return the user's codec options, but with moments beyond the years 1 to 9999 as `DatetimeMS`.

    By default they raise: one document with such a moment would spoil each reply in which it stands.
    """
    if options.datetime_conversion is not DatetimeConversion.DATETIME:
        return options
    return options.with_options(datetime_conversion=DatetimeConversion.DATETIME_AUTO)


def failure_of(error: Exception) -> BullMQError:
    """Return what an error of pymongo means: whether the command may have run."""
    if isinstance(error, ServerSelectionTimeoutError | WaitQueueTimeoutError):
        return ConnectionLost(_text(error), maybe_applied=False)
    if isinstance(error, AutoReconnect | ConnectionFailure | WTimeoutError):
        # It may have run; a write that was not confirmed in time has run on the primary.
        return ConnectionLost(_text(error), maybe_applied=True)
    if isinstance(error, InvalidOperation) and not isinstance(error, DocumentTooLarge) and "close" in str(error):
        return Closed(_text(error))
    if isinstance(error, OperationFailure):
        details: Any = error.details or {}
        return CommandRefused(str(details.get("errmsg") or error), error.code)
    return CommandRefused(_text(error))


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__


class Changes:
    """The change stream of a scheduler, which is kept open between two waits."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self._stream: Any = None
        self.cancelled = False
        """Set by the one that waits no more; seen when the server answers."""

    async def wait(self, command: Command[Any]) -> Document:
        """Return the next change, or none as soon as the stream is open. Raises as `perform` does."""
        try:
            if self._stream is None:
                name = command.document[command.name]
                collection = self._database.get_collection(name, codec_options=_reading(self._database.codec_options))
                pipeline = command.document["pipeline"]
                self._stream = await collection.watch(
                    pipeline[1:],
                    full_document=pipeline[0]["$changeStream"]["fullDocument"],
                    max_await_time_ms=STREAM_WAIT_MS,
                )
                return {"cursor": {"firstBatch": []}}
            found = None
            while found is None and not self.cancelled:
                found = await self._stream.try_next()
            return {"cursor": {"firstBatch": [] if found is None else [found]}}
        except FAULTS as error:
            await self.end()
            raise failure_of(error) from error

    async def end(self) -> None:
        """Close the stream."""
        stream, self._stream = self._stream, None
        if stream is not None:
            try:
                await stream.close()
            except FAULTS:
                # The server is gone, and the stream with it.
                return
