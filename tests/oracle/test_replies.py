"""When the oracle takes two replies for the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracle.harness import replies_equal

ONE, TWO = [b"a", b"1", b"b", b"2"], [b"b", b"2", b"a", b"1"]


def page(items: list[bytes], count: int, hashes: list[Any]) -> list[Any]:
    return [b"0", 2, items, count, hashes]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (page([b"x"], 2, [ONE]), page([b"x"], 2, [TWO]), True),
        (page([b"x"], 2, [ONE]), page([b"x"], 2, [[b"a", b"1"]]), False),
        (page([b"x", b"y"], 2, [ONE, TWO]), page([b"y", b"x"], 2, [TWO, ONE]), True),
        (page([b"x", b"y"], 3, [ONE, TWO]), page([b"y", b"x"], 3, [TWO, ONE]), False),
        (page([b"x"], 2, [ONE]), page([b"y"], 2, [TWO]), False),
        (page([b"x"], 1, []), page([b"x"], 2, []), False),
    ],
)
def test_pages(one: list[Any], other: list[Any], same: bool) -> None:
    assert replies_equal("paginate", one, other) is same


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ([ONE, b"7", 0, 0], [TWO, b"7", 0, 0], True),
        ([ONE, b"7", 0, 0], [ONE, b"8", 0, 0], False),
        ([ONE, b"7", 0, 0], [], False),
        ([0, 0, 0, 5], [0, 0, 0], False),
        ([0, 0, 1000, 0], [0, 0, 999, 0], True),
        ([0, 0, 0, 5], [0, 0, 0, 6], False),
    ],
)
def test_next_jobs(one: list[Any], other: list[Any], same: bool) -> None:
    assert replies_equal("moveToActive", one, other) is same
    assert replies_equal("moveToFinished", other, one) is same
