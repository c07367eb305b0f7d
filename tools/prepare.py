"""Get what the tests bring along, once and not in each of their processes: `python -m tools.prepare`."""

import fcntl
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path

from tests.support import mongo_servers, node, plugins, port, servers
from tests.support.progress import Ticker

Step = Callable[[], object]
LOCK = Path(__file__).parents[1] / ".cache" / "prepare.lock"


def main(arguments: Sequence[str]) -> None:
    """Take all steps at once, since each mostly waits for a registry; say every while which ones still run.

    Of two processes the second waits for what the first one makes.
    """
    kind, found = ("monque", _for_monque()) if "--monque" in arguments else ("rest", _steps())
    steps = dict(found)
    unfinished = dict.fromkeys(steps)

    def say(seconds: float) -> None:
        print(f"prepare: still at it after {seconds:.0f} s: {', '.join(unfinished)}", flush=True)

    print(f"prepare: {', '.join(steps)}", flush=True)
    LOCK.parent.mkdir(exist_ok=True)
    with LOCK.with_suffix(f".{kind}").open("w") as lock, Ticker(say, 20), ThreadPoolExecutor() as threads:
        fcntl.flock(lock, fcntl.LOCK_EX)
        running = {threads.submit(step): name for name, step in steps.items()}
        for done in as_completed(running):
            del unfinished[running[done]]
            done.result()


def _for_monque() -> Iterator[tuple[str, Step]]:
    yield "a server for Monque", partial(mongo_servers.prepare, lambda text: print(f"prepare: {text}", flush=True))


def _steps() -> Iterator[tuple[str, Step]]:
    yield "servers", _servers
    yield "plugins for pytest", plugins.folder
    if not node.node_available():
        print("prepare: no Node here, so that oracle and interop are left out", flush=True)
        return
    yield "BullMQ, its telemetry, bull-board and NestJS for Node", _of_node
    yield "BullMQ's Python port and other libraries", _of_python


def _servers() -> None:
    print(f"prepare: {', '.join(f'{kind} ({source.name})' for kind, source in servers.sources().items())}", flush=True)


def _of_node() -> None:
    for installed in node.FOLDERS.values():
        installed()
    node.otel_folder()
    node.board_folder()
    node.nest_folder()


def _of_python() -> None:
    port.port_python()
    for peer in port.PEERS:
        port.peer_python(peer)


if __name__ == "__main__":
    main(sys.argv[1:])
