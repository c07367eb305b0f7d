"""What tasks and threads do each in their own way, by one name in both packages, for what `tools/twin.py` writes."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock

from bullmq_sync.forks import in_child

__all__ = ["Event", "Lock", "in_each_process"]


def in_each_process(renew: Callable[[], None]) -> None:
    """Call a method, which makes what belongs to this process alone, now and in the child of every fork.

    It must take no lock that it has not made: a thread of the parent may have held it.
    """
    renew()
    in_child(renew)
