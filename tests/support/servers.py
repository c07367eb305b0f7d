"""Real servers for tests: one process, one free port and one temporary folder each.

Where a server comes from, in this order: `BULLMQ_TEST_REDIS_URL` (an external server, which is then the only kind),
Docker where an engine answers, a server program on PATH, a program taken out of a wheel into `.cache/servers`.
`BULLMQ_TEST_SERVERS` (comma list of kinds) narrows the choice.
"""

import atexit
import functools
import gc
import itertools
import os
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol, Self
from urllib.parse import urlsplit

import redis
import trustme
from docker.errors import DockerException
from testcontainers.core.container import DockerContainer
from testcontainers.core.docker_client import DockerClient

from tests.support.append_only import cut_torn
from tests.support.server_programs import (
    WHEELS,
    NoServer,
    figures,
    kind_of,
    parse_version,
    program_of_wheel,
    program_version,
    programs_on_path,
)

KINDS = ("redis-6.2", "redis-7.0", "valkey-9")

_IMAGES = {"redis-6.2": "redis:6.2", "redis-7.0": "redis:7.0", "valkey-9": "valkey/valkey:9.0"}
_START_S = 20.0
_FIRST_PORT, _PORTS = 10_000, 2_000
# Two runs on one machine begin somewhere else.
_numbers = itertools.count(random.SystemRandom().randrange(_PORTS))


class NoTls(NoServer):
    """No server here knows TLS: tests that need one are skipped by name, and fail in CI."""


class Source(NamedTuple):
    """Where one kind comes from: `docker` (origin is the image), `path` or `wheel` (origin is the program)."""

    name: str
    origin: str


def kinds() -> tuple[str, ...]:
    """Return the kinds asked for by `BULLMQ_TEST_SERVERS`, by default all that can start, oldest first."""
    external = _external()
    if external is not None:
        return (_external_version(external)[0],)
    asked = [kind.strip() for kind in os.environ.get("BULLMQ_TEST_SERVERS", "").split(",") if kind.strip()]
    if asked:
        return tuple(sorted(asked, key=_age))
    return tuple(sorted(sources(), key=_age))


def chosen() -> tuple[str, ...]:
    """Return what tests run on if nothing else is said: those asked for by name, else the oldest and the newest."""
    return kinds() if os.environ.get("BULLMQ_TEST_SERVERS") else ends()


def ends() -> tuple[str, ...]:
    """Return the oldest and the newest of `kinds()`; one of them where `BULLMQ_TEST_END` says `oldest` or `newest`."""
    return ends_of(kinds())


def ends_of(found: Sequence[str]) -> tuple[str, ...]:
    """Return the first and the last of these, or that one of them which `BULLMQ_TEST_END` asks for."""
    asked = os.environ.get("BULLMQ_TEST_END", "")
    wanted = {"": (*found[:1], *found[-1:]), "oldest": found[:1], "newest": found[-1:]}[asked]
    return tuple(dict.fromkeys(wanted))


def start(kind: str | None = None, *, config: Sequence[str] = (), tls: bool = False) -> "Server":
    """Start a server and wait until it answers.

    `config` holds further arguments of the server program: `("--requirepass", "secret")`. Without a kind it is
    the one on PATH or in Docker, where there is one, since the programs from wheels know no TLS.
    """
    external = _external()
    if external is not None:
        if config or tls:
            raise NoServer("the server of BULLMQ_TEST_REDIS_URL cannot be started with options of a test")
        return Server.external(external, kind)
    known = sources()
    if kind is None:
        able = [each for each in kinds() if each in known]
        if not able:
            raise NoServer(f"no server can be started here; asked for: {', '.join(kinds()) or 'any'}")
        kind = min(able, key=lambda each: (known[each].name == "wheel", _age(each)))
    source = known.get(kind)
    if source is None:
        raise NoServer(f"{kind} cannot be started here; known: {', '.join(known) or 'none'}")
    if tls and source.name == "wheel":
        raise NoTls(f"TLS: {kind} comes from a wheel, whose program knows no TLS; install redis-server")
    return Server(kind, source, tuple(config), tls)


def choose_source(kind: str, *, docker: Callable[[], bool], path: Callable[[], dict[str, str]]) -> Source | None:
    """Choose where `kind` comes from; `docker` tells whether an engine answers, `path` maps kinds to programs."""
    if kind in _IMAGES and docker():
        return Source("docker", _IMAGES[kind])
    if kind in path():
        return Source("path", path()[kind])
    if kind in WHEELS:
        program = program_of_wheel(kind)
        return Source("wheel", str(program)) if program is not None else None
    return None


@functools.cache
def sources() -> dict[str, Source]:
    """Map every kind that can be started here to its source."""
    candidates = dict.fromkeys((*KINDS, *programs_on_path()))
    chosen = {kind: choose_source(kind, docker=docker_answers, path=programs_on_path) for kind in candidates}
    return {kind: source for kind, source in chosen.items() if source is not None}


@functools.cache
def docker_answers() -> bool:
    """Tell whether a Docker engine answers within two seconds."""
    with warnings.catch_warnings():
        # docker-py leaves a socket unclosed that did not connect: it goes here, not in some test.
        warnings.simplefilter("ignore", ResourceWarning)
        answer = _pings()
        gc.collect()
    return answer


def _pings() -> bool:
    try:
        # Where testcontainers looks, too; making it asks for the engine's version.
        engine = DockerClient(timeout=2).client
    except (DockerException, OSError):
        return False
    try:
        return engine.ping()
    except (DockerException, OSError):
        return False
    finally:
        engine.close()


class _Runner(Protocol):
    """What holds one server: a process of ours or a container."""

    @property
    def pid(self) -> int: ...
    def launch(self) -> None: ...
    def alive(self) -> bool: ...
    def end(self, *, force: bool) -> None: ...
    def discard(self) -> None: ...


class _Process:
    def __init__(self, program: str, arguments: Sequence[str], folder: Path) -> None:
        self._command = [program, *arguments]
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    def launch(self) -> None:
        with (self._folder / "output.log").open("ab") as output:
            # A session of its own: Ctrl-C in the terminal ends the tests first, and they end the server.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def end(self, *, force: bool) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        # A stopped process (SIGSTOP) takes no SIGTERM before it goes on.
        os.kill(self._process.pid, signal.SIGCONT)
        self._process.send_signal(signal.SIGKILL if force else signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def discard(self) -> None:
        self.end(force=True)


class _Container:
    def __init__(self, image: str, arguments: Sequence[str], folder: Path, port: int) -> None:
        self._program = "valkey-server" if "valkey" in image else "redis-server"
        folder.chmod(0o777)
        self._container = (
            DockerContainer(image)
            .with_command([self._program, *arguments, "--bind", "0.0.0.0", "--protected-mode", "no"])
            .with_bind_ports(port, port)
            .with_volume_mapping(str(folder), str(folder), "rw")
        )
        self._begun = False

    @property
    def pid(self) -> int:
        wrapped = self._container.get_wrapped_container()
        wrapped.reload()
        return int(wrapped.attrs["State"]["Pid"])

    def version(self) -> tuple[int, int, int]:
        done = self._container.get_wrapped_container().exec_run([self._program, "--version"])
        return parse_version(done.output.decode())[1]

    def launch(self) -> None:
        if self._begun:
            self._container.get_wrapped_container().start()
        else:
            self._container.start()
            self._begun = True

    def alive(self) -> bool:
        return self._begun and self.pid != 0

    def end(self, *, force: bool) -> None:
        if not self.alive():
            return
        wrapped = self._container.get_wrapped_container()
        if force:
            wrapped.kill()
        else:
            wrapped.stop()

    def discard(self) -> None:
        if self._begun:
            self._container.stop()


class Server:
    """One server of a test. It lives until `stop`, the end of its `with` block or the end of the test process."""

    kind: str
    version: tuple[int, int, int]
    host: str
    port: int
    url: str
    folder: Path
    ca_file: Path | None
    """The certificate to trust, of a server with TLS."""
    socket_path: Path | None
    """The unix socket, of a process on this machine."""

    def __init__(self, kind: str, source: Source, config: tuple[str, ...], tls: bool | Path) -> None:
        """`tls` may be the certificate to trust that `certificates` has made, so that several servers share it."""
        self.kind = kind
        self.host = "127.0.0.1"
        self.folder = Path(tempfile.mkdtemp(prefix=f"{kind}-"))
        self.ca_file = certificates(self.folder) if tls is True else tls or None
        self.socket_path = self.folder / "server.sock" if source.name != "docker" else None
        self._source = source
        self._config = config
        self._runner: _Runner | None = None
        atexit.register(self._discard)
        for _ in range(5):
            self.port = free_port()
            try:
                self._begin()
                break
            except _PortTaken:
                continue
        else:
            raise NoServer(f"{kind} found no free port")
        self.url = f"{'rediss' if tls else 'redis'}://{self.host}:{self.port}"
        self.version = self._read_version()

    @classmethod
    def external(cls, url: str, kind: str | None = None) -> Self:
        """Describe the server of `url`, which is not ours to stop."""
        found, version = _external_version(url)
        if kind not in (None, found):
            raise NoServer(f"{kind} was asked for, but BULLMQ_TEST_REDIS_URL is {found}")
        server = cls.__new__(cls)
        parts = urlsplit(url)
        server.kind, server.version, server.url = found, version, url
        server.host, server.port = parts.hostname or "localhost", parts.port or 6379
        server.ca_file, server.socket_path = None, None
        server._runner = None
        return server

    @property
    def alive(self) -> bool:
        """Whether the program runs; an external one is taken to."""
        return self._runner is None or self._runner.alive()

    @property
    def pid(self) -> int:
        """The process id, 0 for an external server."""
        return self._runner.pid if self._runner is not None else 0

    def stop(self) -> None:
        """End the server in good order; an external one is left alone."""
        if self._runner is not None:
            self._runner.end(force=False)

    def kill(self) -> None:
        """End the server with SIGKILL; the port and the folder stay its own."""
        self._own().end(force=True)

    def restart(self) -> None:
        """Start the server again on the same port and folder, after ending it in good order if it runs.

        What it was killed in the middle of writing is cut off before, as docs/connection-loss.md#torn says.
        """
        runner = self._own()
        runner.end(force=False)
        cut_torn(self.folder)
        runner.launch()
        self._await_answer(runner)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._runner is not None:
            atexit.unregister(self._discard)
            self._discard()

    def __repr__(self) -> str:
        return f"Server({self.kind}, {self.url})"

    def _own(self) -> _Runner:
        if self._runner is None:
            raise NoServer("the server of BULLMQ_TEST_REDIS_URL is not ours to kill or restart")
        return self._runner

    def _arguments(self) -> list[str]:
        ports = ("--port", "0", "--tls-port", str(self.port)) if self.ca_file else ("--port", str(self.port))
        arguments = [*ports, "--dir", str(self.folder), "--save", "", "--appendonly", "no"]
        if self.socket_path is not None:
            arguments += ["--bind", self.host, "--unixsocket", str(self.socket_path)]
        for option, value in self.tls_options().items():
            arguments += [f"--{option}", value]
        return [*arguments, *self._config]

    def tls_options(self) -> dict[str, str]:
        """Return the settings of a server with TLS, that of the port left out."""
        if self.ca_file is None:
            return {}
        made = self.ca_file.parent
        return {
            "tls-cert-file": str(made / "server.pem"),
            "tls-key-file": str(made / "server.key"),
            "tls-ca-cert-file": str(self.ca_file),
            "tls-auth-clients": "no",
        }

    def connect(self, timeout_s: float) -> socket.socket:
        """Return a connected socket, with TLS where the server has it. Raises `OSError`."""
        plain = socket.create_connection((self.host, self.port), timeout=timeout_s)
        if self.ca_file is None:
            return plain
        try:
            return ssl.create_default_context(cafile=self.ca_file).wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise

    def _begin(self) -> None:
        arguments = self._arguments()
        runner: _Runner
        if self._source.name == "docker":
            runner = _Container(self._source.origin, arguments, self.folder, self.port)
        else:
            runner = _Process(self._source.origin, arguments, self.folder)
        (self.folder / "output.log").unlink(missing_ok=True)
        self._runner = runner
        runner.launch()
        self._await_answer(runner)

    def _await_answer(self, runner: _Runner) -> None:
        limit = time.monotonic() + _START_S
        while not self._answers():
            if not runner.alive() or time.monotonic() > limit:
                log = self.folder / "output.log"
                text = log.read_text(errors="replace")[-2000:] if log.exists() else ""
                if "Address already in use" in text:
                    raise _PortTaken
                raise NoServer(f"{self.kind} did not start:\n{text}")
            time.sleep(0.005)

    def _answers(self) -> bool:
        # Another process's server may have taken the port meanwhile; ours makes its socket once it has the port.
        if self.socket_path is not None and not self.socket_path.exists():
            return False
        try:
            with self.connect(1) as connection:
                return _pinged(connection)
        except OSError:
            return False

    def _read_version(self) -> tuple[int, int, int]:
        if isinstance(self._runner, _Container):
            return self._runner.version()
        return program_version(self._source.origin)[1]

    def _discard(self) -> None:
        if self._runner is not None:
            self._runner.discard()
        shutil.rmtree(self.folder, ignore_errors=True)


class _PortTaken(Exception):
    pass


def _pinged(connection: socket.socket) -> bool:
    connection.sendall(b"PING\r\n")
    reply = connection.recv(64)
    # A server with a password answers too: it refuses.
    return reply.startswith((b"+PONG", b"-NOAUTH"))


def free_port() -> int:
    """Return a port that no other test process chooses, nor the system for a client: it stays free for a restart.

    That of a cluster's bus, which is 10,000 higher, is such a one, too.
    """
    own = _FIRST_PORT + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 5 * _PORTS
    while True:
        port = own + next(_numbers) % _PORTS
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


@contextmanager
def closed_port() -> Iterator[int]:
    """Give a port at which nobody listens, and nobody else can."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def _age(kind: str) -> tuple[bool, list[int]]:
    flavour, _, version = kind.partition("-")
    return flavour != "redis", [int(figure) for figure in re.findall(r"\d+", version)]


def _external() -> str | None:
    return os.environ.get("BULLMQ_TEST_REDIS_URL") or None


@functools.cache
def _external_version(url: str) -> tuple[str, tuple[int, int, int]]:
    with redis.Redis.from_url(url) as client:
        info = client.info("server")
    flavour = "valkey" if "valkey_version" in info else "redis"
    version = figures(str(info[f"{flavour}_version"]))
    return kind_of(flavour, version), version


def certificates(folder: Path) -> Path:
    """Make a key and a certificate for this machine in the folder; return that of the authority, to be trusted."""
    authority = trustme.CA()
    leaf = authority.issue_cert("localhost", "127.0.0.1")
    leaf.private_key_pem.write_to_path(str(folder / "server.key"))
    for index, blob in enumerate(leaf.cert_chain_pems):
        blob.write_to_path(str(folder / "server.pem"), append=index > 0)
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    return folder / "ca.pem"
