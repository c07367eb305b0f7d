"""Short runs of transactions under fault, and their own eyes."""

import pytest

from tests.stress import outbox
from tests.stress.outbox import Order, audit

pytestmark = [pytest.mark.alone, pytest.mark.any_python]


@pytest.mark.parametrize("kind", outbox.KINDS)
def test_transactions_under_fault(kind: str) -> None:
    report = outbox.run(kind, 400, 6, 7)
    assert report.good, report.text()
    assert min(report.counts[what] for what in ("committed", "rolled back", "kills of Redis", "jobs")) > 0
    assert report.counts["conflicts" if kind == "multi" else "kills of relays"] > 0, report.text()
    assert report.counts["committed"] + report.counts["rolled back"] == 400


@pytest.mark.parametrize(
    ("jobs", "fault"),
    [
        (["a", "b", "c"], None),
        (["c", "a", "b"], None),
        (["a", "b"], "lost"),
        (["a", "b", "c", "b"], "there 2 times: b"),
        (["a", "b", "c", "d"], "of no committed transaction: d"),
        (["b", "c", "a"], "out of order"),
    ],
)
def test_the_audit_sees(jobs: list[str], fault: str | None) -> None:
    faults = audit([Order("a", "k", 1), Order("b", "k", 2), Order("c", None, 1)], jobs)
    assert [each.partition(" Order")[0].rstrip(":") for each in faults][:1] == ([fault] if fault else [])
