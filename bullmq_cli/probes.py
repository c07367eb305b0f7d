"""What answers for the health of workers: a port and a file, each with a thread of its own.

The thread is not the workers', so that it answers, too, while they are stuck.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bullmq_protocol.worker.health import Health, health

_LONGEST_REQUEST = 8_192
_LONGEST_S = 5.0
_EVERY_S = 1.0


class Report(msgspec.Struct, frozen=True):
    """The health of the workers of a process, by their ids."""

    live: bool
    ready: bool
    workers: dict[str, Health]


def report(workers: Sequence[Any], patience_ms: int) -> Report:
    """Judge workers at this moment."""
    now = time.time_ns() // 1_000_000
    found = {worker.id: health(worker.snapshot(), now, patience_ms=patience_ms) for worker in workers}
    return Report(
        live=all(each.live for each in found.values()), ready=all(each.ready for each in found.values()), workers=found
    )


@contextmanager
def port(workers: Sequence[Any], host: str, number: int, patience_ms: int) -> Generator[int]:
    """Serve `/live`, `/ready` and `/metrics`; gives the port. Raises `OSError` if that cannot be had."""
    listener = socket.create_server((host, number))
    server = _Server(listener, workers, patience_ms)
    server.start()
    try:
        yield listener.getsockname()[1]
    finally:
        # Closing alone does not end `accept`.
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        server.join()


class _Server(threading.Thread):
    def __init__(self, listener: socket.socket, workers: Sequence[Any], patience_ms: int) -> None:
        super().__init__(name="bullmq health", daemon=True)
        self._listener = listener
        self._workers = workers
        self._patience_ms = patience_ms

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(_LONGEST_S)
                connection.sendall(self._answer(_request(connection)))

    def _answer(self, path: str) -> bytes:
        if path in ("/live", "/ready"):
            found = report(self._workers, self._patience_ms)
            is_well = found.live if path == "/live" else found.ready
            status = "200 OK" if is_well else "503 Service Unavailable"
            return _response(status, "application/json", msgspec.json.encode(found))
        # An application that counts with it has imported it.
        client = sys.modules.get("prometheus_client")
        if path == "/metrics" and client is not None:
            return _response("200 OK", client.CONTENT_TYPE_LATEST, client.generate_latest())
        known = "/live, /ready" + ("" if client is None else ", /metrics")
        return _response("404 Not Found", "text/plain", f"there are {known}\n".encode())


def _request(connection: socket.socket) -> str:
    """Return the path that is asked for."""
    head = b""
    while b"\r\n\r\n" not in head and len(head) < _LONGEST_REQUEST:
        part = connection.recv(_LONGEST_REQUEST)
        if not part:
            break
        head += part
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    return words[1].partition("?")[0] if len(words) > 1 and words[0] in ("GET", "HEAD") else ""


def _response(status: str, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


@contextmanager
def file(workers: Sequence[Any], path: Path, patience_ms: int) -> Generator[Callable[[], None]]:
    """Write the health into a file each second as long as the workers are live; at the end it is gone.

    Gives what removes it before. Raises `OSError` if it cannot be written.
    """
    over = threading.Event()

    def write() -> None:
        found = report(workers, patience_ms)
        if found.live:
            beside = path.with_name(f"{path.name}.{os.getpid()}")
            beside.write_bytes(msgspec.json.encode(found))
            beside.replace(path)

    def keep() -> None:
        while not over.wait(_EVERY_S):
            # A disk that is full for a while makes the file old, which is what it is for.
            with contextlib.suppress(OSError):
                write()

    write()
    thread = threading.Thread(target=keep, name="bullmq health file", daemon=True)
    thread.start()

    def remove() -> None:
        over.set()
        thread.join()
        path.unlink(missing_ok=True)

    try:
        yield remove
    finally:
        remove()
