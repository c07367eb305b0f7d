"""No long silence: a line whenever nothing was printed for a while, in a run of tests and in what is fetched before
it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import pytest

QUIET_S = 25.0


class Ticker:
    """Call `say` with the seconds since the start whenever nothing was heard for `quiet_s`, from its own thread."""

    def __init__(self, say: Callable[[float], None], quiet_s: float = QUIET_S) -> None:
        self._say, self._quiet_s = say, quiet_s
        self._began = self._last = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ticker", daemon=True)

    def heard(self) -> None:
        """Note that something was printed."""
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(max(self._last + self._quiet_s - time.monotonic(), 0)):
            now = time.monotonic()
            if now - self._last >= self._quiet_s:
                self._last = now
                self._say(now - self._began)


class Progress:
    """A plugin: the dots are progress, and where none comes for a while, a line says what runs."""

    def __init__(self, quiet_s: float) -> None:
        # Made before pytest captures what tests print.
        self._output = os.dup(1)
        self._running: dict[str, float] = {}
        self._done = self._failed = 0
        self._ticker = Ticker(self._say, quiet_s)

    def pytest_sessionstart(self) -> None:
        self._ticker.__enter__()

    def pytest_sessionfinish(self) -> None:
        self._ticker.__exit__(None, None, None)

    def pytest_unconfigure(self) -> None:
        os.close(self._output)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[nodeid] = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed += report.failed

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)
        self._done += 1
        self._ticker.heard()

    def _say(self, seconds: float) -> None:
        running = dict(self._running)
        what = f"longest running: {min(running, key=running.__getitem__)}" if running else "no test begun"
        line = f"\n[{seconds:.0f} s: {self._done} tests done, {self._failed} failed; {what}]\n"
        os.write(self._output, line.encode())
