"""The order in which trio runs tasks that are due together: by a coin forwards or backwards, here always the same."""

from __future__ import annotations

import random

import pytest
import trio
import trio._core._run as internals

ORDERS = ("kept", "reversed")


class _Coin:
    """What trio draws from. It turns the tasks around below a half, or shuffles them where hypothesis seeds it.

    Then it runs the last one first: they keep their order where they are turned around.
    """

    def __init__(self, order: str) -> None:
        self._turned = order == "kept"

    def random(self) -> float:
        return 0.0 if self._turned else 1.0

    def shuffle(self, tasks: list[object]) -> None:
        if self._turned:
            tasks.reverse()

    def uniform(self, low: float, high: float) -> float:
        """Draw the offset of a clock."""
        return low


def fix(order: str, patch: pytest.MonkeyPatch) -> None:
    """Fix the order of this process until `patch` is undone; fail where this trio draws no such number."""
    if not isinstance(getattr(internals, "_r", None), random.Random | _Coin):
        raise pytest.UsageError(f"--trio-order: trio {trio.__version__} has no trio._core._run._r to be replaced")
    patch.setattr(internals, "_r", _Coin(order))
