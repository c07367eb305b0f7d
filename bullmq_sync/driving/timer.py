"""The one thread of a worker that waits for time to pass."""

from __future__ import annotations

import logging
import random
import threading
import time
from typing import Any

from bullmq_protocol.net.transport import subscribed
from bullmq_protocol.worker.dispatch import LOOK_MS
from bullmq_protocol.worker.events import ConnectionEnded, Tick
from bullmq_protocol.worker.notices import WorkerProblem
from bullmq_sync.driving.contact import Contact
from bullmq_sync.driving.hands import Hands
from bullmq_sync.driving.lending import Lending
from bullmq_sync.driving.notifier import Notifier
from bullmq_sync.driving.shared import Shared
from bullmq_sync.primitives import SHORTAGE

_RETRY_S = 0.1
"""How soon to ask again where the system gave no thread."""


class Timer:
    """Passes the tick to the machine when its deadline has come, checks the connection, and asks again for threads."""

    def __init__(
        self,
        shared: Shared[Any],
        lending: Lending,
        contact: Contact,
        notifier: Notifier,
        hands: Hands[Any],
        name: str,
    ) -> None:
        self._threads = shared.threads
        # guarded by the lock of _threads
        self._machine = shared.machine
        # set once
        self._ending = shared.dispatch.ending
        self._clock = shared.clock
        self._lending = lending
        self._contact = contact
        self._notifier = notifier
        self._hands = hands
        self._name = name

    def start(self) -> threading.Thread | None:
        """Start the thread that keeps time, as soon as the system gives one; None: the worker is closed before."""
        reported = False
        while not self._ending.closed:
            try:
                # Callbacks and log handlers that it calls are within the worker.
                main = self._threads.apart
                timer = threading.Thread(target=main, args=(self._keep_time_aside,), name=self._name, daemon=True)
                timer.start()
            except SHORTAGE as error:
                if not reported:
                    reported = True
                    message = ": the system gives no thread to begin with (%s); it is asked again"
                    self._notifier.say(logging.WARNING, message, error)
                self._threads.stopped.wait(_RETRY_S)
            else:
                return timer
        return None

    def _keep_time_aside(self) -> None:
        try:
            self.keep_time()
        except BaseException as error:
            self._hands.break_off(error)

    def _look(self) -> None:
        found = self._contact.look()
        if isinstance(found, ConnectionEnded):
            self._hands.happen(found)
        elif found is not None:
            self._hands.pool.submit(self._contact.introduce)

    def keep_time(self, until: float | None = None) -> None:
        """Pass ticks to the machine when its deadlines come, until the worker has stopped, or until that time."""
        unsubscribe = subscribed(self._clock, self._look_again)
        try:
            self._keep_time(until)
        finally:
            unsubscribe()

    def _look_again(self) -> None:
        """A clock of the user's has jumped."""
        with self._threads.lock:
            self._threads.due.notify_all()

    def _keep_time(self, until: float | None) -> None:
        threads, pool = self._threads, self._hands.pool
        short = False
        while True:
            self._look()
            now = time.monotonic()
            with threads.lock:
                threads.armed = due = self._machine.deadline()
                if threads.stopped.is_set():
                    return
                shortage, threads.shortage = threads.shortage, None
                ends = min((each for each in (until, threads.break_ends) if each is not None), default=None)
                over = ends is not None and now >= ends
                lasting = self._lending.lasting(now)
                left_ms = None if due is None else due - self._clock().mono
                is_due = left_ms is not None and left_ms <= 0
                if not (over or lasting or is_due or shortage):
                    limits = (
                        None if left_ms is None else left_ms / 1000,
                        None if ends is None else ends - now,
                        _RETRY_S if short else None,
                        self._lending.left_s(now),
                        LOOK_MS / 1000 if self._machine.unattended else None,
                    )
                    threads.due.wait(min((each for each in limits if each is not None), default=None))
                    if not short:
                        continue
            if lasting:
                # The rest of these threads' work is done here.
                with threads.lock:
                    threads.left_behind = True
            if over or lasting:
                threads.stop()
                return
            if shortage is not None:
                short = True
                problem = f"the system gives no new thread ({shortage}): what waits for one is tried again"
                self._notifier.report(WorkerProblem(problem))
            if short:
                pool.retry()
                short = pool.short
            if is_due:
                self._hands.happen(Tick(random.random()))
                with threads.lock:
                    if self._machine.deadline() == due and not threads.stopped.is_set():
                        # It has not moved: do not spin.
                        threads.due.wait(0.001)
