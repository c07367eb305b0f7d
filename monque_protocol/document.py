"""The job document: what is stored, and how it is read.

Documents are mappings as a driver of MongoDB gives and takes them. Dates go out as aware `datetime`, and are read as
such, as naive ones (UTC), or as anything that `int` turns into milliseconds. `_id` is left as the driver has it.

Source: specs/monque.md#sec-1
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Generic, SupportsInt, TypeAlias, TypeVar, cast

import msgspec

from bullmq_protocol.common.units import Millis, Number
from bullmq_protocol.errors import UnexpectedReply, UsageError

T = TypeVar("T")

Document: TypeAlias = Mapping[str, Any]
"""A document, or a part of a command."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LAST: Final = datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)
FIRST: Final = datetime(1, 1, 1, tzinfo=UTC)
MOST_COUNT: Final = 2**53
"""The largest number of failures that counts, as in JavaScript. BSON has none above 2**63."""
_MS: Final = timedelta(milliseconds=1)
_LEAST: Final[Millis] = (FIRST - EPOCH) // _MS
_MOST: Final[Millis] = (LAST - EPOCH) // _MS


class JobStatus(StrEnum):
    """The states of a job.

    Source: specs/monque.md#sec-2
    """

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


ACTIVE: Final = (JobStatus.PENDING.value, JobStatus.PROCESSING.value)
"""The states in which a job keeps its unique key to itself."""


class Job(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A job as it is stored.

    `id` is the text of `key`, which is the `_id` as the driver has it. Moments and `heartbeat_interval` are in
    milliseconds; None where the field is absent, null, or none of its kind. `status` may be a word of a later version.
    Other fields of the document are left alone.

    Source: specs/monque.md#sec-1
    """

    id: str
    key: Any
    name: str
    data: T
    status: str
    next_run_at: Millis | None = None
    locked_at: Millis | None = None
    claimed_by: str | None = None
    last_heartbeat: Millis | None = None
    heartbeat_interval: Number | None = None
    fail_count: int = 0
    fail_reason: str | None = None
    repeat_interval: str | None = None
    unique_key: str | None = None
    created_at: Millis | None = None
    updated_at: Millis | None = None

    @property
    def is_recurring(self) -> bool:
        """Whether it has a cron expression."""
        return self.repeat_interval is not None


def to_date(at: Millis) -> datetime:
    """Return a moment as it is stored. What lies beyond the years 1 to 9999 becomes the nearest that does not."""
    return EPOCH + min(max(at, _LEAST), _MOST) * _MS


def from_date(value: object) -> Millis | None:
    """Return a stored moment in milliseconds; None for anything else."""
    if isinstance(value, datetime):
        return ((value if value.tzinfo is not None else value.replace(tzinfo=UTC)) - EPOCH) // _MS
    if isinstance(value, bool | int | float | str | bytes) or not isinstance(value, SupportsInt):
        return None
    return int(value)


def moment(field: str, value: object) -> Millis:
    """Return a moment that a caller gave: milliseconds since the Unix epoch, or an aware `datetime`.

    Raises `UsageError`.
    """
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise UsageError(field, value, "must have a time zone")
        return (value - EPOCH) // _MS
    if type(value) is not int or not _LEAST <= value <= _MOST:
        raise UsageError(field, value, "must be a datetime, or whole milliseconds since 1970, of the years 1 to 9999")
    return value


def read_job(document: object) -> Job[Any]:
    """Return the job of a document, of whichever version of Monque.

    Raises `UnexpectedReply` for what is no job: no document, or one without `_id`, or without a name that is text.

    Source: specs/monque.md#sec-1
    """
    if not isinstance(document, Mapping):
        raise UnexpectedReply("a job document", document)
    found = cast("Document", document)
    name, key = _text(found.get("name")), found.get("_id")
    if key is None or name is None:
        raise UnexpectedReply("a job document with _id and name", found)
    return Job(
        id=str(key),
        key=key,
        name=name,
        data=found.get("data"),
        status=_text(found.get("status")) or "",
        next_run_at=from_date(found.get("nextRunAt")),
        locked_at=from_date(found.get("lockedAt")),
        claimed_by=_text(found.get("claimedBy")),
        last_heartbeat=from_date(found.get("lastHeartbeat")),
        heartbeat_interval=_number(found.get("heartbeatInterval")),
        fail_count=min(max(int(_number(found.get("failCount")) or 0), -MOST_COUNT), MOST_COUNT),
        fail_reason=_text(found.get("failReason")),
        repeat_interval=_text(found.get("repeatInterval")),
        unique_key=_text(found.get("uniqueKey")),
        created_at=from_date(found.get("createdAt")),
        updated_at=from_date(found.get("updatedAt")),
    )


def _text(value: object) -> str | None:
    # Drivers have types that are derived from text, such as code, and not even hashable.
    return value if type(value) is str else None


def _number(value: object) -> Number | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def new_document(
    name: str,
    data: Any,
    *,
    next_run_at: Millis,
    now: Millis,
    repeat_interval: str | None = None,
    unique_key: str | None = None,
) -> dict[str, Any]:
    """Return the document of a new job, without `_id`, its fields in Monque's order.

    Source: specs/monque.md#sec-1
    """
    at = to_date(now)
    made: dict[str, Any] = {"name": name, "data": data, "status": "pending", "nextRunAt": to_date(next_run_at)}
    if repeat_interval is not None:
        made["repeatInterval"] = repeat_interval
    made |= {"failCount": 0, "createdAt": at, "updatedAt": at}
    if unique_key is not None:
        made["uniqueKey"] = unique_key
    return made


def retried(job: Job[Any], now: Millis) -> Job[Any]:
    """Return the job after a manual retry, worked out from the image before it.

    Source: specs/monque.md#sec-5-12
    """
    return msgspec.structs.replace(
        job,
        status=JobStatus.PENDING.value,
        fail_count=0,
        next_run_at=now,
        updated_at=now,
        fail_reason=None,
        locked_at=None,
        claimed_by=None,
        last_heartbeat=None,
    )


def payload_of(data: Any) -> Any:
    """Return what is stored for a payload: structs and dataclasses as plain documents, everything else as it is."""
    if isinstance(data, msgspec.Struct) or (dataclasses.is_dataclass(data) and not isinstance(data, type)):
        return msgspec.to_builtins(data, builtin_types=(datetime, bytes))
    return data


def check_data_type(data_type: Any) -> Any:
    """Return a type of payloads, or None, or raise `UsageError` for what msgspec cannot convert to."""
    if data_type is not None:
        try:
            msgspec.convert(None, data_type)
        except msgspec.ValidationError:
            # A type of its own.
            return data_type
        except Exception as error:
            raise UsageError("data_type", data_type, f"must be a type that msgspec can convert to: {error}") from None
    return data_type


def typed_job(job: Job[Any], data_type: type[T]) -> Job[T]:
    """Return the job with its payload as a value of this type.

    Raises `msgspec.ValidationError` where it does not fit.
    """
    return msgspec.structs.replace(job, data=msgspec.convert(job.data, data_type))
