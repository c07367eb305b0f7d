"""`make oracle`: regressions, directed cases, then sequences and random states, with one line at the end.

`SEQUENCES` is the number of sequences, of which hypothesis drives one in ten; ten times as many random states come on
top, and as many of several jobs in one call against single calls. `SEED` repeats a run.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator

from tests.oracle import batches, cases, directed, machine, regressions, report, scripts, sequences, states
from tests.oracle.harness import Bench
from tests.support import node, servers

STATES_PER_SEQUENCE = 10
HYPOTHESIS_DRIVES_ONE_IN = 10
SHOWN = 10


def differences(bench: Bench, count: int, seed: int) -> Iterator[str]:
    """Run everything; yield a text per difference and per branch that was not reached."""
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
    begun, found = machine.run(bench, max(1, count // HYPOTHESIS_DRIVES_ONE_IN), seed)
    if found is not None:
        yield report.found(found)
    for number in range(begun, count):
        found = sequences.run(bench, seed, number)
        if found is not None:
            yield report.found(found)
    for edge in batches.edges():
        yield from batches.compare(bench, *edge)
    for number in range(count * STATES_PER_SEQUENCE):
        yield from batches.run(bench, seed, number)
    for number in range(count * STATES_PER_SEQUENCE):
        found = states.run(bench, seed, number)
        if found is not None:
            yield report.found(found)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Run and print; return the exit status."""
    count = int(os.environ.get("SEQUENCES") or 200)
    seed = int(os.environ.get("SEED") or random.randrange(10**6))
    if not node.node_available():
        say("oracle: Node and npm are needed to get BullMQ's own scripts")
        return 1
    with servers.start() as server:
        say(f"oracle: seed {seed}, {server.kind}, {len(directed.CASES)} directed cases")
        with scripts.bench(server) as bench:
            total = 0
            for text in differences(bench, count, seed):
                total += 1
                if total <= SHOWN:
                    say(text)
            say(f"oracle: {count} sequences, {bench.tally.calls} calls, {total} differences")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
