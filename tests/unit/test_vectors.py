"""The golden vectors without a server: their form, what they cover, and what our builders and decoders make of them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from bullmq_protocol.errors import UsageError
from bullmq_protocol.testing import vectors as kit
from tests.support import vectors
from tests.support.building import build
from tests.support.json_schema import problems
from tests.support.vector_coverage import covered, fingerprint, required

pytestmark = [pytest.mark.search, pytest.mark.any_python]

SCRIPTS = vectors.scripts()
LEAST = 500
LEAST_PER_COMMAND = 5
MOST_BYTES = 6_000_000
NEVER_SENT = {
    "addStandardJob": {"options.delay is given", "options.priority is given"},
    "addPrioritizedJob": {"options.delay is given"},
    "isFinished": {"with the result = ", "reply: completed", "reply: failed"},
}
"""What the scripts know and no builder of ours sends: other commands do it, or nobody does."""


@pytest.mark.parametrize("command", SCRIPTS)
def test_vectors_have_the_form_of_the_schema(command: str) -> None:
    schema = json.loads((vectors.FOLDER / "schema.json").read_text(encoding="utf-8"))
    found = json.loads((vectors.FOLDER / f"{command}.json").read_text(encoding="utf-8"))
    assert problems(found, schema) == []
    assert found["command"] == command
    assert [vector["id"] for vector in found["vectors"]] == [
        f"{command}-{at + 1}" for at in range(len(found["vectors"]))
    ]


@pytest.mark.parametrize("version", vectors.LATER)
def test_those_of_later_versions_have_it_too(version: str) -> None:
    schema = json.loads((vectors.FOLDER / "schema.json").read_text(encoding="utf-8"))
    commands = vectors.of_version(version)
    assert len(commands) > 15
    for command in commands:
        found = json.loads(vectors.path(command, version).read_text(encoding="utf-8"))
        assert problems(found, schema) == []
        assert (found["command"], found["bullmq"]) == (command, version)
        assert command in vectors.table()
        ids = [vector["id"] for vector in found["vectors"]]
        assert ids == [f"{command}-{at + 1}" for at in range(len(ids))]
        assert not any("inputs" in vector for vector in found["vectors"])


def test_those_of_5_62_have_inputs() -> None:
    assert all("inputs" in vector and "decoded" in vector for _, vector in vectors.everything())


def test_there_is_a_file_per_script_and_nothing_else() -> None:
    assert sorted(path.stem for path in vectors.FOLDER.glob("*.json")) == sorted((*SCRIPTS, "schema"))


def test_there_are_many_and_they_are_small() -> None:
    counts = {command: len(vectors.load(command)) for command in SCRIPTS}
    assert min(counts.values()) >= LEAST_PER_COMMAND
    assert sum(counts.values()) >= LEAST
    assert sum(path.stat().st_size for path in vectors.FOLDER.rglob("*.json")) < MOST_BYTES


@pytest.mark.parametrize("command", SCRIPTS)
def test_every_reply_error_option_and_event_of_the_table_is_covered(command: str) -> None:
    row = vectors.table()[command]
    found = set().union(*(covered(row, vector) for vector in vectors.load(command)))
    assert required(row) - found == set()
    assert "a reply that the table does not know" not in found
    assert {each for each in found if each.startswith("event ")} <= required(row)


@pytest.mark.parametrize("command", SCRIPTS)
def test_our_builder_reaches_all_of_it_that_a_client_sends(command: str) -> None:
    row = vectors.table()[command]
    made = [covered(row, vector) for vector in vectors.load(command) if vector["inputs"] is not None]
    assert required(row) - set().union(*made) == NEVER_SENT.get(command, set())


def test_no_two_differ_in_ids_or_times_alone() -> None:
    seen: dict[str, str] = {}
    twins = []
    for command, vector in vectors.everything():
        first = seen.setdefault(fingerprint(command, vector), vector["id"])
        if first != vector["id"]:
            twins.append((first, vector["id"]))
    assert twins == []


def test_a_vector_with_other_ids_and_times_has_the_same_fingerprint() -> None:
    vector = next(each for each in vectors.load("changeDelay") if each["reply"] == 0 and each["inputs"])
    id, now = vector["inputs"]["job_id"], vector["inputs"]["now"]
    other = json.loads(json.dumps(vector).replace(f'"{id}"', '"z9"').replace(f"q:{id}", "q:z9"))
    assert other != vector
    assert fingerprint("changeDelay", other) == fingerprint("changeDelay", vector)
    assert now
    assert fingerprint("changeDelay", {**vector, "reply": 1}) != fingerprint("changeDelay", vector)


def _arguments(call: Any) -> list[Any]:
    return [_opened(each) for each in call["args"]]


def _opened(value: Any) -> Any:
    """An argument as it is compared: of MessagePack what is in it, in its order."""
    if not isinstance(value, dict):
        return value
    return _in_order(msgspec.msgpack.decode(vectors.raw(value)))


def _in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return [[name, _in_order(each)] for name, each in value.items()]
    return [_in_order(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("command", SCRIPTS)
def test_our_builder_makes_the_call_and_our_decoder_reads_the_reply(command: str) -> None:
    row = vectors.table()[command]
    encodings = [argument["encoding"] for argument in row["arguments"]]
    made = [vector for vector in vectors.load(command) if vector["inputs"] is not None]
    assert len(made) >= LEAST_PER_COMMAND
    for vector in made:
        built = build(command, vector["inputs"])
        encoded = [*encodings, *encodings[-1:] * len(built.args)]
        args = [vectors.argument(arg, kind) for arg, kind in zip(built.args, encoded, strict=False)]
        assert built.name == command
        assert list(built.keys) == vector["call"]["keys"], vector["id"]
        assert _arguments({"args": args}) == _arguments(vector["call"]), vector["id"]
        assert vectors.decoding(command, vector) == vector["decoded"], vector["id"]


@pytest.mark.parametrize("command", SCRIPTS)
def test_the_decoded_view_of_an_argument_is_what_its_bytes_hold(command: str) -> None:
    for vector in vectors.load(command):
        for argument in vector["call"]["args"]:
            if isinstance(argument, dict) and "msgpack" in argument:
                assert vectors.argument(vectors.raw(argument), "msgpack") == argument, vector["id"]


@pytest.mark.parametrize("command", SCRIPTS)
def test_a_vector_is_equal_to_itself_and_to_nothing_else(command: str) -> None:
    for vector in vectors.load(command):
        end, events = vector["end"], vector["events"]
        assert vectors.differences(vector, vector["reply"], end, events) == []
        assert vectors.differences(vector, "another", end, events) != []
        more = {**end, "bull:q:more": {"type": "string", "value": "1"}}
        assert vectors.differences(vector, vector["reply"], more, events) != []
        assert vectors.differences(vector, vector["reply"], end, {"bull:q:events": [["event", "x"]]}) != []


def test_the_kit_has_the_vectors_by_command_and_version() -> None:
    assert kit.load("promote") is kit.load("promote")
    assert set(kit.commands()) == set(SCRIPTS)
    for version in kit.LATER:
        assert {command for command in kit.commands(version) if kit.load(command, version)}
    with pytest.raises(UsageError, match="command: has no vectors of 6"):
        kit.load("addLogs", "6.7.0")
    with pytest.raises(UsageError, match="version: must be one of"):
        kit.load("promote", "6.6.0")
