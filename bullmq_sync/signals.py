"""The signals that end programs which exist to run workers."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from bullmq_protocol.errors import UsageError

STOPPING = (signal.SIGTERM, signal.SIGINT)
"""The signals that `run_workers` listens to: an orchestrator's, and Ctrl-C."""


@contextmanager
def stopping_signals(
    workers: object, receive: Callable[[signal.Signals], object]
) -> Generator[Mapping[signal.Signals, Any], None, None]:
    """Call a function with each signal; it may interrupt any line of this thread. At the end the signals have the
    handlers back that were there, which this gives.

    Raises `UsageError` where this is not the main thread, which alone gets signals.
    """

    def handle(number: int, _: FrameType | None) -> None:
        receive(signal.Signals(number))

    try:
        before = {number: signal.signal(number, handle) for number in STOPPING}
    except ValueError as error:
        rule = "receives signals in the main thread only: use Worker.run here"
        raise UsageError("run_workers", workers, rule) from error
    try:
        yield before
    finally:
        for number, handler in before.items():
            # A program that set another one meanwhile wants that one. (None: it was set by a program that is not
            # Python.)
            if signal.getsignal(number) is handle and handler is not None:
                signal.signal(number, handler)
