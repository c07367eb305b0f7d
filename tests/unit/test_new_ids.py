"""The ids that flows give their jobs: random UUIDs, as Node's."""

import uuid
from collections import Counter
from collections.abc import Callable

import pytest

import bullmq_anyio.producers
import bullmq_sync.producers


@pytest.mark.parametrize("new_id", [bullmq_anyio.producers._new_id, bullmq_sync.producers._new_id])
def test_ids_are_random_uuids(new_id: Callable[[], str]) -> None:
    texts = [new_id() for _ in range(4_000)]
    ids = [uuid.UUID(text) for text in texts]
    assert [str(each) for each in ids] == texts and len(set(ids)) == len(ids)
    assert {(each.version, each.variant) for each in ids} == {(4, uuid.RFC_4122)}
    for place in {*range(36)} - {8, 13, 14, 18, 19, 23}:
        assert len({text[place] for text in texts}) == 16, place
    # Each of the four comes a thousand times, with a standard deviation of 27.
    assert all(700 < count < 1_300 for count in Counter(text[19] for text in texts).values())
