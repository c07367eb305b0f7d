"""The program of docs/monque.md runs as it stands there, but for the server's address and the database."""

import os
import subprocess
import sys
from uuid import uuid4

from tests.support import pages


def test_the_program_of_the_page(mongodb: str) -> None:
    [program] = pages.snippets("monque.md")
    for before, after in (("mongodb://127.0.0.1:27017", mongodb), ('"app"', repr(f"app-{uuid4().hex[:8]}"))):
        assert before in program
        program = program.replace(before, after)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=pages.ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == "to ann@example.org\n"
        finally:
            running.kill()
