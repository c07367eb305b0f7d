"""Every Python snippet of README.md runs as it stands there, but for the server's address."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import redis

from bullmq_sync import Queue
from tests.support import pages
from tests.support.servers import Server

# Programs of their own process, which want of a server what the tests of workers look at on all of them.
pytestmark = [pytest.mark.any_server, pytest.mark.any_python]

_SNIPPETS = pages.snippets("README.md")
_STOP = """
from bullmq_protocol.worker.notices import JobCompleted as _Completed
{imports}

# Its worker runs for ever: what it did tells the test when to end it.
_init = _Worker.__init__


def _watched(worker, *args, **options):
    _init(worker, *args, **options)
    worker.on(_Completed, lambda notice: print("completed", notice.value, flush=True))


_Worker.__init__ = _watched
"""

# What stands before a snippet that is a part of a program, and after it, and what the whole prints.
_AROUND: dict[str, tuple[str, str, str]] = {
    "import asyncio\n\nfrom bullmq_anyio import Job, Queue, Worker": (
        _STOP.format(imports="from bullmq_anyio import Worker as _Worker"),
        "",
        'completed {"sent":"ada@example.org"}\n',
    ),
    "from typing import Any\n\nfrom bullmq_protocol import JobOptions, WorkerOptions": (
        _STOP.format(imports="from bullmq_sync import Worker as _Worker"),
        "",
        'completed "sent to ada@example.org"\n',
    ),
    "async with QueueEvents": (
        """
import anyio
from bullmq_anyio import FlowProducer, Job, QueueEvents, Worker
from bullmq_protocol import FlowNode

url = "redis://localhost"
texts = ["one two", "three"]


async def count(job: Job) -> int:
    return len(job.data["text"].split())


async def total(job: Job) -> int:
    return sum((await job.get_children_values()).values())


async def main() -> None:
    async with Worker("pages", count, url), Worker("books", total, url):
""",
        "\n\nanyio.run(main)\n",
        "3\n",
    ),
    "from bullmq_protocol import QueueKeys\nfrom bullmq_protocol.commands.jobs": (
        """
import redis
from bullmq_protocol import JobOptions
from bullmq_sync import Queue

your_client = redis.Redis.from_url("redis://localhost")
with Queue("mail", "redis://localhost") as queue:
    queue.add("welcome", options=JobOptions(job_id="x42"))
    your_client.rename("bull:mail:x42", "bull:mail:42")
    your_client.lset("bull:mail:wait", 0, "42")
""",
        "",
        "waiting\n",
    ),
    "from hypothesis import given": (
        # That profile of Hypothesis' own has no time limits.
        "from hypothesis import settings\n\nsettings.load_profile('ci')\n",
        "\n\ntest_every_job_of_ours_can_be_prepared()\nprint('held')\n",
        "held\n",
    ),
}


# What a reader tries first: a module, and commands of a shell.
_FIRST = next(each for each in _SNIPPETS if each.startswith("# mail.py\n"))
_PROGRAMS = {"bullmq-worker": "bullmq_cli", "bullmq-ctl": "bullmq_cli.ctl.entry"}


def test_no_snippet_is_left_out() -> None:
    assert len(_SNIPPETS) == len(_AROUND) + 1
    for beginning in _AROUND:
        assert len([snippet for snippet in _SNIPPETS if snippet.startswith(beginning)]) == 1, beginning


def test_what_a_reader_tries_first(server: Server, tmp_path: Path) -> None:
    with Queue[Any]("mail", server.url) as queue:
        queue.obliterate(force=True)
    (tmp_path / "mail.py").write_text(_FIRST)
    (commands,) = [each for each in pages.snippets("README.md", "sh") if each.startswith("pip install ")]
    environment = {**os.environ, "BULLMQ_URL": server.url, "PYTHONPATH": str(pages.ROOT)}
    printed: list[str] = []
    workers: list[subprocess.Popen[bytes]] = []
    try:
        for line in commands.splitlines()[1:]:
            program, *arguments = shlex.split(line)
            command = [sys.executable, "-m", _PROGRAMS[program], *arguments]
            if command[-1] == "&":
                workers.append(subprocess.Popen(command[:-1], cwd=tmp_path, env=environment))
                continue
            more = ["--count", "1"] if command[-1] == "top" else []
            done = subprocess.run([*command, *more], env=environment, capture_output=True, text=True, check=True)
            printed.append(done.stdout)
    finally:
        for each in workers:
            each.terminate()
    assert [each.wait() for each in workers] == [0]
    assert printed[:2] == ["added 1 job to mail (id 1)\n", '"sent to ada@example.org"\n']
    assert re.search(r"^mail\s+0 ", printed[2], re.MULTILINE)


@pytest.mark.parametrize("beginning", _AROUND, ids=["asyncio", "threads", "flow", "core", "property"])
def test_snippet(beginning: str, server: Server) -> None:
    with redis.Redis.from_url(server.url) as raw:
        for queue in ("mail", "books", "pages"):
            if keys := list(raw.scan_iter(f"bull:{queue}:*")):
                raw.delete(*keys)
    snippet = next(each for each in _SNIPPETS if each.startswith(beginning))
    before, after, printed = _AROUND[beginning]
    if before.endswith(":\n"):
        snippet = textwrap.indent(snippet, " " * 8)
    program = f"{before}{snippet}{after}"
    ast.parse(program)
    if "_watched" not in before:
        ran = pages.run(program, server)
        assert (ran.stdout, ran.returncode) == (printed, 0), ran.stderr
        return
    with pages.start(program, server) as running:
        try:
            assert running.stdout is not None
            # Job after job is worked off, until somebody ends it.
            line = running.stdout.readline()
            running.terminate()
            assert line == printed, running.communicate(timeout=pages.PATIENCE_S)
        finally:
            running.kill()
