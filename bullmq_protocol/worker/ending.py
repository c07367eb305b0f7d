"""When a worker ends although nobody closes it: it has nothing left to do, or has taken as many jobs as it may."""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

from bullmq_protocol.common.units import check_flag
from bullmq_protocol.errors import UsageError
from bullmq_protocol.worker.options import check_at_least

W = TypeVar("W")
S = TypeVar("S")


class Idle:
    """What ends several workers together: each has found no job after the last that any of them took or ended.

    One object for all of them, in one process. A worker alone is `run(until="idle")`.

    Args:
        workers: How many share it, at least 1.
        limited: True: a queue that is rate limited gives nothing to do either. False, the default: they wait until its
            time is over.
    """

    def __init__(self, workers: int, *, limited: bool = False) -> None:
        self._size = check_at_least("workers", workers, 1)
        self.limited = check_flag("limited", limited)
        self._changes = 0
        self._seen: list[int | None] = []

    def join(self) -> int:
        """Count a worker in; return its number."""
        if len(self._seen) == self._size:
            raise UsageError("until", self, f"is shared by {self._size} workers already")
        self._seen.append(None)
        return len(self._seen) - 1

    def changed(self) -> None:
        """Note that a worker has a job, or has ended one: what it did may have given the others work."""
        self._changes += 1

    def asks(self, member: int) -> int:
        """Note that a worker fetches; return how much had changed by then, for `found_nothing`."""
        self._seen[member] = None
        return self._changes

    def found_nothing(self, member: int, asked: int) -> bool:
        """Take the outcome of a fetch while nothing was held; return whether all have nothing left to do."""
        self._seen[member] = asked
        return len(self._seen) == self._size and all(seen == self._changes for seen in self._seen)


Until = Literal["idle"] | Idle | None
"""What `run` takes: None, the default, works until the worker is closed."""


def shared_end(until: object, workers: int) -> Idle:
    """Return what ends this many workers together. Raises `UsageError` for anything but "idle"."""
    if until != "idle":
        raise UsageError("until", until, 'must be None or "idle"')
    return Idle(workers)


class Together(Generic[W, S]):
    """Workers that one program runs together: what ends them, and the signal and the error that did.

    Args:
        workers: The workers.
        until: "idle" or None, as `run_workers` takes it.
        max_jobs: After how many jobs a worker takes no more.
    """

    def __init__(self, workers: tuple[W, ...], until: Literal["idle"] | None, max_jobs: int | None) -> None:
        self.workers = workers
        self.until: Idle | None = None if until is None else shared_end(until, len(workers))
        self.max_jobs = max_jobs
        self.signal: S | None = None
        self.error: BaseException | None = None

    @property
    def ends_all(self) -> bool:
        """Whether the first that comes to its end ends the others."""
        return self.until is not None or self.max_jobs is not None

    def signalled(self, number: S) -> bool:
        """Note a signal; return whether there was one before."""
        again = self.signal is not None
        self.signal = self.signal or number
        return again

    def failed(self, error: BaseException) -> None:
        """Note the error that ended a worker; the first counts."""
        self.error = self.error or error


def check_end(until: object, max_jobs: object) -> None:
    """Refuse what is no end. Raises `UsageError`."""
    if until is not None and until != "idle" and not isinstance(until, Idle):
        raise UsageError("until", until, 'must be None, "idle" or an Idle')
    if max_jobs is not None:
        check_at_least("max_jobs", max_jobs, 1)


class Ending:
    """One worker's end: it has nothing to do, or may take no more jobs."""

    def __init__(self, until: Until, max_jobs: int | None) -> None:
        check_end(until, max_jobs)
        self._left = max_jobs
        self._idle = idle = Idle(1) if until == "idle" else until
        self._member = 0 if idle is None else idle.join()
        self._asked: int | None = None

    @property
    def watches(self) -> bool:
        """Whether it ends when there is nothing to do."""
        return self._idle is not None

    @property
    def ends_limited(self) -> bool:
        """Whether it also ends while the queue is rate limited."""
        return self._idle is not None and self._idle.limited

    def fitting(self, count: int, asked: int) -> int:
        """Return how many jobs of `count` may be asked for, where `asked` are under way."""
        return count if self._left is None else max(0, min(count, self._left - asked))

    @property
    def is_used_up(self) -> bool:
        """Whether it has taken as many jobs as it may."""
        return self._left == 0

    def took(self) -> None:
        """Note that a job was taken."""
        if self._left is not None:
            self._left -= 1
        if self._idle is not None:
            self._asked = None
            self._idle.changed()

    def ended(self) -> None:
        """Note that a job is over: what others asked for meanwhile does not count."""
        if self._idle is not None:
            self._idle.changed()

    def asks(self, *, holds: bool) -> None:
        """Note that a fetch begins. What is found while a job is held does not count."""
        if self._idle is not None:
            asked = self._idle.asks(self._member)
            self._asked = None if holds else asked

    @property
    def has_asked(self) -> bool:
        """Whether the last fetch was made while nothing was held, and no job has been taken since."""
        return self._asked is not None

    def found_nothing(self) -> bool:
        """Take the outcome of that fetch; return whether it is the end."""
        return (
            self._idle is not None and self._asked is not None and self._idle.found_nothing(self._member, self._asked)
        )
