"""Tasks of trio that are due together run in the order that `--trio-order` names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trio
import trio._core._run as internals

from tests.support import trio_order

_ROOT = Path(__file__).parents[2]


def ran(count: int) -> list[int]:
    """Run that many tasks that are due together; return their order."""
    order = list[int]()

    async def note(number: int) -> None:
        order.append(number)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(count):
                nursery.start_soon(note, number)

    trio.run(main)
    return order


@pytest.mark.parametrize("deterministic", [False, True])
def test_the_order_is_fixed(monkeypatch: pytest.MonkeyPatch, deterministic: bool) -> None:
    """Also after hypothesis was used, which has trio shuffle them."""
    monkeypatch.setattr(internals, "_ALLOW_DETERMINISTIC_SCHEDULING", deterministic)
    for _ in range(20):
        trio_order.fix("kept", monkeypatch)
        assert ran(3) == [0, 1, 2]
        trio_order.fix("reversed", monkeypatch)
        assert ran(3) == [2, 1, 0]


@pytest.mark.parametrize("there", [None, lambda: 0.5])
def test_a_trio_that_draws_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch, there: object) -> None:
    monkeypatch.setattr(internals, "_r", there)
    with pytest.raises(
        pytest.UsageError, match=r"^--trio-order: trio \S+ has no trio\._core\._run\._r to be replaced$"
    ):
        trio_order.fix("kept", monkeypatch)
    monkeypatch.delattr(internals, "_r")
    with pytest.raises(pytest.UsageError, match="has no trio"):
        trio_order.fix("kept", monkeypatch)


def test_the_order_of_this_run(pytestconfig: pytest.Config) -> None:
    """As the option says, and without it as trio draws: both orders come, seldom one of them 64 times in a row."""
    asked = pytestconfig.getoption("trio_order")
    orders = {"kept": {(0, 1)}, "reversed": {(1, 0)}, None: {(0, 1), (1, 0)}}[asked]
    assert {tuple(ran(2)) for _ in range(64)} == orders


@pytest.mark.slow
@pytest.mark.parametrize("order", trio_order.ORDERS)
def test_the_option_reaches_the_processes_of_xdist(order: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider", "--trio-order", order]
    command.append(f"{Path(__file__).relative_to(_ROOT)}::test_the_order_of_this_run")
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True)
    assert "1 passed" in done.stdout, done.stdout
