"""Whether a retry can help after an exception: its category, by type, then by content, then by its causes.

Types are recognised by the name of their package and class, so no library is imported for it. `tools/errors.py` writes
docs/errors.md from these rules.

Source: requirements, "Errors"
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

from msgspec import Struct

from bullmq_protocol.common.codec import plain_text
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import PermanentError, ServerError, TransientError, TransportError
from bullmq_protocol.lazy import lazy_pattern


class Category(Enum):
    """Whether a retry can help."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"


class Verdict(Struct, frozen=True):
    """The verdict on an exception. `explicit`: the handler itself said so."""

    category: Category
    retry_after_ms: Millis | None = None
    explicit: bool = False


class ByContent(Struct, frozen=True):
    """A rule that looks into the exception. `judge` takes it and the time; its None leaves the verdict to the causes.

    `says` is the rule in words, for the table in docs/errors.md.
    """

    judge: Callable[[BaseException, Millis | None], Verdict | None]
    says: str


Rule: TypeAlias = Verdict | ByContent

_TRANSIENT: Final = Verdict(Category.TRANSIENT)
_PERMANENT: Final = Verdict(Category.PERMANENT)


def categorise(exc: BaseException, *, now_ms: Millis | None = None) -> Category:
    """Say whether a retry can help: the handler's own word first, then type, content, causes; else PERMANENT."""
    return judge(exc, now_ms).category


def judge(exc: BaseException, now_ms: Millis | None) -> Verdict:
    """Return the verdict on an exception. Raises what a broken exception raises when it is looked at.

    `now_ms` (milliseconds since the epoch) turns a Retry-After date into a delay; None leaves such a date out.
    """
    return _explicit(exc) or _find(exc, now_ms, set()) or _PERMANENT


def _explicit(exc: BaseException) -> Verdict | None:
    """Return the handler's own word: the outermost; among equals in a group PERMANENT wins."""
    seen: set[int] = set()
    level: list[BaseException] = [exc]
    while level:
        transient: TransientError | None = None
        for link in level:
            seen.add(id(link))
            if isinstance(link, PermanentError):
                return Verdict(Category.PERMANENT, explicit=True)
            if isinstance(link, TransientError):
                transient = transient or link
        if transient is not None:
            return Verdict(Category.TRANSIENT, retry_after_ms=transient.retry_after_ms, explicit=True)
        level = [inner for link in level for inner in (*members_of(link), *_causes(link)) if id(inner) not in seen]
    return None


def _find(exc: BaseException, now_ms: Millis | None, seen: set[int]) -> Verdict | None:
    """Judge the exception, then its causes, outermost first; each once, since causes may form a cycle."""
    waiting: list[BaseException] = [exc]
    while waiting:
        link = waiting.pop(0)
        if id(link) in seen:
            continue
        seen.add(id(link))
        members = members_of(link)
        verdict = _by_members(members, now_ms, seen) if members else _by_itself(link, now_ms)
        if verdict is not None:
            return verdict
        waiting.extend(_causes(link))
    return None


def members_of(exc: BaseException) -> tuple[BaseException, ...]:
    """Return the exceptions in a group, none of any other."""
    return cast("BaseExceptionGroup[BaseException]", exc).exceptions if isinstance(exc, BaseExceptionGroup) else ()


def _causes(exc: BaseException) -> list[BaseException]:
    cause = exc.__cause__
    if cause is None and not exc.__suppress_context__:
        cause = exc.__context__
    # SQLAlchemy keeps the driver's exception in `orig`, urllib and urllib3 theirs in `reason`.
    found = (_attribute(exc, "orig"), _attribute(exc, "reason"), cause)
    return [inner for inner in found if isinstance(inner, BaseException)]


def _by_members(members: tuple[BaseException, ...], now_ms: Millis | None, seen: set[int]) -> Verdict:
    # One error that a retry cannot help makes the whole group such.
    verdicts = [_find(inner, now_ms, seen) or _PERMANENT for inner in members]
    if any(verdict.category is Category.PERMANENT for verdict in verdicts):
        return _PERMANENT
    waits = [verdict.retry_after_ms for verdict in verdicts if verdict.retry_after_ms is not None]
    return Verdict(Category.TRANSIENT, retry_after_ms=max(waits, default=None))


def _by_itself(exc: BaseException, now_ms: Millis | None) -> Verdict | None:
    for kind in type(exc).__mro__:
        rule = _RULES.get(rule_key(kind))
        if rule is not None:
            return rule if isinstance(rule, Verdict) else rule.judge(exc, now_ms)
    return _by_status(exc, now_ms) or _by_sqlstate(exc) or _by_errno(exc)


NAMESAKES: Final[Mapping[str, str]] = MappingProxyType({"valkey": "redis", "MySQLdb": "pymysql", "asyncmy": "pymysql"})
"""Packages whose exceptions have the names, and the content, of another's."""


def rule_key(kind: type) -> str:
    """Return the name under which a class is looked up in `RULES`: its package and its own name."""
    package = kind.__module__.partition(".")[0]
    return f"{NAMESAKES.get(package, package)}.{kind.__name__}"


def _attribute(exc: object, name: str) -> Any:
    try:
        return getattr(exc, name, None)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


# HTTP


def _by_status(exc: BaseException, now_ms: Millis | None) -> Verdict | None:
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
            return _of_status(status, _attribute(response, "headers") or _attribute(exc, "headers"), now_ms)
    return None


TRANSIENT_STATUS: Final = (408, 425, 429)
"""HTTP status codes below 500 that a retry can help; from 500 on it can always."""


def _of_status(status: int, headers: Any, now_ms: Millis | None) -> Verdict:
    if status < 500 and status not in TRANSIENT_STATUS:
        return _PERMANENT
    return Verdict(Category.TRANSIENT, retry_after_ms=_retry_after(headers, now_ms))


_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_HTTP_DATE: Final = lazy_pattern(
    rf"[A-Z][a-z]{{2}}, (\d\d) ({'|'.join(_MONTHS)}) (\d{{4}}) (\d\d):(\d\d):(\d\d) GMT", re.ASCII
)


def _retry_after(headers: Any, now_ms: Millis | None) -> Millis | None:
    value: Any = None
    for name in ("Retry-After", "retry-after"):
        try:
            value = headers.get(name)
        except KeyboardInterrupt:
            raise
        except BaseException:
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

TRANSIENT_ERRNO: Final = frozenset(
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


def _by_errno(exc: BaseException) -> Verdict | None:
    if isinstance(exc, OSError) and exc.errno is not None:
        return _TRANSIENT if exc.errno in TRANSIENT_ERRNO else _PERMANENT
    return None


# databases

_SQLSTATE: Final = lazy_pattern(r"[0-9A-Z]{5}")
TRANSIENT_SQLSTATE_CLASSES: Final = frozenset(("08", "40", "53", "57"))


def text_of(exc: BaseException) -> str:
    """Return what the exception says; "" where it cannot."""
    try:
        return plain_text(str(exc))
    except KeyboardInterrupt:
        raise
    except BaseException:
        return ""


def repr_of(exc: BaseException) -> str:
    """Return how the exception shows itself; where it cannot, the name of its class."""
    try:
        return plain_text(repr(exc))
    except KeyboardInterrupt:
        raise
    except BaseException:
        return name_of(exc)


def is_one(exc: BaseException, kind: type[BaseException]) -> bool:
    """Tell whether it is one of a class, without a question to the exception: it may raise for its `__class__`."""
    return issubclass(type(exc), kind)


_class_name: Callable[[type], str] = type.__dict__["__name__"].__get__


def name_of(exc: BaseException) -> str:
    """Return the name of its class, whatever the class of that one makes of such a question."""
    return plain_text(_class_name(type(exc)))


def _by_sqlstate(exc: BaseException) -> Verdict | None:
    for name in ("sqlstate", "pgcode"):
        state = _attribute(exc, name)
        if isinstance(state, str) and _SQLSTATE.fullmatch(state):
            return _TRANSIENT if state[:2] in TRANSIENT_SQLSTATE_CLASSES else _PERMANENT
    return None


def _postgres_operational(exc: BaseException, now_ms: Millis | None) -> Verdict | None:
    # Without an SQLSTATE it comes from the client: the connection.
    return _by_sqlstate(exc) or _TRANSIENT


_TRANSIENT_SQLITE: Final = frozenset((5, 6))  # SQLITE_BUSY, SQLITE_LOCKED


def _sqlite_operational(exc: BaseException, now_ms: Millis | None) -> Verdict | None:
    code = _attribute(exc, "sqlite_errorcode")
    return _TRANSIENT if isinstance(code, int) and code & 0xFF in _TRANSIENT_SQLITE else _PERMANENT


def _sqlalchemy(exc: BaseException, now_ms: Millis | None) -> Verdict | None:
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


def _pymongo(exc: BaseException, now_ms: Millis | None) -> Verdict | None:
    if _attribute(exc, "timeout") is True:
        return _TRANSIENT
    has_label = _attribute(exc, "has_error_label")
    return _TRANSIENT if any(has_label(label) for label in _TRANSIENT_MONGO_LABELS) else _PERMANENT


def _asyncpg_interface(exc: BaseException, now_ms: Millis | None) -> Verdict | None:
    return _TRANSIENT if "connection is closed" in text_of(exc) else _PERMANENT


_TRANSIENT_MYSQL: Final = frozenset(
    (
        *(1021, 1037, 1041),  # the disk is full, no memory
        *(1040, 1203, 1226),  # too many connections: of the server, of this user, in this hour
        *(1053, 1080, 1927),  # the server is being shut down, the connection was killed
        *(1158, 1159, 1160, 1161),  # the network, as the server saw it
        *(1205, 1213, 1614, 3572),  # lock wait time-out, deadlock, in an XA transaction, NOWAIT
        3024,  # the statement ran for too long
        *(2002, 2003, 2005, 2006, 2013, 2055, 4031),  # no connection, server gone, lost, closed as idle
    )
)


def _mysql(exc: BaseException, now_ms: Millis | None) -> Verdict | None:
    code = exc.args[0] if exc.args else None
    return _TRANSIENT if isinstance(code, int) and code in _TRANSIENT_MYSQL else _PERMANENT


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


def _redis_text(exc: BaseException, now_ms: Millis | None) -> Verdict | None:
    return _TRANSIENT if text_of(exc).partition(" ")[0] in _TRANSIENT_REDIS else _PERMANENT


def _server_error(exc: BaseException, now_ms: Millis | None) -> Verdict | None:
    return _TRANSIENT if isinstance(exc, ServerError) and exc.code in _TRANSIENT_REDIS else _PERMANENT


def _undecided(exc: BaseException, now_ms: Millis | None) -> Verdict | None:
    return None


# AWS

_TRANSIENT_AWS: Final = frozenset(
    (
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "InternalError",
        "InternalFailure",
        "PriorRequestNotComplete",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "TransactionInProgressException",
    )
)


def _aws(exc: BaseException, now_ms: Millis | None) -> Verdict | None:
    # Here `response` is a dict.
    response = _mapping(_attribute(exc, "response"))
    metadata = _mapping(response.get("ResponseMetadata"))
    headers, status = _mapping(metadata.get("HTTPHeaders")), metadata.get("HTTPStatusCode")
    if _mapping(response.get("Error")).get("Code") in _TRANSIENT_AWS:
        return Verdict(Category.TRANSIENT, retry_after_ms=_retry_after(headers, now_ms))
    return _of_status(status, headers, now_ms) if isinstance(status, int) else _PERMANENT


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


# mail


def _smtp(exc: BaseException, now_ms: Millis | None) -> Verdict | None:
    code = _attribute(exc, "smtp_code")  # smtplib's name; aiosmtplib has `code`
    return _of_reply_code(_attribute(exc, "code") if code is None else code)


def _of_reply_code(code: Any) -> Verdict:
    # -1 is smtplib's code for a server that hung up without a greeting.
    return _TRANSIENT if isinstance(code, int) and (400 <= code <= 499 or code == -1) else _PERMANENT


def _smtp_recipients(exc: BaseException, now_ms: Millis | None) -> Verdict | None:
    recipients = _attribute(exc, "recipients")
    if isinstance(recipients, Mapping):  # smtplib: the address and (code, text)
        codes = [reply[0] for reply in cast("Mapping[str, Any]", recipients).values()]
    else:  # aiosmtplib: an exception for each
        codes = [_attribute(refused, "code") for refused in recipients]
    return _TRANSIENT if all(_of_reply_code(code) is _TRANSIENT for code in codes) else _PERMANENT


# Kafka


def _kafka(exc: BaseException, now_ms: Millis | None) -> Verdict | None:
    return _TRANSIENT if _attribute(exc, "retriable") is True else _PERMANENT


_TRANSIENT_RDKAFKA: Final[Mapping[str, int]] = MappingProxyType(
    {
        "_TRANSPORT": -195,
        "_RESOLVE": -193,
        "_MSG_TIMED_OUT": -192,
        "_ALL_BROKERS_DOWN": -187,
        "_TIMED_OUT": -185,
        "_QUEUE_FULL": -184,
        "_TIMED_OUT_QUEUE": -166,
        "UNKNOWN_TOPIC_OR_PART": 3,
        "LEADER_NOT_AVAILABLE": 5,
        "NOT_LEADER_FOR_PARTITION": 6,
        "REQUEST_TIMED_OUT": 7,
        "BROKER_NOT_AVAILABLE": 8,
        "REPLICA_NOT_AVAILABLE": 9,
        "NETWORK_EXCEPTION": 13,
        "COORDINATOR_LOAD_IN_PROGRESS": 14,
        "COORDINATOR_NOT_AVAILABLE": 15,
        "NOT_COORDINATOR": 16,
        "NOT_ENOUGH_REPLICAS": 19,
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND": 20,
    }
)


def _rdkafka(exc: BaseException, now_ms: Millis | None) -> Verdict | None:
    error = exc.args[0] if exc.args else None
    code, retriable = _called(error, "code"), _called(error, "retriable")
    return _TRANSIENT if retriable is True or code in _TRANSIENT_RDKAFKA.values() else _PERMANENT


def _called(holder: object, name: str) -> Any:
    method = _attribute(holder, name)
    return method() if callable(method) else None


# the rules


def _any(words: Iterable[object]) -> str:
    return ", ".join(f"`{word}`" for word in words)


_UNDECIDED: Final = ByContent(_undecided, "what it was raised from decides")
_SMTP: Final = ByContent(_smtp, "transient with a reply code of 400 to 499, else permanent")
_KAFKA: Final = ByContent(_kafka, "transient if it is `retriable` by its own word, else permanent")
_POSTGRES: Final = ByContent(_postgres_operational, "by its SQLSTATE; without one (the connection) transient")

RULE_GROUPS: Final[Mapping[str, Mapping[str, Rule]]] = MappingProxyType(
    {
        "This library": {
            f"bullmq_protocol.{TransportError.__name__}": _TRANSIENT,
            f"bullmq_protocol.{ServerError.__name__}": ByContent(
                _server_error, f"transient with {_any(sorted(_TRANSIENT_REDIS))}, else permanent"
            ),
        },
        "The standard library": {
            "builtins.ConnectionError": _TRANSIENT,
            "builtins.TimeoutError": _TRANSIENT,
            "builtins.EOFError": _TRANSIENT,
            "builtins.MemoryError": _TRANSIENT,
            # The validation errors of msgspec and pydantic, and that of json, are ValueErrors.
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
            "sqlite3.OperationalError": ByContent(
                _sqlite_operational, "transient with `SQLITE_BUSY`, `SQLITE_LOCKED`, else permanent"
            ),
            "sqlite3.IntegrityError": _PERMANENT,
        },
        "Event loops": {
            "trio.Cancelled": _TRANSIENT,
            "trio.TooSlowError": _TRANSIENT,
            "trio.BrokenResourceError": _TRANSIENT,
            "trio.ClosedResourceError": _TRANSIENT,
            "anyio.BrokenResourceError": _TRANSIENT,
            "anyio.ClosedResourceError": _TRANSIENT,
            "anyio.EndOfStream": _TRANSIENT,
            "anyio.IncompleteRead": _TRANSIENT,
            "anyio.ConnectionFailed": _TRANSIENT,
        },
        "Redis clients": {
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
            "redis.ResponseError": ByContent(_redis_text, "as `ServerError`, by the first word of its text"),
        },
        "HTTP clients": {
            "httpx.UnsupportedProtocol": _PERMANENT,
            "httpx.LocalProtocolError": _PERMANENT,
            "httpx.TransportError": _TRANSIENT,
            "httpcore.UnsupportedProtocol": _PERMANENT,
            "httpcore.TimeoutException": _TRANSIENT,
            "httpcore.NetworkError": _TRANSIENT,
            "httpcore.RemoteProtocolError": _TRANSIENT,
            "requests.SSLError": _UNDECIDED,
            "requests.ConnectionError": _TRANSIENT,
            "requests.Timeout": _TRANSIENT,
            "requests.ChunkedEncodingError": _TRANSIENT,
            "requests.RetryError": _TRANSIENT,
            "urllib3.SSLError": _UNDECIDED,
            "urllib3.MaxRetryError": _UNDECIDED,
            "urllib3.TimeoutError": _TRANSIENT,
            "urllib3.NewConnectionError": _TRANSIENT,
            "urllib3.ProtocolError": _TRANSIENT,
            "aiohttp.ClientConnectorCertificateError": _PERMANENT,
            "aiohttp.ClientSSLError": _UNDECIDED,
            "aiohttp.ClientConnectionError": _TRANSIENT,
            "aiohttp.ClientPayloadError": _TRANSIENT,
        },
        "AWS (botocore, boto3, aiobotocore)": {
            "botocore.ClientError": ByContent(
                _aws, f"transient with the code {_any(sorted(_TRANSIENT_AWS))}; else by its HTTP status"
            ),
            "botocore.SSLError": _UNDECIDED,
            "botocore.ConnectionError": _TRANSIENT,
            "botocore.ReadTimeoutError": _TRANSIENT,
            "botocore.ConnectionClosedError": _TRANSIENT,
            "botocore.ResponseStreamingError": _TRANSIENT,
            "botocore.IncompleteReadError": _TRANSIENT,
        },
        "Mail and files (smtplib, aiosmtplib, imaplib, ftplib)": {
            "smtplib.SMTPServerDisconnected": _TRANSIENT,
            "smtplib.SMTPResponseException": _SMTP,
            "smtplib.SMTPRecipientsRefused": ByContent(
                _smtp_recipients, "transient if each recipient's reply code is 400 to 499, else permanent"
            ),
            "aiosmtplib.SMTPResponseException": _SMTP,
            "aiosmtplib.SMTPRecipientsRefused": ByContent(_smtp_recipients, "the same"),
            "imaplib.abort": _TRANSIENT,
            "ftplib.error_temp": _TRANSIENT,
        },
        "PostgreSQL (psycopg, psycopg2, asyncpg)": {
            "psycopg.OperationalError": _POSTGRES,
            "psycopg2.OperationalError": _POSTGRES,
            "psycopg_pool.PoolTimeout": _TRANSIENT,
            "psycopg_pool.TooManyRequests": _TRANSIENT,
            "asyncpg.InterfaceError": ByContent(
                _asyncpg_interface, "transient if its text says that the connection is closed, else permanent"
            ),
        },
        "MySQL and MariaDB (PyMySQL, aiomysql, mysqlclient, asyncmy)": {
            "pymysql.InterfaceError": _TRANSIENT,
            "pymysql.MySQLError": ByContent(
                _mysql, f"transient with the error number {_any(sorted(_TRANSIENT_MYSQL))}, else permanent"
            ),
        },
        "SQLAlchemy": {
            "sqlalchemy.TimeoutError": _TRANSIENT,
            "sqlalchemy.IntegrityError": _PERMANENT,
            "sqlalchemy.DBAPIError": ByContent(
                _sqlalchemy, "transient if `connection_invalidated`, else the driver's own exception (`orig`) decides"
            ),
        },
        "MongoDB (pymongo)": {
            "pymongo.ConnectionFailure": _TRANSIENT,
            "pymongo.PyMongoError": ByContent(
                _pymongo,
                f"transient if it is a `timeout` or has the label {_any(_TRANSIENT_MONGO_LABELS)}, else permanent",
            ),
        },
        "Brokers (pika, aio-pika, kafka-python, aiokafka, confluent-kafka)": {
            "pika.AMQPConnectionError": _TRANSIENT,
            "kafka.KafkaError": _KAFKA,
            "aiokafka.KafkaTimeoutError": _TRANSIENT,
            "aiokafka.KafkaUnavailableError": _TRANSIENT,
            "aiokafka.KafkaError": _KAFKA,
            "cimpl.KafkaException": ByContent(
                _rdkafka,
                f"transient if it is `retriable` by its own word, or with {_any(_TRANSIENT_RDKAFKA)}, else permanent",
            ),
        },
    }
)
"""All rules, by the kind of library: what `docs/errors.md` shows."""

_RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {name: rule for rules in RULE_GROUPS.values() for name, rule in rules.items()}
)
