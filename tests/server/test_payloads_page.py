"""Every program of docs/payloads.md runs, and prints what stands below it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import Server

pytestmark = [pytest.mark.any_server, pytest.mark.any_python]

_ROOT = Path(__file__).parents[2]
_PAGE = (_ROOT / "docs" / "payloads.md").read_text("utf-8")
_PROGRAMS = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", _PAGE, re.MULTILINE | re.DOTALL)


def test_no_program_is_left_out() -> None:
    assert len(_PROGRAMS) == _PAGE.count("```python") == 3


@pytest.mark.parametrize(("program", "printed"), _PROGRAMS, ids=["pydantic", "misfits", "codec"])
def test_program(program: str, printed: str, server: Server) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program.replace("redis://localhost", server.url)],
        cwd=_ROOT,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert (done.stdout, done.returncode) == (printed, 0), done.stderr
