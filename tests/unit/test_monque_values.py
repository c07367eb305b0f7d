"""Monque's documents, options, checks, back-off, cursor tokens and errors, as specs/monque.md has them."""

import copy
import json
import pickle
from base64 import urlsafe_b64encode
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from bson import ObjectId
from bson.datetime_ms import DatetimeMS

from bullmq_protocol.errors import UnexpectedReply, UsageError
from monque_protocol import errors
from monque_protocol.backoff import backoff_delay
from monque_protocol.cron import next_cron
from monque_protocol.cursor import Anchor, Sort, check_direction, check_sort, decode_cursor, encode_cursor
from monque_protocol.document import (
    MOST_COUNT,
    Job,
    JobStatus,
    check_data_type,
    from_date,
    moment,
    new_document,
    payload_of,
    read_job,
    retried,
    to_date,
    typed_job,
)
from monque_protocol.events import JobCompleted, check_callback
from monque_protocol.options import (
    JobRetention,
    SchedulerOptions,
    check_key,
    check_name,
    check_payload,
    options_from,
    settings_of,
)

NOW = 1_766_000_000_123
HEX = "65a1b2c3d4e5f60718293a4b"


def job(**changes: Any) -> Job[Any]:
    given: dict[str, Any] = {"id": HEX, "key": ObjectId(HEX), "name": "mail", "data": {"n": 1}, "status": "pending"}
    return Job(**{**given, **changes})


# --- documents --------------------------------------------------------------------------------------------------------


def test_a_document_of_each_version_is_read() -> None:
    at = to_date(NOW)
    stored = {
        "_id": ObjectId(HEX),
        "name": "mail",
        "data": {"to": "x"},
        "status": "processing",
        "nextRunAt": at.replace(tzinfo=None),
        "lockedAt": at,
        "claimedBy": "me",
        "lastHeartbeat": DatetimeMS(NOW),
        "heartbeatInterval": 30000,
        "failCount": 2.0,
        "failReason": "no",
        "repeatInterval": "* * * * *",
        "uniqueKey": "k",
        "createdAt": at,
        "updatedAt": at,
        "priority": 3,
    }
    read = read_job(stored)
    assert read == Job(
        id=HEX,
        key=ObjectId(HEX),
        name="mail",
        data={"to": "x"},
        status=JobStatus.PROCESSING,
        next_run_at=NOW,
        locked_at=NOW,
        claimed_by="me",
        last_heartbeat=NOW,
        heartbeat_interval=30000,
        fail_count=2,
        fail_reason="no",
        repeat_interval="* * * * *",
        unique_key="k",
        created_at=NOW,
        updated_at=NOW,
    )
    assert read.is_recurring and not job().is_recurring


def test_null_absent_and_what_is_of_another_kind_are_alike() -> None:
    bare = read_job({"_id": 1, "name": "a"})
    odd: dict[str, Any] = {"_id": 1, "name": "a", "data": None, "status": 5, "nextRunAt": "soon", "lockedAt": None}
    odd |= {"claimedBy": None, "lastHeartbeat": True, "heartbeatInterval": True, "failCount": float("nan")}
    assert read_job(odd) == bare
    assert (bare.status, bare.next_run_at, bare.locked_at, bare.fail_count) == ("", None, None, 0)
    # BSON could not store one more than such.
    assert [read_job({**odd, "failCount": each}).fail_count for each in (1e308, -(2.0**70))] == [
        MOST_COUNT,
        -MOST_COUNT,
    ]


@pytest.mark.parametrize("document", [None, [], {"name": "a"}, {"_id": 1}, {"_id": 1, "name": 3}])
def test_what_is_no_job_is_refused(document: object) -> None:
    with pytest.raises(UnexpectedReply, match="a job document"):
        read_job(document)


def test_dates_keep_milliseconds_and_stay_within_the_calendar() -> None:
    assert to_date(NOW) == datetime(2025, 12, 17, 19, 33, 20, 123000, tzinfo=UTC)
    assert from_date(to_date(-1)) == -1
    assert (to_date(10**18).year, to_date(-(10**18)).year) == (9999, 1)
    assert [from_date(each) for each in (None, "x", 5, True)] == [None] * 4


def test_moments_of_callers() -> None:
    assert moment("run_at", NOW) == NOW
    assert moment("run_at", datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))) == 0
    for value in (datetime(2025, 1, 1), "now", True, 1.5, 10**18, None):
        with pytest.raises(UsageError, match=r"^run_at: "):
            moment("run_at", value)


def test_fields_stand_in_monques_order() -> None:
    plain = new_document("a", 1, next_run_at=NOW + 5, now=NOW)
    assert list(plain) == ["name", "data", "status", "nextRunAt", "failCount", "createdAt", "updatedAt"]
    full = new_document("a", 1, next_run_at=NOW, now=NOW, repeat_interval="@daily", unique_key="k")
    assert list(full) == [*list(plain)[:4], "repeatInterval", *list(plain)[4:], "uniqueKey"]
    assert full["createdAt"] == full["updatedAt"] == full["nextRunAt"] and plain["nextRunAt"] > plain["createdAt"]


def test_a_retry_is_worked_out_from_the_image_before() -> None:
    before = job(status="failed", fail_count=3, fail_reason="no", locked_at=1, claimed_by="x", heartbeat_interval=30)
    after = retried(before, NOW)
    assert (after.status, after.fail_count, after.fail_reason, after.next_run_at) == ("pending", 0, None, NOW)
    assert (after.locked_at, after.claimed_by, after.heartbeat_interval) == (None, None, 30)


class Mail(msgspec.Struct):
    to: str
    at: datetime


def test_typed_payloads() -> None:
    mail = Mail("x", datetime(2025, 1, 1, tzinfo=UTC))
    stored = payload_of(mail)
    assert stored == {"to": "x", "at": mail.at}
    assert typed_job(job(data=stored), Mail).data == mail
    assert payload_of(Mail) is Mail and payload_of([1]) == [1]
    with pytest.raises(msgspec.ValidationError):
        typed_job(job(data={"to": 1}), Mail)


# --- options ----------------------------------------------------------------------------------------------------------


def test_defaults_are_monques() -> None:
    settings = settings_of(SchedulerOptions(), random_id="random")
    assert msgspec.structs.asdict(settings) == {
        "collection": "monque_jobs",
        "poll_ms": 1000,
        "safety_poll_ms": 30_000,
        "max_retries": 10,
        "base_retry_ms": 1000,
        "max_backoff_ms": 86_400_000,
        "shutdown_ms": 30_000,
        "concurrency": 5,
        "instance_concurrency": None,
        "lock_ms": 1_800_000,
        "recovers": True,
        "me": "random",
        "heartbeat_ms": 30_000,
        "retains": False,
        "keep_completed_ms": None,
        "keep_failed_ms": None,
        "retention_ms": 3_600_000,
        "makes_indexes": True,
        "max_payload": None,
        "stats_ms": 5000,
        "change_streams": True,
        "stream_retry_ms": 1_000,
    }


def test_all_options_are_taken() -> None:
    options = SchedulerOptions(
        collection_name="jobs",
        poll_interval=timedelta(seconds=2),
        max_backoff_delay=None,
        instance_concurrency=0,
        scheduler_instance_id="me",
        job_retention=JobRetention(completed=0, failed=timedelta(days=1), interval=60_000),
        skip_index_creation=True,
        max_payload_size=100,
    )
    settings = settings_of(options, random_id="random")
    assert (settings.collection, settings.poll_ms, settings.max_backoff_ms) == ("jobs", 2000, None)
    assert (settings.instance_concurrency, settings.me, settings.makes_indexes) == (0, "me", False)
    assert (settings.retains, settings.keep_completed_ms, settings.keep_failed_ms) == (True, 0, 86_400_000)
    check_payload(100, settings)
    check_payload(10**9, settings_of(SchedulerOptions(), random_id="r"))
    with pytest.raises(errors.PayloadTooLargeError, match="exceeds maximum size: 101 bytes > 100 bytes"):
        check_payload(101, settings)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("collection_name", ""),
        ("collection_name", "a\0"),
        ("poll_interval", 0),
        ("poll_interval", 1.5),
        ("safety_poll_interval", -1),
        ("max_retries", -1),
        ("max_retries", "3"),
        ("base_retry_interval", -1),
        ("max_backoff_delay", 2**60),
        ("shutdown_timeout", "1s"),
        ("worker_concurrency", -1),
        ("instance_concurrency", 1.0),
        ("lock_timeout", 0),
        ("recover_stale_jobs", 1),
        ("scheduler_instance_id", 5),
        ("heartbeat_interval", 0),
        ("job_retention", {"completed": 5}),
        ("skip_index_creation", None),
        ("max_payload_size", 0),
        ("stats_cache_ttl", -1),
        ("change_streams", "yes"),
    ],
)
def test_a_bad_option_is_named_with_its_value(option: str, value: Any) -> None:
    with pytest.raises(UsageError) as raised:
        settings_of(SchedulerOptions(**{option: value}), random_id="r")
    assert (raised.value.field, raised.value.value) == (option, value)


def test_options_come_as_a_struct_or_as_keywords() -> None:
    assert options_from(None, {"max_retries": 3}) == SchedulerOptions(max_retries=3)
    assert options_from(SchedulerOptions(max_retries=3), {}).max_retries == 3
    wrong: list[tuple[Any, dict[str, Any]]] = [
        (None, {"retries": 3}),
        ({}, {}),
        (SchedulerOptions(), {"max_retries": 3}),
    ]
    for options, given in wrong:
        with pytest.raises(UsageError):
            options_from(options, given)


@pytest.mark.parametrize("name", ["a", "a" * 255, "x.y:z/é", "\U0001f600" * 127])
def test_names_that_monque_takes(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("", "Job name cannot be empty or whitespace only."),
        (" \t\u00a0", "Job name cannot be empty or whitespace only."),
        ("a" * 256, "Job name cannot exceed 255 characters."),
        ("\U0001f600" * 128, "Job name cannot exceed 255 characters."),
        ("a b", "Job name cannot contain whitespace or control characters."),
        ("a\u2028b", "Job name cannot contain whitespace or control characters."),
        ("a\x7f", "Job name cannot contain whitespace or control characters."),
    ],
)
def test_names_that_monque_refuses(name: str, rule: str) -> None:
    with pytest.raises(errors.InvalidJobIdentifierError) as raised:
        check_name(name)
    assert (raised.value.rule, raised.value.field, raised.value.value) == (rule, "name", name)


def test_unique_keys() -> None:
    assert check_key("a b") == "a b" and check_key("k" * 1024)
    for key, rule in (
        ("  ", "Unique key cannot be empty or whitespace only."),
        ("k" * 1025, "Unique key cannot exceed 1024 characters."),
        ("a\n", "Unique key cannot contain control characters."),
    ):
        with pytest.raises(errors.InvalidJobIdentifierError) as raised:
            check_key(key)
        assert raised.value.rule == rule
    for check in (check_key, check_name):
        for value in (5, None, "a\ud800"):
            with pytest.raises(UsageError):
                check(value)


# --- backoff ----------------------------------------------------------------------------------------------------------


def test_backoff_doubles_up_to_the_cap() -> None:
    def delay(runs: int, roll: float = 0.5, most_ms: int | None = 86_400_000) -> int:
        return backoff_delay(runs, base_ms=1000, most_ms=most_ms, roll=roll)

    assert [delay(runs) for runs in range(1, 10)] == [2000 * 2**each for each in range(9)]
    assert (delay(1, 0.0), delay(1, 0.999999)) == (1500, 2500)
    assert (delay(20, 0.0), delay(20), delay(20, 0.9)) == (64_800_000, 86_400_000, 86_400_000)
    assert delay(5000, most_ms=None) == 2**62
    assert backoff_delay(3, base_ms=0, most_ms=None, roll=0.1) == 0


# --- cursors ----------------------------------------------------------------------------------------------------------


def test_a_plain_token_is_the_id() -> None:
    token = encode_cursor(job(), Sort(), "forward")
    assert token == "F" + urlsafe_b64encode(bytes.fromhex(HEX)).decode().rstrip("=")
    assert encode_cursor(job(), Sort(), "backward")[0] == "B"
    assert decode_cursor(token, Sort()) == Anchor(HEX)


@pytest.mark.parametrize(
    ("sort", "value"),
    [
        (Sort("createdAt"), NOW),
        (Sort("updatedAt", "desc"), NOW + 1),
        (Sort("nextRunAt", "asc"), -62135596800000),
        (Sort("identifier", "desc"), int(HEX[:8], 16) * 1000),
    ],
)
def test_a_token_of_a_sort_holds_its_moment(sort: Sort, value: int) -> None:
    found = job(created_at=NOW, updated_at=NOW + 1, next_run_at=-62135596800000)
    assert decode_cursor(encode_cursor(found, sort, "forward"), sort) == Anchor(HEX, value)


def token(text: str) -> str:
    return "F" + urlsafe_b64encode(text.encode()).decode().rstrip("=")


def token_of(id: str, by: str, value: str) -> str:
    return token(json.dumps({"id": id, "sort": {"by": by, "direction": "asc", "value": value}}))


@pytest.mark.parametrize(
    ("cursor", "sort", "text"),
    [
        ("", Sort(), "Cursor is empty or too short"),
        ("F", Sort(), "Cursor is empty or too short"),
        (None, Sort(), "Cursor is empty or too short"),
        ("Xabc", Sort(), "Invalid cursor prefix: X"),
        ("FA", Sort(), "Invalid cursor payload"),
        ("Fé", Sort(), "Invalid cursor payload"),
        ("FAAAA", Sort(), "Invalid length"),
        (token("{"), Sort("createdAt"), "Invalid cursor payload"),
        (token_of("zz", "createdAt", "2025-01-01T00:00:00.000Z"), Sort("createdAt"), "Invalid cursor payload"),
        (token_of(HEX, "createdAt", "soon"), Sort("createdAt"), "Invalid cursor payload"),
        (token_of(HEX, "createdAt", "2025-01-01T00:00:00"), Sort("createdAt"), "Invalid cursor payload"),
        (token_of(HEX, "updatedAt", "2025-01-01T00:00:00Z"), Sort("createdAt"), "Cursor does not match requested sort"),
        (encode_cursor(job(), Sort(), "forward"), Sort("createdAt"), "Cursor does not match requested sort"),
    ],
)  # fmt: skip
def test_tokens_that_are_none(cursor: object, sort: Sort, text: str) -> None:
    with pytest.raises(errors.InvalidCursorError, match=text):
        decode_cursor(cursor, sort)


def test_a_job_without_the_moment_or_with_another_id_ends_no_page() -> None:
    with pytest.raises(errors.InvalidCursorError, match="Cursor sort value is required"):
        encode_cursor(job(), Sort("createdAt"), "forward")
    with pytest.raises(errors.InvalidCursorError, match="Invalid length"):
        encode_cursor(job(id="other"), Sort(), "forward")


def test_sorts_and_directions_are_checked() -> None:
    assert check_sort(Sort("nextRunAt")) == Sort("nextRunAt") and check_direction("backward") == "backward"
    for value in ("createdAt", Sort("name"), Sort("createdAt", "down")):
        with pytest.raises(UsageError):
            check_sort(value)
    with pytest.raises(UsageError):
        check_direction("up")


# --- errors and events ------------------------------------------------------------------------------------------------


def test_texts_are_monques() -> None:
    cron = errors.InvalidCronError("bad", "why")
    assert str(cron) == (
        'Invalid cron expression "bad": why. Expected 5-field format: "minute hour day-of-month month day-of-week" or '
        'predefined expression (e.g. @daily). Example: "0 9 * * 1" (every Monday at 9am)'
    )
    assert str(errors.ShutdownTimeoutError(30000, [1, 2])) == "Shutdown timed out after 30000ms with 2 incomplete jobs"
    assert str(errors.WorkerRegistrationError("a")) == (
        'Worker already registered for job name "a". Use { replace: true } to replace.'
    )
    assert str(errors.JobStateError(HEX, "failed", "cancel")) == "Cannot cancel job in status 'failed'"
    assert str(errors.AggregationTimeoutError()) == "Statistics aggregation exceeded 30 second timeout"
    assert str(errors.PayloadTooLargeError(-1, 5, "odd")) == "Failed to calculate job payload size: odd"


def test_errors_can_be_copied_and_pickled() -> None:
    for error in (
        errors.InvalidCronError("bad", "why"),
        errors.JobStateError(HEX, "failed", "cancel"),
        errors.MonqueConnectionError("no", number=11000, maybe_applied=True),
        errors.CommandRefused("no", 50),
        errors.InvalidJobIdentifierError("name", "", "rule"),
    ):
        for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
            assert (str(again), vars(again)) == (str(error), vars(error))
    assert (errors.CommandRefused("no", 50).code, errors.CommandRefused("no").code) == ("50", "ERR")


def test_callbacks_are_checked() -> None:
    check_callback(JobCompleted, print)
    for kind, callback in (("job:complete", print), (Job, print), (JobCompleted, 5)):
        with pytest.raises(UsageError):
            check_callback(kind, callback)


# --- cron -------------------------------------------------------------------------------------------------------------


def test_a_bad_expression_is_refused_in_monques_words() -> None:
    at = NOW
    assert next_cron("*/15 * * * *", after=at, zone=UTC) == 1_766_000_700_000
    with pytest.raises(errors.InvalidCronError, match=r'^Invalid cron expression "61 ') as raised:
        next_cron("61 * * * *", after=at, zone=UTC)
    assert raised.value.expression == "61 * * * *"
    with pytest.raises(errors.InvalidCronError):
        next_cron("0 0 31 2,4 *", after=at, zone=UTC)
    wrong: Any = 5
    with pytest.raises(UsageError, match=r"^cron: must be text"):
        next_cron(wrong, after=at, zone=UTC)


def test_types_of_payloads_are_checked() -> None:
    assert [check_data_type(each) for each in (None, int, dict[str, int], Any)] == [None, int, dict[str, int], Any]
    for wrong in ("int", 5, lambda job: job, list[object | int | str | bytes | list[int] | list[str]]):
        with pytest.raises(UsageError, match=r"^data_type: must be a type that msgspec can convert to"):
            check_data_type(wrong)


def test_an_expression_of_megabytes_is_refused_at_once() -> None:
    longest = "5," * 2043 + "6 * * * *"
    with pytest.raises(errors.InvalidCronError, match="duplicate values found: 5"):
        next_cron(longest, after=NOW, zone=UTC)
    for wrong in ("* " * 3_000_000, "1," * 2_000_000 + "2 * * * *"):
        with pytest.raises(errors.InvalidCronError, match="characters are too many, 4096 at most") as raised:
            next_cron(wrong, after=NOW, zone=UTC)
        assert len(str(raised.value)) < 500
