"""A server for the tests of Monque, from the first source that there is.

1. `MONQUE_TEST_MONGODB_URL`: a server of the user's.
2. Docker, with the image `mongo` (testcontainers).
3. `mongod` on PATH.
4. The DocumentDB engine on PostgreSQL in a Debian root (`tools/documentdb_root.sh`), behind our gateway; needs root.
5. `mongoeco` in an environment of Python 3.13 (`.venv-mongoeco`), which `prepare` makes.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from testcontainers.core.container import DockerContainer

from tests.support.servers import docker_answers
from tools.env import find_python

ROOT = Path(__file__).parents[2]
DOCUMENTDB = Path(os.environ.get("MONQUE_DOCUMENTDB_ROOT") or ROOT / ".cache" / "documentdb")
MONGOECO = ROOT / ".venv-mongoeco" / "bin" / "python"
_MONGOECO_PINS = ("mongoeco==4.11.0", "pymongo==4.20.1")
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


def prepare(say: Callable[[str], None]) -> None:
    """Make what the fourth and the fifth source need, as far as this machine can; name what it cannot."""
    (ROOT / ".cache").mkdir(exist_ok=True)
    with (ROOT / ".cache" / "monque.lock").open("w") as lock:
        # Of two processes the second finds what the first has made.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if kind() is None and os.geteuid() == 0 and shutil.which("debootstrap") is not None:
            _make_root(say)
        if not MONGOECO.exists() and (os.environ.get("CI") or kind() is None):
            _make_mongoeco(say)
    say(f"for Monque: {kind() or 'none (no Docker, no mongod, no Python 3.13): its tests are left out'}")


def _make_root(say: Callable[[str], None]) -> None:
    for _ in range(2):
        command = ["sh", str(ROOT / "tools" / "documentdb_root.sh"), str(DOCUMENTDB)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
        if done.returncode == 0:
            kind.cache_clear()
            return
    say(f"no DocumentDB for Monque: tools/documentdb_root.sh failed twice: {done.stderr[-300:]}")


def _make_mongoeco(say: Callable[[str], None]) -> None:
    base = find_python("3.13")
    if base is None:
        return
    folder, pip = MONGOECO.parents[1], (sys.executable, "-m", "pip")
    try:
        subprocess.run([base, "-m", "venv", "--without-pip", str(folder)], check=True, capture_output=True)
        install = (
            *pip,
            "--python",
            str(MONGOECO),
            "install",
            "--quiet",
            "--disable-pip-version-check",
            *_MONGOECO_PINS,
        )
        subprocess.run(install, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        say(f"no mongoeco for Monque: {str(error.stderr)[-300:]}")
        shutil.rmtree(folder, ignore_errors=True)
    kind.cache_clear()


@functools.cache
def kind() -> str | None:
    """Name the source that is used here; None: there is none. `MONQUE_TEST_SOURCE` chooses one."""
    if os.environ.get("MONQUE_TEST_SOURCE"):
        return os.environ["MONQUE_TEST_SOURCE"]
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
