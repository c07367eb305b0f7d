"""The client that is compared: a program that answers requests, or calls in this process."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from bullmq_conformance.lines import Methods, finish, reply_to
from bullmq_conformance.states import Json

PATIENCE_S = 60.0
"""How long an answer may take."""


class Answer(msgspec.Struct, frozen=True):
    """What a client answers: a result, or an error with its code, where the client names one."""

    result: Json = None
    error: str | None = None
    code: int | None = None


class Line(msgspec.Struct, frozen=True):
    """The line of an answer: the number of its request, and the answer."""

    n: int
    result: Json = None
    error: str | None = None
    code: int | None = None


class Broken(Exception):
    """A program ended, took too long, or wrote something that is no answer."""


class Client(Protocol):
    """Anything that does requests."""

    def call(self, name: str, args: Mapping[str, Json]) -> Answer:
        """Do one request."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class Local:
    """Blocking calls in this process."""

    def __init__(self, methods: Methods) -> None:
        self._methods = methods

    def call(self, name: str, args: Mapping[str, Json]) -> Answer:
        return msgspec.convert(finish(reply_to(self._methods, name, args)), Answer)

    def close(self) -> None:
        self.call("reset", {})


class Program:
    """A program of any language: one line of JSON in, one out. It ends when its stdin ends."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._name = command[0]
        self._calls = 0
        self._rest = b""
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
            # A session of its own: Ctrl-C ends this program first, which then ends the other.
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        os.set_blocking(self._stdout.fileno(), False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stdout, selectors.EVENT_READ)

    def call(self, name: str, args: Mapping[str, Json]) -> Answer:
        """Do one request. Raises `Broken`."""
        self._calls += 1
        text = json.dumps({"n": self._calls, "call": name, "args": args}, ensure_ascii=False)
        try:
            self._stdin.write(text.encode() + b"\n")
            self._stdin.flush()
        except OSError as error:
            raise Broken(f"{self._name} ended before {name}") from error
        line = self._line(name)
        try:
            found = msgspec.convert(json.loads(line), Line)
        except (ValueError, msgspec.ValidationError):
            raise Broken(f"{self._name} answered {name} with {line[:200]!r}") from None
        if found.n != self._calls:
            raise Broken(f"{self._name} answered request {found.n}, not {self._calls} ({name})")
        return Answer(found.result, found.error, found.code)

    def _line(self, name: str) -> bytes:
        limit = time.monotonic() + PATIENCE_S
        while b"\n" not in self._rest:
            left = limit - time.monotonic()
            if left <= 0:
                raise Broken(f"{self._name} did not answer {name} within {PATIENCE_S:.0f} s")
            if self._selector.select(left):
                data = self._stdout.read(65536)
                if not data:
                    raise Broken(f"{self._name} ended in {name}")
                self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def close(self) -> None:
        """End the program by ending its stdin; one that stays is killed."""
        self._selector.close()
        try:
            self._stdin.close()
            self._process.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._stdout.close()
