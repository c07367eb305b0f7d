"""Delivery of a worker's notices: to the log, the user's callbacks, metrics, and readers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from bullmq_protocol.worker.logline import LOWEST_LEVEL
from bullmq_protocol.worker.notices import Notice
from bullmq_sync.driving.audience import Audience, log
from bullmq_sync.driving.lending import Lending
from bullmq_sync.driving.shared import Shared
from bullmq_sync.guard import say
from bullmq_sync.primitives import is_interrupt


class Notifier(Audience):
    """Calls the user's functions with no lock held, on the thread where a notice came up. Ctrl-C there is raised when
    all that was decided is under way."""

    def __init__(self, shared: Shared[Any], lending: Lending) -> None:
        super().__init__(shared)
        self._lending = lending

    def tell(self, notice: Notice) -> None:
        kind = type(notice)
        if log.isEnabledFor(LOWEST_LEVEL[kind]):
            try:
                line = self.line(notice)
                extra = {**self._extra, **line.fields}
                say(line.level, line.template, *line.args, extra=extra, error=line.exception)
            except KeyboardInterrupt as error:
                self._threads.interrupt = error
        callbacks = self.subscribers.of_kind.get(kind, ())
        if callbacks:
            self._call_back(callbacks, kind, notice)

    def _call_back(self, callbacks: Sequence[Callable[[Any], object]], kind: type[Notice], notice: Notice) -> None:
        outer = self._lending.lend(f"a callback for {kind.__name__}")
        try:
            self._call_each(callbacks, kind, notice)
        finally:
            self._lending.take_back(outer)

    def _call_each(self, callbacks: Sequence[Callable[[Any], object]], kind: type[Notice], notice: Notice) -> None:
        threads = self._threads
        for callback in callbacks:
            try:
                threads.apart(callback, notice)
            except BaseException as error:
                interrupt = error if is_interrupt(error) else None
                try:
                    self.say(logging.ERROR, ": a callback for %s raised", kind.__name__, trace=True)
                except KeyboardInterrupt as another:
                    interrupt = another
                threads.interrupt = interrupt or threads.interrupt
            threads.check_process()

    def say(self, level: int, message: str, *args: object, trace: bool = False) -> None:
        """Log a line that begins with the worker."""
        say(level, f"worker %s{message}", self._id, *args, extra=self._extra, trace=trace)

    def _metered(self, tell: Callable[..., None], *notice: Notice) -> None:
        try:
            self._threads.apart(tell, *notice)
        except BaseException as error:
            self.say(logging.ERROR, ": the metrics collector raised", trace=True)
            if is_interrupt(error):
                raise
