"""Libraries whose workers are processes, started by their own programs."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
from abc import abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import redis

from bench.peers.common import Held

_DIE_WITH_PARENT = 1
_PATIENCE_S = 300


class OfProcesses(Held):
    """A library whose jobs wait in a list, and whose workers are started by `python -m PROGRAM`."""

    def __init__(self, url: str, queue: str) -> None:
        super().__init__(url, queue)
        self.raw = redis.Redis.from_url(url)

    async def close(self) -> None:
        self.raw.close()

    @property
    @abstractmethod
    def waiting(self) -> str:
        """The key of the list."""

    @abstractmethod
    def program(self, concurrency: int) -> Sequence[str]:
        """Return the arguments of `python -m`."""

    @abstractmethod
    async def all_ready(self, concurrency: int) -> bool:
        """Tell whether all workers that were started wait for jobs."""

    def hold(self) -> None:
        self.raw.rename(self.waiting, f"{self.waiting}:held")

    def release(self) -> None:
        self.raw.rename(f"{self.waiting}:held", self.waiting)

    @asynccontextmanager
    async def worker(self, concurrency: int) -> AsyncGenerator[None]:
        process = subprocess.Popen(
            [sys.executable, "-m", *self.program(concurrency)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=_end_with_parent,
        )
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while not await self.all_ready(concurrency):
                    if process.poll() is not None:
                        raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
                    await asyncio.sleep(0.02)
            yield
            process.terminate()
            await asyncio.to_thread(process.wait, _PATIENCE_S)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def _end_with_parent() -> None:
    """Let the system end this process with its parent, which may be killed."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGTERM)
    if os.getppid() == 1:
        os._exit(1)
