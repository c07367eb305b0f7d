"""The programs of docs/handlers.md run as they stand there, but for the server's address."""

import re

import pytest
import redis

from tests.support import pages
from tests.support.servers import Server

# Programs of their own process, which want of a server what the tests of workers look at on all of them.
pytestmark = [pytest.mark.any_server, pytest.mark.any_python]


def test_the_first_program_greets(server: Server) -> None:
    with redis.Redis.from_url(server.url) as raw:
        if keys := list(raw.scan_iter("bull:mail:*")):
            raw.delete(*keys)
    ran = pages.run(pages.snippets("handlers.md")[0], server)
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"^\[1\] write to ada\n\[1\] took less than \d+ s\n", ran.stderr, re.MULTILINE), ran.stderr
    assert re.search(r"^\[-\] .*closed", ran.stderr, re.MULTILINE), ran.stderr
    with redis.Redis.from_url(server.url) as raw:
        assert raw.hget("bull:mail:1", "returnvalue") == b'"sent to ada"'
