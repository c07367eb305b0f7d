"""Who takes part in the bench: programs that speak the JSON lines of `tests/interop`, each in a process of its own."""

import json
import signal
import sys
from pathlib import Path

from bullmq_protocol.scripts.profile import DEFAULT
from tests.support.node import bullmq_folder, installed
from tests.support.port import PEERS, VERSION, peer_python, pins_of, plain, port_python
from tests.support.programs import Program
from tests.support.servers import Server

NODE = ("node-5", "node-6")
OURS = ("asyncio", "trio", "threads")
UVLOOP = "uvloop"
PORT = "port"
LIMIT = "limit"
PROFILED = {"asyncio-strict": "strict", "asyncio-6.7": "6.7"}
"""Ours in other profiles than the default one."""
KEEP_PROMISE = ("arq", "celery", "dramatiq", "rq", "saq", "streaq", "taskiq")
"""Peers that promise what this library does, as they are set here: a job that was added is acknowledged after its
handler, tried again where it fails, and run again where its worker was killed. docs/bench.md has what was seen."""
BEST_PEER = "best-peer"
"""Stands for the best of these in a row."""
SIDES = (*NODE, PORT, *OURS, UVLOOP, *PROFILED, LIMIT, *PEERS)
SHARES = {PORT: 0.1, **dict.fromkeys(PEERS, 0.1), "celery": 0.05, "rq": 0.025}
"""How much of the jobs the slow ones work with, as it takes as long for them."""
NAMES = {
    "node-5": "BullMQ 5.62.0 on Node",
    "node-6": "BullMQ 6.7.0 on Node",
    "port": f"BullMQ's Python port {VERSION}",
    "asyncio": "ours, asyncio",
    "trio": "ours, trio",
    UVLOOP: "ours, asyncio on uvloop",
    "threads": "ours, threads",
    "asyncio-strict": "ours, asyncio, profile strict",
    "asyncio-6.7": "ours, asyncio, profile 6.7",
    "limit": "the server's limit",
    BEST_PEER: "the best Python peer that keeps the promise",
    **{peer: plain(pins_of(peer)[0]).replace("==", " ") for peer in PEERS},
}
_HERE = Path(__file__).parent


def end_well_on_signals() -> None:
    """Let SIGTERM and Ctrl-C end the bench as an error does: what it started ends with it, and what it measured is
    printed."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


def start(side: str, server: Server, port: int | None = None) -> Program:
    """Start a side and wait until it is ready; `port` is that of a proxy before the server."""
    url = f"redis://{server.host}:{port or server.port}"
    if side in NODE:
        modules = bullmq_folder() if side == "node-5" else installed(_HERE / "node" / "6")
        argument = json.dumps({"connection": {"host": server.host, "port": server.port}})
        program = Program(
            ["node", str(_HERE / "node" / "client.js"), argument], environment={"NODE_PATH": str(modules)}
        )
    elif side == PORT:
        program = Program([str(port_python()), "-m", "bench.port", json.dumps({"url": url})])
    elif side in PEERS:
        program = Program([str(peer_python(side)), "-m", f"bench.peers.{side}", json.dumps({"url": url})])
    else:
        chosen = {"adapter": side.partition("-")[0], "url": url, "profile": PROFILED.get(side, DEFAULT.label)}
        program = Program([sys.executable, "-m", "bench.client", json.dumps(chosen)])
    try:
        program.wait(lambda events: events, f"{side} gets ready")
    except BaseException:
        program.kill()
        raise
    return program
