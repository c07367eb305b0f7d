"""The programs of docs that need Node or BullMQ's Python port, and the folder examples/mixed_fleet."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import redis

from tests.support import pages
from tests.support.node import FOLDERS, bull_folder, nest_folder
from tests.support.port import OTHERS, peer_python, port_python
from tests.support.servers import Server

_FOLDER = pages.ROOT / "examples" / "mixed_fleet"
# What the tables of pages say of other libraries: what has which attributes or arguments.
_NAMED: dict[str, dict[str, str]] = {
    "celery": {
        "celery:Celery": "task conf",
        "celery:Task": "delay apply_async retry max_retries rate_limit acks_late time_limit soft_time_limit",
        "celery.result:AsyncResult": "get state",
        "celery:canvas": "chain group chord",
    },
    "rq": {
        "rq:Queue": "enqueue enqueue_in enqueue_at failed_job_registry",
        "rq.queue:Queue.enqueue_call": "job_id at_front depends_on result_ttl failure_ttl retry on_success on_failure",
        "rq:Retry": "max interval",
        "rq:RateLimit": "key concurrency",
    },
    "arq": {
        "arq.connections:ArqRedis.enqueue_job": "_job_id _defer_by _defer_until _queue_name _expires",
        "arq.worker:Worker": "functions cron_jobs max_tries max_jobs job_timeout keep_result on_startup burst",
        "arq.jobs:Job": "result status info abort",
        "arq:Retry": "defer",
        "arq:func": "name",
    },
}
_MISSING = """
import inspect, pkgutil, sys
for place, names in eval(sys.argv[1]).items():
    found = pkgutil.resolve_name(place)
    given = inspect.signature(found).parameters if callable(found) else ()
    print(*(f"{place} {name}" for name in names.split() if name not in given and not hasattr(found, name)), end="")
"""
_SESSIONS = re.compile(r"^```sh\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def _empty(raw: redis.Redis[bytes]) -> None:
    raw.flushdb()


def outputs(name: str, language: str) -> tuple[str, str]:
    """Return the first program of a page in one language, and the output below it."""
    found = re.search(rf"^```{language}\n(.*?)^```\n\n```text\n(.*?)^```$", pages.page(name), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1], found[2]


def finished(command: list[str], version: str = "5.62.0") -> str:
    done = subprocess.run(command, cwd=pages.ROOT, env=of_node(version), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def of_node(version: str) -> dict[str, str]:
    return {**os.environ, "NODE_PATH": str({**FOLDERS, "nest": nest_folder, "bull": bull_folder}[version]())}


@contextmanager
def running(command: list[str], version: str) -> Generator[None]:
    with subprocess.Popen(command, cwd=pages.ROOT, env=of_node(version)) as worker:
        try:
            yield
            worker.terminate()
            assert worker.wait(60) == 0
        finally:
            worker.kill()


def test_the_program_of_the_port(home: Server) -> None:
    program, printed = outputs("migrating/python-port.md", "py")
    command = [str(port_python()), "-u", "-c", pages.with_server(program, home)]
    # On a busy machine the port was seen to wait for ever in its `close()`: what it has printed counts.
    with subprocess.Popen(command, cwd=pages.ROOT, stdout=subprocess.PIPE, text=True) as port:
        try:
            found, _ = port.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            port.kill()
            found, _ = port.communicate()
    assert found == printed


@pytest.mark.parametrize("page", OTHERS)
def test_the_program_of_another_library(page: str, home: Server, tmp_path: Path) -> None:
    [program] = pages.snippets(f"migrating/{page}.md", "py")
    (tmp_path / "app.py").write_text(pages.with_server(program, home))
    python = str(peer_python(page))
    workers = [[python, *("-m", "celery", "-A", "app", "worker", "--concurrency", "1")]] if page == "celery" else []
    with ExitStack() as stack:
        for each in workers:
            working = stack.enter_context(subprocess.Popen(each, cwd=tmp_path, stderr=subprocess.DEVNULL))
            stack.callback(working.terminate)
        done = subprocess.run([python, "app.py"], cwd=tmp_path, capture_output=True, text=True)
    # RQ logs to standard output.
    assert (done.stdout.splitlines()[-1:], done.returncode) == (["sent to ada"], 0), done.stderr


@pytest.mark.parametrize("version", FOLDERS)
def test_the_program_on_node(version: str, home: Server) -> None:
    program, printed = outputs("migrating/node.md", "js")
    connection = f"const connection = {{ host: {home.host!r}, port: {home.port} }};\n"
    assert finished(["node", "-e", connection + program], version) == printed


@pytest.mark.parametrize("page", OTHERS)
def test_what_a_page_says_of_another_library_is_there(page: str) -> None:
    command = [str(peer_python(page)), "-c", _MISSING, repr(_NAMED[page])]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""


def test_the_program_on_bull(home: Server) -> None:
    program, printed = outputs("migrating/bull.md", "js")
    assert finished(["node", "-e", pages.with_server(program, home)], "bull") == printed


@pytest.mark.parametrize("version", FOLDERS)
def test_a_mixed_fleet(version: str, home: Server) -> None:
    sessions = _SESSIONS.findall(pages.page("guides/mixed-fleets.md"))
    assert len(sessions) == 2
    for commands, printed in sessions:
        worker, producer = (command_of(line, home) for line in commands.replace(" &", "").splitlines())
        with running(worker, version):
            # Progress and the result come by two ways.
            assert sorted(finished(producer, version).splitlines()) == sorted(printed.splitlines())


def test_a_fleet_with_nest(home: Server) -> None:
    """Python works on what an application on NestJS adds, and adds what that one works on."""
    python = [sys.executable, "-m", "examples.mixed_fleet.worker", home.url]
    nest = ["node", str(_FOLDER / "nest.js"), str(home.port)]
    with (
        running(python, "nest"),
        subprocess.Popen(nest, env=of_node("nest"), stdout=subprocess.PIPE, text=True) as both,
    ):
        try:
            assert both.stdout is not None
            answer = both.stdout.readline()
            assert answer.startswith('Python returned {"at":"1970-01-01T00:00:00.000Z","big":"18446744073709551617"')
            command = [sys.executable, "-m", "examples.mixed_fleet.add", home.url]
            assert finished(command, "nest").splitlines()[1:] == [
                "Node returned {'year': 1970, 'big': '18446744073709551617'}",
                "Node failed: attempt 2",
            ]
            both.terminate()
            assert both.wait(60) == 0
        finally:
            both.kill()


def command_of(line: str, server: Server) -> list[str]:
    program, *arguments = line.split()
    if program == "node":
        return ["node", str(pages.ROOT / arguments[0]), str(server.port)]
    return [sys.executable, *arguments[:-1], server.url]


def test_every_program_of_the_folder_is_on_the_page() -> None:
    page = pages.page("guides/mixed-fleets.md")
    programs = [file.name for file in Path(_FOLDER).iterdir() if file.suffix in (".js", ".py") and file.stem[0] != "_"]
    assert len(programs) == 5
    assert [name for name in programs if f"{{literalinclude}} ../../examples/mixed_fleet/{name}" not in page] == []
