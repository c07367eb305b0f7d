"""`python -m tests.stress --duration 60 --seed 1`: worker, queue, events and connection as threads switch often.

64 threads share them while other threads close, cancel, kill and pause at random moments, with a switch interval of one
microsecond. At the end every add that was acknowledged must be accounted for. A run that hangs prints all stacks and
fails.
"""

import argparse
import sys
import time

from tests.stress.stress import Stress
from tests.support import servers

parser = argparse.ArgumentParser(prog="python -m tests.stress", description=__doc__)
parser.add_argument("--duration", type=float, default=60.0, help="seconds of adding; default 60")
parser.add_argument("--seed", type=int, default=0, help="of what happens when; default 0: the time's")
parser.add_argument("--server", default="redis-6.2", help="the kind of server; default redis-6.2")
given = parser.parse_args()
seed = given.seed or int(time.time())
print(f"stress: {given.duration:g} s on {given.server}, seed {seed}", flush=True)
with servers.start(given.server) as server:
    report = Stress(server.url, seed, given.duration).run()
print(report.text())
sys.exit(0 if report.good else 1)
