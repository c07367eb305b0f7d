"""The demo of Monque runs as it says."""

import re
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def test_the_demo_runs_all_jobs() -> None:
    command = [sys.executable, "-m", "examples.demo_monque"]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    *_, key, counts, last = done.stdout.splitlines()
    assert re.fullmatch(r"unique key: the same job; the recurring job ran \d+ times", key)
    assert counts == "500 completed, 0 failed, 50 retried" and last.endswith(" s in all")
