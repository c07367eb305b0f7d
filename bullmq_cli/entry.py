"""`bullmq-worker` from its first line on: signals have a meaning before the rest is imported."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

STOPPING = (signal.SIGTERM, signal.SIGINT)
ALL = (*STOPPING, signal.SIGHUP)
GOOD_ORDER = 0
FAILED = 1
USAGE = 2
UNREACHABLE = 3
CUT_SHORT = 130


def _nothing() -> None: ...


class Signals:
    """The signals of this process. As long as no worker runs nothing is held, and one that stops ends it at once."""

    def __init__(self) -> None:
        self.arrived: list[int] = []
        """Those that stop, as the workers were given them."""
        self.restarts = False
        """Whether a SIGHUP is ending the workers, and no signal has come since that ends the program."""
        self.over = False
        """Whether the workers have ended."""
        self.leaving: Callable[[], object] = _nothing
        """What a signal does that ends the program before its workers run: nothing of it is to stay behind."""
        self._theirs: dict[int, Any] = {}

    def take_over(self) -> None:
        """Give the signals these handlers, and let in those that came before: a restart keeps them back."""
        for number in ALL:
            signal.signal(number, self.receive)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ALL)

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Take a signal that is not the workers'."""
        if self.arrived:
            # It ends already. (Of the first, `run_workers` gives notice when all is over.)
            return
        if number != signal.SIGHUP:
            self.leaving()
            os._exit(GOOD_ORDER)
        self.restarts = True
        # Compared by value: each access makes another bound method.
        if signal.getsignal(signal.SIGTERM) == self.receive:
            self.restart()
            return
        # The workers would take the next one for a second, and none may come between these two steps.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        self._theirs = {each: signal.signal(each, self.receive_first) for each in STOPPING}
        self._theirs[signal.SIGTERM](signal.SIGTERM, frame)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def receive_first(self, number: int, _: FrameType | None) -> None:
        """Take the first signal that ends the program after one that begins it anew: the workers are ending already."""
        self.restarts = False
        if not self.over:
            for each, handler in self._theirs.items():
                signal.signal(each, handler)

    def count(self, number: int) -> None:
        """Note a signal that the workers are given."""
        self.arrived.append(number)

    def restart(self) -> None:
        """Begin anew, in this process, unless a signal has ended it: what arrives from here on waits for the new
        program."""
        signal.pthread_sigmask(signal.SIG_BLOCK, ALL)
        if not self.restarts:
            return
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])

    @property
    def is_cut_short(self) -> bool:
        """Whether running jobs were not waited for."""
        return len(self.arrived) > 1


def main() -> None:
    """Run the command `bullmq-worker`."""
    signals = Signals()
    signals.take_over()
    importlib.import_module("bullmq_cli.command").main(obj=signals)
