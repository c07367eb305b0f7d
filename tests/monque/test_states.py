"""Monque's commands against the model of `tests/support/monque_states.py`, on a server; MONQUE_EXAMPLES for more."""

import os
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from pymongo import MongoClient

from monque_protocol import commands
from monque_protocol.commands import Command
from monque_sync.perform import perform
from tests.support import mongo_servers
from tests.support.monque_states import FAULTS, C, Comparison, Rules, play

# On mongoeco a command takes as long as ten elsewhere.
EXAMPLES = int(os.environ.get("MONQUE_EXAMPLES") or (3 if mongo_servers.kind() == "mongoeco" else 10))


class Server:
    def __init__(self, database: Any) -> None:
        self._database = database
        database[C].delete_many({})

    def run(self, command: Command[Any]) -> Any:
        return perform(self._database, command)

    def documents(self) -> list[Any]:
        return list(self._database[C].find())


@pytest.fixture
def database(mongodb: str) -> Iterator[Any]:
    with MongoClient(mongodb, tz_aware=True) as client:
        name = f"states_{uuid4().hex[:8]}"
        perform(client[name], commands.create_indexes(C, retention=False))
        yield client[name]
        client.drop_database(name)


def test_random_commands_do_what_the_table_says(database: Any) -> None:
    class OnServer(Rules):
        @classmethod
        def make_store(cls) -> Server:
            return Server(database)

    run_state_machine_as_test(OnServer, settings=settings(max_examples=EXAMPLES, stateful_step_count=25))


def test_scripts_of_planted_faults_go_well_without_them(database: Any) -> None:
    for _, _, script in FAULTS.values():
        play(Comparison(Server(database)), script)
