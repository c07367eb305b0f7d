"""The queues of a process. Django makes a backend for each thread: each would connect anew."""

from __future__ import annotations

from typing import Any

from bullmq_django.options import Options
from bullmq_sync import Queue


class SharedQueues:
    """Queues by backend and name, each with one connection for all threads.

    There is no lock that a fork could copy: each step is one call of `dict`, and of two threads that make a queue at
    the same time both get that of the first. Nothing has been opened then.
    """

    def __init__(self) -> None:
        self._queues: dict[tuple[str, str], tuple[Options, Queue[Any]]] = {}

    def get(self, alias: str, name: str, options: Options) -> Queue[Any]:
        """Return the queue of this name, made by these options; one that was made by others is closed."""
        place = (alias, name)
        held = self._queues.get(place)
        if held is not None and held[0] != options:
            self._queues.pop(place, None)
            held[1].close()
            held = None
        if held is None:
            made = Queue[Any](name, options.connection, **options.queue_arguments())
            held = self._queues.setdefault(place, (options, made))
        return held[1]

    def close(self) -> None:
        """Close them all."""
        while self._queues:
            self._queues.popitem()[1][1].close()


SHARED = SharedQueues()
