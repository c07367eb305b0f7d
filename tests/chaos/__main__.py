"""Run the chaos test: `python -m tests.chaos --duration 60 --seed 1`; `--abrupt` kills masters instead.

Exit code 1 if a job was lost or finished twice, or if anything else does not add up; the ledger's folder is kept then.
"""

import argparse
import secrets
import shutil
import sys
import time
from itertools import islice
from pathlib import Path

from tests.chaos import audit
from tests.chaos.conductor import Conductor, Stuck
from tests.chaos.ledger import read
from tests.chaos.schedule import ABRUPT, END, KINDS, plan
from tests.support.node import node_available

_ROOT = Path(__file__).parents[2]
_ADAPTERS = ("asyncio", "trio", "threads", "node")


def run(
    *,
    seed: int,
    duration_s: float,
    most_faults: int | None = None,
    folder: Path,
    kinds: tuple[str, ...] = KINDS,
    server: str | None = None,
    lock_ms: int = 2000,
    stalled_ms: int = 1000,
    pace_s: float = 1.5,
    patience_s: float = 5.0,
) -> list[str]:
    """Print the report and return what does not add up."""
    folder.mkdir(parents=True, exist_ok=True)
    adapters = _ADAPTERS if node_available() else _ADAPTERS[:3]
    abrupt = ABRUPT in kinds
    conductor = Conductor(
        folder,
        seed=seed,
        adapters=adapters,
        lock_ms=lock_ms,
        stalled_ms=stalled_ms,
        kind=server,
        settle_s=3 * patience_s,
        abrupt=abrupt,
    )
    print(
        f"chaos: seed {seed}, {duration_s:.0f} s on {conductor.kind}, {', '.join(adapters)}, "
        f"lock {lock_ms} ms, {folder}"
    )
    began = time.monotonic()
    with conductor:
        faults = islice(plan(seed, kinds, conductor.slots, lock_ms=lock_ms, pace=pace_s), most_faults)
        try:
            for fault in faults:
                conductor.strike(fault)
                if time.monotonic() >= began + duration_s:
                    break
            conductor.drain()
        except Stuck as stuck:
            conductor.problems.append(str(stuck))
        state = conductor.dismiss()
    entries = read(folder)
    found = audit.Auditor(entries, state, conductor.struck, conductor.promotions).findings()
    measured = list(audit.recoveries(entries, conductor.struck, adapters, patience_s=patience_s))
    problems = [*conductor.problems, *found.problems, *audit.too_slow(measured)]
    problems += [f"lost: {mark}" for mark in found.lost]
    problems += [
        f"{file.name} says: {text}"
        for file in folder.glob("*.out")
        for text in ("Traceback", "could not be stored")
        if text in file.read_text()
    ]
    problems += [f"finished twice: {mark}" for mark in found.twice]
    audit.write_problems(folder, problems)
    lines = [
        *audit.fault_table(conductor.struck, measured, adapters),
        "",
        *audit.adapter_table(entries, measured, adapters),
        "",
        *conductor.notes,
        *found.notes,
        *problems[:40],
        (
            f"chaos: {found.jobs} jobs, {sum(each.kind != END for each in conductor.struck)} faults, "
            f"{len(found.lost)} lost, {len(found.twice)} finished twice, {len(found.restarts)} started again after a "
            f"lost lock, {len(found.stall_failed)} failed by the stall limit"
        ),
    ]
    print("\n".join(lines))
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--duration", type=float, default=60, help="seconds of faults")
    parser.add_argument("--seed", type=int, help="of the schedule and the load; by default a random one")
    parser.add_argument("--kind", action="append", choices=(*KINDS, ABRUPT), help="only faults of this kind")
    parser.add_argument("--abrupt", action="store_true", help="kill masters and promote their replicas")
    parser.add_argument("--server", help="kind of server, such as redis-7.0")
    parser.add_argument("--pace", type=float, default=1.5, help="mean pause between two faults in seconds")
    parser.add_argument("--keep", action="store_true", help="keep the ledger of a good run, too")
    options = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    folder = _ROOT / ".cache" / "chaos" / f"{seed}-{int(time.time())}"
    kinds = (ABRUPT,) if options.abrupt else tuple(options.kind or KINDS)
    problems = run(
        seed=seed, duration_s=options.duration, folder=folder, kinds=kinds, server=options.server, pace_s=options.pace
    )
    if problems:
        print(f"seed {seed}; the ledger is kept in {folder}")
        return 1
    if not options.keep:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
