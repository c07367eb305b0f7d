"""What an exception of a handler means: its kind, whether a retry can help, and what becomes of the job.

Source: specs/05-worker-runtime.md#sec-8-2
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, cast

import msgspec
from msgspec import Struct, UnsetType

from bullmq_protocol.common.codec import clean_text, double, doubles, json_text, parse_json
from bullmq_protocol.common.units import Duration, Millis
from bullmq_protocol.errors import (
    DelayedError,
    RateLimitError,
    UnrecoverableError,
    UsageError,
    WaitingChildrenError,
    WaitingError,
)
from bullmq_protocol.model.backoff import (
    DEFAULT_MAX_BACKOFF_DELAY_MS,
    Backoff,
    UnknownBackoff,
    backoff_delay,
    capped,
    custom_type,
    limit_delay,
)
from bullmq_protocol.model.categories import Category, Verdict, judge, members_of, name_of, rule_key, text_of


class FailureKind(Enum):
    """How a handler ended. Everything but ERROR and CANCELLED is one of BullMQ's signals."""

    ERROR = "error"
    UNRECOVERABLE = "unrecoverable"
    RATE_LIMIT = "rate-limit"
    MOVED = "moved"
    CANCELLED = "cancelled"


class RetryPolicy(Enum):
    """Which failures are retried while attempts are left."""

    BULLMQ = "bullmq"
    """Every error but the unrecoverable ones, as BullMQ does: in a mixed fleet a job's fate depends on no worker.
    `TransientError` and `PermanentError` count here too, because the handler said so."""
    CATEGORISING = "categorising"
    """Transient errors only; permanent ones fail the job at once."""


class Failure(Struct, frozen=True, kw_only=True):
    """An exception, reduced to what the worker needs. All text is such that UTF-8 can hold it.

    `moved_to` is `delayed`, `waiting` or `waiting-children` for MOVED. `explicit`: the handler itself said transient or
    permanent. `retry_after_ms` is the delay that the error asks for.
    """

    kind: FailureKind = FailureKind.ERROR
    name: str = "Error"
    message: str | None
    stack: str = ""
    category: Category = Category.PERMANENT
    moved_to: str = ""
    retry_after_ms: Millis | None = None
    explicit: bool = False


class Retry(Struct, frozen=True, tag="retry"):
    """Try the job again after `delay_ms`; 0: at once."""

    delay_ms: float


class Fail(Struct, frozen=True, tag="fail"):
    """Fail the job for good. `permanent`: not because its attempts are used up; `exhausted`: because they are."""

    reason: str
    permanent: bool
    exhausted: bool


# --- from exception to failure --------------------------------------------------------------------------------------


def failure_of(exc: BaseException, *, stack: str = "", now_ms: Millis | None = None) -> Failure:
    """Reduce an exception to a `Failure`.

    `stack` is its traceback as text; `now_ms` (milliseconds since the epoch) turns a Retry-After date into a delay. A
    group with one exception in it is that exception. Never raises.
    """
    try:
        leaves = list(_leaves(exc))
        kind, moved_to = _kind(leaves)
        verdict = judge(exc, now_ms)
        shown = leaves[0] if len(leaves) == 1 else exc
        message = _message(shown)
    except KeyboardInterrupt:
        raise
    except BaseException:
        # A broken exception (a property that raises, groups nested without end) must not cost the job.
        kind, moved_to, verdict = FailureKind.ERROR, "", Verdict(Category.PERMANENT)
        shown, message = exc, text_of(exc) or name_of(exc)
    if kind is FailureKind.UNRECOVERABLE:
        verdict = Verdict(Category.PERMANENT, explicit=True)
    return Failure(
        kind=kind,
        name=name_of(shown),
        message=clean_text(message),
        stack=clean_text(stack),
        category=verdict.category,
        moved_to=moved_to,
        retry_after_ms=verdict.retry_after_ms,
        explicit=verdict.explicit,
    )


def _leaves(exc: BaseException) -> Iterator[BaseException]:
    members = members_of(exc)
    if not members:
        yield exc
    for inner in members:
        yield from _leaves(inner)


_MOVES: Final[Mapping[str, tuple[type[BaseException], str]]] = MappingProxyType(
    {
        "DelayedError": (DelayedError, "delayed"),
        "WaitingError": (WaitingError, "waiting"),
        "WaitingChildrenError": (WaitingChildrenError, "waiting-children"),
    }
)


_CANCELLATIONS: Final = frozenset(("asyncio.CancelledError", "trio.Cancelled"))


def _kind(leaves: list[BaseException]) -> tuple[FailureKind, str]:
    kinds = {_kind_of(leaf) for leaf in leaves}
    if len(kinds) == 1:
        return kinds.pop()
    unrecoverable = (FailureKind.UNRECOVERABLE, "")
    return unrecoverable if unrecoverable in kinds else (FailureKind.ERROR, "")


def _kind_of(exc: BaseException) -> tuple[FailureKind, str]:
    # The rate limit is known by its message alone, the others by class or by the name of the class.
    if text_of(exc) == RateLimitError.default_message:
        return FailureKind.RATE_LIMIT, ""
    name = name_of(exc)
    for known, (kind, moved_to) in _MOVES.items():
        if name == known or isinstance(exc, kind):
            return FailureKind.MOVED, moved_to
    if name == "UnrecoverableError" or isinstance(exc, UnrecoverableError):
        return FailureKind.UNRECOVERABLE, ""
    if any(rule_key(base) in _CANCELLATIONS for base in type(exc).__mro__):
        return FailureKind.CANCELLED, ""
    return FailureKind.ERROR, ""


def _message(exc: BaseException) -> str:
    """Return the text stored as the job's failed reason.

    Source: specs/05-worker-runtime.md#sec-10-1
    """
    name = name_of(exc)
    text = text_of(exc)
    if not text:
        text = name
    elif _says_nothing(exc, text):
        text = f"{name}: {text}"
    if "CROSSSLOT" in text or "CrossSlot" in name:
        text = f"{text} (a Redis Cluster needs all keys of a command in one slot: use a hash tag such as {{queue}})"
    return text


def _says_nothing(exc: BaseException, text: str) -> bool:
    """Tell whether a text is no message: it has no letter, or it only shows the value the exception was made with."""
    if not any(map(str.isalpha, text)):
        return True
    if type(exc).__str__ not in _SHOWS_VALUE or len(exc.args) != 1:
        return False
    return isinstance(exc, KeyError) or not isinstance(exc.args[0], str)


# Python writes `str(KeyError("k"))` as "'k'", and of any other value that is no text what `repr` or `str` gives.
_SHOWS_VALUE: Final = (BaseException.__str__, KeyError.__str__)


# --- from failure to decision ---------------------------------------------------------------------------------------


def decide(
    failure: Failure,
    *,
    attempts_made: int,
    attempts: float,
    backoff: Backoff | Duration | float | UnsetType | None = None,
    policy: RetryPolicy = RetryPolicy.BULLMQ,
    roll: float,
    max_backoff_delay_ms: Millis | None = DEFAULT_MAX_BACKOFF_DELAY_MS,
    extra_jitter: float | None = None,
    strategy_delay_ms: float | None = None,
    discarded: bool = False,
) -> Retry | Fail:
    """Decide what becomes of a job whose handler raised an ordinary error.

    `attempts_made` does not count this attempt; `attempts` and `backoff` are the job's options. `roll` in [0, 1) is the
    dice for jitter. `strategy_delay_ms` is the answer of the user's backoff strategy for a custom type (-1: fail; 0 or
    not-a-number: retry at once; None: there is no strategy). The delay that the error asks for replaces the backoff
    where the policy looks at it, or where the handler set it. The cap is applied last.

    Source: specs/05-worker-runtime.md#sec-9-1
    """
    reason = failure.message or ""
    exhausted = attempts_made + 1 >= attempts
    looks = policy is RetryPolicy.CATEGORISING or failure.explicit
    if failure.kind is FailureKind.UNRECOVERABLE or discarded or (looks and failure.category is Category.PERMANENT):
        return Fail(reason, permanent=True, exhausted=exhausted)
    if exhausted:
        return Fail(reason, permanent=False, exhausted=True)
    if looks and failure.retry_after_ms is not None:
        asked = failure.retry_after_ms
        return Retry(limit_delay(asked, roll=roll, max_delay_ms=max_backoff_delay_ms, extra_jitter=None))
    custom = custom_type(backoff)
    if custom is None:
        delay = backoff_delay(
            backoff,
            max(1, attempts_made + 1),
            roll=roll,
            max_delay_ms=max_backoff_delay_ms,
            extra_jitter=extra_jitter,
        )
        return Retry(delay or 0.0)
    if strategy_delay_ms is None:
        return Fail(str(UnknownBackoff(custom)), permanent=True, exhausted=False)
    if strategy_delay_ms == -1:
        return Fail(reason, permanent=True, exhausted=False)
    strategy_delay_ms = double(strategy_delay_ms)
    if not strategy_delay_ms or math.isnan(strategy_delay_ms):
        return Retry(0.0)
    asked_for = capped(cast("Backoff", backoff), strategy_delay_ms)
    return Retry(limit_delay(asked_for, roll=roll, max_delay_ms=max_backoff_delay_ms, extra_jitter=extra_jitter))


def stacktrace_json(old: str | None, stack: str, limit: float | None = None) -> str:
    """Return the JSON of a job's stack traces with one more, oldest first.

    `limit` is the job's `stack_trace_limit`.

    Source: specs/05-worker-runtime.md#sec-10-2
    """
    rows: list[Any] = []
    if old:
        try:
            rows = doubles(parse_json(clean_text(old), list[Any]))
            json_text(rows)
        except (msgspec.DecodeError, UsageError, RecursionError):
            # Another program's: no array, or numbers and depths that JSON of ours does not hold.
            rows = []
    if stack:
        rows.append(clean_text(stack))
    if limit is not None:
        # A negative limit drops that many of the oldest.
        rows = [] if limit == 0 else rows[-int(limit) :]
    return json_text(rows, field="stacktrace")
