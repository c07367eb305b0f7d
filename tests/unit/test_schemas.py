"""The schemas of a job's hash and of the events against what BullMQ's scripts write, as the golden vectors hold it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import vectors
from tests.support.json_schema import problems

pytestmark = [pytest.mark.search, pytest.mark.any_python]

SCHEMAS = vectors.SPECS / "schemas"
JOB = json.loads((SCHEMAS / "job.json").read_text(encoding="utf-8"))
EVENTS = json.loads((SCHEMAS / "events.json").read_text(encoding="utf-8"))
FORMS = tuple(name for name in EVENTS["$defs"] if name not in ("text", "moment", "count"))
ADDING = ("addStandardJob", "addDelayedJob", "addPrioritizedJob", "addParentJob", "addJobScheduler")


def definition(schema: Any, name: str) -> Any:
    return {"$ref": f"#/$defs/{name}", "$defs": schema["$defs"]}


def wrong_in_job(fields: dict[str, Any]) -> list[str]:
    """Check a hash, and the JSON in its fields."""
    found = problems(fields, JOB)
    for name in ("opts", "parent"):
        if name in fields and not found:
            found += problems(json.loads(fields[name]), definition(JOB, name))
    return found


def _hashes(state: dict[str, Any]) -> dict[str, Any]:
    return {
        key: entry["value"] for key, entry in state.items() if entry["type"] == "hash" and "timestamp" in entry["value"]
    }


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the jobs that a call of a client made, and those it changed where they were as they should be before."""
    for command, vector in vectors.everything():
        if vector["inputs"] is None:
            continue
        before = _hashes(vector["start"])
        for key, fields in _hashes(vector["end"]).items():
            old = before.get(key)
            if fields != old and (command in ADDING if old is None else not wrong_in_job(old)):
                yield vector["id"], fields


NO_CLIENT = frozenset(
    (
        "0 sets the flag",
        "the empty text sets it",
        "nobody looks at it where the key has none of its own",
        "deferring, a done child, and no object of the parent",
        "another direction is a resume",
    )
)
"""Titles of vectors of later versions with options that no client sends."""


def later() -> Iterator[tuple[str, str, vectors.Vector]]:
    """Yield the vectors of later versions that end well, with a name and the command of each."""
    for version in vectors.LATER:
        for command in vectors.of_version(version):
            for vector in vectors.load(command, version):
                failed = isinstance(vector["reply"], dict) and "error" in vector["reply"]
                if not failed and vector["title"] not in NO_CLIENT:
                    yield f"{version} {vector['id']}", command, vector


def events() -> Iterator[tuple[str, list[str]]]:
    for _, vector in vectors.everything():
        if vector["inputs"] is not None:
            for entries in vector["events"].values():
                for entry in entries:
                    yield vector["id"], entry


def test_jobs_are_as_the_schema_says() -> None:
    found = list(jobs())
    assert [(id, wrong_in_job(fields)) for id, fields in found if wrong_in_job(fields)] == []
    assert len(found) > 300


def test_those_of_later_versions_are_too() -> None:
    found = [
        (name, fields)
        for name, command, vector in later()
        for key, fields in _hashes(vector["end"]).items()
        if command in ADDING and fields != _hashes(vector["start"]).get(key)
    ]
    assert [(name, wrong_in_job(fields)) for name, fields in found if wrong_in_job(fields)] == []
    assert len(found) > 50
    given = [(name, entry) for name, _, vector in later() for added in vector["events"].values() for entry in added]
    assert [(name, entry) for name, entry in given if problems(entry, EVENTS)] == []
    assert len(given) > 200


def test_every_field_of_a_job_was_seen() -> None:
    seen = Counter(name for _, fields in jobs() for name in fields)
    assert set(JOB["properties"]) - {"attemptsMade", "flowAttachmentFailed"} <= set(seen)
    options = Counter(name for _, fields in jobs() for name in json.loads(fields["opts"]))
    assert set(JOB["$defs"]["opts"]["properties"]) <= set(options)


def test_events_are_as_the_schema_says() -> None:
    found = list(events())
    assert [(id, entry) for id, entry in found if problems(entry, EVENTS)] == []
    assert len(found) > 500


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_an_event_was_seen_and_fits_one_definition(form: str) -> None:
    fitting = [entry for _, entry in events() if not problems(entry, definition(EVENTS, form))]
    assert fitting
    others = [name for name in FORMS if name != form and not problems(fitting[0], definition(EVENTS, name))]
    assert others == []
    assert {"$ref": f"#/$defs/{form}"} in EVENTS["anyOf"]


def test_the_events_of_the_table_are_those_of_the_schema() -> None:
    named = {form["prefixItems"][1]["const"] for form in (EVENTS["$defs"][name] for name in FORMS)}
    assert {event for row in vectors.table().values() for event in row["events"]} == named


@pytest.mark.parametrize(
    ("changed", "reported"),
    [
        ({"timestamp": "now"}, "$.timestamp"),
        ({"priority": 3}, "$.priority"),
        ({"name": None}, "$.name"),
        ({"opts": '{"attempts":"3"}'}, "$.attempts"),
        ({"parent": '{"id":"1"}'}, "queueKey is missing"),
    ],
)
def test_a_wrong_job_is_seen(changed: dict[str, Any], reported: str) -> None:
    right = {"name": "n", "data": "{}", "opts": "{}", "timestamp": "1", "delay": "0", "priority": "0"}
    assert wrong_in_job(right) == []
    assert reported in wrong_in_job({**right, **changed})[0]


def test_words_of_a_schema_that_nobody_checks_are_refused() -> None:
    with pytest.raises(ValueError, match="oneOf"):
        problems(1, {"oneOf": []})
