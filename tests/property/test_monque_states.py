"""Monque's commands against the model of `tests/support/monque_states.py`, on the collection in memory."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from bson import ObjectId
from hypothesis import settings

from monque_protocol import commands
from monque_protocol.commands import Command
from tests.support.monque_model import Collection
from tests.support.monque_states import FAULTS, Comparison, Rules, Step, is_noticed, play


class Memory:
    def __init__(self) -> None:
        self._collection = Collection(ObjectId)
        self._collection.indexes = commands.indexes(retention=False)

    def run(self, command: Command[Any]) -> Any:
        return self._collection.run(command.document)

    def documents(self) -> list[Any]:
        return self._collection.documents


class InMemory(Rules):
    @classmethod
    def make_store(cls) -> Memory:
        return Memory()


TestInMemory = InMemory.TestCase
TestInMemory.settings = settings(stateful_step_count=40)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_of_a_command_is_noticed_by_its_script(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, change, script = FAULTS[fault]
    play(Comparison(Memory()), script)
    monkeypatch.setattr(commands, function, spoiled(getattr(commands, function), change))
    assert is_noticed(Comparison(Memory()), script)


def spoiled(make: Callable[..., Command[Any] | None], change: Callable[[Any], None]) -> Callable[..., Any]:
    def spoil(*args: Any, **options: Any) -> Any:
        command = make(*args, **options)
        assert command is not None
        document: dict[str, Any] = dict(command.document)
        change(document)
        return msgspec.structs.replace(command, document=document)

    return spoil


def test_scripts_end_with_what_their_fault_is_about() -> None:
    steps: list[Step] = [script[-1] for _, _, script in FAULTS.values()]
    assert all(callable(getattr(Comparison, name)) for name, *_ in steps)
