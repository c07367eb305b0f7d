"""Errors: kind, transient or permanent, and what becomes of the job. Exceptions are the real ones of each library."""

import asyncio
import concurrent.futures
import errno
import ftplib
import http.client
import imaplib
import io
import json
import math
import smtplib
import socket
import sqlite3
import ssl
import urllib.error
from collections.abc import Callable
from email.message import Message
from typing import Any

import aio_pika
import aiohttp
import aiokafka.errors
import aiomysql
import aiosmtplib
import anyio
import asyncpg
import botocore.exceptions
import confluent_kafka
import httpcore
import httpx
import kafka.errors
import msgspec
import pika.exceptions
import psycopg
import psycopg2
import psycopg_pool
import pydantic
import pymongo.errors
import pymysql
import pytest
import redis
import redis.exceptions
import requests
import sqlalchemy.exc
import trio
import urllib3.exceptions
import valkey.exceptions
from sqlalchemy.dialects.postgresql.asyncpg import AsyncAdapt_asyncpg_dbapi
from yarl import URL

from bullmq_protocol import errors
from bullmq_protocol.model.categories import (
    NAMESAKES,
    RULE_GROUPS,
    Category,
    categorise,
    is_one,
    is_transient_code,
    repr_of,
    rule_key,
)
from bullmq_protocol.model.failure import Fail, Failure, FailureKind, Retry, RetryPolicy, failure_of, stacktrace_json
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.observability.stack import StackTexts
from tests.support.decisions import decided
from tests.support.raising import raised
from tests.support.silent import NoAttributes, NoClass, OfSilent

TRANSIENT, PERMANENT = Category.TRANSIENT, Category.PERMANENT


def httpx_status(status: int, headers: dict[str, str] | None = None) -> BaseException:
    request = httpx.Request("GET", "http://host/")
    return raised(httpx.Response(status, headers=headers, request=request).raise_for_status)


def requests_status(status: int, headers: dict[str, str] | None = None) -> BaseException:
    response = requests.Response()
    response.status_code = status
    response.headers.update(headers or {})
    return raised(response.raise_for_status)


def aiohttp_status(status: int, headers: dict[str, str] | None = None) -> BaseException:
    url = URL("http://host/")
    info = aiohttp.RequestInfo(url, "GET", headers={}, real_url=url)  # type: ignore[arg-type]
    return aiohttp.ClientResponseError(info, (), status=status, headers=headers)  # type: ignore[arg-type]


def urllib_status(status: int, headers: dict[str, str] | None = None) -> BaseException:
    message = Message()
    for name, value in (headers or {}).items():
        message[name] = value
    return urllib.error.HTTPError("http://host/", status, "reason", message, io.BytesIO())


def sqlalchemy_error(kind: type[sqlalchemy.exc.DBAPIError], orig: BaseException, **more: Any) -> BaseException:
    return kind("SELECT 1", {}, orig, **more)


def mongo_error(*labels: str, **details: Any) -> BaseException:
    error = pymongo.errors.OperationFailure("no", **details)
    for label in labels:
        error._add_error_label(label)
    return error


def aws_error(status: int, code: str = "SomeCode", **headers: str) -> BaseException:
    metadata = {
        "HTTPStatusCode": status,
        "HTTPHeaders": {name.replace("_", "-"): text for name, text in headers.items()},
    }
    found = {"Error": {"Code": code, "Message": "text"}, "ResponseMetadata": metadata}
    return botocore.exceptions.ClientError(found, "PutObject")  # type: ignore[arg-type]


def kafka_error(code: int) -> BaseException:
    return confluent_kafka.KafkaException(confluent_kafka.KafkaError(code))


def mysql_error(code: int) -> BaseException:
    """What PyMySQL, and aiomysql through it, make of a server's error packet."""
    text = b"#HY000text"
    return raised(lambda: pymysql.err.raise_mysql_exception(b"\xff" + code.to_bytes(2, "little") + text))


def through_asyncpg_dialect(inner: BaseException) -> BaseException:
    """What SQLAlchemy raises on asyncpg: its dialect's own exception in between, the driver's as the cause."""
    between = AsyncAdapt_asyncpg_dbapi.InterfaceError(str(inner))
    between.__cause__ = inner
    return sqlalchemy_error(sqlalchemy.exc.InterfaceError, between)


def trio_cancelled() -> BaseException:
    async def main() -> BaseException:
        found: list[BaseException] = []
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as error:
                found.append(error)
                raise
        return found[0]

    return trio.run(main)


class Mail(pydantic.BaseModel):
    to: str


def sqlite_locked() -> BaseException:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return error


def caused(outer: BaseException, inner: BaseException) -> BaseException:
    outer.__cause__ = inner
    return outer


# One list per row of the table in requirements, left column then right.

NETWORK_IS_TRANSIENT = [
    ConnectionError("lost"),
    ConnectionResetError(errno.ECONNRESET, "reset"),
    ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
    ConnectionAbortedError(),
    BrokenPipeError(),
    TimeoutError(),
    EOFError(),
    asyncio.IncompleteReadError(b"", 5),
    socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
    anyio.BrokenResourceError(),
    anyio.ClosedResourceError(),
    anyio.EndOfStream(),
    anyio.IncompleteRead(),
    anyio.ConnectionFailed("none of the addresses answered"),
    http.client.IncompleteRead(b""),
    http.client.RemoteDisconnected("cut"),
    trio.BrokenResourceError(),
    trio.ClosedResourceError(),
    ssl.SSLEOFError(8, "EOF occurred in violation of protocol"),
    ssl.SSLZeroReturnError(6, "closed"),
    ssl.SSLSyscallError(5, "cut"),
    ssl.SSLWantReadError(2, "read"),
    ssl.SSLWantWriteError(3, "write"),
    *(
        OSError(code, "text")
        for code in (
            errno.ECONNRESET,
            errno.ECONNREFUSED,
            errno.ETIMEDOUT,
            errno.EHOSTUNREACH,
            errno.ENETUNREACH,
            errno.EPIPE,
            errno.EAGAIN,
        )
    ),
    httpx.ConnectError("refused"),
    httpx.ReadTimeout("late"),
    httpx.PoolTimeout("busy"),
    httpx.RemoteProtocolError("cut"),
    httpcore.ConnectError("refused"),
    httpcore.ReadTimeout("late"),
    httpcore.RemoteProtocolError("cut"),
    requests.ConnectionError("refused"),
    requests.Timeout("late"),
    requests.exceptions.ChunkedEncodingError("cut"),
    requests.exceptions.RetryError("too many 503 error responses"),
    urllib3.exceptions.NewConnectionError(None, "refused"),  # type: ignore[arg-type]
    urllib3.exceptions.ProtocolError("cut"),
    urllib3.exceptions.IncompleteRead(1, 2),
    urllib3.exceptions.MaxRetryError(None, "/", urllib3.exceptions.ConnectTimeoutError("late")),  # type: ignore[arg-type]
    urllib.error.URLError(ConnectionRefusedError(errno.ECONNREFUSED, "refused")),
    urllib.error.URLError(socket.gaierror(socket.EAI_AGAIN, "try again")),
    aiohttp.ClientOSError(errno.ECONNRESET, "reset"),
    aiohttp.ServerDisconnectedError(),
    aiohttp.ServerTimeoutError(),
    aiohttp.ClientPayloadError("cut"),
]

CODE_AND_DATA_ARE_PERMANENT = [
    ValueError("x"),
    TypeError("x"),
    KeyError("x"),
    IndexError("x"),
    LookupError("x"),
    AttributeError("x"),
    NotImplementedError(),
    PermissionError(errno.EACCES, "denied"),
    FileNotFoundError(errno.ENOENT, "missing"),
    raised(lambda: json.loads("{")),
    raised(lambda: b"\xff".decode()),
    raised(lambda: msgspec.json.decode("{")),
    raised(lambda: msgspec.json.decode('"x"', type=int)),
    raised(lambda: Mail.model_validate({"to": 5})),
    OSError(errno.EISDIR, "a directory"),
    OSError("no number"),
    ssl.SSLCertVerificationError("certificate verify failed"),
    urllib.error.URLError(ssl.SSLCertVerificationError("certificate verify failed")),
    urllib.error.URLError("unknown url type: gopher"),
    httpx.UnsupportedProtocol("gopher"),
    httpx.LocalProtocolError("bad header"),
    httpx.TooManyRedirects("loop"),
    httpcore.UnsupportedProtocol("gopher"),
    requests.exceptions.InvalidURL("x"),
    requests.exceptions.JSONDecodeError("x", "{", 0),
    requests.exceptions.SSLError("handshake failure"),
    urllib3.exceptions.SSLError("handshake failure"),
    aiohttp.InvalidURL("x"),
    aiohttp.ClientConnectorCertificateError(None, ssl.SSLCertVerificationError("no")),  # type: ignore[arg-type]
    aiohttp.ClientConnectorSSLError(None, ssl.SSLError(1, "handshake failure")),  # type: ignore[arg-type]
]

REDIS_IS_TRANSIENT = [
    redis.ConnectionError("lost"),
    redis.TimeoutError("late"),
    redis.BusyLoadingError("loading"),
    redis.ReadOnlyError("read only"),
    redis.exceptions.TryAgainError("try again"),
    redis.exceptions.ClusterDownError("down"),
    redis.exceptions.MasterDownError("down"),
    redis.OutOfMemoryError("full"),
    redis.exceptions.MaxConnectionsError("many"),
    redis.ResponseError("BUSY Redis is busy running a script"),
    redis.exceptions.ExecAbortError("Transaction discarded because of previous errors."),
    redis.WatchError("Watched variable changed."),
    valkey.exceptions.ConnectionError("lost"),
    errors.ConnectionLost("lost", maybe_applied=True),
    errors.TransportTimeout("late", maybe_applied=True),
    errors.Closed(),
    *(
        errors.ServerError(f"{code} text")
        for code in (
            "LOADING",
            "READONLY",
            "TRYAGAIN",
            "CLUSTERDOWN",
            "MASTERDOWN",
            "OOM",
            "BUSY",
            "EXECABORT",
            "MISCONF",
        )
    ),
]

REDIS_IS_PERMANENT = [
    redis.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"),
    redis.ResponseError("unknown command"),
    redis.AuthenticationError("invalid username-password pair"),
    redis.exceptions.AuthorizationError("no"),
    redis.exceptions.NoPermissionError("no"),
    redis.exceptions.ClusterCrossSlotError("Keys in request don't hash to the same slot"),
    redis.DataError("x"),
    *(
        errors.ServerError(f"{code} text")
        for code in ("WRONGTYPE", "NOAUTH", "WRONGPASS", "NOPERM", "CROSSSLOT", "ERR")
    ),
    errors.AuthenticationFailed("WRONGPASS no"),
    errors.JobNotFound("moveToFinished", job_id="1"),
    errors.UnexpectedReply("an integer", None),
]

STATUS = (httpx_status, requests_status, aiohttp_status, urllib_status)
HTTP_IS_TRANSIENT = [make(status) for make in STATUS for status in (408, 425, 429, 500, 502, 503, 504, 599)]
HTTP_IS_PERMANENT = [make(status) for make in STATUS for status in (400, 401, 403, 404, 409, 410, 422, 451)]

RESOURCES_ARE_TRANSIENT = [
    MemoryError(),
    *(OSError(code, "text") for code in (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOMEM, errno.EDQUOT)),
]

RULES_ARE_PERMANENT = [
    errors.PermanentError("no such customer"),
    errors.UnrecoverableError("no"),
    errors.UsageError("delay", -1, "must be at least 0"),
]

MYSQL_TRANSIENT = (
    *(1021, 1037, 1040, 1041, 1053, 1080, 1158, 1159, 1160, 1161, 1203, 1205, 1213, 1226, 1614, 1927),
    *(2002, 2003, 2005, 2006, 2013, 2055, 3024, 3572, 4031),
)

RDKAFKA_TRANSIENT = [
    getattr(confluent_kafka.KafkaError, name)
    for name in (
        *("_TRANSPORT", "_RESOLVE", "_MSG_TIMED_OUT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_QUEUE_FULL"),
        *("_TIMED_OUT_QUEUE", "UNKNOWN_TOPIC_OR_PART", "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION"),
        *("REQUEST_TIMED_OUT", "BROKER_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE", "NETWORK_EXCEPTION"),
        *("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "NOT_ENOUGH_REPLICAS"),
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    )
]

DATABASES_ARE_TRANSIENT = [
    psycopg.OperationalError("server closed the connection unexpectedly"),
    psycopg.errors.ConnectionFailure("08006"),
    psycopg.errors.DeadlockDetected("40P01"),
    psycopg.errors.SerializationFailure("40001"),
    psycopg.errors.TooManyConnections("53300"),
    psycopg.errors.DiskFull("53100"),
    psycopg.errors.AdminShutdown("57P01"),
    psycopg_pool.PoolTimeout("late"),
    psycopg_pool.TooManyRequests("many"),
    psycopg2.OperationalError("could not connect to server"),
    sqlalchemy.exc.TimeoutError("QueuePool limit"),
    sqlalchemy_error(sqlalchemy.exc.OperationalError, psycopg.errors.DeadlockDetected("40P01")),
    sqlalchemy_error(sqlalchemy.exc.OperationalError, sqlite_locked()),
    sqlalchemy_error(sqlalchemy.exc.InterfaceError, psycopg.InterfaceError("gone"), connection_invalidated=True),
    sqlite_locked(),
    pymongo.errors.AutoReconnect("gone"),
    pymongo.errors.NetworkTimeout("late"),
    pymongo.errors.ServerSelectionTimeoutError("none"),
    pymongo.errors.WaitQueueTimeoutError("late"),
    pymongo.errors.ExecutionTimeout("late", code=50),
    mongo_error("TransientTransactionError"),
    mongo_error("RetryableWriteError"),
    pika.exceptions.AMQPConnectionError("gone"),
    pika.exceptions.ConnectionClosedByBroker(320, "shut down"),
    aio_pika.exceptions.AMQPConnectionError("gone"),
    *(mysql_error(code) for code in MYSQL_TRANSIENT),
    pymysql.err.OperationalError(2003, "Can't connect to MySQL server"),
    pymysql.err.OperationalError(2006, "MySQL server has gone away"),
    pymysql.err.OperationalError(2013, "Lost connection to MySQL server during query"),
    pymysql.err.InterfaceError(0, ""),
    aiomysql.OperationalError(2013, "Lost connection to MySQL server during query"),
    aiomysql.InterfaceError("(0, 'Not connected')"),
    sqlalchemy_error(sqlalchemy.exc.OperationalError, mysql_error(1213)),
    sqlalchemy_error(sqlalchemy.exc.OperationalError, mysql_error(1040)),
    sqlalchemy_error(sqlalchemy.exc.OperationalError, pymysql.err.OperationalError(2006, "gone")),
    asyncpg.InterfaceError("connection is closed"),
    asyncpg.InterfaceError("cannot perform operation: connection is closed"),
    asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"),
    asyncpg.DeadlockDetectedError("deadlock detected"),
    asyncpg.TooManyConnectionsError("too many clients already"),
    through_asyncpg_dialect(asyncpg.InterfaceError("connection is closed")),
    through_asyncpg_dialect(asyncpg.DeadlockDetectedError("deadlock detected")),
    kafka.errors.KafkaTimeoutError("late"),
    kafka.errors.RequestTimedOutError(),
    kafka.errors.KafkaConnectionError("gone"),
    kafka.errors.NotLeaderForPartitionError(),
    aiokafka.errors.KafkaTimeoutError(),
    aiokafka.errors.RequestTimedOutError(),
    aiokafka.errors.KafkaConnectionError("gone"),
    aiokafka.errors.KafkaUnavailableError(),
    aiokafka.errors.NoBrokersAvailable(),
    *(kafka_error(code) for code in RDKAFKA_TRANSIENT),
]

DATABASES_ARE_PERMANENT = [
    psycopg.errors.UniqueViolation("23505"),
    psycopg.errors.ForeignKeyViolation("23503"),
    psycopg.errors.SyntaxError("42601"),
    psycopg.errors.UndefinedTable("42P01"),
    psycopg.errors.InvalidPassword("28P01"),
    psycopg.ProgrammingError("x"),
    sqlalchemy_error(sqlalchemy.exc.IntegrityError, psycopg.errors.UniqueViolation("23505")),
    sqlalchemy_error(sqlalchemy.exc.ProgrammingError, psycopg.errors.UndefinedTable("42P01")),
    sqlite3.OperationalError("no such table: jobs"),
    sqlite3.IntegrityError("UNIQUE constraint failed"),
    pymongo.errors.DuplicateKeyError("twice", code=11000),
    mongo_error(code=2),
    mongo_error("NoWritesPerformed"),
    pika.exceptions.ChannelClosedByBroker(404, "no queue"),
    *(mysql_error(code) for code in (1045, 1062, 1064, 1146)),
    pymysql.err.Error("Already closed"),
    pymysql.err.MySQLError(),
    sqlalchemy_error(sqlalchemy.exc.ProgrammingError, mysql_error(1146)),
    asyncpg.InterfaceError("cannot perform operation: another operation is in progress"),
    asyncpg.InterfaceError("pool is closed"),
    asyncpg.UniqueViolationError("twice"),
    through_asyncpg_dialect(asyncpg.InterfaceError("the server expects 1 argument")),
    kafka.errors.MessageSizeTooLargeError(),
    kafka.errors.TopicAuthorizationFailedError(),
    aiokafka.errors.MessageSizeTooLargeError(),
    aiokafka.errors.TopicAuthorizationFailedError(),
    kafka_error(confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE),
    kafka_error(confluent_kafka.KafkaError._AUTHENTICATION),
    confluent_kafka.KafkaException(),
    confluent_kafka.KafkaException("text"),
]

MAIL_AND_FILES_ARE_TRANSIENT = [
    smtplib.SMTPServerDisconnected("Connection unexpectedly closed"),
    smtplib.SMTPConnectError(421, b"too busy"),
    smtplib.SMTPConnectError(-1, b""),
    smtplib.SMTPDataError(451, b"local error"),
    smtplib.SMTPSenderRefused(452, b"disk full", "a@example.org"),
    smtplib.SMTPResponseException(421, b"closing"),
    smtplib.SMTPRecipientsRefused({"a@example.org": (450, b"busy"), "b@example.org": (421, b"closing")}),
    aiosmtplib.SMTPServerDisconnected("gone"),
    aiosmtplib.SMTPConnectError("refused"),
    aiosmtplib.SMTPReadTimeoutError("late"),
    aiosmtplib.SMTPResponseException(421, "closing"),
    aiosmtplib.SMTPRecipientsRefused([aiosmtplib.SMTPRecipientRefused(450, "busy", "a@example.org")]),
    imaplib.IMAP4.abort("socket error: EOF"),
    ftplib.error_temp("421 too many users"),
]

MAIL_AND_FILES_ARE_PERMANENT = [
    smtplib.SMTPAuthenticationError(535, b"no"),
    smtplib.SMTPResponseException(554, b"no"),
    smtplib.SMTPRecipientsRefused({"a@example.org": (450, b"busy"), "b@example.org": (550, b"unknown")}),
    smtplib.SMTPNotSupportedError("SMTPUTF8"),
    aiosmtplib.SMTPResponseException(550, "unknown"),
    aiosmtplib.SMTPRecipientsRefused(
        [aiosmtplib.SMTPRecipientRefused(code, "text", "a@example.org") for code in (450, 550)]
    ),
    imaplib.IMAP4.error("SELECT failed"),
    ftplib.error_perm("550 no such file"),
]

AWS_TRANSIENT = (
    *("BandwidthLimitExceeded", "EC2ThrottledException", "InternalError", "InternalFailure", "PriorRequestNotComplete"),
    *("ProvisionedThroughputExceededException", "RequestLimitExceeded", "RequestThrottled"),
    *("RequestThrottledException", "RequestTimeout", "RequestTimeoutException", "ServiceUnavailable", "SlowDown"),
    *("ThrottledException", "Throttling", "ThrottlingException", "TooManyRequestsException"),
    "TransactionInProgressException",
)

AWS_IS_TRANSIENT = [
    *(aws_error(status) for status in (500, 502, 503, 504, 429, 408)),
    aws_error(503, "SlowDown"),
    *(aws_error(400, code) for code in AWS_TRANSIENT),
    botocore.exceptions.ReadTimeoutError(endpoint_url="http://host", error="late"),
    botocore.exceptions.ConnectTimeoutError(endpoint_url="http://host", error="late"),
    botocore.exceptions.EndpointConnectionError(endpoint_url="http://host", error="refused"),
    botocore.exceptions.ConnectionClosedError(endpoint_url="http://host"),
    botocore.exceptions.ResponseStreamingError(error="cut"),
    botocore.exceptions.IncompleteReadError(actual_bytes=1, expected_bytes=2),
    caused(
        botocore.exceptions.SSLError(endpoint_url="http://host", error="cut"),
        ssl.SSLEOFError(8, "EOF occurred in violation of protocol"),
    ),
]

AWS_IS_PERMANENT = [
    *(aws_error(status) for status in (301, 400, 403, 404, 409, 412)),
    aws_error(404, "NoSuchKey"),
    botocore.exceptions.ClientError({}, "PutObject"),
    botocore.exceptions.ClientError({"Error": {}, "ResponseMetadata": {"HTTPStatusCode": "503"}}, "PutObject"),  # type: ignore[typeddict-item]
    botocore.exceptions.NoCredentialsError(),
    caused(
        botocore.exceptions.SSLError(endpoint_url="http://host", error="no"),
        ssl.SSLCertVerificationError("certificate verify failed"),
    ),
]

CANCELLATIONS_ARE_TRANSIENT = [
    asyncio.CancelledError(),
    concurrent.futures.CancelledError(),
    trio_cancelled(),
    trio.TooSlowError(),
    TimeoutError("deadline exceeded"),
]

ANYTHING_ELSE_IS_PERMANENT = [Exception("x"), RuntimeError("x"), AssertionError(), ZeroDivisionError(), SystemExit(1)]


def cases(rows: dict[str, list[BaseException]]) -> list[Any]:
    return [
        pytest.param(error, id=f"{row}-{type(error).__module__}.{type(error).__name__}")
        for row, found in rows.items()
        for error in found
    ]


@pytest.mark.parametrize(
    "error",
    cases(
        {
            "network": NETWORK_IS_TRANSIENT,
            "redis": REDIS_IS_TRANSIENT,
            "http": HTTP_IS_TRANSIENT,
            "resources": RESOURCES_ARE_TRANSIENT,
            "databases": DATABASES_ARE_TRANSIENT,
            "mail": MAIL_AND_FILES_ARE_TRANSIENT,
            "aws": AWS_IS_TRANSIENT,
            "cancellations": CANCELLATIONS_ARE_TRANSIENT,
        }
    ),
)
def test_transient(error: BaseException) -> None:
    assert categorise(error) is TRANSIENT


@pytest.mark.parametrize(
    "error",
    cases(
        {
            "code": CODE_AND_DATA_ARE_PERMANENT,
            "redis": REDIS_IS_PERMANENT,
            "http": HTTP_IS_PERMANENT,
            "rules": RULES_ARE_PERMANENT,
            "databases": DATABASES_ARE_PERMANENT,
            "mail": MAIL_AND_FILES_ARE_PERMANENT,
            "aws": AWS_IS_PERMANENT,
            "else": ANYTHING_ELSE_IS_PERMANENT,
        }
    ),
)
def test_permanent(error: BaseException) -> None:
    assert categorise(error) is PERMANENT


def test_every_rule_is_met_by_a_class_of_its_library() -> None:
    tables = [table for table in globals().values() if isinstance(table, list) and isinstance(table[0], BaseException)]
    met = {rule_key(kind) for table in tables for error in table for kind in type(error).__mro__}
    assert {rule for rules in RULE_GROUPS.values() for rule in rules} - met == set()


def test_no_two_rules_are_for_one_class() -> None:
    names = [rule for rules in RULE_GROUPS.values() for rule in rules]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("package", NAMESAKES)
def test_a_namesake_is_judged_as_the_package_whose_names_it_has(package: str) -> None:
    """mysqlclient has no wheels, so that a class of its name stands for it."""
    shape = {"__module__": f"{package}.of.some.module"}
    kind = {"redis": "ReadOnlyError", "pymysql": "MySQLError"}[NAMESAKES[package]]
    error = type("OfThatPackage", (type(kind, (Exception,), shape),), shape)(1213, "Deadlock found")
    assert categorise(error) is TRANSIENT


# --- the cases by name of the requirements ---


def test_network_time_out_is_transient() -> None:
    found = [
        TimeoutError(),
        httpx.ConnectTimeout("late"),
        requests.ConnectTimeout("late"),
        aiohttp.ServerTimeoutError(),
    ]
    assert [categorise(error) for error in found] == [TRANSIENT] * 4


def test_http_503_is_transient() -> None:
    assert [categorise(make(503)) for make in STATUS] == [TRANSIENT] * 4


def test_redis_lost_is_transient() -> None:
    found = [redis.ConnectionError("Connection closed by server."), errors.ConnectionLost("lost", maybe_applied=True)]
    assert [categorise(error) for error in found] == [TRANSIENT] * 2


def test_aborted_transaction_is_transient() -> None:
    found = [redis.exceptions.ExecAbortError("discarded"), redis.WatchError("x"), errors.ServerError("EXECABORT x")]
    assert [categorise(error) for error in found] == [TRANSIENT] * 3


def test_http_404_and_401_are_permanent() -> None:
    assert [categorise(make(status)) for make in STATUS for status in (404, 401)] == [PERMANENT] * 8


def test_invalid_json_is_permanent() -> None:
    found = [raised(lambda: json.loads("{")), raised(lambda: msgspec.json.decode("{"))]
    assert [categorise(error) for error in found] == [PERMANENT] * 2


def test_validation_is_permanent() -> None:
    found = [raised(lambda: msgspec.json.decode('"x"', type=int)), raised(lambda: Mail.model_validate({}))]
    assert [categorise(error) for error in found] == [PERMANENT] * 2


# --- Retry-After ---

NOW = 784_111_777_000  # Sun, 06 Nov 1994 08:49:37 GMT


@pytest.mark.parametrize("make", STATUS)
@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("120", 120_000),
        ("0", 0),
        (" 7 ", 7000),
        ("9" * 400, 999_999_999_999_000),
        ("Sun, 06 Nov 1994 08:50:37 GMT", 60_000),
        ("Sun, 06 Nov 1994 08:49:00 GMT", 0),
        ("Sun, 31 Feb 1994 08:49:00 GMT", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
    ],
)
def test_retry_after_is_the_delay(make: Callable[..., BaseException], value: str, wait: int | None) -> None:
    failure = failure_of(make(429, {"Retry-After": value}), now_ms=NOW)
    assert (failure.category, failure.retry_after_ms) == (TRANSIENT, wait)


def test_the_delay_that_aws_asks_for() -> None:
    assert failure_of(aws_error(503, "SlowDown", retry_after="3")).retry_after_ms == 3000
    assert failure_of(aws_error(429, retry_after="Sun, 06 Nov 1994 08:50:37 GMT"), now_ms=NOW).retry_after_ms == 60_000
    assert failure_of(aws_error(503)).retry_after_ms is None


def test_a_date_needs_the_time_and_lower_case_names_do() -> None:
    class Response:
        status = 503
        headers = {"retry-after": "Sun, 06 Nov 1994 08:50:37 GMT"}  # noqa: RUF012

    class MyError(Exception):
        response = Response()

    assert failure_of(MyError()).retry_after_ms is None
    assert failure_of(MyError(), now_ms=NOW).retry_after_ms == 60_000
    assert failure_of(httpx_status(429)).retry_after_ms is None


@pytest.mark.parametrize(
    ("attributes", "category"),
    [
        ({"status": 503}, TRANSIENT),
        ({"status_code": 429}, TRANSIENT),
        ({"code": 500}, TRANSIENT),
        ({"code": 404}, PERMANENT),
        ({"code": 200, "status": 599}, TRANSIENT),
        ({"code": 99}, PERMANENT),
        ({"code": "503"}, PERMANENT),
        ({"status": True}, PERMANENT),
        ({"sqlstate": "40001"}, TRANSIENT),
        ({"pgcode": "08006"}, TRANSIENT),
        ({"pgcode": "23505"}, PERMANENT),
        ({"sqlstate": "4000"}, PERMANENT),
        ({"sqlstate": None, "pgcode": "57P01"}, TRANSIENT),
    ],
    ids=repr,
)
def test_content_is_read_by_shape(attributes: dict[str, Any], category: Category) -> None:
    error = type("SomeError", (Exception,), attributes)()
    assert categorise(error) is category


# --- causes and groups ---


def in_context(outer: BaseException, inner: BaseException) -> BaseException:
    outer.__context__ = inner
    return outer


def circle() -> BaseException:
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__cause__, second.__cause__ = second, first
    return first


def circle_through_a_group() -> BaseException:
    inner = RuntimeError("x")
    group = ExceptionGroup("g", [inner])
    inner.__context__ = group
    return group


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (caused(RuntimeError("x"), ConnectionResetError()), TRANSIENT),
        (caused(RuntimeError("x"), caused(RuntimeError("y"), httpx_status(503))), TRANSIENT),
        (in_context(RuntimeError("x"), TimeoutError()), TRANSIENT),
        (in_context(RuntimeError("x"), KeyError("k")), PERMANENT),
        (caused(ValueError("x"), TimeoutError()), PERMANENT),
        (caused(TimeoutError(), ValueError("x")), TRANSIENT),
        (caused(in_context(RuntimeError("x"), TimeoutError()), KeyError("k")), PERMANENT),
        (raised(lambda: suppressing()), PERMANENT),
        (circle(), PERMANENT),
        (circle_through_a_group(), PERMANENT),
        (ExceptionGroup("g", [TimeoutError(), ConnectionError()]), TRANSIENT),
        (ExceptionGroup("g", [TimeoutError(), ValueError()]), PERMANENT),
        (ExceptionGroup("g", [TimeoutError(), ExceptionGroup("h", [RuntimeError()])]), PERMANENT),
        (BaseExceptionGroup("g", [asyncio.CancelledError(), TimeoutError()]), TRANSIENT),
        (caused(RuntimeError("x"), ExceptionGroup("g", [TimeoutError()])), TRANSIENT),
    ],
)
def test_causes_and_groups(error: BaseException, category: Category) -> None:
    assert categorise(error) is category


def suppressing() -> None:
    try:
        raise TimeoutError
    except TimeoutError:
        raise RuntimeError("x") from None


def test_the_longest_wait_in_a_group_counts() -> None:
    group = ExceptionGroup("g", [httpx_status(429, {"Retry-After": str(n)}) for n in (5, 9, 7)] + [TimeoutError()])
    assert failure_of(group).retry_after_ms == 9000


# --- the handler's own word ---


@pytest.mark.parametrize(
    ("error", "category", "retry_after_ms"),
    [
        (errors.TransientError("x"), TRANSIENT, None),
        (errors.TransientError("x", retry_after_ms=5), TRANSIENT, 5),
        (errors.PermanentError("x"), PERMANENT, None),
        (caused(errors.TransientError("x"), ValueError("x")), TRANSIENT, None),
        (caused(ValueError("x"), errors.TransientError("x", retry_after_ms=7)), TRANSIENT, 7),
        (caused(TimeoutError(), errors.PermanentError("x")), PERMANENT, None),
        (caused(errors.TransientError("x"), errors.PermanentError("x")), TRANSIENT, None),
        (ExceptionGroup("g", [errors.TransientError("x"), errors.PermanentError("x")]), PERMANENT, None),
        (ExceptionGroup("g", [errors.TransientError("x"), ValueError("x")]), TRANSIENT, None),
        (
            ExceptionGroup("g", [errors.TransientError(retry_after_ms=1), errors.TransientError(retry_after_ms=2)]),
            TRANSIENT,
            1,
        ),
    ],
)
def test_the_handlers_own_word_wins(error: BaseException, category: Category, retry_after_ms: int | None) -> None:
    failure = failure_of(error)
    assert (failure.category, failure.retry_after_ms, failure.explicit) == (category, retry_after_ms, True)


def test_an_error_without_a_word_of_the_handler_is_not_explicit() -> None:
    assert failure_of(TimeoutError()).explicit is False


# --- kinds ---


def of_name(name: str) -> BaseException:
    error = type(name, (Exception,), {})("text")
    assert isinstance(error, Exception)
    return error


class OwnDelayed(errors.DelayedError):
    pass


@pytest.mark.parametrize(
    ("error", "kind", "moved_to"),
    [
        (RuntimeError("x"), FailureKind.ERROR, ""),
        (errors.RateLimitError(), FailureKind.RATE_LIMIT, ""),
        (RuntimeError("bullmq:rateLimitExceeded"), FailureKind.RATE_LIMIT, ""),
        (errors.RateLimitError("other text"), FailureKind.ERROR, ""),
        (errors.DelayedError(), FailureKind.MOVED, "delayed"),
        (OwnDelayed(), FailureKind.MOVED, "delayed"),
        (errors.WaitingError("x"), FailureKind.MOVED, "waiting"),
        (errors.WaitingChildrenError(), FailureKind.MOVED, "waiting-children"),
        (of_name("DelayedError"), FailureKind.MOVED, "delayed"),
        (of_name("WaitingError"), FailureKind.MOVED, "waiting"),
        (of_name("WaitingChildrenError"), FailureKind.MOVED, "waiting-children"),
        (errors.UnrecoverableError(), FailureKind.UNRECOVERABLE, ""),
        (errors.ChildFailed("moveToFinished", job_id="1"), FailureKind.UNRECOVERABLE, ""),
        (of_name("UnrecoverableError"), FailureKind.UNRECOVERABLE, ""),
        (caused(RuntimeError("x"), errors.UnrecoverableError()), FailureKind.ERROR, ""),
        (asyncio.CancelledError(), FailureKind.CANCELLED, ""),
        (trio_cancelled(), FailureKind.CANCELLED, ""),
        (concurrent.futures.CancelledError(), FailureKind.ERROR, ""),
        (ExceptionGroup("g", [errors.DelayedError()]), FailureKind.MOVED, "delayed"),
        (ExceptionGroup("g", [errors.DelayedError(), errors.DelayedError()]), FailureKind.MOVED, "delayed"),
        (ExceptionGroup("g", [errors.DelayedError(), errors.WaitingError()]), FailureKind.ERROR, ""),
        (ExceptionGroup("g", [RuntimeError("x"), errors.UnrecoverableError()]), FailureKind.UNRECOVERABLE, ""),
        (ExceptionGroup("g", [RuntimeError("x"), errors.RateLimitError()]), FailureKind.ERROR, ""),
    ],
)
def test_the_kind_of_a_failure(error: BaseException, kind: FailureKind, moved_to: str) -> None:
    failure = failure_of(error)
    assert (failure.kind, failure.moved_to) == (kind, moved_to)


def test_an_unrecoverable_error_is_permanent_by_any_path() -> None:
    failure = failure_of(of_name("UnrecoverableError"))
    assert (failure.category, failure.explicit) == (PERMANENT, True)


# --- texts ---


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class Hostile(Exception):
    @property
    def response(self) -> object:
        raise RuntimeError("no response")

    @property
    def orig(self) -> object:
        raise RuntimeError("no orig")


class HostileLabel(pymongo.errors.PyMongoError):
    def has_error_label(self, label: str) -> bool:
        raise RuntimeError(label)


class HostileHeaders(Exception):
    status = 429
    headers = 5


@pytest.mark.parametrize(
    ("error", "name", "message"),
    [
        (RuntimeError("text"), "RuntimeError", "text"),
        (TimeoutError(), "TimeoutError", "TimeoutError"),
        (Unprintable("x"), "Unprintable", "Unprintable"),
        (Hostile("x"), "Hostile", "x"),
        (HostileLabel("x"), "HostileLabel", "x"),
        (HostileHeaders("x"), "HostileHeaders", "x"),
        (RuntimeError("a\ud800b😀\udfff"), "RuntimeError", "a\ufffdb😀\ufffd"),
        (ExceptionGroup("g", [ExceptionGroup("h", [KeyError("k")])]), "KeyError", "KeyError: 'k'"),
        (ExceptionGroup("g", [KeyError("k"), KeyError("l")]), "ExceptionGroup", "g (2 sub-exceptions)"),
    ],
)
def test_name_and_message(error: BaseException, name: str, message: str) -> None:
    failure = failure_of(error, stack="stack \ud800")
    assert (failure.name, failure.message, failure.stack) == (name, message, "stack \ufffd")


class Raising(Exception):
    """Raises that whatever it is asked: in turn its text, an attribute, its headers."""

    status = 429

    def __init__(self, part: str, error: BaseException) -> None:
        self.part, self.error = part, error

    def __str__(self) -> str:
        if self.part == "text":
            raise self.error
        return "text"

    @property
    def response(self) -> object:
        if self.part == "attribute":
            raise self.error
        return None

    @property
    def headers(self) -> "Raising":
        return self

    def get(self, _: str) -> None:
        if self.part == "headers":
            raise self.error


@pytest.mark.parametrize("part", ["text", "attribute", "headers"])
def test_what_is_no_exception_costs_no_job_and_ctrl_c_is_raised(part: str) -> None:
    for error in (SystemExit(3), GeneratorExit()):
        failure = failure_of(Raising(part, error), stack="")
        assert (failure.name, failure.kind) == ("Raising", FailureKind.ERROR)
    with pytest.raises(KeyboardInterrupt):
        failure_of(Raising(part, KeyboardInterrupt()), stack="")


@pytest.mark.parametrize("kind", [NoClass, NoAttributes, OfSilent], ids=["class", "attributes", "name"])
def test_exceptions_that_cannot_be_asked(kind: type[Exception]) -> None:
    error = kind()
    failure = failure_of(error, stack="")
    name = type.__dict__["__name__"].__get__(kind)
    assert (failure.kind, failure.name, failure.message) == (FailureKind.ERROR, name, name)
    assert failure_of(kind("boom")).message == "boom"
    assert name in StackTexts().of(error)
    assert is_one(error, Exception)
    assert not is_one(error, KeyboardInterrupt)
    assert repr_of(error) in (f"{name}()", name)


def test_repr_lets_ctrl_c_through() -> None:
    class Interrupting(Exception):
        def __repr__(self) -> str:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        repr_of(Interrupting())


@pytest.mark.parametrize(
    "error",
    [
        errors.ServerError("CROSSSLOT Keys in request don't hash to the same slot"),
        redis.exceptions.ClusterCrossSlotError("Keys in request don't hash to the same slot"),
    ],
)
def test_a_crossslot_failure_names_the_hash_tag(error: BaseException) -> None:
    assert "use a hash tag such as {queue}" in (failure_of(error).message or "")


def test_codes_of_error_replies() -> None:
    assert is_transient_code("LOADING")
    assert not is_transient_code("WRONGTYPE")


# --- decisions ---


def job(attempts_made: int = 0, **opts: Any) -> JobRecord:
    fields = {"opts": json.dumps(opts).encode(), "atm": str(attempts_made).encode()}
    return JobRecord.from_fields("1", fields)


PLAIN = Failure(message="no", category=PERMANENT)
PASSING = Failure(message="no", category=TRANSIENT)
WAITING = Failure(message="no", category=TRANSIENT, retry_after_ms=7000)
DEAD = Failure(message="no", kind=FailureKind.UNRECOVERABLE, category=PERMANENT, explicit=True)
BACKOFF = {"type": "fixed", "delay": 50}


@pytest.mark.parametrize(
    ("record", "failure", "decision"),
    [
        (job(), PLAIN, Fail("no", permanent=False, exhausted=True)),
        (job(attempts=1), PLAIN, Fail("no", permanent=False, exhausted=True)),
        (job(attempts=2), PLAIN, Retry(0)),
        (job(1, attempts=2), PLAIN, Fail("no", permanent=False, exhausted=True)),
        (job(5, attempts=2), PLAIN, Fail("no", permanent=False, exhausted=True)),
        (job(attempts=2, backoff=BACKOFF), PLAIN, Retry(50)),
        (job(attempts=2, backoff=50), PLAIN, Retry(50)),
        (job(attempts=2, backoff={"type": "exponential"}), PLAIN, Retry(0)),
        (job(2, attempts=5, backoff={"type": "exponential", "delay": 100}), PLAIN, Retry(400)),
        (job(15, attempts=20, backoff={"type": "exponential", "delay": 1000}), PLAIN, Retry(3_600_000)),
        (job(attempts=2, backoff=BACKOFF), WAITING, Retry(50)),
        (job(attempts=2), DEAD, Fail("no", permanent=True, exhausted=False)),
        (job(1, attempts=2), DEAD, Fail("no", permanent=True, exhausted=True)),
        (job(attempts=2), Failure(message=None), Retry(0)),
        (job(), Failure(message=None), Fail("", permanent=False, exhausted=True)),
        (job(attempts=2), failure_of(errors.PermanentError("no")), Fail("no", permanent=True, exhausted=False)),
        (job(attempts=2, backoff=BACKOFF), failure_of(errors.TransientError("x", retry_after_ms=9)), Retry(9)),
        (job(attempts=2, backoff=BACKOFF), failure_of(errors.TransientError("x")), Retry(50)),
        (job(1, attempts=2), failure_of(errors.TransientError("no")), Fail("no", permanent=False, exhausted=True)),
        (job(attempts=2, backoff=BACKOFF), failure_of(asyncio.CancelledError()), Retry(50)),
    ],
)
def test_the_policy_of_bullmq(record: JobRecord, failure: Failure, decision: Retry | Fail) -> None:
    assert decided(record, failure, roll=0.5) == decision


@pytest.mark.parametrize(
    ("record", "failure", "decision"),
    [
        (job(attempts=3, backoff=BACKOFF), PLAIN, Fail("no", permanent=True, exhausted=False)),
        (job(attempts=3, backoff=BACKOFF), PASSING, Retry(50)),
        (job(attempts=3, backoff=BACKOFF), WAITING, Retry(7000)),
        (job(2, attempts=3), WAITING, Fail("no", permanent=False, exhausted=True)),
        (job(attempts=3), Failure(message="x", category=TRANSIENT, retry_after_ms=10**9), Retry(3_600_000)),
        (job(attempts=3, backoff=BACKOFF), Failure(message="x", category=TRANSIENT, retry_after_ms=0), Retry(0)),
    ],
)
def test_the_categorising_policy(record: JobRecord, failure: Failure, decision: Retry | Fail) -> None:
    assert decided(record, failure, policy=RetryPolicy.CATEGORISING, roll=0.5) == decision


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        (-1, Fail("no", permanent=True, exhausted=False)),
        (0, Retry(0)),
        (math.nan, Retry(0)),
        (250.5, Retry(250.5)),
        (-5, Retry(-5)),
        (math.inf, Retry(3_600_000)),
    ],
)
def test_the_answer_of_a_strategy(answer: float, decision: Retry | Fail) -> None:
    assert decided(job(attempts=2, backoff={"type": "own"}), PLAIN, roll=0.5, strategy_delay_ms=answer) == decision


def test_a_custom_type_without_a_strategy_fails_the_job_with_a_clear_reason() -> None:
    decision = decided(job(attempts=2, backoff={"type": "own"}), PLAIN, roll=0.5)
    assert isinstance(decision, Fail)
    assert decision.reason.startswith("Unknown backoff strategy own.")
    assert (decision.permanent, decision.exhausted) == (True, False)


def test_a_discarded_job_is_not_retried() -> None:
    assert decided(job(attempts=2), PLAIN, roll=0.5, discarded=True) == Fail("no", permanent=True, exhausted=False)


def test_jitter_and_cap_of_the_worker() -> None:
    record = job(attempts=2, backoff={"type": "fixed", "delay": 1000})
    assert decided(record, PLAIN, roll=0.0, extra_jitter=0.2) == Retry(800)
    assert decided(record, PLAIN, roll=0.5, max_backoff_delay_ms=300) == Retry(300)
    assert decided(job(attempts=2, backoff=10**9), PLAIN, roll=0.5, max_backoff_delay_ms=None) == Retry(10**9)


# --- stack traces ---


@pytest.mark.parametrize(
    ("old", "stack", "limit", "rows"),
    [
        (None, "a", None, ["a"]),
        ("", "a", None, ["a"]),
        ('["x"]', "a", None, ["x", "a"]),
        ('["x"]', "", None, ["x"]),
        ("no json", "a", None, ["a"]),
        ('{"x":1}', "a", None, ["a"]),
        ('["x"]', "a", 0, []),
        ('["x","y"]', "a", 2, ["y", "a"]),
        ('["x"]', "a", 5, ["x", "a"]),
        ('["x","y"]', "a", -1, ["y", "a"]),
        ("[]", "a", -1, []),
        (None, "a\ud800", None, ["a\ufffd"]),
    ],
)
def test_stack_traces(old: str | None, stack: str, limit: float | None, rows: list[str]) -> None:
    assert json.loads(stacktrace_json(old, stack, limit)) == rows


@pytest.mark.parametrize(("status", "transient"), [(599, True), (600, False), (400, False), (399, False)])
def test_bounds_of_http_statuses(status: int, transient: bool) -> None:
    class Answered(Exception):
        pass

    error = Answered("x")
    error.status = status  # type: ignore[attr-defined]
    assert (categorise(error) is Category.TRANSIENT) == transient
