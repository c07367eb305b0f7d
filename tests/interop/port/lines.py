"""JSON lines on stdin and stdout, as `node/lines.js` has them; nothing of ours is installed where this runs."""

import asyncio
import json
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any


def say(**line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def serve(calls: Mapping[str, Callable[..., Awaitable[Any]]]) -> None:
    """Answer calls, one after the other, until stdin ends."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str] = asyncio.Queue()

    def read() -> None:
        for text in sys.stdin:
            loop.call_soon_threadsafe(lines.put_nowait, text)
        loop.call_soon_threadsafe(lines.put_nowait, "")

    threading.Thread(target=read, daemon=True).start()
    while text := await lines.get():
        line = json.loads(text)
        try:
            say(n=line["n"], result=await calls[line["call"]](**line["args"]))
        except Exception as error:
            say(n=line["n"], error=str(error) or type(error).__name__)
