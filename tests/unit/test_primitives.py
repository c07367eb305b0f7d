"""An event that tasks wait for, on asyncio and trio: small, since many may wait at once."""

import anyio
import pytest
from anyio.lowlevel import checkpoint

from bullmq_anyio.primitives import Event
from bullmq_anyio.wakes import TrioWake, wake_maker

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


async def test_one_that_is_set_lets_others_run_and_can_be_cut_off() -> None:
    event, ran = Event(), list[str]()

    async def run() -> None:
        ran.append("other")

    event.set()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        # trio runs the tasks that are due together in either order: after the second wait the other one has run.
        await event.wait()
        await event.wait()
        assert ran == ["other"]
    with anyio.CancelScope() as scope:
        scope.cancel()
        await event.wait()
    assert scope.cancelled_caught


async def test_waits_that_are_cut_off_leave_nothing() -> None:
    event = Event()
    for _ in range(3):
        await event.wait(0)
    assert event._waiting == ()


async def test_a_wake_that_is_set_before_is_not_waited_for() -> None:
    wake = wake_maker()()
    wake.set_result("early")
    assert wake.done()
    with anyio.fail_after(5):
        assert await wake == "early"


async def test_a_wake_whose_task_is_cut_off_is_done() -> None:
    wake = wake_maker()()
    with anyio.move_on_after(0) as scope:
        await wake
    assert scope.cancelled_caught
    assert wake.done()


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_a_wake_whose_task_could_not_be_woken_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise MemoryError

    wake, woken = wake_maker()(), list[str]()

    async def wait() -> None:
        woken.append(await wake)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        with monkeypatch.context() as patched:
            patched.setattr(TrioWake.trio, "reschedule", fail)
            with pytest.raises(MemoryError):
                wake.set_result("lost")
        assert not wake.done()
        wake.set_result("again")
        assert wake.done()
    assert woken == ["again"]
