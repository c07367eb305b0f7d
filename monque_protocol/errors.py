"""Monque's errors, by its texts.

`MonqueError` is the root of what stands in Monque, below `BullMQError`, the root of this distribution. Mistakes of the
caller that Monque has no class for are `UsageError`.

Source: specs/monque.md#sec-11
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from bullmq_protocol.errors import BullMQError, ServerError, shown, without_login

DUPLICATE_KEY: Final = 11000
MAX_TIME_EXPIRED: Final = 50


class MonqueError(BullMQError):
    """The root of Monque's errors."""


class CommandRefused(MonqueError, ServerError):
    """An error reply of the server; what the adapters raise for one command.

    Args:
        message: The text of the reply.
        number: Its code, such as 11000 for a duplicate key; None where it has none.
    """

    def __init__(self, message: str, number: int | None = None) -> None:
        super().__init__(message)
        self.number = number
        self.code = "ERR" if number is None else str(number)


class MonqueConnectionError(MonqueError):
    """Monque's `ConnectionError`: a command failed, or the scheduler was used before `initialize`.

    Args:
        message: Monque's text; `__cause__` is the error behind it.
        number: The code of the server's reply, such as 11000 for a duplicate key; None by default: there was no reply.
        maybe_applied: Whether the command may have run on the server although no reply came; False by default.

    Source: specs/monque.md#sec-11
    """

    def __init__(self, message: str, *, number: int | None = None, maybe_applied: bool = False) -> None:
        super().__init__(without_login(message))
        self.number = number
        self.maybe_applied = maybe_applied


class InvalidCronError(MonqueError, ValueError):
    """A cron expression that cannot be read.

    Args:
        expression: The expression.
        reason: The fault, in the words of the cron library.

    Source: specs/monque.md#sec-11
    """

    def __init__(self, expression: str, reason: str) -> None:
        super().__init__(
            f'Invalid cron expression "{without_login(expression)}": {without_login(reason)}. Expected 5-field format: '
            '"minute hour day-of-month month day-of-week" or predefined expression (e.g. @daily). '
            'Example: "0 9 * * 1" (every Monday at 9am)'
        )
        self.expression = expression
        self.reason = reason


class ShutdownTimeoutError(MonqueError):
    """Jobs still ran when the time for the shutdown was over. It comes in an event; `stop` does not raise it.

    Args:
        timeout_ms: The time that they had, in milliseconds.
        jobs: The jobs that still ran.

    Source: specs/monque.md#sec-11
    """

    def __init__(self, timeout_ms: int, jobs: Sequence[Any]) -> None:
        super().__init__(f"Shutdown timed out after {timeout_ms}ms with {len(jobs)} incomplete jobs")
        self.incomplete_jobs = tuple(jobs)


class WorkerRegistrationError(MonqueError, ValueError):
    """A name that has a handler already.

    Args:
        name: The name of the jobs.

    Source: specs/monque.md#sec-11
    """

    def __init__(self, name: str) -> None:
        super().__init__(
            f'Worker already registered for job name "{without_login(name)}". Use {{ replace: true }} to replace.'
        )
        self.job_name = name


class JobStateError(MonqueError):
    """A job in a state that does not allow what was asked.

    Args:
        job_id: The job.
        status: Its state.
        action: What was asked: `cancel`, `retry` or `reschedule`.

    Source: specs/monque.md#sec-11
    """

    def __init__(self, job_id: str, status: str, action: str) -> None:
        super().__init__(f"Cannot {action} job in status '{without_login(status)}'")
        self.job_id = job_id
        self.current_status = status
        self.attempted_action = action


class InvalidCursorError(MonqueError, ValueError):
    """A cursor token that is none, or belongs to another sort.

    Args:
        cursor: The token.
        reason: Monque's text.

    Source: specs/monque.md#sec-11
    """

    def __init__(self, cursor: object, reason: str) -> None:
        super().__init__(without_login(reason))
        self.cursor = cursor


class AggregationTimeoutError(MonqueError, TimeoutError):
    """The server took more than 30 seconds to count.

    Source: specs/monque.md#sec-11
    """

    def __init__(self) -> None:
        super().__init__("Statistics aggregation exceeded 30 second timeout")


class PayloadTooLargeError(MonqueError, ValueError):
    """A payload above `max_payload_size`, or of a size that cannot be found out.

    Args:
        actual: The size in bytes of the BSON document; -1: unknown.
        limit: The largest one allowed, in bytes.
        reason: Why the size is unknown; None by default: it is known.

    Source: specs/monque.md#sec-11
    """

    def __init__(self, actual: int, limit: int, reason: str | None = None) -> None:
        if reason is None:
            super().__init__(f"Job payload exceeds maximum size: {actual} bytes > {limit} bytes")
        else:
            super().__init__(f"Failed to calculate job payload size: {without_login(reason)}")
        self.actual_size = actual
        self.max_size = limit


class InvalidJobIdentifierError(MonqueError, ValueError):
    """A name or a unique key that Monque refuses.

    Args:
        field: `name` or `unique_key`.
        value: What was given.
        rule: Monque's text.

    Source: specs/monque.md#sec-9-2
    """

    def __init__(self, field: str, value: object, rule: str) -> None:
        super().__init__(f"{rule} ({field}: got {shown(value)})")
        self.field = field
        self.value = value
        self.rule = rule
