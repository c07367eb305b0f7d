"""Several processes of workers: each is started anew, never forked, and started again if it dies."""

from __future__ import annotations

import importlib
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bullmq_cli.entry import ALL, CUT_SHORT, FAILED, GOOD_ORDER, STOPPING, UNREACHABLE, USAGE

_log = logging.getLogger("bullmq_cli")

CHILD = "BULLMQ_CHILD"
"""What tells a process its number, and the file that ends with its parent."""
FIRST_DELAY_S = 0.1
LONGEST_DELAY_S = 30.0
_LIVED_S = 60.0
"""After how long a process that dies has not been dying from the start."""


class Child:
    """One place for a process: who is there, and when the next is due."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: subprocess.Popen[bytes] | None = None
        self.due: float | None = 0.0
        self._started = 0.0
        self._deaths = 0

    def start(self, lifeline: int, now: float) -> None:
        """Start a process, which gets no signal before it can take it."""
        self._started, self.due = now, None
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ALL)
        try:
            self.process = subprocess.Popen(
                [sys.executable, *sys.orig_argv[1:]],
                env={**os.environ, CHILD: f"{self.number}:{lifeline}"},
                pass_fds=(lifeline,),
                # Ctrl-C in a shell reaches the parent alone, which passes it on: twice would cut jobs short.
                process_group=0,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def died(self, now: float) -> float:
        """Plan the next process; return in how many seconds."""
        if now - self._started >= _LIVED_S:
            self._deaths = 0
        delay = min(LONGEST_DELAY_S, FIRST_DELAY_S * float(1 << min(self._deaths, 16)))
        self._deaths += 1
        self.due = now + delay
        return delay

    def pass_on(self, number: int) -> None:
        """Send a signal to the process, if there is one."""
        if self.process is not None:
            self.process.send_signal(number)


class Parent:
    """Runs processes until all have ended in good order, or a signal ends them.

    `reload`: a folder; each change of a Python file in it restarts them.
    """

    def __init__(self, count: int, reload: Path | None) -> None:
        self._children = [Child(number) for number in range(count)]
        self._reload = reload
        self._codes: list[int] = []
        self._signals = 0
        self._code: int | None = None

    def run(self) -> int:
        """Run; return the exit code."""
        news, wake = os.pipe()
        lifeline, held = os.pipe()
        os.set_blocking(wake, False)
        before = {number: signal.signal(number, _nothing) for number in (*ALL, signal.SIGCHLD)}
        signal.set_wakeup_fd(wake)
        stop_watching = self._watch(wake)
        try:
            while self._step(lifeline):
                due = [child.due for child in self._children if child.due is not None]
                timeout = None if not due else max(0.0, min(due) - time.monotonic())
                if select.select([news], [], [], timeout)[0]:
                    for number in dict.fromkeys(os.read(news, 4096)) if self._signals == 0 else os.read(news, 4096):
                        self._receive(number)
        finally:
            stop_watching()
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)
            for each in (news, wake, lifeline, held):
                os.close(each)
        return self._outcome()

    def _step(self, lifeline: int) -> bool:
        """Note who has ended, and start who is due; return whether to go on."""
        now = time.monotonic()
        for child in self._children:
            code = None if child.process is None else child.process.poll()
            if code is not None:
                child.process = None
                self._ended(child, code, now)
        for child in self._children:
            if child.due is not None and child.due <= now:
                child.start(lifeline, now)
        return any(child.process is not None or child.due is not None for child in self._children) or self._waits()

    def _waits(self) -> bool:
        """Whether it waits for a change of a file."""
        return self._reload is not None and not self._signals

    def _ended(self, child: Child, code: int, now: float) -> None:
        if self._signals or code == GOOD_ORDER or self._code is not None:
            self._codes.append(code)
        elif self._reload is not None:
            _log.error("process %d ended with exit code %d: waiting for a change", child.number, code)
        elif code in (USAGE, UNREACHABLE):
            # The next would end likewise.
            self._codes.append(code)
            self._code = code
            self._stop(signal.SIGTERM)
        else:
            _log.error("process %d died, exit code %d: another in %.1f s", child.number, code, child.died(now))

    def _receive(self, number: int) -> None:
        if number in STOPPING:
            self._signals += 1
            self._stop(number)
        elif number == signal.SIGHUP and not self._signals:
            for child in self._children:
                if child.process is None:
                    child.due = 0.0
                child.pass_on(signal.SIGHUP)

    def _stop(self, number: int) -> None:
        for child in self._children:
            child.due = None
            child.pass_on(number)

    def _outcome(self) -> int:
        if self._code is not None:
            return self._code
        if CUT_SHORT in self._codes:
            return CUT_SHORT
        return FAILED if any(self._codes) else GOOD_ORDER

    def _watch(self, wake: int) -> Callable[[], None]:
        """Send this process a SIGHUP, as it were, with each change; return what ends that."""
        if self._reload is None:
            return _nothing
        watchfiles: Any = importlib.import_module("watchfiles")
        over = threading.Event()

        def watch() -> None:
            changes = watchfiles.watch(
                self._reload, watch_filter=watchfiles.PythonFilter(), stop_event=over, raise_interrupt=False
            )
            for changed in changes:
                _log.info("changed: %s", ", ".join(sorted({path for _, path in changed})))
                os.write(wake, bytes([signal.SIGHUP]))

        thread = threading.Thread(target=watch, name="bullmq reload", daemon=True)
        thread.start()

        def stop() -> None:
            over.set()
            thread.join()

        return stop


def _nothing(*_: object) -> None:
    """Let a signal wake the parent, and do nothing else."""
