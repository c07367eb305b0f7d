"""The tutorial, page by page as a reader goes through it, in each of its tabs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.support import pages
from tests.support.servers import Server

pytestmark = [pytest.mark.any_server, pytest.mark.any_python]

_TABS = ("asyncio", "trio", "threads")
_PROGRAMS = {
    "bullmq-worker": ["-m", "bullmq_cli"],
    "bullmq-ctl": ["-m", "bullmq_cli.ctl.entry"],
    "python": [],
}
_ITEM = re.compile(r"^:::\{tab-item\} (\w+)\n:sync: \w+\n(.*?)^:::$", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def steps(name: str, tab: str) -> Iterator[tuple[str, str]]:
    """Yield the blocks of a page that a reader of a tab sees, in their order."""
    text = _ITEM.sub(lambda item: item[2] if item[1] == tab else "", pages.page(name))
    for found in _FENCED.finditer(text):
        yield found[1], found[2]


class Reader:
    """What a reader does with the blocks, in a folder of their own."""

    def __init__(self, folder: Path, server: Server) -> None:
        self._folder = folder
        self._environment = {**os.environ, "BULLMQ_URL": server.url, "PYTHONPATH": str(pages.ROOT)}
        self._working: list[str] = []
        self.worker: subprocess.Popen[bytes] | None = None

    def save(self, text: str) -> None:
        file = re.match(r"# (\w+\.py)\n", text)
        assert file is not None
        # In place of the reload, whose moment nobody tells.
        left = self.leave() if file[1] == "mail.py" else None
        (self._folder / file[1]).write_text(text)
        if left is not None:
            self._work()

    def _work(self) -> None:
        self.worker = subprocess.Popen(self._working, cwd=self._folder, env=self._environment)

    def type(self, line: str) -> str:
        program, *arguments = shlex.split(line)
        command = [sys.executable, *_PROGRAMS[program], *arguments]
        if program == "bullmq-worker":
            self._working = command
            self._work()
            return ""
        done = subprocess.run(
            command, cwd=self._folder, env=self._environment, capture_output=True, text=True, timeout=60
        )
        return done.stdout + done.stderr

    def leave(self) -> int | None:
        if self.worker is None:
            return None
        self.worker.terminate()
        return self.worker.wait(60)


@pytest.fixture
def reader(server: Server, tmp_path: Path) -> Iterator[Reader]:
    with redis.Redis.from_url(server.url) as raw:
        raw.flushdb()
    reader = Reader(tmp_path, server)
    yield reader
    if reader.worker is not None:
        reader.worker.kill()
        reader.worker.wait()


def test_all_tabs_have_the_same_steps() -> None:
    for name in ("tutorial/1-a-job.md", "tutorial/2-a-retry.md"):
        assert len({tuple(kind for kind, _ in steps(name, tab)) for tab in _TABS}) == 1
        found = [item[1] for item in _ITEM.finditer(pages.page(name))]
        assert found == list(_TABS) * pages.page(name).count("{tab-set}")


@pytest.mark.parametrize("tab", _TABS)
def test_tutorial(tab: str, reader: Reader) -> None:
    first, second = list(steps("tutorial/1-a-job.md", tab)), list(steps("tutorial/2-a-retry.md", tab))
    # Its installation is for readers who have nothing yet.
    assert first[0][0] == "sh" and "pip install" in first[0][1]
    said: list[str] = []
    for kind, text in [*first[1:], *second]:
        if kind == "python":
            reader.save(text)
        else:
            said += [reader.type(line) for line in text.splitlines()]
    added, sent, ran, third, retried, fourth, why, shown, again, at_last = [each for each in said if each]
    assert added == "added 1 job to mail (id 1)\n"
    assert sent == '"sent to ada@example.org"\n'
    assert ran == "job 2 sent to grace@example.org\n"
    assert (third, fourth) == ("added 1 job to mail (id 3)\n", "added 1 job to mail (id 4)\n")
    assert retried == '"sent to ada@example.org at attempt 3"\n'
    assert "the mail server does not answer" in why
    assert "ConnectionError" in shown and 'File "' in shown
    assert again == "retried 4\n"
    # The reader has not repaired the mail server here.
    assert "the mail server does not answer" in at_last
    assert reader.leave() == 0
