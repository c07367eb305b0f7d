"""`bullmq-worker` from its first line on: signals have a meaning before the rest is imported."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT)
ALL = (*STOPPING, signal.SIGHUP)
GOOD_ORDER = 0
FAILED = 1
USAGE = 2
UNREACHABLE = 3
CUT_SHORT = 130


class Signals:
    """The signals of this process. As long as no worker runs nothing is held, and one that stops ends it at once."""

    def __init__(self) -> None:
        self.arrived: list[int] = []
        """Those that stop, as the workers were given them."""
        self.restarts = False

    def take_over(self) -> None:
        """Give the signals these handlers, and let in those that came before: a restart keeps them back."""
        for number in ALL:
            signal.signal(number, self.receive)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ALL)

    def receive(self, number: int, _: FrameType | None) -> None:
        """Take a signal that is not the workers'."""
        if self.arrived:
            # It ends already. (Of the first, `run_workers` gives notice when all is over.)
            return
        if number != signal.SIGHUP:
            os._exit(GOOD_ORDER)
        # Compared by value: each access makes another bound method.
        if signal.getsignal(signal.SIGTERM) == self.receive:
            restart()
        self.restarts = True
        signal.raise_signal(signal.SIGTERM)

    def count(self, number: int) -> None:
        """Note a signal that the workers are given."""
        self.arrived.append(number)

    @property
    def is_cut_short(self) -> bool:
        """Whether running jobs were not waited for."""
        return len(self.arrived) > 1


def restart() -> None:
    """Begin anew, in this process. What arrives meanwhile waits for the new program."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ALL)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def main() -> None:
    """Run the command `bullmq-worker`."""
    signals = Signals()
    signals.take_over()
    importlib.import_module("bullmq_cli.command").main(obj=signals)
