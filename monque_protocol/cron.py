"""Cron expressions by the rules of Monque's cron-parser 5.5, on the cron engine of `bullmq_protocol`.

Source: specs/monque.md#sec-7
"""

from __future__ import annotations

from datetime import tzinfo
from typing import Final

from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.cron import CronError, NoNextRun, next_run, parse_cron
from monque_protocol.errors import InvalidCronError

MOST_CRON: Final = 4_096
"""How many characters an expression may have: one of megabytes, in a document of others, would take seconds to read."""


def next_cron(expression: str, *, after: Millis, zone: tzinfo) -> Millis:
    """Return the first moment after `after` at which the expression is due in `zone`.

    Raises `InvalidCronError`, also where it is never due; `UsageError` for what is no text.

    Source: specs/monque.md#sec-7
    """
    if not isinstance(expression, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError("cron", expression, "must be text")
    if len(expression) > MOST_CRON:
        raise InvalidCronError(
            f"{expression[:50]}...", f"{len(expression)} characters are too many, {MOST_CRON} at most"
        )
    try:
        return next_run(parse_cron(expression, dialect="5.5"), after, zone)
    except CronError as error:
        raise InvalidCronError(expression, error.reason) from None
    except NoNextRun as error:
        raise InvalidCronError(expression, str(error)) from None
