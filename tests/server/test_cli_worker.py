"""`bullmq-worker` in processes of its own: exit codes, signals, several processes, reload and health."""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bullmq_sync import Queue
from tests.support import servers
from tests.support.servers import Server

pytestmark = [pytest.mark.any_server, pytest.mark.any_python]

_ROOT = Path(__file__).parents[2]
_APP = "tests.support.cli_apps"
_KINDS = {"asyncio": ("tasks",), "uvloop": ("tasks", "--loop", "uvloop"), "trio": ("tasks", "--loop", "trio")}
_KINDS["threads"] = ("threads",)
_MOMENTS = int(os.environ.get("CLI_MOMENTS", "9"))
_SEED = int(os.environ.get("CLI_SEED", "0"))
_JOBS = 15
_STARTED = "bullmq-worker"


@pytest.fixture
def queue(server: Server, name: str) -> Iterator[Queue[Any]]:
    with Queue[Any](name, server.url) as queue:
        yield queue
        queue.obliterate(force=True)


class Program:
    """One `bullmq-worker`. Its standard error is read line by line."""

    def __init__(self, arguments: tuple[str, ...], environment: dict[str, str], folder: Path = _ROOT) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bullmq_cli", *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(_ROOT), **environment},
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self, containing: str = "") -> str:
        """Return the next line that has these words."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip())
            if containing in line:
                return line.rstrip()
        raise AssertionError(f"no further line has {containing!r}: {self.text}")

    def await_starts(self, count: int) -> None:
        """Wait until this many processes have started, from the first on."""
        while sum(_STARTED in line for line in self.lines) < count:
            self.line(_STARTED)

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait until it is gone; return its exit code."""
        assert self.process.stderr is not None
        self.lines += self.process.stderr.read().splitlines()
        return self.process.wait()

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@contextmanager
def program(
    *arguments: str, url: str = "", name: str = "q", folder: Path = _ROOT, **environment: str
) -> Generator[Program]:
    started = Program(arguments, {"BULLMQ_URL": url, "CLI_QUEUE": name, **environment}, folder)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()
        assert started.process.stderr is not None
        started.process.stderr.close()


def add(queue: Queue[Any], count: int = _JOBS) -> None:
    for number in range(count):
        queue.add("short", number)


def counts(queue: Queue[Any]) -> tuple[int, int, int]:
    found = queue.get_job_counts("completed", "waiting", "active")
    return found["completed"], found["waiting"], found["active"]


# --- exit codes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", _KINDS)
def test_a_burst_ends_in_good_order(queue: Queue[Any], server: Server, name: str, kind: str) -> None:
    add(queue)
    target, *options = _KINDS[kind]
    with program(f"{_APP}:{target}", "--burst", *options, url=server.url, name=name) as started:
        assert started.end() == 0, started.text
    assert counts(queue) == (_JOBS, 0, 0)


def test_options_stand_in_the_environment_and_lines_are_json(queue: Queue[Any], server: Server, name: str) -> None:
    add(queue)
    options = {"BULLMQ_MAX_JOBS": "4", "BULLMQ_CONCURRENCY": "1", "BULLMQ_LOG_FORMAT": "json"}
    with program(url=server.url, name=name, BULLMQ_TARGET=f"{_APP}:made", **options) as started:
        assert started.end() == 0, started.text
    assert counts(queue) == (4, _JOBS - 4, 0)
    lines = [json.loads(line) for line in started.lines if not line.startswith("began")]
    done = [line for line in lines if "completed" in line["message"]]
    assert [(line["level"], line["queue"], line["logger"]) for line in done] == [("info", name, "bullmq_anyio")] * 4
    assert [line["job_id"] for line in done] == ["1", "2", "3", "4"]


@pytest.mark.parametrize("kind", _KINDS)
def test_lines_that_handlers_log_have_their_job(queue: Queue[Any], server: Server, name: str, kind: str) -> None:
    job = queue.add("log")
    target, *options = _KINDS[kind]
    with program(f"{_APP}:{target}", "--burst", "--log-format", "json", *options, url=server.url, name=name) as started:
        assert started.end() == 0, started.text
    lines = [json.loads(line) for line in started.lines if not line.startswith("began")]
    [own] = [line for line in lines if line["logger"] == "application"]
    fields = {field: own[field] for field in ("message", "job_id", "job_name", "queue", "attempt")}
    assert fields == {"message": "in the handler", "job_id": job.id, "job_name": "log", "queue": name, "attempt": 1}
    # Those that are nobody's have none.
    assert all("job_id" not in line for line in lines if line["logger"] == "bullmq_cli")


def test_a_file_sets_logging_up_or_it_is_left_alone(
    queue: Queue[Any], server: Server, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "log.json"
    form = {"format": "mine %(levelname)s %(message)s"}
    handler = {"class": "logging.StreamHandler", "formatter": "mine"}
    root = {"level": "INFO", "handlers": ["out"]}
    file.write_text(
        json.dumps({"version": 1, "formatters": {"mine": form}, "handlers": {"out": handler}, "root": root})
    )
    for arguments, environment in (
        (("--log-config", str(file)), {}),
        ((), {"BULLMQ_LOG_CONFIG": str(file)}),
        # What the file says counts.
        (("--log-config", str(file), "--log-level", "error", "--log-format", "json"), {}),
        (("--no-logging",), {}),
    ):
        queue.add("a")
        with program(f"{_APP}:tasks", "--burst", *arguments, url=server.url, name=name, **environment) as started:
            assert started.end() == 0, started.text
        said = [line for line in started.lines if not line.startswith("began")]
        assert len(started.lines) > len(said)
        if arguments == ("--no-logging",):
            assert said == []
        else:
            assert said
            assert all(line.startswith("mine INFO ") for line in said)
            assert "mine INFO ended, exit code 0" in said


def test_a_worker_that_fails_is_named_with_its_traceback(server: Server) -> None:
    with program(f"{_APP}:broken", url=server.url) as started:
        assert started.end() == 1
    assert "a worker failed" in started.text and "RuntimeError: the disk is gone" in started.text


def test_wrong_usage_and_unknown_workers() -> None:
    for arguments, words in (
        ((f"{_APP}:nobody",), "has no attribute 'nobody'"),
        (("--processes", "2", "tests.nowhere:worker"), "there is no module 'tests.nowhere'"),
        (("--max-jobs", "0", f"{_APP}:tasks"), "Invalid value"),
    ):
        with program(*arguments) as started:
            assert started.end() == 2, started.text
        assert words in started.text
        assert "Traceback" not in started.text


def test_a_server_that_cannot_be_reached_or_refuses(name: str) -> None:
    with program(f"{_APP}:impatient") as started:
        assert started.end() == 3, started.text
    assert "the server cannot be used" in started.text
    guarded = servers.start(servers.ends()[-1], config=("--requirepass", "secret-4711"))
    try:
        url = guarded.url.replace("redis://", "redis://:wrong-4712@")
        with program(f"{_APP}:threads", url=url) as started:
            assert started.end() == 3, started.text
    finally:
        guarded.stop()
    assert "Traceback" not in started.text and "4712" not in started.text


@pytest.mark.parametrize("kind", ["asyncio", "threads"])
def test_a_second_signal_cuts_jobs_short(queue: Queue[Any], server: Server, name: str, kind: str) -> None:
    job = queue.add("long")
    target, *options = _KINDS[kind]
    with program(f"{_APP}:{target}", *options, url=server.url, name=name) as started:
        started.line(f"began {job.id}")
        started.send(signal.SIGINT)
        started.line("shutting down")
        started.send(signal.SIGINT)
        assert started.end() == 130, started.text
    assert queue.get_state(job.id) == "waiting"


@pytest.mark.parametrize("kind", _KINDS)
def test_a_signal_after_a_hang_up_is_a_first_one(
    queue: Queue[Any], server: Server, name: str, kind: str, tmp_path: Path
) -> None:
    flag = tmp_path / "pipe"
    os.mkfifo(flag)
    job = queue.add("pipe")
    target, *options = _KINDS[kind]
    with program(f"{_APP}:{target}", *options, url=server.url, name=name, CLI_FLAG=str(flag)) as started:
        started.line(f"began {job.id}")
        started.send(signal.SIGHUP)
        started.line("shutting down")
        started.send(signal.SIGTERM)
        flag.write_text("go on")
        assert started.end() == 0, started.text
    assert queue.get_state(job.id) == "completed" and "restarting" not in started.text


# --- signals at any moment ------------------------------------------------------------------------------------------


def _moments() -> list[tuple[str, str, int]]:
    draw = random.Random(_SEED)
    plans = ("SIGTERM", "SIGINT twice", "SIGHUP")
    kinds = list(_KINDS)
    return [(kinds[number % len(kinds)], plans[number % 3], draw.randrange(1, 2 * _JOBS)) for number in range(_MOMENTS)]


@pytest.mark.parametrize(("kind", "plan", "after"), _moments())
def test_signals_at_any_moment_lose_no_job(
    queue: Queue[Any], server: Server, name: str, kind: str, plan: str, after: int
) -> None:
    """A moment is after so-and-so many lines of its log, which has two and more for each job."""
    add(queue)
    target, *options = _KINDS[kind]
    with program(f"{_APP}:{target}", "--log-level", "debug", *options, url=server.url, name=name) as started:
        for _ in range(after):
            started.line()
        if plan == "SIGHUP":
            started.send(signal.SIGHUP)
            started.await_starts(2)
            started.send(signal.SIGTERM)
            codes = {0}
        elif plan == "SIGINT twice":
            started.send(signal.SIGINT)
            started.send(signal.SIGINT)
            # The second may come when all is over.
            codes = {0, 130}
        else:
            started.send(signal.SIGTERM)
            codes = {0}
        assert started.end() in codes, started.text
    assert "Traceback" not in started.text, started.text
    completed, waiting, active = counts(queue)
    assert (completed + waiting, active) == (_JOBS, 0), started.text
    assert sum(re.match("began", line) is not None for line in started.lines) >= completed


# --- processes ------------------------------------------------------------------------------------------------------


def test_a_process_that_dies_is_started_again(queue: Queue[Any], server: Server, name: str, tmp_path: Path) -> None:
    queue.add("die")
    flag = str(tmp_path / "died")
    with program(f"{_APP}:dies", "--processes", "1", "--reload", "nowhere") as started:
        assert started.end() == 2 and "there is no such folder" in started.text
    with program(f"{_APP}:dies", "--processes", "2", url=server.url, name=name, CLI_FLAG=flag) as started:
        started.line("died, exit code 7: another in 0.1 s")
        started.await_starts(3)
        queue.add("after")
        started.line("completed")
        started.send(signal.SIGTERM)
        assert started.end() == 0, started.text


def test_one_that_dies_again_and_again_is_started_less_and_less_often(server: Server) -> None:
    with program(f"{_APP}:broken", "--processes", "2", url=server.url) as started:
        for delay in ("0.1", "0.2", "0.4"):
            started.line(f"process 0 died, exit code 1: another in {delay} s")
        started.send(signal.SIGTERM)
        assert started.end() in (0, 1), started.text
    assert started.text.count("RuntimeError: the disk is gone") >= 3


def test_what_none_can_do_ends_all_processes() -> None:
    with program(f"{_APP}:impatient", "--processes", "2") as started:
        assert started.end() == 3, started.text
    assert "the server cannot be used" in started.text and "another in" not in started.text


def test_each_process_has_a_port_and_a_file(queue: Queue[Any], server: Server, name: str, tmp_path: Path) -> None:
    file = tmp_path / "health"
    first = two_free_ports()
    arguments = ("--processes", "2", "--health-port", str(first), "--health-file", str(file))
    with program(f"{_APP}:tasks", *arguments, url=server.url, name=name) as started:
        started.await_starts(2)
        ports = {int(line.split()[-1]) for line in started.lines if "health at port" in line}
        assert ports == {first, first + 1}
        assert not file.exists()
        assert all(json.loads((tmp_path / f"health.{number}").read_bytes())["live"] for number in range(2))
        started.send(signal.SIGTERM)
        assert started.end() == 0, started.text
    assert list(tmp_path.iterdir()) == []


def two_free_ports() -> int:
    """Return the first of two that stand side by side."""
    first = servers.free_port()
    while (second := servers.free_port()) != first + 1:
        first = second
    return first


def test_signals_are_passed_on_and_restart_each_process(queue: Queue[Any], server: Server, name: str) -> None:
    with program(f"{_APP}:tasks", "--processes", "2", url=server.url, name=name) as started:
        first = [started.line(_STARTED) for _ in range(2)]
        started.send(signal.SIGHUP)
        again = [started.line(_STARTED) for _ in range(2)]
        # The same processes, begun anew.
        assert {line.split()[-1] for line in first} == {line.split()[-1] for line in again}
        job = queue.add("long")
        started.line(f"began {job.id}")
        started.send(signal.SIGINT)
        started.line("shutting down")
        started.send(signal.SIGTERM)
        assert started.end() == 130, started.text
    assert queue.get_state(job.id) == "waiting"


def test_processes_end_with_their_parent(queue: Queue[Any], server: Server, name: str) -> None:
    with program(f"{_APP}:tasks", "--processes", "2", url=server.url, name=name) as started:
        for _ in range(2):
            started.line(_STARTED)
        started.process.kill()
        # Their standard error is this one, which ends with the last of them. One that works nothing yet ends silently.
        started.end()
    assert "Traceback" not in started.text and "exit code 1" not in started.text


def test_a_change_of_a_file_restarts(queue: Queue[Any], server: Server, name: str, tmp_path: Path) -> None:
    text = f"""
import sys
from bullmq_sync import Worker

def process(job):
    print("VERSION", file=sys.stderr, flush=True)

worker = Worker({name!r}, process)
"""
    module = tmp_path / "reloaded_app.py"
    module.write_text(text.replace("VERSION", "one"))
    with program("--reload", "reloaded_app:worker", url=server.url, folder=tmp_path) as started:
        queue.add("a")
        started.line("one")
        module.write_text("raise ValueError('half written')\n")
        started.line("waiting for a change")
        assert "half written" in started.text and "importlib" not in started.text
        module.write_text(text.replace("VERSION", "two"))
        queue.add("a")
        started.line("two")
        started.send(signal.SIGTERM)
        assert started.end() == 0, started.text


def test_only_changes_in_its_folder_restart(queue: Queue[Any], server: Server, name: str, tmp_path: Path) -> None:
    watched = tmp_path / "watched"
    watched.mkdir()
    with program(f"{_APP}:tasks", "--reload", str(watched), url=server.url, name=name) as started:
        started.line(_STARTED)
        (tmp_path / "outside.py").write_text("a = 1\n")
        (watched / "notes.txt").write_text("no Python\n")
        (watched / "inside.py").write_text("a = 1\n")
        assert started.line("changed: ").endswith(f"changed: {watched / 'inside.py'}")
        started.line(_STARTED)
        started.send(signal.SIGTERM)
        assert started.end() == 0, started.text
    assert started.text.count("changed: ") == 1


# --- health ---------------------------------------------------------------------------------------------------------


def test_health_has_a_port_and_a_file(queue: Queue[Any], server: Server, name: str, tmp_path: Path) -> None:
    file = tmp_path / "health"
    arguments = ("--health-port", "0", "--health-host", "127.0.0.1", "--health-file", str(file))
    with (
        Queue[Any](f"{name}-2", server.url) as second,
        program(f"{_APP}:made", *arguments, url=server.url, name=name) as started,
    ):
        port = int(started.line("health at port").split()[-1])
        # Both workers run.
        for each in (queue, second):
            each.add("long")
            started.line("began 1")
        answers = {}
        for path in ("/live", "/ready?verbose", "/metrics", "/"):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", path)
            answer = connection.getresponse()
            answers[path] = (answer.status, answer.read())
            connection.close()
        assert [status for status, _ in answers.values()] == [200, 200, 404, 404]
        found = json.loads(answers["/live"][1])
        assert (found["live"], found["ready"], len(found["workers"])) == (True, True, 2)
        assert json.loads(file.read_bytes())["live"] is True
        started.send(signal.SIGTERM)
        started.line("shutting down")
        started.send(signal.SIGTERM)
        assert started.end() == 130
        second.obliterate(force=True)
    assert not file.exists()
