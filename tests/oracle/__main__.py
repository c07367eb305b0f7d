"""`make oracle`: regressions, directed cases, then sequences and random states, with one line at the end.

`PROFILE` (`strict`, `5.81`, `6.7`, `fleet`) chooses our scripts, `BULLMQ` (`5.62.0`, `5.81.5`, `6.7.0`) those that they
are compared with: the version that the profile is, or the profile that the version is, where only one of them is given.
`fleet` is compared with each version as far as it must do the same (`profiles.py`).

`SEQUENCES` is the number of sequences, of which hypothesis drives one in ten; ten times as many random states come on
top, and as many of several jobs in one call against single calls. `SEED` repeats a run, `SHOWN` is how many differences
are printed.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator

from tests.oracle import batches, cases, directed, machine, profiles, regressions, report, scripts, sequences
from tests.oracle.directed import later
from tests.oracle.harness import Bench
from tests.oracle.layouts import VERSIONS
from tests.oracle.profiles import Comparison
from tests.support import node, servers

STATES_PER_SEQUENCE = 10
HYPOTHESIS_DRIVES_ONE_IN = 10
SHOWN = int(os.environ.get("SHOWN") or 10)


def differences(bench: Bench, comparison: Comparison, count: int, seed: int) -> Iterator[str]:
    """Run everything; yield a text per difference and per branch that was not reached."""
    if comparison.side == scripts.STRICT:
        yield from _of_strict(bench)
        for edge in batches.edges():
            yield from batches.compare(bench, *edge)
        for number in range(count * STATES_PER_SEQUENCE):
            yield from batches.run(bench, seed, number)
    else:
        yield from _directed(bench, comparison)
    if comparison.sequences:
        begun, found = machine.run(bench, max(1, count // HYPOTHESIS_DRIVES_ONE_IN), seed)
        if found is not None:
            yield report.found(found)
        for number in range(begun, count):
            found = sequences.run(bench, seed, number)
            if found is not None:
                yield report.found(found)
    for number in range(count * STATES_PER_SEQUENCE):
        found = profiles.run_state(bench, comparison, seed, number)
        if found is not None:
            yield report.found(found)


def _of_strict(bench: Bench) -> Iterator[str]:
    for case in regressions.CASES:
        for problem in cases.run(bench, case):
            yield f"regression {case.name}\n  {problem}"
    bench.replace(scripts.ours_instrumented())
    reached: set[str] = set()
    bench.tally.replies.clear()
    for case in directed.CASES:
        for problem in cases.run(bench, case):
            yield f"directed case {case.name}\n  {problem}"
        reached |= bench.reached().keys()
    yield from directed.missing(directed.CASES, set(bench.tally.replies), scripts.marks(), reached)
    bench.replace(scripts.ours())


def _directed(bench: Bench, comparison: Comparison) -> Iterator[str]:
    version = comparison.side.version
    for case in later.CASES[version] if comparison.whole else ():
        for problem in cases.run(bench, case):
            yield f"directed case {case.name}\n  {problem}"
    for case in (*directed.CASES, *later.CASES[version]):
        for problem in profiles.run_case(bench, comparison, case):
            yield f"directed case {case.name}, in such states\n  {problem}"


def _at_once(server: servers.Server, name: str, count: int, seed: int) -> Iterator[str]:
    """Compare calls for several jobs with single calls of the same profile."""
    profile = profiles.profile(name)
    with batches.bench_of(server, profile) as bench:
        for edge in batches.edges():
            yield from batches.compare(bench, *edge, profile.scripts)
        for number in range(count * STATES_PER_SEQUENCE):
            yield from batches.compare(bench, *batches.later_state(seed, number), profile.scripts)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def compare(server: servers.Server, name: str, version: str, count: int, seed: int) -> int:
    """Compare a profile with a version, and print; return the number of differences."""
    total = calls = 0
    for comparison in profiles.comparisons(name, version):
        with scripts.bench(server, comparison.side, comparison.allowed) as bench:
            say(f"oracle: {name} = {version} {comparison.title}".rstrip())
            for text in differences(bench, comparison, count, seed):
                total += 1
                if total <= SHOWN:
                    say(text)
            calls += bench.tally.calls
    if name != "strict" and version == profiles.versions_of(name)[-1]:
        for text in _at_once(server, name, count, seed):
            total += 1
            if total <= SHOWN:
                say(text)
    if name == "fleet":
        with scripts.bench(server, profiles.fleet_alone()) as bench:
            for case in later.FLEET:
                for problem in cases.run_ours(bench, case):
                    total += 1
                    say(f"directed case {case.name}\n  {problem}")
    say(f"oracle: {name} = {version}: {count} sequences, {calls} calls, {total} differences")
    return total


def chosen(profile: str, version: str) -> list[tuple[str, str]]:
    """Return the profiles and versions to compare, by `PROFILE` and `BULLMQ`."""
    profile = profile or profiles.profile_of(version or VERSIONS[0])
    return [(profile, each) for each in ((version,) if version else profiles.versions_of(profile))]


def main() -> int:
    """Run and print; return the exit status."""
    count = int(os.environ.get("SEQUENCES") or 200)
    seed = int(os.environ.get("SEED") or random.randrange(10**6))
    profile, version = os.environ.get("PROFILE", ""), os.environ.get("BULLMQ", "")
    if profile not in ("", *profiles.CONSTANTS) or version not in ("", *VERSIONS):
        say(f"oracle: PROFILE is one of {', '.join(profiles.CONSTANTS)}, BULLMQ one of {', '.join(VERSIONS)}")
        return 2
    if not node.node_available():
        say("oracle: Node and npm are needed to get BullMQ's own scripts")
        return 1
    with servers.start() as server:
        say(f"oracle: seed {seed}, {server.kind}, {len(directed.CASES)} directed cases")
        found = [compare(server, *each, count, seed) for each in chosen(profile, version)]
    return 1 if any(found) else 0


if __name__ == "__main__":
    sys.exit(main())
