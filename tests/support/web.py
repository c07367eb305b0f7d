"""Programs of a test that log lines, and requests to those that serve HTTP."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
_LISTENING = re.compile(r"https?://127\.0\.0\.1:(\d+)")


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Program:
    """A Python program in a process of its own. Both its outputs are read line by line."""

    def __init__(self, arguments: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def line(self, containing: str) -> str:
        """Return the next line that has these words."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if containing in line:
                return line.rstrip()
        raise AssertionError(f"no further line has {containing!r}: {self.text}")

    def port(self) -> int:
        """Return the port at which it says that it listens."""
        found = _LISTENING.search(self.line("://127.0.0.1:"))
        assert found is not None
        return int(found[1])

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, unless it is 0, and wait until it is gone; return its exit code."""
        if number:
            self.process.send_signal(number)
        assert self.process.stdout is not None
        self.lines += self.process.stdout.read().splitlines()
        return self.process.wait()

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@contextmanager
def program(*arguments: str, folder: Path = ROOT, **environment: str) -> Generator[Program]:
    """Start `python ARGUMENTS`; end it, and those that it started, with the block."""
    started = Program(arguments, folder, environment)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            os.killpg(started.process.pid, signal.SIGKILL)
        started.process.wait()
        assert started.process.stdout is not None
        started.process.stdout.close()


def ask(port: int, method: str, path: str, payload: Any = None) -> Answer:
    """Send a request with a JSON body; return the whole answer, also where it comes in pieces."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        body = None if payload is None else json.dumps(payload)
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        response = connection.getresponse()
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())
    finally:
        connection.close()


def server_sent(body: bytes) -> list[tuple[str, Any]]:
    """Return the events of a stream of them: their names and data."""
    found: list[tuple[str, Any]] = []
    for block in body.decode().replace("\r\n", "\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and line[0] != ":")
        if "data" in fields:
            found.append((fields.get("event", ""), json.loads(fields["data"])))
    return found
