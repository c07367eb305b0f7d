"""`specs/commands.json` against every builder: keys, arguments, repeat class and errors."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from bullmq_protocol import commands
from bullmq_protocol.command import Batch, Command, Repeat
from bullmq_protocol.commands import queues
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import SCRIPT_ERRORS, BullMQError, RelayRefused, script_error
from bullmq_protocol.relay import commands as relay_commands
from bullmq_protocol.relay.names import RelayKeys
from bullmq_protocol.scripts._lua import OUR_SCRIPTS, SCRIPTS
from bullmq_protocol.scripts._lua_relay import RELAY_SCRIPTS
from lua import build as lua_build
from tests.support import vectors
from tests.support.building import build
from tests.support.json_schema import problems
from tests.support.vector_coverage import codes

TABLE = json.loads((vectors.SPECS / "commands.json").read_text(encoding="utf-8"))
ROWS: Mapping[str, Mapping[str, Any]] = vectors.table()
PLAIN = tuple(name for name, row in ROWS.items() if row["kind"] == "plain")
KEYS = QueueKeys.of("q")

SAMPLES: Mapping[str, tuple[Any, ...] | dict[str, Any]] = {
    "set meta": {"max_len_events": 10, "version": "bullmq:5.62.0"},
    "setGlobalConcurrency": (3,),
    "setGlobalRateLimit": (3, 1000),
    "rateLimit": {"ttl_ms": 1000},
    "trimEvents": (100,),
    "getDeduplicationJobId": ("d",),
    "removeDeduplicationKey": ("d",),
    "getJob": ("1",),
    "getJobLogs": ("1",),
    "clearLogs": ("1",),
    "is in set": (KEYS.completed, "1"),
    "is in list": (KEYS.wait, "1"),
    "getChildrenValues": ("1",),
    "getIgnoredChildrenFailures": ("1",),
    "getDependencies": ("1",),
    "getDependencies processed": ("1",),
    "getDependencies unprocessed": ("1",),
    "getDependencies ignored": ("1",),
    "getDependencies failed": ("1",),
    "count finished": ("completed", 5),
    "wait for marker": {"block_ms": 5000},
    "read scheduler": ("s",),
    "read events": {"after": "0-0", "count": 10},
    "read events back": {"before": "5-0", "count": 10},
    "wait for events": {"after": "0-0", "count": 10, "block_ms": 5000},
    "publishEvent": ("mine", {"a": 1}),
}
"""What each plain command is built with, beside the keys."""

WITHOUT_KEYS = ("ping", "is in set", "is in list")


RELAY_SAMPLES: Mapping[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "register_node": (("n",), {}),
    "renew_node": (("n",), {}),
    "unregister_node": (("n",), {}),
    "sweep_nodes": ((), {}),
    "subscribe": (("n", "e", "a.*"), {}),
    "remove_endpoint": (("n", "e"), {}),
    "publish": (("a.b", "{}"), {"timestamp": 5}),
    "read_inbox": (("n",), {}),
    "acknowledge": (("n",), {"last": "1-0"}),
    "trim_inbox": (("n",), {}),
    "wait_for_messages": (("n",), {"after": "1-0", "block_ms": 5}),
    "delete_retained": (("a",), {}),
    "touch_namespace": ((), {"lifetime_ms": 5}),
}
"""What each builder of the relay is called with, beside the keys; with nothing, if it is not here."""


def _function(path: str) -> Any:
    module, _, name = path.partition(".")
    if module == "relay":
        return getattr(relay_commands, name)
    return getattr(importlib.import_module(f"bullmq_protocol.commands.{module}"), name)


def _builders() -> Iterator[str]:
    for info in pkgutil.iter_modules(commands.__path__):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"bullmq_protocol.commands.{info.name}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            returned = typing.get_type_hints(function).get("return")
            own = function.__module__ == module.__name__ and not name.startswith("_")
            if own and (returned is Batch or (typing.get_origin(returned) or returned) is Command):
                yield f"{info.name}.{name}"
    for name, function in inspect.getmembers(relay_commands, inspect.isfunction):
        returned = typing.get_type_hints(function).get("return")
        if function.__module__ == relay_commands.__name__ and not name.startswith("_") and "Command" in str(returned):
            yield f"relay.{name}"


def _pattern(key: str) -> str:
    known = re.escape(key).replace(re.escape("<B>"), re.escape(KEYS.base))
    return re.sub(r"<[^>]*>", ".*", known.replace("<key>", KEYS.base + ".+").replace("<list>", KEYS.base + ".+"))


def _keys_fit(row: Mapping[str, Any], keys: tuple[str, ...]) -> bool:
    return len(keys) == len(row["keys"]) and all(
        re.fullmatch(_pattern(declared["key"]), key) for declared, key in zip(row["keys"], keys, strict=True)
    )


def _arguments_fit(row: Mapping[str, Any], count: int) -> bool:
    declared = row["arguments"]
    if declared and declared[-1].get("rest"):
        return count >= len(declared) - 1
    return len(declared) - sum(bool(each.get("optional")) for each in declared) <= count <= len(declared)


def test_every_builder_has_one_row() -> None:
    listed = [builder for row in TABLE["commands"] for builder in row["builders"]]
    assert sorted(listed) == sorted(_builders())
    assert [row["name"] for row in TABLE["commands"]] == list(ROWS)


def test_every_script_has_a_row_with_its_number_of_keys() -> None:
    assert sorted(vectors.scripts()) == sorted(SCRIPTS)
    for name in vectors.scripts():
        assert len(ROWS[name]["keys"]) == SCRIPTS[name].keys == lua_build.key_count(name), name


def test_every_script_of_ours_has_a_row_with_its_number_of_keys() -> None:
    rows = {name: len(row["keys"]) for name, row in ROWS.items() if row["kind"] == "ours"}
    assert rows == {name: script.keys for name, script in OUR_SCRIPTS.items()}


def test_every_script_of_the_relay_has_a_row_that_its_builders_fit() -> None:
    rows = {name: row for name, row in ROWS.items() if row["kind"] == "relay" and "redis" not in row}
    assert {name: len(row["keys"]) for name, row in rows.items()} == {
        name: script.keys for name, script in RELAY_SCRIPTS.items()
    }
    keys = RelayKeys.of("ns")
    for name, row in {**rows, "relay wait for messages": ROWS["relay wait for messages"]}.items():
        for path in row["builders"]:
            args, options = RELAY_SAMPLES.get(path.partition(".")[2], ((), {}))
            command = _function(path)(keys, *args, **options)
            assert command.script is RELAY_SCRIPTS.get(name)
            (declared,) = row["keys"]
            known = declared["key"].replace("<R>", f"{keys.base}:").replace("<prefix>", "bull").replace("<node>", "n")
            assert command.keys == (known,), path
            assert len(command.args) == len(row["arguments"]), path
            assert command.repeat is Repeat(row["repeat"])
            assert (command.block_ms is not None) is bool(row.get("blocking"))
            for error in row["errors"]:
                with pytest.raises(RelayRefused):
                    command.decode(error["code"])


def test_the_rows_have_the_form_of_their_schema() -> None:
    schema = json.loads((vectors.SPECS / "commands.schema.json").read_text(encoding="utf-8"))
    assert problems(TABLE, schema) == []


def test_every_cited_section_exists() -> None:
    for row in TABLE["commands"]:
        file, _, anchor = row["spec"].partition("#")
        assert f'<a id="{anchor}"></a>' in (vectors.SPECS / file).read_text(encoding="utf-8"), row["name"]


def test_the_codes_are_our_errors() -> None:
    found = {each["code"]: each for each in TABLE["codes"]}
    assert found.keys() == SCRIPT_ERRORS.keys()
    for code, row in found.items():
        assert SCRIPT_ERRORS[code].__name__ == row["error"]
        made = script_error(code, "<command>", job_id="<id>", parent_key="<parent key>", state="<state>")
        assert str(made) == row["message"]


@pytest.mark.parametrize("name", vectors.scripts())
def test_a_script_is_built_as_its_row_says(name: str) -> None:
    row = ROWS[name]
    repeats = set()
    for vector in vectors.load(name):
        if vector["inputs"] is None or vector["inputs"]["queue"] != "q" or vector["inputs"]["prefix"] != "bull":
            continue
        command = build(name, vector["inputs"])
        assert command.script is SCRIPTS[name]
        assert command.block_ms is None
        assert _keys_fit(row, command.keys), vector["id"]
        assert _arguments_fit(row, len(command.args)), vector["id"]
        repeats.add(command.repeat)
    wanted = {Repeat(row["repeat"])} | ({Repeat.GUARDED} if "guarded" in row.get("repeat_note", "") else set())
    assert repeats == wanted


@pytest.mark.parametrize("name", vectors.scripts())
def test_a_script_gets_the_bytes_of_its_vectors(name: str) -> None:
    made = [vector for vector in vectors.load(name) if vector["inputs"] is not None]
    # few of many (test_vectors.py has all): from the beginning, where the directed ones are, to the end
    for vector in made[:: max(1, len(made) // 8)]:
        command = build(name, vector["inputs"])
        assert command.name == name
        assert list(command.keys) == vector["call"]["keys"]
        sent = [arg if isinstance(arg, bytes) else str(arg).encode() for arg in command.args]
        assert sent == [vectors.raw(each) for each in vector["call"]["args"]], vector["id"]
        assert vectors.decoding(name, vector) == vector["decoded"], vector["id"]


@pytest.mark.parametrize("name", vectors.scripts())
def test_an_error_code_of_a_row_raises_its_error(name: str) -> None:
    row = ROWS[name]
    command = build(name, next(each["inputs"] for each in vectors.load(name) if each["inputs"] is not None))
    for error in row["errors"]:
        code = error if isinstance(error, int) else error["code"]
        kind = SCRIPT_ERRORS[error] if isinstance(error, int) else getattr(queues, error["error"])
        with pytest.raises(BullMQError) as raised:
            command.decode([code] if name == "isFinished" else code)
        assert type(raised.value) is kind
    assert len(set(codes(row))) == len(row["errors"])


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_command_is_built_as_its_row_says(name: str) -> None:
    row = ROWS[name]
    (path,) = row["builders"]
    sample = SAMPLES.get(name, ())
    keys = () if name in WITHOUT_KEYS else (KEYS,)
    built = _function(path)(*keys, **sample) if isinstance(sample, dict) else _function(path)(*keys, *sample)
    made = built.commands if isinstance(built, Batch) else (built,)
    for command, redis in zip(made, row["redis"], strict=True):
        assert re.fullmatch(re.sub("<[^>]*>", "[0-9]+", redis), command.name)
    assert built.repeat is Repeat(row["repeat"])
    assert isinstance(built, Batch) is bool(row.get("transaction"))
    assert any(command.block_ms is not None for command in made) is bool(row.get("blocking"))
    used = dict.fromkeys(key for command in made for key in command.keys)
    assert _keys_fit(row, tuple(used))
    if not row.get("transaction"):
        (command,) = made
        assert _arguments_fit(row, len(command.args))
        for argument, given in zip(row["arguments"], command.args, strict=False):
            assert "fixed" not in argument or argument["fixed"] == str(given)
