"""One load over several queues of a cluster: the example, and the bench that measures what it costs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench import partitions
from bullmq_protocol import QueueKeys
from examples.partitions import LAYOUT, PARTITIONS
from tests.support.topology import ClusterSet, say

_ROOT = Path(__file__).parents[2]


def test_each_customer_s_orders_are_processed_in_order(cluster: ClusterSet) -> None:
    cluster.restore()
    done = subprocess.run(
        [sys.executable, "-m", "examples.partitions", f"redis+cluster://{cluster.hosts}"],
        cwd=_ROOT,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert (done.stdout, done.returncode) == (
        "180 orders in 5 queues\n180 processed, each customer's in order: True\n",
        0,
    ), done.stderr
    owners = {name: cluster.master(QueueKeys.of(name, layout=LAYOUT).slot) for name in PARTITIONS}
    completed = {name: int(say(owner, "ZCARD", f"bull:{{{name}}}:completed")) for name, owner in owners.items()}
    assert sum(completed.values()) == 180
    assert len(set(owners.values())) == 3


def test_names_are_spread_evenly_over_masters() -> None:
    slots = sorted(QueueKeys.of(name, layout=partitions.LAYOUT).slot for name in partitions.spread(6, 3))
    assert [slot * 3 // partitions.SLOTS for slot in slots] == [0, 0, 1, 1, 2, 2]


@pytest.mark.any_server
@pytest.mark.any_python
def test_the_bench_measures_each_place(capsys: pytest.CaptureFixture[str]) -> None:
    partitions.main(["--jobs", "3000", "--rounds", "1"])
    row = r"{} +client +\d+\.\d us, server +\d+\.\d us of CPU a job\n"
    names = ("one server, one queue", "one server, six queues", "three masters, six queues")
    assert re.fullmatch("".join(map(row.format, names)), capsys.readouterr().out)
