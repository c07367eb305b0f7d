"""Every program of docs/payloads.md runs, and prints what stands below it."""

import pytest

from tests.support import pages
from tests.support.servers import Server

# Programs of their own process, which want of a server what `test_payloads.py` looks at on all of them.
pytestmark = [pytest.mark.any_server, pytest.mark.any_python]

_PROGRAMS = pages.programs("payloads.md")


def test_no_program_is_left_out() -> None:
    assert len(_PROGRAMS) == len(pages.snippets("payloads.md")) == 3


@pytest.mark.parametrize(("program", "printed"), _PROGRAMS, ids=["pydantic", "misfits", "codec"])
def test_program(program: str, printed: str, server: Server) -> None:
    done = pages.run(program, server)
    assert (done.stdout, done.returncode) == (printed, 0), done.stderr
