"""The tests in `examples/testing` pass, in a run of pytest of their own: Django can be set up once in a process."""

import os
import subprocess
import sys

import pytest

from tests.support import servers
from tests.support.web import ROOT

pytestmark = [pytest.mark.any_server, pytest.mark.any_python]


@pytest.mark.parametrize(("file", "passed"), [("test_fastapi_app", 3), ("test_django_shop", 2)])
def test_examples(file: str, passed: int) -> None:
    own = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV", "DJANGO", "SHOP"))
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"examples/testing/{file}.py"]
    command.append(f"--bullmq-server={servers.chosen()[-1]}")
    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{passed} passed" in done.stdout
