"""Whether a refusal shows the value that was given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from bullmq_protocol.errors import UsageError


def shows(error: UsageError, *given: object) -> bool:
    """Tell whether the value of a refusal is one of those given, a part of one, or the name of its type."""
    found = error.value
    return any(
        each is found or (type(each) is type(found) and each == found) or type(each).__name__ == found
        for each in parts(given)
    )


def parts(value: object) -> Iterator[Any]:
    """Yield a value, the parts of it, and durations as milliseconds."""
    yield value
    if isinstance(value, timedelta):
        yield value // timedelta(milliseconds=1)
    if isinstance(value, msgspec.Struct):
        value = [getattr(value, field) for field in value.__struct_fields__]
    if isinstance(value, Mapping):
        value = [part for pair in value.items() for part in pair]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for part in value:
            yield from parts(part)
