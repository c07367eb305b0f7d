"""bull-board over queues of ours, and a browser that looks at it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bullmq_protocol import Backoff, Deduplication, FlowNode, JobOptions, KeepJobs, RepeatOptions
from bullmq_protocol.scripts.profile import DEFAULT, Profile
from bullmq_sync import FlowProducer, Job, Queue, Worker
from tests.support.node import board_folder

_NODE = Path(__file__).parents[1] / "frameworks" / "node"
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def make(server: str, prefix: str, name: str, *, scripts: Profile = DEFAULT) -> None:
    """Make jobs of every state, three completed and one failed; `make.js` does the same by BullMQ."""

    def run(job: Job[Any]) -> dict[str, str]:
        if job.name == "fails":
            raise ValueError("no such address")
        job.update_progress(40)
        job.log("looked up")
        job.log("sent")
        return {"sent": job.data["to"]}

    with Queue[Any](name, server, prefix=prefix, scripts=scripts) as queue:
        for to in ("ada", "grace", "barbara"):
            queue.add("works", {"to": to})
        queue.add("fails", {"to": "nobody"}, JobOptions(attempts=2))
        Worker[Any](name, run, server, prefix=prefix, scripts=scripts).run(until="idle")
        later = JobOptions(delay=3_600_000, backoff=Backoff("exponential", 500), attempts=3)
        queue.add("later", {"to": "eve"}, later)
        queue.add("urgent", {"to": "mary"}, JobOptions(priority=3, remove_on_complete=KeepJobs(count=5)))
        queue.add("once", {"to": "joan"}, JobOptions(deduplication=Deduplication("joan")))
        rule = RepeatOptions(pattern="0 3 1 1 *", tz="UTC")
        queue.upsert_job_scheduler("nightly", rule, "night", {"to": "all"}, JobOptions(attempts=2))
    with FlowProducer(server, prefix=prefix, scripts=scripts) as flows:
        pages = [
            FlowNode("page", name, {"number": 1}, JobOptions(job_id="page-a")),
            FlowNode("page", name, {"number": 2}, JobOptions(job_id="page-b", fail_parent_on_failure=True)),
        ]
        flows.add(FlowNode("book", name, {"title": "b"}, JobOptions(job_id="book-a"), children=pages))


def make_by_node(url: str, prefix: str, name: str) -> None:
    """Make the same jobs by BullMQ on Node."""
    subprocess.run(_command("make.js", url, prefix, name), env=_environment(), check=True, timeout=60)


@contextmanager
def board(server: str, prefix: str, queues: Sequence[str], port: int = 0) -> Generator[int]:
    """Start bull-board over these queues; give the port it listens at. `server` is a URL or the path of a socket."""
    command = _command("board.js", server, prefix, str(port), *queues)
    with _piped(command) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())


def browser_program() -> str | None:
    """Return the path of Chromium, None if there is none."""
    return next((found for name in _BROWSERS if (found := shutil.which(name))), None)


class Page:
    """A page of a browser. Calls are those of playwright's `Page` and `Locator`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.version: str = self._answer()

    def call(self, *calls: tuple[Any, ...]) -> Any:
        """Make calls, each on what the one before returned; return the last one's value."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(calls) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer["value"]

    def open(self, path: str) -> None:
        """Go to a path of the board, until it has loaded."""
        self.call(("goto", path), ("finished",))
        self.call(("waitForLoadState", "networkidle"))

    def sees(self, *calls: tuple[Any, ...]) -> str:
        """Wait until something can be seen; return its text."""
        self.call(*calls, ("waitFor",))
        return str(self.call(*calls, ("innerText",)))

    def click(self, *calls: tuple[Any, ...]) -> None:
        """Click at something, and wait for what follows of it."""
        self.call(*calls, ("click",))
        self.call(("waitForLoadState", "networkidle"))


@contextmanager
def page(origin: str) -> Generator[Page]:
    """Start Chromium with an empty profile; give a page of it."""
    program = browser_program()
    assert program is not None, "no Chromium here: install the package chromium"
    with _piped(_command("browser.js", program, origin)) as process:
        yield Page(process)


@contextmanager
def _piped(command: list[str]) -> Generator[subprocess.Popen[str]]:
    """Start a program that ends with its standard input."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=_environment(), stdin=pipe, stdout=pipe, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _command(script: str, *arguments: str) -> list[str]:
    return ["node", str(_NODE / script), *arguments]


def _environment() -> dict[str, str]:
    return {**os.environ, "NODE_PATH": str(board_folder())}
