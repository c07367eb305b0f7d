"""The harness itself: it sees every kind of difference and tolerates what the specification leaves open."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from lua import build
from tests.oracle import directed, report, scripts
from tests.oracle.calls import Call, Command
from tests.oracle.harness import TTL_TOLERANCE_MS, Bench, Result
from tests.oracle.sequences import Found, replay
from tests.support import servers

KEY = "k"


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    with servers.start() as started:
        yield started


def compare(server: servers.Server, theirs: str, ours: str, *state: Command, name: str = "updateData") -> Result:
    with Bench(server.host, server.port, {name: theirs}, {name: ours}) as bench:
        bench.reset(state)
        return bench.call(Call(name, (KEY,), ()))


SEEN = {
    "a value": ("redis.call('SET', KEYS[1], 'a')", "redis.call('SET', KEYS[1], 'b')", "k (string)"),
    "a missing key": ("redis.call('SET', KEYS[1], 'a')", "return nil", "k: b'a', ours None"),
    "a key too many": ("return nil", "redis.call('SET', KEYS[1], 'a')", "k: None, ours b'a'"),
    "a type": ("redis.call('SADD', KEYS[1], 'a')", "redis.call('RPUSH', KEYS[1], 'a')", "k (set)"),
    "the order of a list": (
        "redis.call('RPUSH', KEYS[1], 'a', 'b')",
        "redis.call('LPUSH', KEYS[1], 'a', 'b')",
        "k (list)",
    ),
    "a score": ("redis.call('ZADD', KEYS[1], 1, 'a')", "redis.call('ZADD', KEYS[1], 1.5, 'a')", "k (zset)"),
    "a field of a hash": ("redis.call('HSET', KEYS[1], 'a', 1)", "redis.call('HSET', KEYS[1], 'a', 2)", "k (hash)"),
    "a field of a stream entry": (
        "redis.call('XADD', KEYS[1], '*', 'event', 'a')",
        "redis.call('XADD', KEYS[1], '*', 'event', 'b')",
        "k (stream)",
    ),
    "the order of a stream entry's fields": (
        "redis.call('XADD', KEYS[1], '*', 'a', '1', 'b', '2')",
        "redis.call('XADD', KEYS[1], '*', 'b', '2', 'a', '1')",
        "k (stream)",
    ),
    "a lifetime on one side": (
        "redis.call('SET', KEYS[1], 'a', 'PX', 90000)",
        "redis.call('SET', KEYS[1], 'a')",
        "k: 90000 ms left, ours -1",
    ),
    "a lifetime that is too long": (
        "redis.call('SET', KEYS[1], 'a', 'PX', 90000)",
        f"redis.call('SET', KEYS[1], 'a', 'PX', {90000 + TTL_TOLERANCE_MS + 100})",
        "ms left, ours 95100",
    ),
    "a reply": ("return 1", "return 0", "reply 1, ours 0"),
    "the type of a reply": ("return 1", "return '1'", "reply 1, ours b'1'"),
    "an error on one side": ("return redis.error_reply('ERR x')", "return 1", "reply an error of class ERR, ours 1"),
    "the class of an error": (
        "return redis.error_reply('WRONGTYPE x')",
        "return redis.error_reply('ERR x')",
        "reply an error of class WRONGTYPE",
    ),
}


@pytest.mark.parametrize("kind", SEEN)
def test_a_difference_is_seen(server: servers.Server, kind: str) -> None:
    theirs, ours, text = SEEN[kind]
    assert len(compare(server, theirs, ours).differences) == 1
    assert compare(server, theirs, theirs).differences == ()
    found = compare(server, theirs, ours).differences[0]
    # A lifetime has run for a moment when it is read.
    assert text in re.sub(r"\b950\d\d\b", "95100", re.sub(r"\b899\d\d\b", "90000", found))


EQUAL = {
    "lifetimes within the tolerance": (
        "redis.call('SET', KEYS[1], 'a', 'PX', 90000)",
        f"redis.call('SET', KEYS[1], 'a', 'PX', {90000 - TTL_TOLERANCE_MS + 100})",
    ),
    "texts of errors": ("return redis.error_reply('ERR x')", "return redis.error_reply('ERR y')"),
    "the order of a hash": (
        "redis.call('HSET', KEYS[1], 'a', 1, 'b', 2)",
        "redis.call('HSET', KEYS[1], 'b', 2, 'a', 1)",
    ),
    "the order of a set": ("redis.call('SADD', KEYS[1], 'a', 'b')", "redis.call('SADD', KEYS[1], 'b', 'a')"),
    "ids of stream entries": (
        "redis.call('XADD', KEYS[1], '5-1', 'a', 'b')",
        "redis.call('XADD', KEYS[1], '6-1', 'a', 'b')",
    ),
}


@pytest.mark.parametrize("kind", EQUAL)
def test_what_is_left_open_is_equal(server: servers.Server, kind: str) -> None:
    assert compare(server, *EQUAL[kind]).differences == ()


def test_remaining_times_in_replies_have_a_tolerance(server: servers.Server) -> None:
    near, far = f"return {{0, 0, {9000 - TTL_TOLERANCE_MS}, 0}}", f"return {{0, 0, {8999 - TTL_TOLERANCE_MS}, 0}}"
    assert compare(server, "return {0, 0, 9000, 0}", near, name="moveToActive").differences == ()
    assert compare(server, "return {0, 0, 9000, 0}", far, name="moveToActive").differences != ()
    assert compare(server, "return {0, 0, 0, 5000}", "return {0, 0, 0, 4999}", name="moveToActive").differences != ()


def test_the_order_of_a_walk_over_a_set_is_open_and_the_sides_are_made_equal(server: servers.Server) -> None:
    theirs, ours = "redis.call('RPUSH', KEYS[1], 'a', 'b')", "redis.call('RPUSH', KEYS[1], 'b', 'a')"
    with Bench(server.host, server.port, {"removeJob": theirs}, {"removeJob": ours}) as bench:
        bench.reset()
        assert bench.call(Call("removeJob", (KEY,), ())).differences == ()
        assert bench.state(1) == bench.state(0)


def test_a_difference_ends_a_replay_and_is_reported_without_the_text_of_an_error(server: servers.Server) -> None:
    scripts_ = {"updateData": "return redis.error_reply('ERR secret')"}
    with Bench(server.host, server.port, scripts_, {"updateData": "return 1"}) as bench:
        steps = (("SET", "x", "1"), Call("updateData", (KEY,), ()))
        text = report.found(Found("name", replay(bench, steps), steps))
    assert "('SET', 'x', '1')," in text
    assert "Call('updateData', ('k',), ())" in text
    assert "differs: reply an error of class ERR, ours 1" in text
    assert "secret" not in text


def test_a_start_state_that_fails_is_an_error_unless_told(server: servers.Server) -> None:
    wrong: tuple[Command, ...] = (("SET", KEY, "a"), ("LPUSH", KEY, "b"))
    with Bench(server.host, server.port, {}, {}) as bench:
        with pytest.raises(ValueError, match="LPUSH"):
            bench.reset(wrong)
        bench.reset(wrong, strict=False)
        assert bench.state(1)[KEY].value == b"a"


def test_a_changed_script_is_named_and_not_shown() -> None:
    changed = {name: {"keys": 1, "content": "secret"} for name in scripts.originals()}
    with pytest.raises(scripts.ScriptsChanged, match=r"addDelayedJob, .*updateProgress") as raised:
        scripts.compare_with_record(changed)
    assert "secret" not in str(raised.value)


def test_every_script_of_ours_takes_as_many_keys_as_the_original() -> None:
    recorded = scripts.recorded_keys()
    assert {name: build.key_count(name) for name in build.commands()} == {
        name: recorded[name] for name in build.commands()
    }


def test_every_command_of_ours_has_directed_cases() -> None:
    assert set(build.commands()) <= set(directed.REPLIES)
