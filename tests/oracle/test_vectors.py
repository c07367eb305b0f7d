"""The golden vectors recorded anew from BullMQ's scripts are those in `specs/vectors`."""

from __future__ import annotations

import pytest

from tests.oracle import record
from tests.support import vectors


@pytest.mark.deep
@pytest.mark.timeout(900)  # all the vectors in one
def test_recording_again_gives_the_same_files() -> None:
    names = set(vectors.scripts())
    recorder = record.record(names, random_states=0)
    assert recorder.wrong == []
    assert recorder.unreached() == set()
    changed = [
        name
        for name in sorted(names)
        if (vectors.FOLDER / f"{name}.json").read_text(encoding="utf-8")
        != record.file_text(name, record.as_before(name, recorder.found.get(name, [])))
    ]
    assert changed == []


@pytest.mark.deep
@pytest.mark.parametrize("version", vectors.LATER)
def test_recording_those_of_later_versions_again_gives_the_same_files(version: str) -> None:
    recorded = record.record_later(version)
    assert tuple(sorted(recorded)) == vectors.of_version(version)
    changed = [
        name
        for name, found in recorded.items()
        if vectors.path(name, version).read_text(encoding="utf-8")
        != record.file_text(name, record.as_before(name, found, version), version)
    ]
    assert changed == []


def test_what_a_pause_of_the_machine_takes_from_a_lifetime_changes_no_file() -> None:
    for name in ("moveToActive", "moveToFinished"):
        before = vectors.load(name)
        assert record.as_before(name, [_older(each, 1999) for each in before]) == list(before)
        # Longer, it is another lifetime; and no other number gives way.
        assert record.as_before(name, [_older(each, 2001) for each in before]) != list(before)
        counted = [{**each, "end": {"bull:q:pc": {"type": "string", "value": 7}}} for each in before]
        assert record.as_before(name, counted) == counted


def _older(vector: vectors.Vector, ms: int) -> vectors.Vector:
    """Return a vector with each lifetime shorter by as many milliseconds."""
    reply = vector["reply"]
    if "reply_tolerance_ms" in vector:
        reply = [each - ms if each > ms else each for each in reply] if isinstance(reply, list) else reply - ms
    return {**vector, "reply": reply, **{part: _state(vector[part], ms) for part in ("start", "end")}}


def _state(state: dict[str, vectors.Json], ms: int) -> dict[str, vectors.Json]:
    return {key: {**each, "ttl_ms": each["ttl_ms"] - ms} if "ttl_ms" in each else each for key, each in state.items()}
