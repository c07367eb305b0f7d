"""Cursor tokens: where a page of a listing ends.

Source: specs/monque.md#sec-5-15
"""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import datetime
from typing import Any, Final

import msgspec

from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import UsageError
from monque_protocol.document import Job, moment, to_date
from monque_protocol.errors import InvalidCursorError

FIELDS: Final = ("createdAt", "updatedAt", "nextRunAt")
_HEX: Final = re.compile("[0-9a-f]{24}", re.IGNORECASE)


class Sort(msgspec.Struct, frozen=True):
    """How a listing is sorted.

    Args:
        by: `identifier` (by default), `createdAt`, `updatedAt` or `nextRunAt`.
        direction: `asc` (by default) or `desc`.

    Examples:
        >>> Sort("nextRunAt", "desc").by
        'nextRunAt'
    """

    by: str = "identifier"
    direction: str = "asc"


class Anchor(msgspec.Struct, frozen=True):
    """The job at which a page ends: its id in 24 hexadecimal digits, and its moment, if the sort is by one."""

    id: str
    value: Millis | None = None


class _TokenSort(msgspec.Struct, frozen=True):
    by: str
    direction: str
    value: str


class _Token(msgspec.Struct, frozen=True):
    id: str
    sort: _TokenSort


def check_sort(sort: object) -> Sort:
    """Return the sort, or raise `UsageError`."""
    if not isinstance(sort, Sort):
        raise UsageError("sort", sort, "must be a Sort")
    if sort.by not in ("identifier", *FIELDS):
        raise UsageError("sort.by", sort.by, f"must be identifier, {', '.join(FIELDS[:-1])} or {FIELDS[-1]}")
    if sort.direction not in ("asc", "desc"):
        raise UsageError("sort.direction", sort.direction, "must be asc or desc")
    return sort


def check_direction(direction: object) -> str:
    """Return the direction of a page, or raise `UsageError`."""
    if direction not in ("forward", "backward"):
        raise UsageError("direction", direction, "must be forward or backward")
    return str(direction)


def encode_cursor(job: Job[Any], sort: Sort, direction: str) -> str:
    """Return the token of a page that ends with this job.

    Raises `InvalidCursorError` where the job lacks the moment that the sort is by.

    Source: specs/monque.md#sec-5-15
    """
    prefix = "F" if direction == "forward" else "B"
    if not _HEX.fullmatch(job.id):
        raise InvalidCursorError(job.id, "Invalid length")
    if sort == Sort():
        return prefix + _packed(bytes.fromhex(job.id))
    value = _value(job, sort)
    if value is None:
        raise InvalidCursorError(None, "Cursor sort value is required")
    token = _Token(id=job.id, sort=_TokenSort(by=sort.by, direction=sort.direction, value=_iso(value)))
    return prefix + _packed(msgspec.json.encode(token))


def decode_cursor(cursor: object, sort: Sort) -> Anchor:
    """Return where a page goes on.

    Raises `InvalidCursorError`, also for a token of another sort.

    Source: specs/monque.md#sec-5-15
    """
    if not isinstance(cursor, str) or len(cursor) < 2:
        raise InvalidCursorError(cursor, "Cursor is empty or too short")
    if cursor[0] not in "FB":
        raise InvalidCursorError(cursor, f"Invalid cursor prefix: {cursor[0]}")
    try:
        packed = urlsafe_b64decode(cursor[1:].encode("ascii") + b"=" * (-len(cursor[1:]) % 4))
    except (binascii.Error, UnicodeEncodeError):
        raise InvalidCursorError(cursor, "Invalid cursor payload") from None
    if not packed.startswith(b"{"):
        if len(packed) != 12:
            raise InvalidCursorError(cursor, "Invalid length")
        if sort != Sort():
            raise InvalidCursorError(cursor, "Cursor does not match requested sort")
        return Anchor(packed.hex())
    try:
        token = msgspec.json.decode(packed, type=_Token)
        value = moment("cursor", datetime.fromisoformat(token.sort.value))
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
        raise InvalidCursorError(cursor, "Invalid cursor payload") from None
    if not _HEX.fullmatch(token.id):
        raise InvalidCursorError(cursor, "Invalid cursor payload")
    if (token.sort.by, token.sort.direction) != (sort.by, sort.direction) or sort == Sort():
        raise InvalidCursorError(cursor, "Cursor does not match requested sort")
    return Anchor(token.id, value)


def _packed(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def _value(job: Job[Any], sort: Sort) -> Millis | None:
    if sort.by == "identifier":
        # An ObjectId begins with its time in seconds.
        return int(job.id[:8], 16) * 1000
    return {"createdAt": job.created_at, "updatedAt": job.updated_at, "nextRunAt": job.next_run_at}[sort.by]


def _iso(at: Millis) -> str:
    return to_date(at).isoformat(timespec="milliseconds").replace("+00:00", "Z")
