"""What programs of the bench share that have nothing of ours installed: the lines, and the clock."""

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Timed = dict[str, float]
Calls = Mapping[str, Callable[..., Awaitable[Any]]]


class Stopwatch:
    """Seconds on the clock and of CPU, by default this process's."""

    def __init__(self, cpu: Callable[[], float] = time.process_time) -> None:
        self._used = cpu
        self._cpu = cpu()
        self._start = time.perf_counter()

    def read(self) -> Timed:
        seconds = time.perf_counter() - self._start
        return {"seconds": seconds, "cpu_seconds": self._used() - self._cpu}


def payload(n: int, size: int = 0) -> dict[str, Any]:
    return {"n": n, "text": "x" * size} if size else {"n": n}


def say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


async def serve(calls: Calls) -> None:
    """Say `ready`, then answer calls, one after the other, until stdin ends; in the middle of a call, too."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str] = asyncio.Queue()
    calling = False

    def read() -> None:
        for text in sys.stdin:
            loop.call_soon_threadsafe(lines.put_nowait, text)
        loop.call_soon_threadsafe(end)

    def end() -> None:
        if calling or not lines.empty():
            # Nobody waits for the answer, and a library may hang.
            os._exit(0)
        lines.put_nowait("")

    threading.Thread(target=read, daemon=True).start()
    say(event="ready")
    while text := await lines.get():
        line = json.loads(text)
        calling = True
        try:
            answer = {"result": await calls[line["call"]](**line["args"])}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        calling = False
        say(n=line["n"], **answer)
