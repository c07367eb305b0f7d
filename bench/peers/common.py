"""What the other queues' programs share; each is started by `python -m bench.peers.NAME '{"url": ...}'`.

A handler does nothing but write into a pipe when it started, and for which job: that is counted, in whatever process
or thread it runs. A library may run a job twice, so a number counts once, and one of an earlier call does not count.

For what a library promises (tests/interop/test_peers.py) the variable BENCH_FAULT lets the first start of a handler
fail (`fail:FILE`) or kill all processes of the program (`die:FILE`); the file says that it has happened.
BENCH_IMPATIENT has a library take a job for abandoned after seconds, where by default it waits for minutes.
"""

import asyncio
import json
import logging
import os
import signal
import struct
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from bench.lines import Stopwatch, Timed, serve

_PIPE = "BENCH_STARTED"
"""Name of the variable that holds the number of the pipe's writing end."""
_STAMP = struct.Struct("dq")
_READ_AT_ONCE = 4096 * _STAMP.size
AT_ONCE = 100
ENDS_WITHIN_S = 30.0
"""How long a worker may take to end, which is not measured."""
MEMORY_CONCURRENCY = 50
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


IMPATIENT = "BENCH_IMPATIENT" in os.environ
_FAULT = os.environ.get("BENCH_FAULT")


class FirstStart(Exception):
    """What a handler raises that is to fail."""


def started(n: int) -> None:
    """Say that a handler runs: what each of them does, and all that it does."""
    os.write(int(os.environ[_PIPE]), _STAMP.pack(time.perf_counter(), n))
    if _FAULT is not None:
        _fail_once(*_FAULT.split(":"))


def _fail_once(kind: str, mark: str) -> None:
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    if kind == "die":
        # The program leads a process group of its own, with all its workers in it.
        os.killpg(0, signal.SIGKILL)
    raise FirstStart


class Peer(ABC):
    """One library on one queue."""

    def __init__(self, url: str, queue: str) -> None:
        self.url = url
        self.queue = queue

    @abstractmethod
    async def open(self) -> None:
        """Connect what adds."""

    @abstractmethod
    async def close(self) -> None:
        """Close what adds."""

    @abstractmethod
    async def add(self, n: int) -> object:
        """Add a job."""

    async def add_many(self, numbers: Sequence[int]) -> None:
        """Add jobs in the library's own way; where it has none for several, 100 at once."""
        for first in range(0, len(numbers), AT_ONCE):
            await asyncio.gather(*(self.add(n) for n in numbers[first : first + AT_ONCE]))

    @abstractmethod
    async def left(self) -> int:
        """Return how many jobs are not acknowledged."""

    @abstractmethod
    def worker(self, concurrency: int) -> AbstractAsyncContextManager[None]:
        """Run a worker for as long as the block runs."""


class Held(Peer):
    """One whose workers are other processes: jobs are held back until these have started."""

    @abstractmethod
    def hold(self) -> None:
        """Hold back all jobs in the queue."""

    @abstractmethod
    def release(self) -> None:
        """Give them back."""


@asynccontextmanager
async def beside(
    worker: Coroutine[Any, Any, Any], stop: Coroutine[Any, Any, Any] | None = None
) -> AsyncGenerator[None]:
    """Run a worker beside the block, which an error of it ends; stop it, by default by cancelling."""
    async with asyncio.TaskGroup() as group:
        running = group.create_task(worker)
        try:
            yield
        finally:
            if stop is None:
                running.cancel()
            else:
                await stop
            if not (await asyncio.wait([running], timeout=ENDS_WITHIN_S))[0]:
                # Its group would wait for ever.
                os.write(sys.stderr.fileno(), b"the worker does not end\n")
                os._exit(1)


class Starts:
    """What handlers wrote into the pipe: when they started, and for which job."""

    def __init__(self, reading: int) -> None:
        os.set_blocking(reading, False)
        self._reading = reading
        self._found: list[tuple[float, int]] = []

    def forget(self) -> None:
        """Forget all that started so far."""
        while self._read():
            pass
        self._found.clear()

    async def times(self, count: int) -> None:
        """Wait for `count` starts, of whatever jobs."""
        await self._until(lambda: len(self._found) >= count)

    async def jobs(self, count: int) -> None:
        """Wait until `count` jobs have started, each at least once."""
        numbers = set[int]()
        seen = 0

        def all_started() -> bool:
            nonlocal seen
            numbers.update(n for _, n in self._found[seen:])
            seen = len(self._found)
            return len(numbers) >= count

        await self._until(all_started)

    async def first_of(self, n: int) -> float:
        """Wait for a job to start; return when it did for the first time, and forget what started before."""
        at = list[float]()

        def has_started() -> bool:
            at.extend(start for start, number in self._found if number == n)
            self._found.clear()
            return bool(at)

        await self._until(has_started)
        return at[0]

    async def _until(self, done: Callable[[], bool]) -> None:
        loop, news = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._reading, news.set)
        try:
            while not done():
                news.clear()
                if not self._read():
                    await news.wait()
        finally:
            loop.remove_reader(self._reading)

    def _read(self) -> bool:
        try:
            found = os.read(self._reading, _READ_AT_ONCE)
        except BlockingIOError:
            return False
        self._found += _STAMP.iter_unpack(found)
        return True


def serve_peer(kind: type[Peer]) -> None:
    """Answer the bench's calls until stdin ends."""
    logging.disable()
    url = json.loads(sys.argv[1])["url"]
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    os.environ[_PIPE] = str(writing)

    asyncio.run(serve(_Calls(kind, url, Starts(reading)).by_name()))


_CALLS = ("add", "bulk", "fill", "left", "process", "drain", "latency", "memory")


class _Calls:
    def __init__(self, kind: type[Peer], url: str, starts: Starts) -> None:
        self._kind = kind
        self._url = url
        self._starts = starts

    def by_name(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _CALLS}

    @asynccontextmanager
    async def _peer(self, queue: str) -> AsyncGenerator[Peer]:
        peer = self._kind(self._url, queue)
        await peer.open()
        try:
            yield peer
        finally:
            await peer.close()

    async def add(self, queue: str, count: int, at_once: int, bytes: int, opts: dict[str, Any]) -> Timed:
        assert (at_once, bytes, opts) == (1, 0, {})
        async with self._peer(queue) as peer:
            watch = Stopwatch()
            for n in range(count):
                await peer.add(n)
            return watch.read()

    async def bulk(self, queue: str, count: int, size: int, opts: dict[str, Any]) -> Timed:
        assert opts == {}
        async with self._peer(queue) as peer:
            watch = Stopwatch()
            for done in range(0, count, size):
                await peer.add_many(range(done, done + size))
            return watch.read()

    async def fill(self, queue: str, count: int) -> None:
        async with self._peer(queue) as peer:
            await peer.add_many(range(count))

    async def left(self, queue: str) -> int:
        async with self._peer(queue) as peer:
            return await peer.left()

    async def process(self, queue: str, count: int, concurrency: int, fails: int) -> Timed:
        assert fails == 0
        async with self._peer(queue) as peer:
            return await self._process(peer, count, concurrency)

    async def _process(self, peer: Peer, count: int, concurrency: int) -> Timed:
        """Time from the start of the worker, or of the jobs where it is processes, until all are acknowledged."""
        if isinstance(peer, Held):
            peer.hold()
        self._starts.forget()
        watch = Stopwatch()
        async with peer.worker(concurrency):
            if isinstance(peer, Held):
                watch = Stopwatch(cpu_of_all)
                peer.release()
            await self._starts.jobs(count)
            await self._finished(peer)
            return {**watch.read(), "memory_mb": memory_of_all()}

    async def drain(self, queue: str, starts: int) -> None:
        """Work until handlers have started so often, and nothing is left."""
        self._starts.forget()
        async with self._peer(queue) as peer, peer.worker(1):
            await self._starts.times(starts)
            # If SAQ's worker was ended as soon as none was counted, one was in five of six runs.
            empty = 0
            while empty < 10:
                empty = 0 if await peer.left() else empty + 1
                await asyncio.sleep(0.01)

    async def _finished(self, peer: Peer) -> None:
        while await peer.left():
            await asyncio.sleep(0.001)

    async def latency(self, queue: str, count: int, pause_ms: float) -> dict[str, list[float]]:
        ms = []
        self._starts.forget()
        async with self._peer(queue) as peer, peer.worker(1):
            # The first is for connections to be made.
            for n in range(-1, count):
                await asyncio.sleep(pause_ms / 1000)
                asked = time.perf_counter()
                await peer.add(n)
                ms.append((await self._starts.first_of(n) - asked) * 1000)
            await self._finished(peer)
        return {"ms": ms[1:]}

    async def memory(self, queue: str, count: int, first: int, size: int) -> Timed:
        early = late = 0.0
        async with self._peer(queue) as peer:
            for done in range(size, count + 1, size):
                await peer.add_many(range(size))
                late = (await self._process(peer, size, MEMORY_CONCURRENCY))["memory_mb"]
                if done <= first:
                    early = late
        return {"early_mb": early, "late_mb": late}


# --- of this process and all below it ---


def _stats(root: int) -> Iterator[list[str]]:
    """Go through the fields of a process and of all below it, from the state on; the process's number comes last."""
    below: dict[int, list[list[str]]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        # What has ended meanwhile has no file.
        with suppress(OSError):
            # The name of the program, in parentheses, may hold spaces.
            fields = [*file.read_text().rpartition(")")[2].split(), file.parent.name]
            below.setdefault(int(fields[1]), []).append(fields)
            if int(fields[-1]) == root:
                yield fields
    todo = [root]
    while todo:
        children = below.get(todo.pop(), [])
        todo += [int(fields[-1]) for fields in children]
        yield from children


def cpu_of_all(root: int | None = None) -> float:
    """Return seconds of CPU of a process (this one), all below it, and those that they have waited for."""
    return sum(sum(map(int, fields[11:15])) for fields in _stats(root or os.getpid())) / _TICKS_PER_S


def memory_of_all() -> float:
    """Return MB of memory of this process and all below it; what several of them share is divided among them."""
    used = 0
    for fields in _stats(os.getpid()):
        with suppress(OSError):
            used += int(Path("/proc", fields[-1], "smaps_rollup").read_text().partition("\nPss:")[2].split()[0])
    return used / 1024
