"""The golden vectors of Monque's commands on a server, by pymongo's methods: same values, same documents."""

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from bson import ObjectId
from pymongo import MongoClient

from bullmq_protocol.errors import BullMQError
from monque_protocol import commands
from monque_sync.perform import perform
from tests.support import mongo_servers
from tests.support import monque_vectors as vectors

# What the server makes up itself: ids of upserts, times that are spread by chance.
_BY_CHANCE = {"upsert": ("_id", "id"), "retry_many": ("nextRunAt",)}
_UNSORTED = ("find_claims", "find_retried", "find_collision")


@pytest.fixture(scope="module")
def database(mongodb: str) -> Iterator[Any]:
    with MongoClient(mongodb, tz_aware=True) as client:
        name = f"vectors_{uuid4().hex[:8]}"
        yield client[name]
        client.drop_database(name)


def without(value: Any, names: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {key: without(each, names) for key, each in value.items() if key not in names}
    return [without(each, names) for each in value] if isinstance(value, list) else value


def in_order(value: Any, function: str) -> Any:
    return sorted(value, key=json.dumps) if function in _UNSORTED and isinstance(value, list) else value


def outcome(database: Any, function: str, command: Any) -> tuple[Any, Any]:
    """Return the value of the command and the documents after it."""
    database[vectors.C].delete_many({})
    database[vectors.C].insert_many(vectors.documents())
    try:
        value = {"value": in_order(vectors.plain(command.decode(perform(database, command))), function)}
    except BullMQError as error:
        value = {"error": type(error).__name__}
    documents = vectors.plain(list(database[vectors.C].find(sort=[("_id", 1)])))
    return value, documents


def test_each_vector_on_the_server(database: Any) -> None:
    perform(database, commands.create_indexes(vectors.C, retention=False))
    stored = json.loads((vectors.FOLDER / "commands.json").read_text(encoding="utf-8"))
    expected = iter(stored["vectors"])
    wrong: list[Any] = []
    count = 0
    for function, name, make in vectors.command_cases():
        command = make()
        if command is None:
            continue
        vector = next(expected)
        count += 1
        if mongo_servers.kind() == "mongoeco" and count % 10:
            # It takes a second for each.
            continue
        chance = _BY_CHANCE.get(function, ())
        value, documents = outcome(database, function, command)
        wanted = {"error": "CommandRefused"} if "error" in vector else {"value": in_order(vector["value"], function)}
        gone = [each["$oid"] for each in vector["removed"]]
        after = {each["_id"]["$oid"]: each for each in stored["given"] if each["_id"]["$oid"] not in gone}
        after |= {each["_id"]["$oid"]: each for each in vector["changed"]}
        left = sorted(after.values(), key=lambda each: str(each["_id"]["$oid"]))
        if without(value, chance) != without(wanted, chance) or _sorted(documents, chance) != _sorted(left, chance):
            wrong.append((function, name, value, wanted))
    assert wrong == [] and count == len(stored["vectors"])


def _sorted(documents: list[Any], chance: tuple[str, ...]) -> list[str]:
    return sorted(json.dumps(without(each, chance), sort_keys=True) for each in documents)


def test_an_id_that_is_there_is_refused(database: Any) -> None:
    key = ObjectId()
    insert = commands.insert("again", key, "mail", 1, next_run_at=0, now=0)
    assert insert.decode(perform(database, insert)).key == key
    with pytest.raises(BullMQError) as raised:
        perform(database, insert)
    assert getattr(raised.value, "number", None) == 11000
