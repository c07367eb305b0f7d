"""A server for the tests of Monque, from the first source that there is.

1. `MONQUE_TEST_MONGODB_URL`: a server of the user's.
2. Docker, with the image `mongo` (testcontainers).
3. `mongod` on PATH.
4. The DocumentDB engine on PostgreSQL in a Debian root (`tools/documentdb_root.sh`), behind our gateway; needs root.
5. `mongoeco` in an environment of Python 3.13 (`.venv-mongoeco`).
"""

from __future__ import annotations

import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testcontainers.core.container import DockerContainer

from tests.support.servers import docker_answers

ROOT = Path(__file__).parents[2]
DOCUMENTDB = Path(os.environ.get("MONQUE_DOCUMENTDB_ROOT") or ROOT / ".cache" / "documentdb")
MONGOECO = ROOT / ".venv-mongoeco" / "bin" / "python"
IMAGE = "mongo:7"
_START_S = 60.0

_MONGOECO = """
import asyncio, sys
from mongoeco.engines.memory import MemoryEngine
from mongoeco.wire.proxy import AsyncMongoEcoProxyServer

async def main():
    server = AsyncMongoEcoProxyServer(engine=MemoryEngine(), host="127.0.0.1", port=int(sys.argv[1]))
    async with server:
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(main())
"""


@functools.cache
def kind() -> str | None:
    """Name the source that is used here; None: there is none."""
    if os.environ.get("MONQUE_TEST_MONGODB_URL"):
        return "external"
    if docker_answers():
        return "docker"
    if shutil.which("mongod") is not None:
        return "mongod"
    if DOCUMENTDB.is_dir() and os.geteuid() == 0:
        return "documentdb"
    return "mongoeco" if MONGOECO.exists() else None


@contextmanager
def start(source: str | None = None) -> Iterator[str]:
    """Start a server; give its URL, and end it."""
    chosen = source or kind()
    if chosen == "external":
        yield os.environ["MONQUE_TEST_MONGODB_URL"]
        return
    if chosen == "docker":
        with DockerContainer(IMAGE).with_exposed_ports(27017) as container:
            port = int(container.get_exposed_port(27017))
            _await_port(port)
            yield f"mongodb://{container.get_container_host_ip()}:{port}"
        return
    assert chosen is not None, "no server for Monque here"
    with tempfile.TemporaryDirectory(prefix="monque-") as folder, _process(chosen, Path(folder)) as port:
        yield f"mongodb://127.0.0.1:{port}"


@contextmanager
def _process(source: str, folder: Path) -> Iterator[int]:
    if source == "documentdb":
        command = [sys.executable, "-m", "tests.support.documentdb", str(DOCUMENTDB), str(folder)]
        port = 0
    else:
        port = _free_port()
        command = (
            [str(MONGOECO), "-c", _MONGOECO, str(port)]
            if source == "mongoeco"
            else ["mongod", "--dbpath", str(folder), "--port", str(port), "--bind_ip", "127.0.0.1"]
        )
    with (folder / "output").open("wb") as output:
        # A session of its own: Ctrl-C in the terminal ends the tests first, and they end the server.
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if source == "documentdb" else output,
            stderr=output,
            start_new_session=True,
        )
    assert process.stdin is not None
    try:
        if process.stdout is not None:
            said = process.stdout.readline()
            assert said, (folder / "output").read_text(errors="replace")
            port = int(said)
        else:
            _await_port(port)
        yield port
    finally:
        process.stdin.close()
        if source == "mongod":
            process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _await_port(port: int) -> None:
    limit = time.monotonic() + _START_S
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            if time.monotonic() > limit:
                raise
            time.sleep(0.05)
