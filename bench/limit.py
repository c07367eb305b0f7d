"""The server's limit: what a client sent, recorded once, and fired again as fast as the server takes it.

The same bytes in the same order give the same scripts with the same ids and tokens, in the same batches; the client
that fires them only counts replies. What is left is the server's own speed with our scripts. The caller checks at the
end whether all was done.
"""

import socket
import threading
import time
from typing import NamedTuple

import hiredis


class Batch(NamedTuple):
    """What was sent at once."""

    data: bytes
    commands: int


class Recorder:
    """A proxy before a server that keeps what its clients send; `batches` are those of the busiest connection."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sent: list[list[bytes]] = []
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def batches(self) -> list[Batch]:
        """Return what the busiest connection sent; a batch holds whole commands."""
        chunks = max(self._sent, key=lambda each: sum(map(len, each)))
        found, held = [], b""
        for chunk in chunks:
            held += chunk
            commands, end = _whole(held)
            if commands:
                found.append(Batch(held[:end], commands))
                held = held[end:]
        return found

    def close(self) -> None:
        self._listener.close()
        for each in self._open:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            self._open += [client, server]
            kept: list[bytes] = []
            self._sent.append(kept)
            threading.Thread(target=_pump, args=(client, server, kept), daemon=True).start()
            threading.Thread(target=_pump, args=(server, client, None), daemon=True).start()


def fire(host: str, port: int, batches: list[Batch], window: int) -> float:
    """Send all batches, at most `window` commands without a reply; return the seconds it took."""
    reader = hiredis.Reader()
    with socket.create_connection((host, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begun, waiting = time.perf_counter(), 0
        for batch in batches:
            while waiting and waiting + batch.commands > window:
                waiting -= _replies(connection, reader)
            connection.sendall(batch.data)
            waiting += batch.commands
        while waiting:
            waiting -= _replies(connection, reader)
        return time.perf_counter() - begun


def _replies(connection: socket.socket, reader: hiredis.Reader) -> int:
    """Wait for bytes and return how many replies they complete."""
    data = connection.recv(1 << 18)
    if not data:
        raise ConnectionError("the server closed the connection")
    reader.feed(data)
    count = 0
    while reader.gets() is not False:
        count += 1
    return count


def _whole(data: bytes) -> tuple[int, int]:
    """Return how many whole commands `data` begins with, and where the last of them ends."""
    commands, at = 0, 0
    while (end := _end(data, at)) is not None:
        commands, at = commands + 1, end
    return commands, at


def _end(data: bytes, at: int) -> int | None:
    line = data.find(b"\r\n", at)
    if line < 0:
        return None
    parts, at = int(data[at + 1 : line]), line + 2
    for _ in range(parts):
        line = data.find(b"\r\n", at)
        if line < 0:
            return None
        at = line + 2 + int(data[at + 1 : line]) + 2
    return at if at <= len(data) else None


def _pump(source: socket.socket, target: socket.socket, kept: list[bytes] | None) -> None:
    try:
        while data := source.recv(1 << 18):
            if kept is not None:
                kept.append(data)
            target.sendall(data)
    except OSError:
        return
    finally:
        target.close()
