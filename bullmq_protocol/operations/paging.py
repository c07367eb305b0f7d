"""Long operations in pages: a plan is a value, each page gives the plan of the rest.

Whoever keeps `rest` can go on later, in another process too: plans are plain structs that JSON can hold.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

import msgspec

from bullmq_protocol.command import Operation
from bullmq_protocol.common.keys import QueueKeys

T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """What one page gave, and the plan of the pages after it; None after the last."""

    value: T
    rest: Plan[T] | None


class Plan(Protocol[T]):
    """A long operation, or what is left of it."""

    def page(self, keys: QueueKeys) -> Operation[Page[T]]:
        """Do or read one page."""
        ...
