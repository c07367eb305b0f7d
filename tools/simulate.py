"""Run workers in simulated time: `python -m tools.simulate --steps 1000000`; a failure replays with `--replay FILE`.

Their machines have dispatchers, as in the adapters; `--alone` leaves these out. `--fault MODULE:CLASS` takes a
dispatcher with a fault instead, to find the seed of a life that meets it.
"""

import argparse
import importlib
import sys
import time
from pathlib import Path
from typing import Any

from bullmq_protocol.testing.simulate import Violation, replay, simulate, simulate_dispatched
from bullmq_protocol.worker.dispatch import Dispatcher

FAILED = 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000, help="events handled by machines")
    parser.add_argument("--seed", type=int, default=0, help="of the first life")
    parser.add_argument("--alone", action="store_true", help="machines without dispatchers")
    parser.add_argument("--fault", type=_dispatcher, default=Dispatcher, help="a class of dispatchers, MODULE:CLASS")
    parser.add_argument("--trace", type=Path, default=Path(".cache/simulate.jsonl"), help="where a failure is written")
    parser.add_argument("--replay", type=Path, help="live the life of this trace again")
    options = parser.parse_args()
    if options.replay is not None:
        return _replay(options.replay)
    started = time.monotonic()
    try:
        if options.alone:
            steps, lives, jobs = simulate(options.steps, seed=options.seed)
        else:
            steps, lives, jobs = simulate_dispatched(options.steps, seed=options.seed, dispatch=options.fault)
    except Violation as violation:
        options.trace.parent.mkdir(parents=True, exist_ok=True)
        options.trace.write_text(violation.trace)
        print(f"{violation}\nreplay: python -m tools.simulate --replay {options.trace}")
        return FAILED
    seconds = time.monotonic() - started
    print(
        f"simulate: {steps} steps, {lives} lives from seed {options.seed}, {jobs} jobs, {seconds:.0f} s, 0 violations"
    )
    return 0


def _dispatcher(place: str) -> Any:
    module, _, name = place.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, ValueError, AttributeError) as error:
        raise argparse.ArgumentTypeError(f"must be MODULE:CLASS ({error})") from None


def _replay(file: Path) -> int:
    before = file.read_text()
    after = replay(before)
    if not after:
        print("no violation any more")
        return 0
    same = "event for event" if after == before else "but by other events"
    print(f"{after.splitlines()[0]}\nviolated again, {same}")
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
