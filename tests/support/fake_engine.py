"""As much of a Docker engine's HTTP interface as testcontainers needs to hold our servers, on a unix socket.

It has no images and no namespaces: a "container" is a process on this machine, whose program stands for that of the
image. What a real engine would do otherwise (networks, users, file systems) is not tried by it.
"""

import contextlib
import fcntl
import json
import re
import socket
import socketserver
import struct
import subprocess
import termios
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

RYUK = "testcontainers/ryuk"
_STDOUT = 1


class FakeEngine:
    """Runs `programs` (name in the image to path here) for containers, until its `with` block ends."""

    def __init__(self, folder: Path, programs: Mapping[str, str]) -> None:
        self.programs = programs
        self.url = f"unix://{folder / 'engine.sock'}"
        self.pulled: list[str] = []
        """The images, in the order in which they were asked for."""
        self.containers: dict[str, Container] = {}
        """Those that were not removed yet."""
        self.made: list[Container] = []
        """All that there ever were."""
        self.execs: dict[str, list[str]] = {}
        self.unknown: list[str] = []
        """Requests that it does not understand."""
        self._server = _Server(str(folder / "engine.sock"), self)
        self._thread = threading.Thread(target=self._server.serve_forever, name="fake-engine")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for each in self.made:
            each.end("KILL")


class Container:
    """One container: what it was made from, and its process while it runs."""

    def __init__(self, wanted: dict[str, Any], programs: Mapping[str, str]) -> None:
        self.id = uuid.uuid4().hex * 2
        self.wanted = wanted
        self.reported = b""
        """The filter that a ryuk received."""
        self.process: subprocess.Popen[bytes] | None = None
        self.listener: socket.socket | None = None
        self._programs = programs
        self.log = b""

    @property
    def image(self) -> str:
        return str(self.wanted["Image"])

    @property
    def published(self) -> dict[str, list[dict[str, str]]]:
        """Its ports on the host."""
        if self.listener is not None:
            return {"8080/tcp": [{"HostIp": "0.0.0.0", "HostPort": str(self.listener.getsockname()[1])}]}
        bound: dict[str, list[dict[str, str]]] = self.wanted["HostConfig"].get("PortBindings") or {}
        return bound

    @property
    def pid(self) -> int:
        return self.process.pid if self.process is not None and self.process.poll() is None else 0

    def start(self) -> None:
        if self.image.startswith(RYUK):
            self.listener = socket.create_server(("127.0.0.1", 0))
            threading.Thread(target=self._hear, args=(self.listener,), name="fake-ryuk").start()
            self.log = b"Started!\n"
            return
        name, *arguments = self.wanted["Cmd"]
        # Nothing translates ports or paths here, so those of both sides must be the same.
        for inside, outside in self.published.items():
            assert inside == f"{outside[0]['HostPort']}/tcp", self.published
        for bind in self.wanted["HostConfig"].get("Binds") or []:
            source, target, mode = bind.split(":")
            assert (source, mode) == (target, "rw"), bind
        self.process = subprocess.Popen(
            [self._programs[name], *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def end(self, signal: str) -> None:
        if self.listener is not None:
            # Closing alone would not wake who accepts.
            with contextlib.suppress(OSError):
                self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()
            self.listener = None
        if self.process is not None:
            (self.process.kill if signal == "KILL" else self.process.terminate)()
            self.process.wait()

    def described(self) -> dict[str, Any]:
        runs = bool(self.pid or self.listener)
        return {
            "Id": self.id,
            "Name": f"/{self.id[:12]}",
            "Image": self.image,
            "Config": {"Tty": False, "Labels": self.wanted.get("Labels") or {}},
            "State": {"Status": "running" if runs else "exited", "Running": runs, "Pid": self.pid},
            "HostConfig": self.wanted["HostConfig"],
            "NetworkSettings": {"Ports": self.published},
        }

    def _hear(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                while data := connection.recv(4096):
                    self.reported += data
                    connection.sendall(b"ACK\n")


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path: str, engine: FakeEngine) -> None:
        self.engine = engine
        super().__init__(path, _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        path = re.sub(r"^/v1\.\d+", "", parts.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        size = int(self.headers.get("Content-Length") or 0)
        body: dict[str, Any] = json.loads(self.rfile.read(size) or b"{}") if size else {}
        engine = self.server.engine
        match (self.command, *path.strip("/").split("/")):
            case ("GET", "_ping"):
                self._send(200, b"OK")
            case ("GET", "version"):
                self._send_json(200, {"Version": "0.0.0-fake", "ApiVersion": "1.44", "MinAPIVersion": "1.24"})
            case ("GET", "info"):
                self._send_json(200, {"ServerVersion": "0.0.0-fake"})
            case ("GET", "images", *name, "json"):
                image = "/".join(name)
                if image in engine.pulled:
                    self._send_json(200, {"Id": f"sha256:{image}", "RepoTags": [image]})
                else:
                    self._send_json(404, {"message": f"No such image: {image}"})
            case ("POST", "images", "create"):
                engine.pulled.append(f"{query['fromImage']}:{query['tag']}")
                self._send_json(200, {"status": "pulled"})
            case ("POST", "containers", "create"):
                made = Container(body, engine.programs)
                engine.made.append(made)
                engine.containers[made.id] = made
                self._send_json(201, {"Id": made.id, "Warnings": []})
            case (method, "containers", identity, *rest) if identity in engine.containers:
                self._container(engine.containers[identity], (method, *rest), query, body)
            case ("POST", "exec", identity, "start"):
                self._exec(engine.execs[identity])
            case ("GET", "exec", _, "json"):
                self._send_json(200, {"ExitCode": 0, "Running": False})
            case _:
                engine.unknown.append(f"{self.command} {path}")
                self._send_json(404, {"message": f"not known: {self.command} {path}"})

    def _container(
        self, each: Container, request: tuple[str, ...], query: Mapping[str, str], body: dict[str, Any]
    ) -> None:
        match request:
            case ("GET", "json"):
                self._send_json(200, each.described())
            case ("GET", "logs"):
                self._send(200, _frame(each.log) if query.get("stdout") in ("1", "True", "true") else b"")
            case ("POST", "start"):
                each.start()
                self._send(204)
            case ("POST", "stop"):
                each.end("TERM")
                self._send(204)
            case ("POST", "kill"):
                each.end("KILL")
                self._send(204)
            case ("POST", "exec"):
                identity = uuid.uuid4().hex
                self.server.engine.execs[identity] = body["Cmd"]
                self._send_json(201, {"Id": identity})
            case ("DELETE",):
                each.end("KILL")
                del self.server.engine.containers[each.id]
                self._send(204)
            case _:
                self.server.engine.unknown.append(" ".join(request))
                self._send_json(404, {"message": f"not known: {request}"})

    def _exec(self, command: list[str]) -> None:
        name, *arguments = command
        done = subprocess.run([self.server.engine.programs[name], *arguments], capture_output=True)
        self.wfile.write(
            b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n"
            b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
        )
        # docker-py loses what it reads together with the head.
        while _unread(self.connection):
            time.sleep(0.001)
        self.wfile.write(_frame(done.stdout))
        self.close_connection = True

    def _send_json(self, status: int, value: object) -> None:
        self._send(status, json.dumps(value).encode(), "application/json")

    def _send(self, status: int, body: bytes = b"", kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Api-Version", "1.44")
        if status != 204:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def silent_engine(folder: Path) -> Iterator[str]:
    """Give the address of an engine that takes connections and never answers."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "silent.sock"))
        listener.listen()
        yield f"unix://{folder / 'silent.sock'}"


def _frame(data: bytes) -> bytes:
    return struct.pack(">BxxxI", _STDOUT, len(data)) + data if data else b""


def _unread(connection: socket.socket) -> int:
    """Return how many bytes the other side has not read yet."""
    count: int = struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"))[0]
    return count
