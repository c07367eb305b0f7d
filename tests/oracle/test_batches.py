"""Several jobs in one call equal the same jobs one by one; planted faults are found."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pytest
from msgspec.structs import replace

from bullmq_protocol.scripts._lua import OUR_SCRIPTS
from bullmq_protocol.scripts.profile import FLEET, V5_81, V6_7, Profile
from lua import build
from tests.oracle import batches
from tests.oracle.harness import COVERAGE, Bench
from tests.support import servers

FAULTS = (
    ("finishMany", "deferred.cap + emitted - deferred.emitted", "deferred.cap"),
    ("finishMany", "    promoted_at = nil\n", "    promoted_at = now\n"),
    ("finishMany", "call('EXISTS', unpack(pending)) == 0", "true"),
    ("finishMany", "deferred.locks[lock] = false", "deferred.locks[lock] = nil"),
    ("finishMany", "members[#members + 1], members[#members + 2] = now, id", "members[1], members[2] = now, id"),
    ("fetchMany", "if replies[number][2] == 0 or", "if"),
    ("finishMany", "left = left - 1", "left = left"),
    ("finishMany", "ending[next_id] ~= nil", "false"),
    ("finishMany", "first - size - 2", "first - size - 1"),
    ("finishMany", "if window[place] then", "if true then"),
    ("finishMany", "cap + last_events", "cap + 0"),
    ("finishMany", "(left > 0 or size > count)", "true"),
    ("finishMany", "#fields == 12", "#fields >= 12"),
    ("fetchMany", "if not place then", "if false then"),
    ("fetchMany", "coming[left + 1 - number]", "coming[number]"),
    ("addMany", "first + number", "first + number + 1"),
    ("addMany", "call('EXISTS', unpack(taken)) > 0", "false"),
    ("addMany", "batch.last - batch.reserved", "batch.last"),
    ("addMany", "if state.ready then", "if false then"),
    ("addMany", "if added or type(reply) ~= 'string' then", "if true then"),
    ("addMany", "return id .. '', true", "return id .. ''"),
    ("addMany", "plain = above + plain\n", ""),
    ("addMany", "'waiting-children', 'jobId', id)\n    return", "'waiting', 'jobId', id)\n    return"),
)


def test_one_call_equals_the_single_calls(bench: Bench) -> None:
    for edge in batches.edges():
        assert batches.singly(bench, *edge[:3]) == ()
        assert batches.compare(bench, *edge) == ()
    for number in range(150):
        assert batches.run(bench, 1, number) == ()


PROFILES = (FLEET, V6_7, V5_81)
LATER_FAULTS = (
    ("finishMany", "(base, record, stored[4], now)\n      promoted_at = nil", "(base, record, stored[4], now)"),
    ("addMany", "call('EXISTS', KEYS[2]) == 1 or ", ""),
    ("addMany", "call('PERSIST', base .. 'de:' .. dedup_id)", "local _"),
)
FLOW_FAULTS = (
    ("addMany", "call('SCARD', children) == 0 or ", ""),
    ("addMany", " or call('HEXISTS', job, 'flowAttachmentFailed') == 1", ""),
    ("addMany", " and ARGV[at - 1] == replies[above]", ""),
    ("addMany", "parent == ARGV[at - 2] .. ':' .. ARGV[at - 1]", "true"),
    ("addMany", "replies[count] = false", "replies[count] = 0"),
)


@pytest.fixture(scope="module", params=servers.ends())
def each_server(request: pytest.FixtureRequest) -> Iterator[servers.Server]:
    with servers.start(request.param) as started:
        yield started


REGRESSIONS = ((201, 8551),)
"""States that have shown a difference: kept jobs whose adding breaks off behind a stream that is to be trimmed."""


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.label)
def test_what_differed_once_is_equal(each_server: servers.Server, profile: Profile) -> None:
    with batches.bench_of(each_server, profile) as bench:
        for seed, number in REGRESSIONS:
            assert batches.compare(bench, *batches.later_state(seed, number), profile.scripts) == ()


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.label)
def test_one_call_equals_the_single_calls_of_its_profile(each_server: servers.Server, profile: Profile) -> None:
    assert [text for texts in batches.of_profile(each_server, profile, 1, 100) for text in texts] == []


@pytest.fixture(scope="module")
def of_fleet() -> Iterator[Bench]:
    with servers.start() as started, batches.bench_of(started, FLEET) as made:
        yield made


@pytest.mark.deep
@pytest.mark.parametrize(("name", "right", "wrong"), LATER_FAULTS)
def test_a_fault_in_what_came_later_is_found(of_fleet: Bench, name: str, right: str, wrong: str) -> None:
    script = FLEET.scripts[name]
    assert right in script.source
    planted = {**FLEET.scripts, name: replace(script, source=script.source.replace(right, wrong))}
    some = (batches.later_state(1, number) for number in range(1000))
    assert any(batches.compare(of_fleet, *each, planted) for each in some if each[3](each[2]).name == name)


@pytest.mark.deep
@pytest.mark.parametrize(("name", "right", "wrong"), FLOW_FAULTS)
def test_a_fault_in_the_release_of_parents_is_found(of_fleet: Bench, name: str, right: str, wrong: str) -> None:
    script = FLEET.scripts[name]
    assert script.source.count(right) == 1
    planted = {**FLEET.scripts, name: replace(script, source=script.source.replace(right, wrong))}
    some = (batches.flow_state(1, number) for number in range(1000))
    assert any(batches.compare(of_fleet, *each, planted) for each in some)


@pytest.mark.deep
def test_every_branch_of_a_flow_is_reached(of_fleet: Bench) -> None:
    chosen = FLEET.switches.chosen
    files = {"addMany", "add_rest"}
    missing = {mark for mark in build.marks("addMany", chosen=chosen) if mark.partition(":")[0] in files}
    counted = replace(FLEET.scripts["addMany"], source=build.instrumented("addMany", COVERAGE, chosen=chosen))
    for number in range(2000):
        state = batches.state if number % 2 else batches.flow_state
        name, made, found, merged = state(3, number)
        if merged(found).name == "addMany":
            assert batches.compare(of_fleet, name, made, found, merged, {"addMany": counted}) == ()
            missing -= of_fleet.reached().keys()
    assert missing == set()


@pytest.mark.deep
def test_every_branch_of_the_plain_jobs_is_reached(counting: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = {name: replace(script, source=build.instrumented(name, COVERAGE)) for name, script in OUR_SCRIPTS.items()}
    monkeypatch.setattr(batches, "OUR_SCRIPTS", counted)
    files = {*OUR_SCRIPTS, "first_attempt"}
    missing = {mark for name in OUR_SCRIPTS for mark in build.marks(name) if mark.partition(":")[0] in files}
    assert len(missing) > 30
    for edge in batches.edges():
        assert batches.compare(counting, *edge) == ()
        missing -= counting.reached().keys()
    for number in range(2000):
        assert batches.run(counting, 3, number) == ()
        missing -= counting.reached().keys()
        if not missing:
            break
    assert missing == set()


@pytest.mark.deep
@pytest.mark.parametrize(("name", "right", "wrong"), FAULTS)
def test_a_planted_fault_is_found(
    counting: Bench, monkeypatch: pytest.MonkeyPatch, name: str, right: str, wrong: str
) -> None:
    script = OUR_SCRIPTS[name]
    assert right in script.source
    planted = {**OUR_SCRIPTS, name: replace(script, source=script.source.replace(right, wrong))}
    monkeypatch.setattr(batches, "OUR_SCRIPTS", planted)
    some = chain(batches.edges(), (batches.state(1, number) for number in range(600)))
    # What goes together by another script cannot tell.
    assert any(batches.compare(counting, *each) for each in some if each[3](each[2]).name == name)
