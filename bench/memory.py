"""Transports that answer out of memory, as a queue with a number of jobs does: what a worker costs without a server."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import anyio
import msgspec

from bullmq_protocol.command import Batch, Command
from bullmq_protocol.errors import ConnectionLost

FIELDS = (
    "name",
    "n",
    "data",
    "{}",
    "opts",
    '{"attempts":0}',
    "timestamp",
    "1",
    "delay",
    "0",
    "priority",
    "0",
    "ats",
    "1",
)
_NO_JOB = [0, 0, 0, 0]
_PER_OUTCOME = 7
"""How many values a call of several outcomes has for each; the fifth says whether to fetch."""
_FETCHES = 4


def _packed(arg: object) -> bytes:
    assert isinstance(arg, bytes)
    return arg


class Answers:
    """What the server says to each command. `over` is set when all jobs are finished."""

    def __init__(self, jobs: int, over: Any) -> None:
        self.over = over
        self._left = jobs
        self._unfinished = jobs
        self._fields = [text.encode() for text in FIELDS]

    def answer(self, command: Command[Any]) -> Any:
        match command.name:
            case "moveToFinished":
                self._finish(1)
                return self._next()
            case "finishMany":
                heads = msgspec.msgpack.decode(_packed(command.args[2]), type=list[str | int])
                fetches = heads[_FETCHES::_PER_OUTCOME]
                self._finish(len(fetches))
                return [self._next() if fetch else 0 for fetch in fetches]
            case "moveToActive":
                return self._next()
            case "fetchMany":
                return [self._next() for _ in msgspec.msgpack.decode(_packed(command.args[-1]), type=list[str])]
            case "moveStalledJobsToWait":
                return []
            case "PTTL":
                # No other check in the time of a run: how many there are would hang on how long it takes.
                return 3_600_000
            case "PING":
                return "PONG"
            case "INFO":
                return "redis_version:7.0.0\r\nmaxmemory_policy:noeviction\r\n"
        return 0

    def _finish(self, count: int) -> None:
        self._unfinished -= count
        if not self._unfinished:
            self.over.set()

    def _next(self) -> list[Any]:
        if not self._left:
            return _NO_JOB
        self._left -= 1
        return [self._fields, str(self._left).encode(), 0, 0]


class Memory(Answers):
    """For asyncio and trio. When there are no more jobs it holds back the wait for the marker."""

    def __init__(self, jobs: int) -> None:
        super().__init__(jobs, anyio.Event())

    async def perform(self, step: Command[Any] | Batch, /) -> Any:
        if isinstance(step, Batch):
            return [await self.perform(command) for command in step.commands]
        if step.name == "BZPOPMIN":
            await anyio.sleep_forever()
        return self.answer(step)

    def dedicated(self, *, client_name: str | None = None) -> Memory:
        return self

    async def aclose(self) -> None:
        pass


class MemoryOnThreads(Answers):
    """For threads."""

    def __init__(self, jobs: int) -> None:
        super().__init__(jobs, threading.Event())
        self._lock = threading.Lock()
        self._interrupted = threading.Event()

    def perform(self, step: Command[Any] | Batch, /) -> Any:
        if isinstance(step, Batch):
            return [self.perform(command) for command in step.commands]
        if step.name == "BZPOPMIN":
            self._interrupted.wait()
            raise ConnectionLost("interrupted", maybe_applied=False)
        with self._lock:
            return self.answer(step)

    def dedicated(self, *, client_name: str | None = None) -> MemoryOnThreads:
        return self

    def interrupt(self) -> None:
        self._interrupted.set()

    def close(self) -> None:
        self._interrupted.set()


def instructions(run: Callable[[], object]) -> int:
    """Return how many instructions of Python a call takes, on all threads: whatever else the machine does."""
    counted = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal counted
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        if event == "opcode":
            counted += 1
        return trace

    threading.settrace(trace)
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(None)
        threading.settrace(None)
    return counted
