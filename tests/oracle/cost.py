"""How many commands our scripts run in each directed case and edge: a quick way no longer taken changes these.

`python -m tests.oracle.cost` records them anew, to be run when a script changes on purpose: look at what grew.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

from tests.oracle import batches, directed, regressions, scripts
from tests.oracle.calls import Call
from tests.oracle.cases import Case
from tests.oracle.harness import Bench, commands_run
from tests.support import servers

RECORD = Path(__file__).with_name("cost.json")
INFO = ("INFO", "stats")
Costs = dict[str, list[int]]


UNCOUNTED = -1
SEEDED = frozenset({"paginate"})
"""Commands that scan until they have enough: how often depends on the seed of the server's hashes."""


def costs(bench: Bench) -> Costs:
    """Return the commands of each call of the directed cases, and of each edge of the batches.

    A server that prints numbers in their shortest form also reads fewer texts as numbers: there, calls that fail and
    cases that say what differs are `UNCOUNTED`.
    """
    found = {case.name: of_case(bench, case) for case in (*directed.CASES, *regressions.CASES)}
    for name, made, calls, merged in batches.edges():
        bench.reset(made, strict=False)
        bench.wire.run([("SELECT", bench.databases[1])])
        before = commands_run(bench.wire.run([INFO])[0])
        batches.at_once(bench, calls, merged, batches.OUR_SCRIPTS)
        found[f"batch: {name}"] = [commands_run(bench.wire.run([INFO])[0]) - before]
    return found


def of_case(bench: Bench, case: Case) -> list[int]:
    """Return the commands of each call of a case."""
    bench.reset()
    bench.wire.run([("SELECT", bench.databases[1])])
    run = []
    for is_call, steps in itertools.groupby(case.steps, lambda step: isinstance(step, Call)):
        if not is_call:
            bench.wire.run([step for step in steps if not isinstance(step, Call)])
            continue
        for call in steps:
            assert isinstance(call, Call)
            before, reply, after = bench.wire.run([INFO, bench.eval_one(1, call), INFO])
            other = bench.shortest and (isinstance(reply, Exception) or bool(case.shortest))
            uncounted = other or call.name in SEEDED
            run.append(UNCOUNTED if uncounted else commands_run(after) - commands_run(before))
    return run


def recorded() -> Costs:
    """Return what was recorded."""
    found: Costs = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def main() -> None:
    """Record."""
    with servers.start() as server, scripts.bench(server) as bench:
        lines = (f"{json.dumps(name)}: {json.dumps(run)}" for name, run in sorted(costs(bench).items()))
        RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
