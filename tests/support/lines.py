"""JSON lines on stdin and stdout, and one text for asyncio, trio and threads.

Coroutines here await only what a facade returned. The blocking facade returns plain values, so a coroutine over it
never waits and `finish` runs it to its end at once.
"""

import importlib
import inspect
import json
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import ModuleType
from typing import Any, TypeVar

import anyio.to_thread

from bullmq_protocol.scripts.profile import FLEET, STRICT, V6_7, Profile

T = TypeVar("T")
Calls = Mapping[str, Callable[..., Awaitable[Any]]]

_writing = threading.Lock()


def package_of(adapter: str) -> ModuleType:
    """Return the package of an adapter, without importing the other: that takes half of a program's start."""
    return importlib.import_module("bullmq_sync" if adapter == "threads" else "bullmq_anyio")


def profile_named(name: str) -> Profile:
    """Return a profile by its label."""
    return next(each for each in (STRICT, FLEET, V6_7) if each.label == name)


def say(**line: Any) -> None:
    text = json.dumps(line) + "\n"
    with _writing:
        sys.stdout.write(text)
        sys.stdout.flush()


async def got(value: Any) -> Any:
    """Await what a facade returned, where that is needed."""
    return await value if inspect.isawaitable(value) else value


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise RuntimeError("a blocking program waited")


async def serve(calls: Calls) -> None:
    """Answer calls until stdin ends; reads in a thread."""
    while text := await anyio.to_thread.run_sync(sys.stdin.readline):
        await _answer(calls, text)


def serve_blocking(calls: Calls) -> None:
    """Answer calls until stdin ends."""
    for text in sys.stdin:
        finish(_answer(calls, text))


async def _answer(calls: Calls, text: str) -> None:
    line = json.loads(text)
    try:
        result = await calls[line["call"]](**line["args"])
    except Exception as error:
        say(n=line["n"], error=str(error) or type(error).__name__)
    else:
        say(n=line["n"], result=result)
