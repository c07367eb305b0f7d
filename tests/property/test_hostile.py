"""No reply and no payload crashes or holds up a decoder, however hostile: `python -m tests.support.hostile`."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import hostile, hostile_jobs

_CASES = settings.default.max_examples * 4 if settings.default else 200
NEVER_REFUSED = (
    "hashes of jobs",
    "jobs that another program stored",
    "lives of a worker with such jobs",
    "such jobs by hand",
    "entries of the event stream",
)
_FAMILIES = tuple(hostile.families(random.Random(0)))


@pytest.mark.parametrize("family", _FAMILIES)
def test_is_a_value_or_refused(family: str) -> None:
    following = hostile.families(random.Random(20261128))[family]
    outcome = hostile.attack(family, following, _CASES)
    assert outcome.values + outcome.refused == _CASES
    assert outcome.values > 0
    assert outcome.refused > 0 or family in NEVER_REFUSED
    # The time limit is that of the long run: here other processes may have the processor.
    assert outcome.grown_mb <= hostile.LIMIT_MB


@given(st.randoms(use_true_random=False))
def test_no_hash_reply_or_callback_harms_a_machine(rolls: random.Random) -> None:
    assert hostile_jobs.Life(rolls).live() >= hostile_jobs.Life.STEPS


def test_what_is_no_refusal_is_raised_with_its_case() -> None:
    def read(given: object) -> None:
        raise KeyError(given)

    with pytest.raises(KeyError) as caught:
        hostile.attack("planted", lambda: (read, b"case"), 1)
    assert caught.value.__notes__ == ["planted: b'case'"]


def test_limits_are_looked_at() -> None:
    quick = hostile.Outcome("a", 1, 1, 0, hostile.Worst(hostile.LIMIT_MS, ""), hostile.LIMIT_MB)
    assert hostile.is_within_limits(quick)
    assert not hostile.is_within_limits(quick._replace(worst=hostile.Worst(hostile.LIMIT_MS + 1, "")))
    assert not hostile.is_within_limits(quick._replace(grown_mb=hostile.LIMIT_MB + 1))
