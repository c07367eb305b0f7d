"""A test that hangs ends its process, is reported by its name, and leaves nothing running; the others go on."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.limits import processes_of

_ROOT = Path(__file__).parents[2]
_CONFTEST = """
from tests.support.limits import Limits
def pytest_configure(config):
    config.pluginmanager.register(Limits(0.5), "limits")
"""
_HANGING = """
import asyncio, pathlib, subprocess, sys, threading

def _start(name):
    started = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
    pathlib.Path(__file__).with_name(name).write_text(str(started.pid))

def test_event_loop():
    # It swallows whatever the time limit raises, as an adapter's end may do.
    async def stay():
        while True:
            try:
                await asyncio.Event().wait()
            except BaseException:
                pass
    async def main():
        tasks = [asyncio.create_task(stay()) for _ in range(2)]
        await asyncio.wait(tasks)
    _start("event_loop")
    while True:
        try:
            asyncio.run(main())
        except BaseException:
            pass

def test_lock():
    _start("lock")
    lock = threading.Lock()
    lock.acquire()
    while True:
        try:
            lock.acquire()
        except BaseException:
            pass

def test_that_is_good():
    pathlib.Path(__file__).with_name("good").write_text("ran")
"""


def _has_ended(process: int) -> bool:
    """Wait for a process that was killed. It may stay as a zombie where nobody reaps orphans."""
    try:
        watched = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watched], [], [], 60.0)[0])
    finally:
        os.close(watched)


@pytest.mark.search
@pytest.mark.any_python
def test_a_test_that_hangs_ends_its_process_and_no_other_test(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    (tmp_path / "test_hanging.py").write_text(_HANGING)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command += ["-c", os.devnull, "--rootdir", str(tmp_path), str(tmp_path)]
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment = {**ours, "PYTHONPATH": str(_ROOT), "PYTEST_TIMEOUT": "0.5"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    for name in ("event_loop", "lock"):
        assert re.search(rf"crashed while running 'test_hanging.py::test_{name}'", done.stdout), done.stdout
        assert f"in test_{name}" in done.stderr
        assert _has_ended(int((tmp_path / name).read_text()))
    assert (tmp_path / "good").read_text() == "ran"
    assert "2 failed, 1 passed" in done.stdout


def test_only_what_this_worker_has_begun_is_found() -> None:
    environment = {**os.environ, "PYTEST_XDIST_TESTRUNUID": "run-1", "PYTEST_XDIST_WORKER": "gw1"}
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE) as begun:
        assert list(processes_of("run-1", "gw1")) == [begun.pid]
        assert list(processes_of("run-1", "gw2")) == []
        assert list(processes_of("run-2", "gw1")) == []
        begun.communicate(b"\n")


@pytest.mark.search
@pytest.mark.any_python
def test_without_a_time_limit_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(_CONFTEST.replace("0.5", "-3600"))
    (tmp_path / "test_good.py").write_text("def test_good():\n    pass\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        str(tmp_path),
    ]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "PYTEST_TIMEOUT": "0"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert "1 passed" in done.stdout
