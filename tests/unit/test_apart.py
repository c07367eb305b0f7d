"""The task in which asyncio's callbacks seem to run is used again only if nothing was done to it."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, cast
from unittest import mock

import anyio
import pytest
from anyio.lowlevel import checkpoint

from bullmq_anyio.apart import Apart, apart, end_apart

_kept: list[Any] = []


@pytest.fixture(autouse=True)
def _leave_nothing() -> Iterator[None]:
    """Other tests look for tasks that are left, and find what is garbage, too."""
    yield
    _kept.clear()
    gc.collect()


_variable: ContextVar[int] = ContextVar("variable", default=0)


def _current() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


def _keep() -> None:
    _kept.append(_current())


def _keep_weakly() -> None:
    _kept.append(weakref.ref(_current()))


def _cancel() -> None:
    _current().cancel()


def _cancel_and_take_back() -> None:
    _current().cancel()
    # The loop holds what wakes a task that was cancelled: before Python 3.13 that stays when it is taken back.
    _current().uncancel()


def _rename() -> None:
    _current().set_name("mine")


def _call_at_its_end() -> None:
    _current().add_done_callback(_kept.append)


def _leave_scope_open() -> None:
    scope = anyio.CancelScope()
    scope.__enter__()
    scope.cancel()


def _arm_a_timer() -> None:
    asyncio.get_running_loop().call_later(60, _current().cancel)


@pytest.mark.parametrize("stepped", [False, True], ids=["before-its-first-step", "after-it"])
@pytest.mark.parametrize(
    "touch",
    [
        _keep,
        _keep_weakly,
        _cancel,
        _cancel_and_take_back,
        _rename,
        _call_at_its_end,
        _leave_scope_open,
        _arm_a_timer,
    ],
)
def test_what_was_done_to_a_callbacks_task_does_not_reach_the_next(touch: Callable[[], None], stepped: bool) -> None:
    async def main() -> None:
        call = apart()
        if stepped:
            await checkpoint()
        call(copy_context(), touch)
        found: list[Any] = []

        def look() -> None:
            task = _current()
            assert task not in _kept
            assert not any(isinstance(each, weakref.ref) and each() is task for each in _kept)
            found.append((task.get_name(), task.cancelling(), task.done()))
            with anyio.CancelScope() as scope:
                found.append(scope.cancel_called)
            task.add_done_callback(found.append)

        call(copy_context(), look)
        for _ in range(3):
            await checkpoint()
        *first, ended = found
        assert first == [("bullmq callback", 0, False), False]
        # It ends as a task of the callback's own would, so that nobody waits for it in vain.
        assert ended.done() and not ended.cancelled()
        assert touch is not _call_at_its_end or (_kept[0].done() and _kept[0] is not ended)

    _kept.clear()
    asyncio.run(main())


def test_a_task_to_which_nothing_was_done_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = mock.Mock(wraps=asyncio.Task)
    monkeypatch.setattr(asyncio, "Task", made)

    async def main() -> None:
        call = apart()
        numbers: list[int] = []

        def look() -> None:
            assert _current().get_name() == "bullmq callback"
            _variable.set(_variable.get() + 1)
            numbers.append(_variable.get())

        for _ in range(3):
            call(copy_context(), look)
            await checkpoint()
        assert made.call_count == 1
        assert numbers == [1, 1, 1]

    asyncio.run(main())


def test_a_callback_within_a_callback_has_a_task_of_its_own() -> None:
    async def main() -> None:
        call = apart()
        found: list[asyncio.Task[Any]] = []

        def inner() -> None:
            found.append(_current())

        def outer() -> None:
            before = _current()
            call(copy_context(), inner)
            assert _current() is before
            assert found[0] is not before

        runs = _current()
        call(copy_context(), outer)
        assert _current() is runs

    asyncio.run(main())


def test_the_task_of_callbacks_keeps_no_context() -> None:
    class Request:
        pass

    async def main() -> None:
        held: ContextVar[Request | None] = ContextVar("held", default=None)
        token = held.set(Request())
        request = held.get()
        assert request is not None
        gone = weakref.ref(request)
        call = apart()
        call(copy_context(), _variable.get)
        await checkpoint()
        del request
        held.reset(token)
        del token
        gc.collect()
        assert gone() is None
        call(copy_context(), _variable.get)

    asyncio.run(main())


def test_the_task_of_callbacks_ends_with_the_worker() -> None:
    async def main() -> Apart:
        call = apart()
        call(copy_context(), partial(_variable.set, 1))
        every = (each for each in gc.get_objects() if issubclass(type(each), asyncio.Task))
        known = cast("list[asyncio.Task[Any]]", list(every))
        loop = asyncio.get_running_loop()
        ends = [each for each in known if each.get_loop() is loop and each is not _current()]
        assert [each.get_name() for each in ends] == ["bullmq callback"]
        end_apart(call)
        end_apart(call)
        await checkpoint()
        await checkpoint()
        assert ends[0].done()
        ends.clear()
        known.clear()
        call(copy_context(), partial(_variable.set, 1))
        return call

    gc.collect()
    # Nothing can be asked of a loop that is closed.
    end_apart(asyncio.run(main()))
    end_apart(None)


def test_the_task_of_callbacks_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """No program sees it among its tasks, and none hears that it was pending."""
    reported: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: reported.append(what))
        call = apart()
        call(copy_context(), partial(_variable.set, 1))
        await checkpoint()
        assert asyncio.all_tasks() == {_current()}
        del call
        gc.collect()

    asyncio.run(main(), debug=True)
    assert reported == []
    assert capsys.readouterr().err == ""
