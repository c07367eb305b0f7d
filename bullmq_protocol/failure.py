"""What an exception of a handler means: its kind, whether a retry can help, and what becomes of the job.

An exception is judged by its type, then by its content, then by its causes. Types are recognised by the name of their
package and class, so no library is imported for it.

Source: specs/05-worker-runtime.md#sec-8-2
"""

from __future__ import annotations

import errno
import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

import msgspec
from msgspec import Struct

from bullmq_protocol.backoff import (
    DEFAULT_MAX_BACKOFF_DELAY_MS,
    UnknownBackoff,
    backoff_delay,
    custom_type,
    limit_delay,
)
from bullmq_protocol.codec import json_text, parse_json
from bullmq_protocol.errors import (
    DelayedError,
    PermanentError,
    RateLimitError,
    ServerError,
    TransientError,
    TransportError,
    UnrecoverableError,
    WaitingChildrenError,
    WaitingError,
)
from bullmq_protocol.job import JobRecord
from bullmq_protocol.units import Millis


class FailureKind(Enum):
    """How a handler ended. Everything but ERROR and CANCELLED is one of BullMQ's signals."""

    ERROR = "error"
    UNRECOVERABLE = "unrecoverable"
    RATE_LIMIT = "rate-limit"
    MOVED = "moved"
    CANCELLED = "cancelled"


class Category(Enum):
    """Whether a retry can help."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"


class RetryPolicy(Enum):
    """Which failures are retried while attempts are left."""

    BULLMQ = "bullmq"
    """Every error but the unrecoverable ones, as BullMQ does: in a mixed fleet a job's fate depends on no worker.
    `TransientError` and `PermanentError` count here too, because the handler said so."""
    CATEGORISING = "categorising"
    """Transient errors only; permanent ones fail the job at once."""


class Failure(Struct, frozen=True, kw_only=True):
    """An exception, reduced to what the worker needs. All text is such that UTF-8 can hold it.

    `moved_to` is `delayed`, `waiting` or `waiting-children` for MOVED. `explicit` is True when the handler itself said
    transient or permanent. `retry_after_ms` is the delay that the error asks for.
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


class _Verdict(Struct, frozen=True):
    category: Category
    retry_after_ms: Millis | None = None
    explicit: bool = False


_TRANSIENT: Final = _Verdict(Category.TRANSIENT)
_PERMANENT: Final = _Verdict(Category.PERMANENT)

_Rule: TypeAlias = _Verdict | Callable[[BaseException], _Verdict | None]
"""A verdict, or a function of the exception; None: its causes decide."""


def failure_of(exc: BaseException, *, stack: str = "", now_ms: Millis | None = None) -> Failure:
    """Reduce an exception to a `Failure`.

    `stack` is its traceback as text; `now_ms` (milliseconds since the epoch) turns a Retry-After date into a delay. A
    group with one exception in it is that exception. Never raises.
    """
    try:
        leaves = list(_leaves(exc))
        kind, moved_to = _kind(leaves)
        verdict = _judge(exc, now_ms)
    except Exception:
        # A broken exception (a property that raises, groups nested without end) must not cost the job.
        leaves, kind, moved_to, verdict = [exc], FailureKind.ERROR, "", _PERMANENT
    shown = leaves[0] if len(leaves) == 1 else exc
    if kind is FailureKind.UNRECOVERABLE:
        verdict = _Verdict(Category.PERMANENT, explicit=True)
    return Failure(
        kind=kind,
        name=type(shown).__name__,
        message=_clean(_message(shown)),
        stack=_clean(stack),
        category=verdict.category,
        moved_to=moved_to,
        retry_after_ms=verdict.retry_after_ms,
        explicit=verdict.explicit,
    )


def _leaves(exc: BaseException) -> Iterator[BaseException]:
    members = _members(exc)
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


def _kind(leaves: list[BaseException]) -> tuple[FailureKind, str]:
    kinds = {_kind_of(leaf) for leaf in leaves}
    if len(kinds) == 1:
        return kinds.pop()
    unrecoverable = (FailureKind.UNRECOVERABLE, "")
    return unrecoverable if unrecoverable in kinds else (FailureKind.ERROR, "")


def _kind_of(exc: BaseException) -> tuple[FailureKind, str]:
    # The rate limit is known by its message alone, the others by class or by the name of the class.
    if _text(exc) == RateLimitError.default_message:
        return FailureKind.RATE_LIMIT, ""
    name = type(exc).__name__
    for known, (kind, moved_to) in _MOVES.items():
        if name == known or isinstance(exc, kind):
            return FailureKind.MOVED, moved_to
    if name == "UnrecoverableError" or isinstance(exc, UnrecoverableError):
        return FailureKind.UNRECOVERABLE, ""
    if any(_key(base) in _CANCELLATIONS for base in type(exc).__mro__):
        return FailureKind.CANCELLED, ""
    return FailureKind.ERROR, ""


def _text(exc: BaseException) -> str:
    try:
        return str(exc)
    except Exception:
        return ""


def _message(exc: BaseException) -> str:
    text = _text(exc) or type(exc).__name__
    if "CROSSSLOT" in text or "CrossSlot" in type(exc).__name__:
        text = f"{text} (a Redis Cluster needs all keys of a command in one slot: use a hash tag such as {{queue}})"
    return text


def _clean(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


# --- transient or permanent -----------------------------------------------------------------------------------------


def categorise(exc: BaseException, *, now_ms: Millis | None = None) -> Category:
    """Say whether a retry can help: the handler's own word first, then type, content, causes; else PERMANENT."""
    return _judge(exc, now_ms).category


def _judge(exc: BaseException, now_ms: Millis | None) -> _Verdict:
    return _said(exc) or _find(exc, now_ms, set()) or _PERMANENT


def _said(exc: BaseException) -> _Verdict | None:
    """Return the handler's own word: the outermost; among equals in a group PERMANENT wins."""
    seen: set[int] = set()
    level: list[BaseException] = [exc]
    while level:
        transient: TransientError | None = None
        for link in level:
            seen.add(id(link))
            if isinstance(link, PermanentError):
                return _Verdict(Category.PERMANENT, explicit=True)
            if isinstance(link, TransientError):
                transient = transient or link
        if transient is not None:
            return _Verdict(Category.TRANSIENT, retry_after_ms=transient.retry_after_ms, explicit=True)
        level = [inner for link in level for inner in (*_members(link), *_causes(link)) if id(inner) not in seen]
    return None


def _find(exc: BaseException, now_ms: Millis | None, seen: set[int]) -> _Verdict | None:
    """Judge the exception, then what it was raised from, outermost first; each once, since causes may go in circles."""
    waiting: list[BaseException] = [exc]
    while waiting:
        link = waiting.pop(0)
        if id(link) in seen:
            continue
        seen.add(id(link))
        members = _members(link)
        verdict = _by_members(members, now_ms, seen) if members else _by_itself(link, now_ms)
        if verdict is not None:
            return verdict
        waiting.extend(_causes(link))
    return None


def _members(exc: BaseException) -> tuple[BaseException, ...]:
    return cast("BaseExceptionGroup[BaseException]", exc).exceptions if isinstance(exc, BaseExceptionGroup) else ()


def _causes(exc: BaseException) -> list[BaseException]:
    cause = exc.__cause__
    if cause is None and not exc.__suppress_context__:
        cause = exc.__context__
    # SQLAlchemy keeps the driver's exception in `orig`, urllib and urllib3 theirs in `reason`.
    found = (_attribute(exc, "orig"), _attribute(exc, "reason"), cause)
    return [inner for inner in found if isinstance(inner, BaseException)]


def _by_members(members: tuple[BaseException, ...], now_ms: Millis | None, seen: set[int]) -> _Verdict:
    # One error that a retry cannot help makes the whole group such.
    verdicts = [_find(inner, now_ms, seen) or _PERMANENT for inner in members]
    if any(verdict.category is Category.PERMANENT for verdict in verdicts):
        return _PERMANENT
    waits = [verdict.retry_after_ms for verdict in verdicts if verdict.retry_after_ms is not None]
    return _Verdict(Category.TRANSIENT, retry_after_ms=max(waits, default=None))


def _by_itself(exc: BaseException, now_ms: Millis | None) -> _Verdict | None:
    for kind in type(exc).__mro__:
        rule = _RULES.get(_key(kind))
        if isinstance(rule, _Verdict):
            return rule
        if rule is not None:
            return rule(exc)
    return _by_status(exc, now_ms) or _by_sqlstate(exc) or _by_errno(exc)


def _key(kind: type) -> str:
    package = kind.__module__.partition(".")[0]
    # valkey-py names its exceptions as redis-py does.
    return f"{'redis' if package == 'valkey' else package}.{kind.__name__}"


def _attribute(exc: object, name: str) -> Any:
    try:
        return getattr(exc, name, None)
    except Exception:
        return None


# HTTP


def _by_status(exc: BaseException, now_ms: Millis | None) -> _Verdict | None:
    response = _attribute(exc, "response")
    for holder, name in (
        (response, "status_code"),
        (response, "status"),
        (exc, "status"),
        (exc, "status_code"),
        (exc, "code"),
    ):
        status = _attribute(holder, name)
        if isinstance(status, int) and 400 <= status <= 599:
            if status < 500 and status not in (408, 425, 429):
                return _PERMANENT
            headers = _attribute(response, "headers") or _attribute(exc, "headers")
            return _Verdict(Category.TRANSIENT, retry_after_ms=_retry_after(headers, now_ms))
    return None


_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_HTTP_DATE: Final = re.compile(
    rf"[A-Z][a-z]{{2}}, (\d\d) ({'|'.join(_MONTHS)}) (\d{{4}}) (\d\d):(\d\d):(\d\d) GMT", re.ASCII
)


def _retry_after(headers: Any, now_ms: Millis | None) -> Millis | None:
    value: Any = None
    for name in ("Retry-After", "retry-after"):
        try:
            value = headers.get(name)
        except Exception:
            return None
        if value is not None:
            break
    text = str(value).strip()
    if text.isascii() and text.isdigit():
        # No more digits than the scripts could hold as milliseconds.
        return int(text[:12]) * 1000
    match = _HTTP_DATE.fullmatch(text)
    if match is None or now_ms is None:
        return None
    day, month, year, hour, minute, second = match.groups()
    try:
        moment = datetime(
            int(year), _MONTHS.index(month) + 1, int(day), int(hour), int(minute), int(second), tzinfo=UTC
        )
    except ValueError:
        return None
    return max(round(moment.timestamp() * 1000) - now_ms, 0)


# errno

_TRANSIENT_ERRNO: Final = frozenset(
    (
        errno.ECONNRESET,
        errno.ECONNREFUSED,
        errno.ECONNABORTED,
        errno.ETIMEDOUT,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.EPIPE,
        errno.EAGAIN,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOSPC,
        errno.ENOMEM,
        errno.EDQUOT,
    )
)


def _by_errno(exc: BaseException) -> _Verdict | None:
    if isinstance(exc, OSError) and exc.errno is not None:
        return _TRANSIENT if exc.errno in _TRANSIENT_ERRNO else _PERMANENT
    return None


# databases

_SQLSTATE: Final = re.compile(r"[0-9A-Z]{5}")
_TRANSIENT_SQLSTATE_CLASSES: Final = frozenset(("08", "40", "53", "57"))


def _by_sqlstate(exc: BaseException) -> _Verdict | None:
    for name in ("sqlstate", "pgcode"):
        state = _attribute(exc, name)
        if isinstance(state, str) and _SQLSTATE.fullmatch(state):
            return _TRANSIENT if state[:2] in _TRANSIENT_SQLSTATE_CLASSES else _PERMANENT
    return None


def _postgres_operational(exc: BaseException) -> _Verdict | None:
    # Without an SQLSTATE it comes from the client: the connection.
    return _by_sqlstate(exc) or _TRANSIENT


_TRANSIENT_SQLITE: Final = frozenset((5, 6))  # SQLITE_BUSY, SQLITE_LOCKED


def _sqlite_operational(exc: BaseException) -> _Verdict | None:
    code = _attribute(exc, "sqlite_errorcode")
    return _TRANSIENT if isinstance(code, int) and code & 0xFF in _TRANSIENT_SQLITE else _PERMANENT


def _sqlalchemy(exc: BaseException) -> _Verdict | None:
    if _attribute(exc, "connection_invalidated") is True:
        return _TRANSIENT
    return None  # the driver's own exception decides


_TRANSIENT_MONGO_LABELS: Final = (
    "TransientTransactionError",
    "UnknownTransactionCommitResult",
    "RetryableWriteError",
    "ResumableChangeStreamError",
    "RetryableError",
    "SystemOverloadedError",
)


def _pymongo(exc: BaseException) -> _Verdict | None:
    if _attribute(exc, "timeout") is True:
        return _TRANSIENT
    has_label = _attribute(exc, "has_error_label")
    return _TRANSIENT if any(has_label(label) for label in _TRANSIENT_MONGO_LABELS) else _PERMANENT


# Redis

_TRANSIENT_REDIS: Final = frozenset(
    (
        "LOADING",
        "READONLY",
        "TRYAGAIN",
        "CLUSTERDOWN",
        "MASTERDOWN",
        "OOM",
        "BUSY",
        "EXECABORT",
        "MISCONF",
        "NOREPLICAS",
    )
)


def is_transient_code(code: str) -> bool:
    """Tell whether an error reply with this first word is worth a repeat: loading, read-only, out of memory."""
    return code in _TRANSIENT_REDIS


def _redis_text(exc: BaseException) -> _Verdict | None:
    return _TRANSIENT if _text(exc).partition(" ")[0] in _TRANSIENT_REDIS else _PERMANENT


def _server_error(exc: BaseException) -> _Verdict | None:
    return _TRANSIENT if isinstance(exc, ServerError) and exc.code in _TRANSIENT_REDIS else _PERMANENT


def _undecided(exc: BaseException) -> _Verdict | None:
    return None


_CANCELLATIONS: Final = frozenset(("asyncio.CancelledError", "trio.Cancelled"))

_RULES: Final[Mapping[str, _Rule]] = MappingProxyType(
    {
        # ours
        f"bullmq_protocol.{TransportError.__name__}": _TRANSIENT,
        f"bullmq_protocol.{ServerError.__name__}": _server_error,
        # the standard library
        "builtins.ConnectionError": _TRANSIENT,
        "builtins.TimeoutError": _TRANSIENT,
        "builtins.EOFError": _TRANSIENT,
        "builtins.MemoryError": _TRANSIENT,
        "builtins.ValueError": _PERMANENT,
        "builtins.TypeError": _PERMANENT,
        "builtins.LookupError": _PERMANENT,
        "builtins.AttributeError": _PERMANENT,
        "builtins.NotImplementedError": _PERMANENT,
        "builtins.PermissionError": _PERMANENT,
        "builtins.FileNotFoundError": _PERMANENT,
        "socket.gaierror": _TRANSIENT,
        "ssl.SSLCertVerificationError": _PERMANENT,
        "ssl.SSLEOFError": _TRANSIENT,
        "ssl.SSLZeroReturnError": _TRANSIENT,
        "ssl.SSLSyscallError": _TRANSIENT,
        "ssl.SSLWantReadError": _TRANSIENT,
        "ssl.SSLWantWriteError": _TRANSIENT,
        "http.IncompleteRead": _TRANSIENT,
        "asyncio.CancelledError": _TRANSIENT,
        "concurrent.CancelledError": _TRANSIENT,
        "sqlite3.OperationalError": _sqlite_operational,
        "sqlite3.IntegrityError": _PERMANENT,
        # msgspec's and pydantic's validation errors, and json's, are ValueErrors
        # event loops
        "trio.Cancelled": _TRANSIENT,
        "trio.TooSlowError": _TRANSIENT,
        "trio.BrokenResourceError": _TRANSIENT,
        "trio.ClosedResourceError": _TRANSIENT,
        "anyio.BrokenResourceError": _TRANSIENT,
        "anyio.ClosedResourceError": _TRANSIENT,
        "anyio.EndOfStream": _TRANSIENT,
        "anyio.IncompleteRead": _TRANSIENT,
        "anyio.ConnectionFailed": _TRANSIENT,
        # Redis clients
        "redis.AuthenticationError": _PERMANENT,
        "redis.AuthorizationError": _PERMANENT,
        "redis.NoPermissionError": _PERMANENT,
        "redis.ConnectionError": _TRANSIENT,
        "redis.TimeoutError": _TRANSIENT,
        "redis.BusyLoadingError": _TRANSIENT,
        "redis.ReadOnlyError": _TRANSIENT,
        "redis.TryAgainError": _TRANSIENT,
        "redis.ClusterDownError": _TRANSIENT,
        "redis.MasterDownError": _TRANSIENT,
        "redis.OutOfMemoryError": _TRANSIENT,
        "redis.ExecAbortError": _TRANSIENT,
        "redis.WatchError": _TRANSIENT,
        "redis.ClusterCrossSlotError": _PERMANENT,
        "redis.ResponseError": _redis_text,
        # HTTP clients
        "httpx.UnsupportedProtocol": _PERMANENT,
        "httpx.LocalProtocolError": _PERMANENT,
        "httpx.TransportError": _TRANSIENT,
        "httpcore.UnsupportedProtocol": _PERMANENT,
        "httpcore.TimeoutException": _TRANSIENT,
        "httpcore.NetworkError": _TRANSIENT,
        "httpcore.RemoteProtocolError": _TRANSIENT,
        "requests.SSLError": _undecided,
        "requests.ConnectionError": _TRANSIENT,
        "requests.Timeout": _TRANSIENT,
        "requests.ChunkedEncodingError": _TRANSIENT,
        "requests.RetryError": _TRANSIENT,
        "urllib3.SSLError": _undecided,
        "urllib3.MaxRetryError": _undecided,
        "urllib3.TimeoutError": _TRANSIENT,
        "urllib3.NewConnectionError": _TRANSIENT,
        "urllib3.ProtocolError": _TRANSIENT,
        "aiohttp.ClientConnectorCertificateError": _PERMANENT,
        "aiohttp.ClientSSLError": _undecided,
        "aiohttp.ClientConnectionError": _TRANSIENT,
        "aiohttp.ClientPayloadError": _TRANSIENT,
        # databases and brokers
        "psycopg.OperationalError": _postgres_operational,
        "psycopg2.OperationalError": _postgres_operational,
        "psycopg_pool.PoolTimeout": _TRANSIENT,
        "psycopg_pool.TooManyRequests": _TRANSIENT,
        "sqlalchemy.TimeoutError": _TRANSIENT,
        "sqlalchemy.IntegrityError": _PERMANENT,
        "sqlalchemy.DBAPIError": _sqlalchemy,
        "pymongo.ConnectionFailure": _TRANSIENT,
        "pymongo.PyMongoError": _pymongo,
        "pika.AMQPConnectionError": _TRANSIENT,
    }
)


# --- from failure to decision ---------------------------------------------------------------------------------------


def decide(
    job: JobRecord,
    failure: Failure,
    *,
    policy: RetryPolicy = RetryPolicy.BULLMQ,
    roll: float,
    max_backoff_delay_ms: Millis | None = DEFAULT_MAX_BACKOFF_DELAY_MS,
    extra_jitter: float | None = None,
    strategy_delay_ms: float | None = None,
    discarded: bool = False,
) -> Retry | Fail:
    """Decide what becomes of a job whose handler raised an ordinary error.

    `roll` in [0, 1) is the dice for jitter. `strategy_delay_ms` is the answer of the user's backoff strategy for a
    custom type (-1: fail; 0 or not-a-number: retry at once; None: there is no strategy). The delay that the error asks
    for replaces the backoff where the policy looks at it, or where the handler set it. The cap is applied last.

    Source: specs/05-worker-runtime.md#sec-9-1
    """
    reason = failure.message or ""
    looks = policy is RetryPolicy.CATEGORISING or failure.explicit
    if failure.kind is FailureKind.UNRECOVERABLE or discarded or (looks and failure.category is Category.PERMANENT):
        return Fail(reason, permanent=True, exhausted=_is_exhausted(job))
    if _is_exhausted(job):
        return Fail(reason, permanent=False, exhausted=True)
    if looks and failure.retry_after_ms is not None:
        asked = failure.retry_after_ms
        return Retry(limit_delay(asked, roll=roll, max_delay_ms=max_backoff_delay_ms, extra_jitter=None))
    custom = custom_type(job.opts.backoff)
    if custom is None:
        delay = backoff_delay(
            job.opts.backoff,
            job.attempts_made + 1,
            roll=roll,
            max_delay_ms=max_backoff_delay_ms,
            extra_jitter=extra_jitter,
        )
        return Retry(delay or 0.0)
    if strategy_delay_ms is None:
        return Fail(str(UnknownBackoff(custom)), permanent=True, exhausted=False)
    if strategy_delay_ms == -1:
        return Fail(reason, permanent=True, exhausted=False)
    if not strategy_delay_ms or math.isnan(strategy_delay_ms):
        return Retry(0.0)
    return Retry(
        limit_delay(strategy_delay_ms, roll=roll, max_delay_ms=max_backoff_delay_ms, extra_jitter=extra_jitter)
    )


def _is_exhausted(job: JobRecord) -> bool:
    return job.attempts_made + 1 >= job.attempts


def stacktrace_json(old: str | None, stack: str, limit: float | None = None) -> str:
    """Return the JSON of a job's stack traces with one more, oldest first.

    `limit` is the job's `stack_trace_limit`.

    Source: specs/05-worker-runtime.md#sec-10-2
    """
    rows: list[Any] = []
    if old:
        try:
            rows = parse_json(old, list[Any])
        except msgspec.DecodeError:
            rows = []
    if stack:
        rows.append(_clean(stack))
    if limit is not None:
        # A negative limit drops that many of the oldest.
        rows = [] if limit == 0 else rows[-int(limit) :]
    return json_text(rows, field="stacktrace")
