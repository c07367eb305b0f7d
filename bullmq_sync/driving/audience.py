"""The audience of a worker's notices: callbacks, readers, metrics."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from bullmq_protocol.worker.actions import Notify
from bullmq_protocol.worker.logline import LOWEST_LEVEL, LogLine, logline
from bullmq_protocol.worker.notices import Notice
from bullmq_sync.driving.shared import Shared
from bullmq_sync.notices import Notices
from bullmq_sync.subscribers import Subscribers

log = logging.getLogger("bullmq_sync")


class Audience(ABC):
    """They can be added and removed at any time."""

    def __init__(self, shared: Shared[Any]) -> None:
        setup = shared.setup
        self._threads = shared.threads
        # guarded by the lock of _threads
        self._dispatch = shared.dispatch
        # set once
        self._id = setup.id
        self._extra = setup.extra
        self._meter = setup.meter
        self._name = setup.keys.name
        self._trace_retries = setup.settings.trace_retries
        self.subscribers = Subscribers(setup.callbacks(shared.tracing))

    @abstractmethod
    def tell(self, notice: Notice) -> None:
        """Write a notice to the log, and call the callbacks for its kind."""

    @abstractmethod
    def _metered(self, tell: Callable[..., None], *notice: Notice) -> None:
        """Call the metrics collector."""

    def is_observed(self, kind: type[Notice]) -> bool:
        """Whether notices of this kind go to anyone besides readers."""
        return bool(self.subscribers.of_kind.get(kind)) or log.isEnabledFor(LOWEST_LEVEL[kind])

    def line(self, notice: Notice) -> LogLine:
        """Return what to log about a notice."""
        return logline(notice, self._name, trace_retries=self._trace_retries)

    def report(self, notice: Notice) -> None:
        """Tell all of what the machine does not know."""
        with self._threads.lock:
            self._dispatch.publish((Notify(notice),))
        self.tell(notice)

    def meter_life(self, *, begins: bool) -> None:
        """Count a worker that runs, or one less."""
        if self._meter is not None:
            self._metered(self._meter.started if begins else self._meter.ended)

    def meter_manual(self, notice: Notice) -> None:
        """Count the outcome of a job that was taken manually."""
        if self._meter is not None:
            self._metered(self._meter, notice)

    def stream(self, buffer: int) -> Notices:
        """Return a new reader of all notices from now on."""
        stream = Notices(buffer, self._forget)
        with self._threads.lock:
            self._dispatch.streams = (*self._dispatch.streams, stream)
        return stream

    def _forget(self, stream: Notices) -> None:
        with self._threads.lock:
            self._dispatch.streams = tuple(each for each in self._dispatch.streams if each is not stream)

    def end_streams(self) -> None:
        """End what reads notices: no more will come."""
        with self._threads.lock:
            streams = self._dispatch.streams
        for stream in streams:
            stream.close()
