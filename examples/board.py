"""The demo's queues, and one with a job of every state, in bull-board: `make board`, at the port `BOARD_PORT` or 3000.

It needs Node and npm. The server is that of the demo; it ends with Ctrl-C. `python -m examples.board mail video` shows
these queues of the server at `BULLMQ_URL` instead.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Sequence

from examples.demo import demo, server
from tests.support.board import board, make
from tests.support.node import node_available

PREFIX = "bull"


def main(queues: Sequence[str]) -> None:
    if not node_available():
        sys.exit("board: Node and npm are needed")
    if queues:
        show(os.environ.get("BULLMQ_URL") or "redis://127.0.0.1:6379", queues)
        return
    logging.getLogger("bullmq_anyio").setLevel(logging.ERROR)
    with server() as url:
        asyncio.run(demo(url))
        make(url, PREFIX, "letters")
        show(url, ("demo", "letters"))


def show(url: str, queues: Sequence[str]) -> None:
    # Node's client takes the path of a socket, and no URL of one.
    place = url.removeprefix("unix://")
    with board(place, PREFIX, queues, int(os.environ.get("BOARD_PORT") or 3000)) as port:
        print(f"board: http://127.0.0.1:{port}/ until Ctrl-C", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main(sys.argv[1:])
