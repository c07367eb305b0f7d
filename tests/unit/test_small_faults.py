"""What small planted faults changed without any other test noticing it (`make mutants`): bounds, names and texts."""

from __future__ import annotations

from typing import Any

import pytest

from bullmq_protocol import Deduplication, JobOptions, NewJob, RepeatOptions, UsageError
from bullmq_protocol.command import Repeat
from bullmq_protocol.commands.adding import looks_before
from bullmq_protocol.commands.getters import range_failed
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import ServerError, ServerTooOld, shown
from bullmq_protocol.events.waiters import Waiter
from bullmq_protocol.model.categories import _by_status
from bullmq_protocol.model.job import JobRecord, prepare
from bullmq_protocol.model.options import Limits, result_text, stored
from bullmq_protocol.model.schedule import no_zones, rule_of
from bullmq_protocol.net.address import parse_url
from bullmq_protocol.net.server_info import MINIMUM_VERSION, ServerInfo
from bullmq_protocol.net.topology import explained
from bullmq_protocol.operations.obliterate import Obliterate
from bullmq_protocol.operations.read_logs import LogPages

K = QueueKeys.of("q")
NOW = 1_700_000_000_000


@pytest.mark.parametrize("kind", [Obliterate, LogPages])
def test_the_least_that_may_be_asked_for(kind: Any) -> None:
    name, others = ("count", {}) if kind is Obliterate else ("page_size", {"job_id": "1"})
    assert next(kind(**{name: 1}, **others).page(K)) is not None
    with pytest.raises(UsageError) as caught:
        next(kind(**{name: 0}, **others).page(K))
    assert (caught.value.field, caught.value.value) == (name, 0)


def test_a_value_is_cut_after_120_characters() -> None:
    assert shown("x" * 118) == f"'{'x' * 118}'"
    assert shown("x" * 119) == f"'{'x' * 116}..."


def test_what_is_asked_before_a_job_is_added() -> None:
    job = prepare(K, NewJob("n", {}, JobOptions(job_id="mine", deduplication=Deduplication(id="d"))), now_ms=NOW)
    looks = looks_before(K, job)
    assert [(each.name, each.keys, each.repeat) for each in looks] == [
        ("EXISTS", ("bull:q:mine",), Repeat.SAFE),
        ("GET", ("bull:q:de:d",), Repeat.SAFE),
    ]


def test_further_options_are_stored_as_they_are() -> None:
    assert stored(JobOptions(extra={"mine": {"a": 1}}))["mine"] == {"a": 1}


def test_a_result_is_named() -> None:
    for value, limits in ((object(), Limits()), ("x" * 9, Limits(max_result_bytes=10))):
        with pytest.raises(UsageError) as caught:
            result_text(value, limits)
        assert caught.value.field == "returnvalue"
    assert result_text("x" * 8, Limits(max_result_bytes=10)) == '"xxxxxxxx"'


def test_the_last_of_a_page_of_failed_children() -> None:
    assert range_failed(K, "1", cursor=20, count=10).args == (20, 29)


def test_who_waits_expects_no_more_than_the_end_of_a_job_that_is_gone() -> None:
    waiter = Waiter("1", lambda: None)
    assert not waiter.expects((5, 0))
    assert waiter.finished is None


def test_the_refusal_of_an_old_server_names_the_oldest() -> None:
    with pytest.raises(ServerTooOld) as caught:
        ServerInfo(version_text="2.8").require_supported()
    major, minor, _ = MINIMUM_VERSION
    assert str(caught.value) == f"the server has version 2.8, but {major}.{minor} or later is needed"


def test_a_job_without_its_parent_keeps_its_id() -> None:
    record = JobRecord.from_fields("7", {"name": b"n", "parentKey": b"bull:p:1", "parent": b"{}"})
    found = record.without_parent()
    assert (found.id, dict(found.fields)) == ("7", {"name": b"n"})


def test_a_scheduler_may_end_now() -> None:
    assert rule_of(RepeatOptions(every=1000, end_date=NOW), now=NOW, zones=no_zones)["endDate"] == NOW
    with pytest.raises(UsageError, match="greater than the current"):
        rule_of(RepeatOptions(every=1000, end_date=NOW - 1), now=NOW, zones=no_zones)


def test_an_offset_is_named() -> None:
    with pytest.raises(UsageError) as caught:
        rule_of(RepeatOptions(every=1000, offset="x"), now=NOW, zones=no_zones)  # type: ignore[arg-type]
    assert caught.value.field == "offset"


def test_a_status_is_one_of_errors() -> None:
    class WithStatus(Exception):
        def __init__(self, status: int) -> None:
            self.status = status

    assert [_by_status(WithStatus(each), None) is not None for each in (399, 400, 599, 600)] == [
        False,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("code", ["MOVED", "ASK"])
def test_a_redirection_says_how_to_follow_it(code: str) -> None:
    found = explained(ServerError(f"{code} 1 host:1"))
    assert "redis+cluster://" in str(found)
    assert found.code == code


def test_a_job_that_is_too_large_is_named() -> None:
    for options, limits in ((JobOptions(size_limit=5), Limits()), (JobOptions(), Limits(max_payload_bytes=5))):
        with pytest.raises(UsageError) as caught:
            prepare(K, NewJob("mail", "x" * 10, options), limits=limits, now_ms=NOW)
        assert (caught.value.field, caught.value.value) == ("data", "mail")


def test_a_number_in_a_url_must_be_whole() -> None:
    with pytest.raises(UsageError) as caught:
        parse_url("redis://host?command_timeout_ms=x")
    assert caught.value.rule == "must be a whole number"
