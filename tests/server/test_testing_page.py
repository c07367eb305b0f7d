"""Every snippet of docs/testing.md is a file of tests, or the program under test: they run as they stand there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import plugins, servers
from tests.support.pages import snippets

pytestmark = [pytest.mark.any_server, pytest.mark.any_python]

_PROGRAM, *_TESTS = snippets("testing.md")
_PATIENT = (
    "from hypothesis import HealthCheck, settings\n"
    "settings.register_profile('patient', deadline=None, suppress_health_check=[HealthCheck.too_slow])\n"
    "settings.load_profile('patient')\n"
)
"""Hypothesis judges by time, which a busy machine takes."""


_CASES = [
    (number, backend)
    for number, snippet in enumerate(_TESTS)
    for backend in (("asyncio", "trio") if "async def test_" in snippet else ("asyncio",))
]


@pytest.mark.parametrize(("number", "backend"), _CASES)
def test_snippet(number: int, backend: str, tmp_path: Path) -> None:
    snippet = _TESTS[number]
    count = len(re.findall(r"^(?:async )?def test_", snippet, re.MULTILINE))
    assert count, "a snippet without a test"
    (tmp_path / "mail.py").write_text(_PROGRAM)
    (tmp_path / "test_it.py").write_text(snippet)
    (tmp_path / "conftest.py").write_text(_PATIENT)
    settings = plugins.settings(backend, auto=True)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nfilterwarnings = error\npythonpath = .\n{settings}")
    own = {name: value for name, value in os.environ.items() if not name.startswith(("BULLMQ_", "PYTEST_", "COV"))}
    own |= {"BULLMQ_TEST_CACHE": os.environ["BULLMQ_TEST_CACHE"], **plugins.environment(backend)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugins.options(backend)]
    command.append(f"--bullmq-server={servers.chosen()[-1]}")
    done = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{count} passed" in done.stdout


def test_the_readable_difference_is_what_stands_there(tmp_path: Path) -> None:
    (shown,) = snippets("testing.md", "text")
    (tmp_path / "mail.py").write_text(_PROGRAM)
    program = (
        "import anyio\nfrom bullmq_anyio import Queue\nfrom bullmq_anyio.testing import assert_added\n"
        "from bullmq_protocol.testing.server import start\nfrom mail import sign_up\n"
        "async def main():\n"
        " with start() as server:\n"
        "  async with Queue('mail', server.url) as queue:\n"
        "   await sign_up(queue, 'ada@example.org')\n"
        "   try:\n    await assert_added(queue, 'welcome', to='grace@example.org')\n"
        "   except AssertionError as error:\n    print(f'AssertionError: {error}')\n"
        "anyio.run(main)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert (done.stdout, done.returncode) == (shown, 0), done.stderr
