"""Profiles beside the versions that do the same: directed cases, branches, and switches that are turned back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import pytest
from msgspec.structs import fields, replace

from bullmq_protocol.common.switches import Switches
from bullmq_protocol.scripts import profile as constants
from lua import build
from tests.oracle import cases, directed, profiles, report, scripts, sequences
from tests.oracle.calls import Call
from tests.oracle.cases import Case
from tests.oracle.directed import later
from tests.oracle.harness import Bench
from tests.oracle.layouts import VERSIONS, Layout
from tests.oracle.profiles import Comparison
from tests.oracle.scripts import Side
from tests.support import servers

COMPARISONS: dict[str, Comparison] = {
    f"{name} = {version} {comparison.title}".strip(): comparison
    for name in ("5.81", "6.7", "fleet")
    for version in profiles.versions_of(name)
    for comparison in profiles.comparisons(name, version)
}
NAMES = ("5.81", "6.7", "fleet")
WITHOUT_LPOS = frozenset({"is_active:by-reading", "is_active:not-there"})
"""Branches for servers that do not know LPOS."""

OF_CLIENTS = frozenset(
    {
        *("max_priority", "legacy_repeat", "repeat_without_rjk", "repeat_continuation", "retry_after_last_start"),
        *("deduplication_in_families", "cron"),
    }
)
"""Switches that no script asks for."""


@pytest.fixture(scope="module", params=servers.ends())
def end(request: pytest.FixtureRequest) -> Iterator[servers.Server]:
    with servers.start(request.param) as started:
        yield started


@pytest.fixture(scope="module")
def newest() -> Iterator[servers.Server]:
    with servers.start() as started:
        yield started


def alone(end: servers.Server, version: str) -> Bench:
    """Give a bench with a version's scripts on both sides."""
    keys = scripts.recorded_keys(version)
    return Bench(end.host, end.port, scripts.originals(version), {}, layout=Layout(version, (keys, keys)))


def wrong(found: Iterable[tuple[str, list[str]]]) -> dict[str, list[str]]:
    return {name: problems for name, problems in found if problems}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_cases_hold_in_their_version(end: servers.Server, version: str) -> None:
    with alone(end, version) as bench:
        assert wrong((case.name, cases.run(bench, case)) for case in later.CASES[version]) == {}
        if version != "5.62.0":
            assert later.missing(version, set(bench.tally.replies)) == []


@pytest.mark.parametrize("title", [title for title, each in COMPARISONS.items() if each.whole])
def test_ours_do_the_same(end: servers.Server, title: str) -> None:
    side = COMPARISONS[title].side
    with scripts.bench(end, side) as bench:
        assert wrong((case.name, cases.run(bench, case)) for case in later.CASES[side.version]) == {}


@pytest.mark.parametrize("title", COMPARISONS)
def test_ours_do_the_same_in_the_cases_of_all_versions(newest: servers.Server, title: str) -> None:
    comparison = COMPARISONS[title]
    # Where the queue is paused the list alone is asked for, which the later ones do.
    changed = scripts.switched(comparison.side) if comparison.sequences else ()
    listed = [
        *(case for case in directed.CASES if touches(case, changed)),
        *(() if comparison.whole else later.CASES[comparison.side.version]),
    ]
    with scripts.bench(newest, comparison.side, comparison.allowed) as bench:
        assert wrong((case.name, profiles.run_case(bench, comparison, case)) for case in listed) == {}


def test_fleet_does_what_no_version_does(end: servers.Server) -> None:
    with scripts.bench(end, profiles.fleet_alone()) as bench:
        assert wrong((case.name, cases.run_ours(bench, case)) for case in later.FLEET) == {}


@pytest.mark.parametrize("title", COMPARISONS)
def test_sequences_and_states(newest: servers.Server, title: str) -> None:
    comparison = COMPARISONS[title]
    with scripts.bench(newest, comparison.side, comparison.allowed) as bench:
        found = [sequences.run(bench, 1, number) for number in range(2 if comparison.sequences else 0)]
        found += [profiles.run_state(bench, comparison, 1, number) for number in range(60)]
    assert [report.found(each) for each in found if each is not None] == []


def of(name: str) -> list[tuple[Comparison, tuple[Case, ...]]]:
    """Return what a profile is compared on, with the cases of each."""
    chosen = [each for title, each in COMPARISONS.items() if title.split()[0] == name]
    return [(each, later.CASES[each.side.version]) for each in chosen]


@pytest.mark.deep
@pytest.mark.parametrize("name", NAMES)
def test_the_cases_reach_every_branch(newest: servers.Server, name: str) -> None:
    """Those that `strict` does not have: the cases of parts 01 to 04 reach the others."""
    own = Side(profiles.switches_of(name), "6.7.0" if name == "fleet" else profiles.OWN[name])
    missing = scripts.marks(own) - scripts.marks() - WITHOUT_LPOS
    if name == "5.81":
        missing -= set(build.marks("releaseParentIfNoPendingDependencies", chosen=own.switches.chosen))
    assert len(missing) > 20
    with scripts.bench(newest, own) as bench:
        bench.replace(scripts.ours_instrumented(own))
        for case in (*(later.FLEET if name == "fleet" else ()), *later.CASES[own.version]):
            cases.run_ours(bench, case)
            missing -= bench.reached().keys()
    assert missing == set()


def test_a_server_without_lpos_is_read(newest: servers.Server) -> None:
    reached: set[str] = set()
    for name in NAMES:
        comparison, listed = of(name)[-1]
        with scripts.bench(newest, comparison.side, comparison.allowed) as bench:
            take_right(bench, "lpos")
            bench.replace(scripts.ours_instrumented(comparison.side))
            for case in listed:
                if case.covers.startswith("06#L5"):
                    assert profiles.run_case(bench, comparison, case) == []
                    reached |= bench.reached().keys()
    assert reached >= WITHOUT_LPOS


def test_a_key_is_prolonged_by_a_user_who_may_not_pexpire(newest: servers.Server) -> None:
    """As producers had it before the scripts used the command."""
    comparison, listed = of("6.7")[-1]
    with scripts.bench(newest, comparison.side, comparison.allowed) as bench:
        take_right(bench, "pexpire")
        extending = [case for case in listed if "extending" in case.title]
        assert len(extending) > 8
        assert wrong((case.name, profiles.run_case(bench, comparison, case)) for case in extending) == {}


def take_right(bench: Bench, command: str) -> None:
    """Go on as a user who may not run the command."""
    bench.wire.run([("ACL", "SETUSER", "old", "on", "nopass", "~*", "+@all", f"-{command}"), ("AUTH", "old", "x")])


def turned(name: str) -> list[str]:
    """Return the switches of a profile that differ from `strict`, and that scripts ask for."""
    own, first = profiles.switches_of(name), profiles.switches_of("strict")
    found = [field.name for field in fields(Switches) if getattr(own, field.name) != getattr(first, field.name)]
    return [each for each in found if each not in OF_CLIENTS]


@pytest.mark.deep
@pytest.mark.parametrize(("name", "switch"), [(name, switch) for name in NAMES for switch in turned(name)])
def test_a_switch_that_is_turned_back_is_seen(newest: servers.Server, name: str, switch: str) -> None:
    first = getattr(profiles.switches_of("strict"), switch)
    for comparison, listed in of(name):
        if getattr(comparison.side.switches, switch) == first:
            continue
        back = comparison.side._replace(switches=replace(comparison.side.switches, **{switch: first}))
        changed = [each for each in scripts.names(back) if switch in build.switches(each)]
        assert changed
        with scripts.bench(newest, comparison.side, comparison.allowed) as bench:
            bench.replace(*scripts.some(back, changed))
            if any(profiles.run_case(bench, comparison, case) for case in listed if touches(case, changed)):
                return
    assert name == "fleet"
    back = Side(replace(profiles.switches_of(name), **{switch: first}), "6.7.0")
    with scripts.bench(newest, profiles.fleet_alone()) as bench:
        bench.replace(*scripts.some(back, [each for each in scripts.names(back) if switch in build.switches(each)]))
        assert any(cases.run_ours(bench, case) for case in later.FLEET)


def touches(case: Case, changed: Collection[str]) -> bool:
    return any(isinstance(step, Call) and step.name in changed for step in case.steps)


def test_no_script_asks_for_the_switches_of_clients() -> None:
    asked = {each for name in (*build.commands(), *build.own(), *build.apart("later")) for each in build.switches(name)}
    assert asked & OF_CLIENTS == set()
    assert {field.name for field in fields(Switches)} - asked == OF_CLIENTS


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_has_the_scripts_that_were_compared(name: str) -> None:
    profile = getattr(constants, profiles.CONSTANTS[name])
    side = Side(profile.switches, "6.7.0" if name == "fleet" else profiles.OWN[name])
    assert {each: profile.scripts[each].source for each in scripts.ours(side)} == scripts.ours(side)
    assert {each: profile.scripts[each].keys for each in scripts.ours(side)} == scripts.our_keys(side)
    if name != "fleet":
        theirs = scripts.recorded_keys(side.version)
        assert {each: keys for each, keys in scripts.our_keys(side).items() if theirs.get(each, keys) != keys} == {}


@pytest.mark.parametrize("listed", [*later.CASES.values(), later.FLEET], ids=[*VERSIONS, "fleet"])
def test_names_of_cases_are_unique(listed: tuple[Case, ...]) -> None:
    names = [case.name for case in listed]
    assert sorted(names) == sorted(set(names))
