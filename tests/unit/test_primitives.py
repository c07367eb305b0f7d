"""An event that tasks wait for, on asyncio and trio: small, since many may wait at once."""

import anyio
import pytest
from anyio.lowlevel import checkpoint

from bullmq_anyio.primitives import Event

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_all_that_wait_are_woken_and_later_ones_at_once() -> None:
    event, woken = Event(), list[int]()

    async def wait(number: int) -> None:
        await event.wait()
        woken.append(number)

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(wait, number)
        await anyio.wait_all_tasks_blocked()
        assert woken == []
        event.set()
    assert sorted(woken) == [0, 1, 2]
    await event.wait()


async def test_one_that_is_cut_off_takes_nothing_from_the_others() -> None:
    event, woken = Event(), list[str]()

    async def wait(name: str) -> None:
        await event.wait()
        woken.append(name)

    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            tasks.start_soon(wait, "stays")
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
            await wait("cut off")
        await event.wait(0)
        assert woken == []
        event.set()
    assert woken == ["stays"]


async def test_one_that_is_cut_off_and_woken_at_once() -> None:
    event = Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(event.wait)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
        event.set()
    event.clear()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(event.wait)
        await anyio.wait_all_tasks_blocked()
        event.set()


async def test_it_can_be_waited_for_again() -> None:
    event, rounds = Event(), 0

    async def wait() -> None:
        nonlocal rounds
        while rounds < 3:
            event.clear()
            await event.wait()
            rounds += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        for number in range(3):
            await anyio.wait_all_tasks_blocked()
            assert rounds == number
            event.set()
            await checkpoint()
    assert rounds == 3


async def test_a_wait_with_a_limit() -> None:
    event = Event()
    await event.wait(0.001)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(event.wait, 60)
        await anyio.wait_all_tasks_blocked()
        event.set()
