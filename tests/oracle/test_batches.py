"""Several jobs in one call equal the same jobs one by one; planted faults are found."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bullmq_protocol._lua import OUR_SCRIPTS
from tests.oracle import batches
from tests.oracle.harness import Bench

FAULTS = (
    ("finishMany", "later.cap + emitted - later.emitted", "later.cap"),
    ("finishMany", "    promoted_at = nil\n", "    promoted_at = now\n"),
    ("finishMany", "call('EXISTS', unpack(pending)) == 0", "true"),
    ("finishMany", "later.locks[lock] = false", "later.locks[lock] = nil"),
    ("finishMany", "members[#members + 1], members[#members + 2] = now, id", "members[1], members[2] = now, id"),
    ("fetchMany", "if reply[2] == 0 or", "if"),
    ("addMany", "many.last - many.reserved", "many.last"),
    ("addMany", "if many.ready then", "if false then"),
)


def test_one_call_equals_the_single_calls(bench: Bench) -> None:
    for number in range(250):
        assert batches.run(bench, 1, number) == ()


@pytest.mark.parametrize(("name", "right", "wrong"), FAULTS)
def test_a_planted_fault_is_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str, right: str, wrong: str
) -> None:
    script = OUR_SCRIPTS[name]
    assert right in script.source
    planted = {**OUR_SCRIPTS, name: replace(script, source=script.source.replace(right, wrong))}
    monkeypatch.setattr(batches, "OUR_SCRIPTS", planted)
    assert any(batches.run(bench, 1, number) for number in range(600))
