"""A PostgreSQL server of a test: Debian's package `postgresql`, in a folder of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.support.servers import free_port

_START_S = 30.0
_SETTINGS = {"shared_buffers": "16MB"}
_CARELESS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


def binaries() -> Path | None:
    """Return the folder of the newest server's programs, None if there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).parent if on_path else None


@contextmanager
def started(*, durable: bool = False) -> Generator[int]:
    """Start a server for the user `postgres`, who needs no password; give its port.

    It need not outlive its machine, unless it is `durable`, as in production.
    """
    programs = binaries()
    assert programs is not None, "no PostgreSQL here: install the package postgresql"
    # It refuses to run as root.
    as_user = ("runuser", "-u", "postgres", "--") if os.geteuid() == 0 else ()
    with tempfile.TemporaryDirectory(prefix="postgres-") as made:
        folder = Path(made)
        if as_user:
            shutil.chown(folder, "postgres")
        make = (str(programs / "initdb"), "-D", made + "/data", "-A", "trust", "-U", "postgres", "--no-sync")
        subprocess.run([*as_user, *make], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        port = free_port()
        given = {"port": str(port), "listen_addresses": "127.0.0.1", "unix_socket_directories": made, **_SETTINGS}
        if not durable:
            given |= _CARELESS
        options = [word for name, value in given.items() for word in ("-c", f"{name}={value}")]
        with (folder / "log").open("wb") as log:
            command = [*as_user, str(programs / "postgres"), "-D", made + "/data", *options]
            process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True)
        try:
            _await(port, process, folder / "log")
            yield port
        finally:
            # All of them: `runuser` stands before the server.
            os.killpg(process.pid, signal.SIGQUIT)
            process.wait()


def conninfo(port: int) -> str:
    """Return what psycopg connects to."""
    return f"host=127.0.0.1 port={port} user=postgres dbname=postgres"


def _await(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    limit = time.monotonic() + _START_S
    while True:
        try:
            psycopg.connect(conninfo(port)).close()
            return
        except psycopg.OperationalError:
            assert process.poll() is None and time.monotonic() < limit, log.read_text(errors="replace")
            time.sleep(0.02)
