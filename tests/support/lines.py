"""JSON lines on stdin and stdout, by one text for asyncio, trio and threads (`got` and `finish`)."""

import importlib
import json
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType
from typing import Any

import anyio.to_thread

from bullmq_conformance.lines import finish as finish
from bullmq_conformance.lines import got as got
from bullmq_protocol.scripts.profile import FLEET, STRICT, V6_7, Profile

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
