"""The programs of the interop tests: Node's and ours speak the same JSON lines, so a test is written once for both."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from tests.support.node import FOLDERS, bullmq_folder, otel_folder
from tests.support.port import port_python
from tests.support.servers import Server

ADAPTERS = ("asyncio", "trio", "threads")
PORT = "port"
"""The side that is BullMQ's Python port."""
MAX_LEN_EVENTS = 1_000_000
"""So much that no event of a test is trimmed: streams can be compared whole."""

_NODE = Path(__file__).parents[1] / "interop" / "node"
_PORT = _NODE.with_name("port")
_ROOT = Path(__file__).parents[2]
_PATIENCE_S = 60.0
_OTHERS_PATIENCE_S = 20.0

Line = dict[str, Any]


class Program:
    """One process. Its lines are kept; `wait` returns as soon as they fulfil a condition."""

    _changed = threading.Condition()
    """One for all programs: a condition may look at several."""

    def __init__(
        self, command: Sequence[str], *, environment: Mapping[str, str] | None = None, ends_late: bool = False
    ) -> None:
        """`ends_late`: it is another's program, whose end proves nothing of ours. On a busy machine a worker of Node's
        or the port's was seen to wait for ever in its `close()`; it is killed then."""
        self._ends_late = ends_late
        self.events: list[Line] = []
        self._answers: dict[int, Line] = {}
        self._calls = 0
        self._ended = False
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            cwd=_ROOT,
            # A session of its own: a signal to the tests' process group ends the tests first, and they end the program.
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def call(self, name: str, *, timeout: float = _PATIENCE_S, **args: Any) -> Any:
        """Ask the program and return its answer; an error there is an `AnswerError` here."""
        return self.begin(name, timeout=timeout, **args)()

    def begin(self, name: str, *, timeout: float = _PATIENCE_S, **args: Any) -> Callable[[], Any]:
        """Ask the program; the function returned waits for the answer."""
        self._calls += 1
        number = self._calls
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"n": number, "call": name, "args": args}) + "\n")
        self._process.stdin.flush()

        def answer() -> Any:
            self._await(lambda: number in self._answers, f"the answer of {name}", timeout)
            line = self._answers.pop(number)
            if "error" in line:
                raise AnswerError(line["error"])
            return line["result"]

        return answer

    def wait(self, done: Callable[[list[Line]], Any], what: str = "events", timeout: float = _PATIENCE_S) -> Any:
        """Return the first true value of `done(events)`."""
        found: list[Any] = []

        def look() -> bool:
            found[:] = [done(self.events)]
            return bool(found[0])

        self._await(look, what, timeout)
        return found[0]

    def ids(self, event: str) -> list[str]:
        """Return the job ids of one kind of event so far, in order."""
        with self._changed:
            return [line["id"] for line in self.events if line["event"] == event]

    def count(self, event: str) -> int:
        with self._changed:
            return sum(line["event"] == event for line in self.events)

    def of(self, event: str) -> list[Line]:
        """Return the lines of one kind of event so far, in order."""
        with self._changed:
            return [line for line in self.events if line["event"] == event]

    def kill(self) -> None:
        """End the process and those of its group with SIGKILL."""
        if self._process.poll() is None:
            # While it is not waited for, the number of its group is its own.
            os.killpg(self.pid, signal.SIGKILL)
        self._release()

    def close(self) -> None:
        """End the program by ending its stdin, and wait until it is gone; it must not complain."""
        self._end_stdin()
        try:
            self._process.wait(timeout=_OTHERS_PATIENCE_S if self._ends_late else _PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            if not self._ends_late:
                raise
            sys.stderr.write(f"killed, as it did not end: {self._process.args!r}; last events: {self.events[-5:]}\n")
        self._release()
        code = self._process.returncode
        assert code in (0, -signal.SIGKILL), f"the program ended with {code}: {self._process.args!r}"

    def _end_stdin(self) -> None:
        assert self._process.stdin is not None
        # Where the program has ended, there may be a call that it has not read.
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def _release(self) -> None:
        self._process.wait()
        self._reader.join()
        self._end_stdin()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            line = json.loads(text)
            with self._changed:
                if "n" in line:
                    self._answers[line["n"]] = line
                else:
                    self.events.append(line)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _await(self, done: Callable[[], bool], what: str, timeout: float = _PATIENCE_S) -> None:
        limit = time.monotonic() + timeout
        with self._changed:
            while not done():
                left = limit - time.monotonic()
                if self._ended or left <= 0:
                    kind, how = (AssertionError, "ended") if self._ended else (TooLateError, f"took over {timeout} s")
                    raise kind(f"{what}: the program {how}; last events: {self.events[-5:]}")
                self._changed.wait(left)


class TooLateError(AssertionError):
    """A program did not say in time what was waited for."""


class AnswerError(Exception):
    """A program answered a call with an error; the text is the error's."""


def worker(side: str, server: Server, queue: str, *, profile: str = "strict", **options: Any) -> Program:
    """Start a worker and wait until it is ready; options in BullMQ's words.

    `side` is one of our adapters, which takes the profile, `node`, `node-6.7.0` (a pinned version) or `port`.
    """
    return _started("worker", side, {"queue": queue, "options": options, "profile": profile}, server)


def client(side: str, server: Server, max_len_events: int = MAX_LEN_EVENTS, *, profile: str = "strict") -> Program:
    """Start a client, which can add and ask."""
    return _started("client", side, {"max_len_events": max_len_events, "profile": profile}, server)


def family(side: str, server: Server) -> Program:
    """Start a program that adds flows, waits for jobs and reads events."""
    return _started("family", side, {}, server)


def recorder(server: Server, queue: str) -> Program:
    """Start Node's `QueueEvents` on a queue, from the stream's beginning."""
    return _started("events", "node", {"queue": queue}, server)


def payloads(server: Server, queue: str) -> Program:
    """Start Node's worker that says what it makes of payloads."""
    return _started("payloads", "node", {"queue": queue}, server)


def traced(server: Server) -> Program:
    """Start Node's program with OpenTelemetry."""
    return _started("traced", "node", {}, server, modules=otel_folder())


def relay(server: Server, namespace: str) -> Program:
    """Start a node of the relay that BullMQ 6.7.0 has."""
    return _started("relay", "node-6.7.0", {"namespace": namespace}, server)


def until(look: Callable[[], Any], expected: Any) -> None:
    """Ask again until the answer is as expected, where nothing tells of the change."""
    limit = time.monotonic() + _PATIENCE_S
    while (found := look()) != expected:
        assert time.monotonic() < limit, f"{found!r} instead of {expected!r}"
        time.sleep(0.02)


@contextmanager
def all_of(*programs: Program) -> Iterator[None]:
    """Close all programs at the end, also when one of them fails to."""
    try:
        yield
    finally:
        errors: list[BaseException] = []
        for program in programs:
            try:
                program.close()
            except (AssertionError, subprocess.TimeoutExpired) as error:
                errors.append(error)
        if errors:
            raise errors[0]


def _started(name: str, side: str, config: Line, server: Server, *, modules: Path | None = None) -> Program:
    kind, _, version = side.partition("-")
    if kind == "node":
        argument = json.dumps({**config, "connection": {"host": server.host, "port": server.port}})
        command = ["node", str(_NODE / f"{name}.js"), argument]
        folder = modules or (FOLDERS[version]() if version else bullmq_folder())
        program = Program(command, environment={"NODE_PATH": str(folder)}, ends_late=True)
    elif side == PORT:
        command = [str(port_python()), str(_PORT / f"{name}.py"), json.dumps({**config, "url": server.url})]
        program = Program(command, ends_late=True)
    else:
        argument = json.dumps({**config, "adapter": side, "url": server.url})
        program = Program([sys.executable, "-m", f"tests.interop.python.{name}", argument])
    try:
        program.wait(lambda events: any(line["event"] == "ready" for line in events), f"{side} {name} gets ready")
    except BaseException:
        program.kill()
        raise
    return program
