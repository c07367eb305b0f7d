"""Which vectors later versions supersede, computed anew with BullMQ's scripts, is what the conformance package has."""

from __future__ import annotations

import copy

import pytest

from bullmq_conformance import vectors
from tests.oracle import superseded
from tests.oracle.harness import Bench


@pytest.mark.any_server
def test_the_recorded_vectors_are_those_that_do_not_hold(bench: Bench) -> None:
    found = superseded.superseded(bench.wire)
    assert list(superseded.changed(found, superseded.recorded())) == []
    assert superseded.text_of(found) == superseded.FILE.read_text(encoding="utf-8")


def test_a_vector_that_is_missing_or_too_many_is_noticed() -> None:
    recorded = superseded.recorded()
    stale = copy.deepcopy({version: dict(since) for version, since in recorded.items()})
    first = stale["6.7.0"]["5.62.0"].pop(0)
    stale["5.81.5"]["5.62.0"].append("promote-1")
    assert list(superseded.changed(recorded, stale)) == [
        "5.81.5: 5.62.0/promote-1 holds",
        f"6.7.0: 5.62.0/{first} does not hold",
    ]


def test_every_recorded_vector_exists() -> None:
    for version, by_version in superseded.recorded().items():
        assert list(by_version) == list(vectors.VERSIONS[: vectors.VERSIONS.index(version)])
        for since, ids in by_version.items():
            known = {each["id"] for found in vectors.own(since).values() for each in found}
            assert set(ids) <= known
