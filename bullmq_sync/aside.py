"""Calls that the conformance cases make aside, each in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

from bullmq_protocol.net.transport import InterruptibleTransport, Transport

_LIMIT_S = 60
_JOIN_S = 5


@contextmanager
def calls_aside() -> Generator[Calls, None, None]:
    """Give what makes calls aside. At the end those that still run are waited for, for 5 s each."""
    running: dict[str, _Running] = {}
    try:
        yield Calls(running)
    finally:
        for each in running.values():
            each.join(_JOIN_S)


class Calls:
    """Calls by name, each in a thread."""

    def __init__(self, running: dict[str, _Running]) -> None:
        self._running = running

    def start(self, name: str, call: Callable[[], Any], cancelled: Any) -> None:
        """Start a call. (`cancelled` is for tasks: a thread is not cancelled.)"""
        running = self._running[name] = _Running(call)
        running.start()

    def first_steps(self) -> None:
        """Do nothing: threads take their own steps."""

    def settled(self, name: str) -> Any:
        """Wait for a call; return its value."""
        running = self._running[name]
        running.join(_LIMIT_S)
        if running.is_alive():
            raise AssertionError(f"the call {name!r} did not end")
        return running.outcome

    def abort(self, name: str, transport: Transport) -> None:
        """End a call that waits: interrupt its transport."""
        cast("InterruptibleTransport", transport).interrupt()


class _Running(threading.Thread):
    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(name="conformance", daemon=True)
        self._call = call
        self.outcome: Any = None

    def run(self) -> None:
        self.outcome = self._call()
