"""A TCP proxy in a thread that spoils connections on purpose: for tests of losses, time-outs and old servers."""

import contextlib
import re
import selectors
import socket
import threading
from types import TracebackType
from typing import Self

from bullmq_protocol.testing.conformance import Fault


class CutProxy:
    """Stands before one server. A fault strikes the next `times` writes of a client that hold `marker`."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = _bind(0)
        self._listener.listen(512)
        self.host = "127.0.0.1"
        self.port: int = self._listener.getsockname()[1]
        self.url = f"redis://{self.host}:{self.port}"
        self.struck = 0
        """How many times a fault struck."""
        self._fault = Fault.NONE
        self._marker = b""
        self._times = 0
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._swallowing: set[socket.socket] = set()
        self._waiting: dict[socket.socket, Fault] = {}
        self._wake_in, self._wake_out = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._orders: list[str] = []
        self._ports: list[int] = []
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_out, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="cut-proxy")
        self._thread.start()

    def arm(self, fault: Fault, marker: str = "", times: int = 1) -> None:
        """Set what happens next. `REFUSE` and `NONE` take effect before this returns."""
        with self._lock:
            self._fault, self._marker, self._times = fault, marker.encode(), times
            self.struck = 0
        if fault is Fault.REFUSE:
            self._order("refuse")
        elif fault is Fault.NONE:
            self._order("listen")

    def retarget(self, host: str, port: int) -> None:
        """Lead connections to another server from now on; those that are open stay where they are."""
        self._target = (host, port)

    def upstream_ports(self) -> list[int]:
        """Return the local ports of the connections to the server, by which it knows its clients."""
        self._order("list")
        return self._ports

    def drop_all(self) -> None:
        """Close every connection that is open."""
        self._order("drop")

    def close(self) -> None:
        self._order("stop")
        self._thread.join()
        for sock in (self._wake_in, self._wake_out):
            sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _order(self, order: str) -> None:
        self._done.clear()
        with self._lock:
            self._orders.append(order)
        self._wake_in.send(b"x")
        self._done.wait(10)

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                if sock is self._wake_out:
                    sock.recv(1)
                    with self._lock:
                        order = self._orders.pop(0)
                    self._obey(order)
                    self._done.set()
                    if order == "stop":
                        self._selector.close()
                        return
                elif sock is self._listener:
                    self._accept()
                elif sock in self._pairs:
                    self._move(sock)

    def _obey(self, order: str) -> None:
        if order == "list":
            sides = [key for key in self._selector.get_map().values() if key.data == "server"]
            self._ports = [key.fileobj.getsockname()[1] for key in sides if isinstance(key.fileobj, socket.socket)]
            return
        if order != "listen":
            while self._pairs:
                self._drop(next(iter(self._pairs)))
        listens = self._listener in self._selector.get_map()
        if order in ("refuse", "stop") and listens:
            self._selector.unregister(self._listener)
        if order in ("refuse", "stop"):
            self._listener.close()
        if order == "refuse":
            # A socket that does not listen refuses, and nobody else can have the port meanwhile.
            self._listener = _bind(self.port)
        if order == "listen" and not listens:
            self._listener.listen(512)
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(self._target, timeout=5)
        except OSError:
            client.close()
            return
        for sock in (client, server):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(sock, selectors.EVENT_READ, "client" if sock is client else "server")
        self._pairs[client], self._pairs[server] = server, client

    def _move(self, sock: socket.socket) -> None:
        try:
            data = sock.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self._drop(sock)
            return
        from_client = self._selector.get_key(sock).data == "client"
        if from_client:
            fault = self._strike(data)
            if fault is Fault.CUT_BEFORE:
                self._drop(sock)
                return
            if fault is Fault.SWALLOW:
                self._swallowing.add(sock)
            if fault in (Fault.CUT_AFTER, Fault.CUT_MID_REPLY):
                self._waiting[self._pairs[sock]] = fault
            if sock in self._swallowing:
                return
        elif sock in self._waiting:
            if self._waiting[sock] is Fault.CUT_MID_REPLY:
                with contextlib.suppress(OSError):
                    self._pairs[sock].sendall(data[:2])
            self._drop(sock)
            return
        elif self._fault is Fault.OLD_VERSION:
            data = re.sub(rb"redis_version:\d", b"redis_version:5", data)
        try:
            self._pairs[sock].sendall(data)
        except OSError:
            self._drop(sock)

    def _strike(self, data: bytes) -> Fault:
        with self._lock:
            if not self._times or not self._marker or self._marker not in data:
                return Fault.NONE
            self._times -= 1
            self.struck += 1
            return self._fault

    def _drop(self, sock: socket.socket) -> None:
        for each in (sock, self._pairs[sock]):
            self._selector.unregister(each)
            each.close()
            self._pairs.pop(each)
            self._swallowing.discard(each)
            self._waiting.pop(each, None)


def _bind(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    return made
