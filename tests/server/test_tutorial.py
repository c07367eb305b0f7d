"""The tutorial, page by page as a reader goes through it, in each of its tabs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from bullmq_protocol import NewJob
from bullmq_sync import Queue
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
        self.worker: subprocess.Popen[bytes] | None = None

    def follow(self, given: Iterable[tuple[str, str]]) -> list[str]:
        """Save programs and type commands; return what the commands printed."""
        printed = []
        for kind, text in given:
            if kind == "python":
                file = re.match(r"# (\w+\.py)\n", text)
                assert file is not None
                (self._folder / file[1]).write_text(text)
            else:
                printed += [self._type(line) for line in text.splitlines()]
        return [each for each in printed if each]

    def _type(self, line: str) -> str:
        program, *arguments = shlex.split(line)
        command = [sys.executable, *_PROGRAMS[program], *arguments]
        if program == "bullmq-worker":
            self.worker = subprocess.Popen(command, cwd=self._folder, env=self._environment)
            return ""
        done = subprocess.run(command, cwd=self._folder, env=self._environment, capture_output=True, text=True)
        return done.stdout + done.stderr

    def repair(self) -> None:
        """Take out of `mail.py` what fails."""
        file = self._folder / "mail.py"
        file.write_text(re.sub(r"    if [^\n]*\n        raise [^\n]*\n", "", file.read_text()))

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
def test_a_job(tab: str, reader: Reader) -> None:
    install, *following = steps("tutorial/1-a-job.md", tab)
    # It is for readers who have nothing yet.
    assert install[0] == "sh" and "pip install" in install[1]
    added, sent, ran = reader.follow(following)
    assert added == "added 1 job to mail (id 1)\n"
    assert sent == '"sent to ada@example.org"\n'
    assert ran == "job 2 sent to grace@example.org\n"
    assert reader.leave() == 0


@pytest.mark.parametrize("tab", _TABS)
def test_a_job_that_fails(tab: str, reader: Reader, server: Server) -> None:
    with Queue[Any]("mail", server.url) as queue:
        # Those of the page before.
        queue.add_bulk([NewJob("welcome", {"to": "ada@example.org"})] * 2)
    worker = next(text for kind, text in steps("tutorial/1-a-job.md", tab) if text.startswith("bullmq-worker"))
    change, *following = steps("tutorial/2-a-retry.md", tab)
    reader.follow([change, ("sh", worker)])
    *failing, repaired = following
    third, retried, fourth, why, shown = reader.follow(failing)
    assert (third, fourth) == ("added 1 job to mail (id 3)\n", "added 1 job to mail (id 4)\n")
    assert retried == '"sent to ada@example.org at attempt 3"\n'
    assert "the mail server does not answer" in why
    assert "ConnectionError" in shown and 'File "' in shown
    # Nothing here waits for a reload, as a person's hands do: the worker is started anew.
    assert reader.leave() == 0
    reader.repair()
    again, at_last = reader.follow([("sh", worker), repaired])
    assert again == "retried 4\n"
    assert at_last == '"sent to barbara@example.org at attempt 2"\n'
    page = pages.page("tutorial/2-a-retry.md")
    assert all(f"`{line.strip()}`" in page for line in (retried, why, at_last))
    assert reader.leave() == 0
