"""One text for asyncio, trio and threads, and the lines that a client answers.

Coroutines here await only what a facade returned. The blocking facade returns plain values, so a coroutine over it
never waits and `finish` runs it to its end at once.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from bullmq_protocol.errors import ScriptError

T = TypeVar("T")
Methods = Mapping[str, Callable[..., Awaitable[Any]]]
"""What a client can do, by the name of the request."""


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


async def reply_to(methods: Methods, call: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """Do what a request asks for; return its result, or the error with its code where it has one."""
    try:
        return {"result": await methods[call](**args)}
    except Exception as error:
        said: dict[str, Any] = {"error": str(error) or type(error).__name__}
        return {**said, "code": error.code} if isinstance(error, ScriptError) else said


async def answer(methods: Methods, text: str) -> str:
    """Return the line that answers the line of a request."""
    line = json.loads(text)
    return json.dumps({"n": line["n"], **await reply_to(methods, line["call"], line["args"])})
