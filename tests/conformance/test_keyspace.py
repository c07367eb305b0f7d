"""What a moment, a token and a lifetime are compared by."""

from collections.abc import Iterator

import pytest

from bullmq_conformance.keyspace import Moments, Side, kind_of
from bullmq_conformance.wire import Wire
from tests.conformance.conftest import url_of
from tests.support.servers import Server

T = 1_764_000_000_000


@pytest.fixture
def side(server: Server) -> Iterator[Side]:
    wire, moments = Wire.of_url(url_of(server)), Moments()
    moments.learn(600_000)
    moments.learn_lifetime(30_000)
    made = Side(wire, moments)
    made.windows = {1: (T, T + 2), 2: (T + 10, T + 10)}
    yield made
    wire.run([("FLUSHDB",)])
    wire.close()


def stored(side: Side, *commands: tuple[object, ...]) -> object:
    """Store one key; return its value as it is compared."""
    assert not any(isinstance(each, Exception) for each in side.wire.run(commands))
    ((entry,),) = (side.read().values(),)
    return entry["value"]


@pytest.mark.any_server
@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (T, "@1"),
        (T + 2, "@1"),
        (T + 3, "@?"),
        (T + 10, "@2"),
        (T + 600_001, "@1+600000"),
        (T - 1, "@?"),
        (T + 60_000, str(T + 60_000)),
        (T - 400_000_001, str(T - 400_000_001)),
        (1_700_000_000_000, "1700000000000"),
    ],
)
def test_a_moment_is_that_of_a_request_or_a_number(side: Side, moment: int, expected: str) -> None:
    assert side.moment(moment) == expected
    assert side.text(f"repeat:s:{moment}") == f"repeat:s:{expected}"


@pytest.mark.any_server
def test_moments_are_found_wherever_they_stand(side: Side) -> None:
    assert side.json({"a": [T, {"b": T + 1, "c": 5}], "d": "x"}) == {"a": ["@1", {"b": "@1", "c": 5}], "d": "x"}
    assert side.text(f"1{T}") == f"1{T}"


@pytest.mark.any_server
def test_a_token_is_named_by_its_request_also_one_that_begins_another(side: Side) -> None:
    side.name("abc:1", "<token 1>")
    side.name("abc:12", "<token 2>")
    assert side.text("abc:12 abc:1") == "<token 2> <token 1>"
    assert side.own("<token 2>") == "abc:12"
    assert side.own("wrong") == "wrong"


def test_the_score_of_a_delayed_job_is_a_moment_and_an_order(side: Side) -> None:
    score = (T + 600_000) * 4096 + 3
    assert stored(side, ("ZADD", "bull:q:delayed", score, "1")) == {"1": "@1+600000, order 3"}


@pytest.mark.parametrize("second", [(T + 600_000) * 4096 + 1, (T + 600_001) * 4096])
def test_of_jobs_that_a_request_made_due_together_only_the_order_is_compared(side: Side, second: int) -> None:
    """A client may have read the clock for each of them."""
    found = stored(side, ("ZADD", "bull:q:delayed", (T + 600_000) * 4096, "2", second, "1", (T + 10) * 4096 + 2, "3"))
    assert found == {"2": "@1+600000, place 0", "1": "@1+600000, place 1", "3": "@2, order 2"}


def test_the_offset_of_a_scheduler_is_a_moment_within_a_period(side: Side) -> None:
    assert stored(side, ("HSET", "bull:q:repeat:s", "offset", T % 600_000)) == {"offset": "@1 modulo 600000"}
    assert side.json({"offset": T % 600_000, "every": 5}) == {"offset": "@1 modulo 600000", "every": 5}
    # 2,000,000,000,000 is no moment of a request, wherever it falls within a period.
    side.windows = {1: (T - T % 600_000, T - T % 600_000 + 600_000)}
    assert side.json({"offset": 2_000_000_000_000 % 600_000}) == {"offset": 200_000}


def test_a_marker_may_hold_a_part_of_a_millisecond(side: Side) -> None:
    assert stored(side, ("ZADD", "bull:q:marker", repr(T + 3 / 4096), "1")) == {"1": "@1, order 3"}
    assert stored(side, ("ZADD", "bull:q:marker", 0, "1")) == {"1": 0}


def test_a_hash_is_compared_by_what_its_fields_mean(side: Side) -> None:
    side.reasons.append("boom")
    fields = {
        "stacktrace": '["Error: boom at line 3", "?"]',
        "opts": f'{{"b":1,"timestamp":{T}}}',
        "data": '{"a": 1}',
    }
    assert stored(side, ("HSET", "bull:q:1", *(part for pair in fields.items() for part in pair))) == {
        "stacktrace": ["<trace of boom>", "<trace>"],
        "opts": {"b": 1, "timestamp": "@1"},
        "data": '{"a": 1}',
    }


def test_meta_names_the_library(side: Side) -> None:
    assert stored(side, ("HSET", "bull:q:meta", "version", "a:1.0")) == {"version": "<library>:<version>"}
    assert stored(side, ("HSET", "bull:q:meta", "version", "1.0")) == {"version": "1.0"}


def test_a_lifetime_is_that_of_a_request(side: Side) -> None:
    seconds, microseconds = side.wire.run([("TIME",)])[0]
    now = int(seconds) * 1000 + int(microseconds) // 1000
    side.windows = {1: (now - 100_000, now - 99_000), 2: (now, now + 1000)}
    side.wire.run([("SET", "bull:q:1:lock", "t", "PX", 30_000), ("SET", "bull:q:2:lock", "t", "PX", 50_000)])
    found = side.read()
    assert found["bull:q:1:lock"]["expires"] == ["@2+30000"]
    assert found["bull:q:2:lock"]["expires"] == []


@pytest.mark.any_server
@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("bull:q:wait", "wait"),
        ("bull:q:metrics:completed", "metrics:completed"),
        ("bull:q:1", "<job>"),
        ("bull:q:1:lock", "<job>:lock"),
        ("bull:q:repeat:s", "repeat:<id>"),
        ("bull:q:repeat:s:@3", "<job>"),
        ("bull:q:repeat:s:@3:lock", "<job>:lock"),
        ("bull:q:de:d", "de:<id>"),
    ],
)
def test_the_kind_of_a_key(key: str, kind: str) -> None:
    assert kind_of(key) == kind
