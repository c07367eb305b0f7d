"""The golden vectors recorded anew from BullMQ's scripts are those in `specs/vectors`."""

from __future__ import annotations

import pytest

from tests.oracle import record
from tests.support import vectors


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
        != record.file_text(name, recorder.found.get(name, []))
    ]
    assert changed == []
