"""Ten workers and 10,000 jobs: speed, memory, and that nothing is left behind."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import servers
from tests.support.adapters import NAMES
from tests.support.servers import Server

pytestmark = [pytest.mark.alone, pytest.mark.any_python]

_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def home() -> Iterator[Server]:
    with servers.start() as started:
        yield started


@pytest.mark.parametrize("adapter_name", NAMES)
def test_ten_workers_and_10000_jobs(adapter_name: str, home: Server, name: str) -> None:
    # A process of its own: its memory and threads are the workers' alone.
    command = [sys.executable, "-m", "tests.server.ten_workers", adapter_name, home.url, name]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    # What is promised; a quiet machine does several times as many.
    assert found["jobs_per_s"] >= 1000
    assert found["rss_growth_mb"] < 100
    # What the jobs leave behind while the workers live, and what the workers leave behind.
    assert found["idle_after"] - found["idle_before"] <= 10
    assert found["left"] == found["before"]
