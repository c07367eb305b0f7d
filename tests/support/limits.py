"""No test hangs for ever, and what it had started ends with it.

The time limit of pytest-timeout raises in the main thread: an event loop or the end of a fixture may swallow that, or
wait for ever itself. A test that goes on beyond it ends its process, with the stacks of all threads. xdist then tells
which test that was, and another process does the rest.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

GRACE_S = 30.0


class Limits:
    """A plugin, in every process of a run."""

    def __init__(self, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        # Made before pytest captures what tests print.
        self._output = os.dup(2)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        marker = item.get_closest_marker("timeout")
        limit_s = float(marker.args[0] if marker is not None else os.environ.get("PYTEST_TIMEOUT") or 0)
        if limit_s:
            faulthandler.dump_traceback_later(limit_s + self._grace_s, file=self._output, exit=True)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        if error is not None:
            end_what_it_began(node.workerinput)

    def pytest_unconfigure(self) -> None:
        os.close(self._output)


def end_what_it_began(worker: Mapping[str, str]) -> None:
    """Kill the processes that the worker with this `workerinput` has begun: servers, programs."""
    for process_id in processes_of(worker["testrunuid"], worker["workerid"]):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process_id, signal.SIGKILL)


def processes_of(run: str, worker: str) -> Iterator[int]:
    """Yield what this worker of xdist has begun, which has the worker's name in its environment."""
    wanted = {f"PYTEST_XDIST_TESTRUNUID={run}".encode(), f"PYTEST_XDIST_WORKER={worker}".encode()}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted <= set((folder / "environ").read_bytes().split(b"\0")):
                yield int(folder.name)
