"""The programs of docs/handlers.md run as they stand there, but for the server's address."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from tests.support.servers import Server

pytestmark = [pytest.mark.any_server, pytest.mark.any_python]

_ROOT = Path(__file__).parents[2]
_PAGE = (_ROOT / "docs" / "handlers.md").read_text("utf-8")
_SNIPPETS = re.findall(r"^```python\n(.*?)^```$", _PAGE, re.MULTILINE | re.DOTALL)


def test_the_first_program_greets(server: Server) -> None:
    with redis.Redis.from_url(server.url) as raw:
        if keys := list(raw.scan_iter("bull:mail:*")):
            raw.delete(*keys)
    program = _SNIPPETS[0].replace("redis://localhost", server.url)
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=_ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"^\[1\] write to ada\n\[1\] took less than \d+ s\n", ran.stderr, re.MULTILINE), ran.stderr
    assert re.search(r"^\[-\] .*closed", ran.stderr, re.MULTILINE), ran.stderr
    with redis.Redis.from_url(server.url) as raw:
        assert raw.hget("bull:mail:1", "returnvalue") == b'"sent to ada"'
