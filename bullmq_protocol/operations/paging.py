"""Long operations in pages: a plan is a value, each page gives the plan of the rest.

A caller that keeps `rest` can continue later, even in another process: plans are plain structs that JSON can hold.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

import msgspec

from bullmq_protocol.command import Operation
from bullmq_protocol.common.keys import QueueKeys

T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """The value of one page, and the plan of the pages after it; None after the last."""

    value: T
    rest: Plan[T] | None


class Plan(Protocol[T]):
    """A long operation, or the rest of one."""

    def page(self, keys: QueueKeys) -> Operation[Page[T]]:
        """Do or read one page."""
        ...
