"""Calls as each version takes them, and benches whose sides are called each in its own way."""

from __future__ import annotations

import pytest

from tests.oracle import calls, later_calls, scripts
from tests.oracle.calls import Call, Q, T
from tests.oracle.harness import Bench
from tests.oracle.layouts import VERSIONS, Layout, whole, with_args, with_keys
from tests.support import servers, vectors

DELAYED = "marker active prioritized delayed 1 events meta stalled wait limiter"
RETRIED = "1 events failed wait meta"
KEYS = {
    ("moveToDelayed", "5.62.0"): "marker active prioritized delayed 1 events meta stalled",
    ("moveToDelayed", "5.81.5"): f"{DELAYED} paused pc",
    ("moveToDelayed", "6.7.0"): f"{DELAYED} pc",
    ("reprocessJob", "5.62.0"): f"{RETRIED} paused active marker",
    ("reprocessJob", "5.81.5"): f"{RETRIED} paused active marker",
    ("reprocessJob", "6.7.0"): f"{RETRIED} active marker prioritized pc",
    ("moveStalledJobsToWait", "5.62.0"): "stalled wait active stalled-check meta paused marker events",
    ("moveStalledJobsToWait", "5.81.5"): "stalled wait active stalled-check meta paused marker events repeat",
    ("moveStalledJobsToWait", "6.7.0"): "stalled wait active stalled-check meta paused marker events repeat",
    ("getCountsPerPriority", "5.62.0"): "wait paused meta prioritized",
    ("getCountsPerPriority", "5.81.5"): "wait paused meta prioritized",
    ("getCountsPerPriority", "6.7.0"): "wait prioritized",
}
CALLS = {
    call.name: call
    for call in (
        calls.move_to_delayed(),
        calls.reprocess_job(),
        calls.stalled_check(),
        calls.get_counts_per_priority(Q, "1"),
    )
}


@pytest.mark.parametrize(("name", "version"), KEYS)
def test_each_version_gets_its_keys(name: str, version: str) -> None:
    fit = with_keys(whole(CALLS[name]), scripts.recorded_keys(version)[name])
    assert fit.keys == tuple(Q + key for key in KEYS[name, version].split())
    assert whole(whole(CALLS[name])) == whole(CALLS[name])


def test_every_command_that_takes_other_keys_since_is_known() -> None:
    first, *later = (scripts.recorded_keys(version) for version in VERSIONS)
    changed = {name for keys in later for name in first.keys() & keys.keys() if first[name] != keys[name]}
    assert changed == {name for name, version in KEYS if version == "5.62.0"}


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_the_table_of_commands_tells_who_has_which_keys(version: str) -> None:
    told = {}
    for row in vectors.table().values():
        if row["kind"] == "script" and _version(row.get("until", version)) >= _version(version):
            changes = [each for each in row.get("changes", ()) if _version(each["since"]) <= _version(version)]
            told[row["name"]] = len([row["keys"], *(each["keys"] for each in changes if "keys" in each)][-1])
    recorded, first = scripts.recorded_keys(version), scripts.recorded_keys("5.62.0")
    assert told == {name: keys for name, keys in recorded.items() if name in first}


@pytest.mark.parametrize(
    ("call", "version", "args"),
    [
        (later_calls.then_fetch(calls.move_to_delayed()), "5.62.0", calls.move_to_delayed().args),
        (later_calls.resetting(calls.reprocess_job()), "5.62.0", calls.reprocess_job().args),
        (later_calls.resetting(calls.reprocess_job()), "5.81.5", (*calls.reprocess_job().args, "1", "1")),
        (later_calls.pausing("paused", "0"), "5.81.5", ("paused",)),
        (later_calls.pausing("paused", "0"), "6.7.0", ("paused", "0")),
        (later_calls.due_counts(str(T), Q, "wait"), "5.81.5", ("wait",)),
        (later_calls.due_counts(str(T), Q, "wait"), "6.7.0", (str(T), "wait")),
        (calls.get_counts(Q, "wait"), "5.81.5", ("wait",)),
    ],
)
def test_each_version_gets_its_arguments(call: Call, version: str, args: tuple[str, ...]) -> None:
    assert with_args(call, version).args == args


def test_a_call_of_the_oldest_stays_as_it_is() -> None:
    odd = Call("moveToDelayed", ("k",), ("a",))
    assert with_keys(whole(odd), 12) == odd


ECHO = "return #KEYS * 100 + #ARGV"


def test_each_side_is_called_in_its_own_way() -> None:
    names = dict.fromkeys(("moveToDelayed", "addRepeatableJob", "pause"), ECHO)
    keys = ({"moveToDelayed": 8, "pause": 7}, {"moveToDelayed": 12, "addRepeatableJob": 2, "pause": 7})
    with (
        servers.start() as server,
        Bench(server.host, server.port, names, names, layout=Layout("5.81.5", keys)) as bench,
    ):
        bench.reset()
        assert bench.call(calls.move_to_delayed()).differences == ("reply 809, ours 1209",)
        assert bench.call(calls.add_repeatable()).reply is None
        assert (bench.tally.calls, bench.tally.skipped) == (1, 1)
        bench.replace({"moveToDelayed": ECHO}, {"moveToDelayed": 8})
        assert bench.call(calls.move_to_delayed()).differences == ()
        bench.replace({"pause": "return nil"})
        assert bench.call(calls.pause()).differences
        bench.free = frozenset({"pause"})
        assert bench.call(calls.pause()).differences == ()
        bench.replace({"pause": "return redis.error_reply('x')"})
        assert bench.call(calls.pause()).differences
        bench.allowed = lambda _bench, call: call.name != "pause"
        assert bench.call(calls.pause()).reply is None
        assert bench.tally.skipped == 2
