"""Every example runs as a program of its own and prints what it promises."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from examples.demo import Progress
from tests.support.servers import Server

_ROOT = Path(__file__).parents[2]

PRINTED = {
    "asyncio_app": r"1: completed, \{'sent': 'ada@example.org'\}\n"
    r"2: completed, \{'sent': 'grace@example.org'\}\n"
    r"3: completed, \{'sent': 'barbara@example.org'\}\n",
    "trio_app": r"1: 3.14\n2: 314.16\n",
    "threads_app": r"1: completed, 640 pixels wide\n2: completed, 1280 pixels wide\n"
    r"3: failed, no picture is so narrow\n",
    "flow_app": r"words: 8\n",
    "process_pool": r"1: 25 primes\n2: 168 primes\n3: 1229 primes\n4: 2262 primes\n",
    "process_pool_threads": r"1: 25 primes\n2: 168 primes\n3: 1229 primes\n4: 2262 primes\n",
    "child_processes": r"20 jobs done by 2 children, which ended in good order\n",
    "custom_worker": r"added 1\nadded 2\nadded 3\nshout 1: \"HELLO\"\nshout 2: \"GRÖSSE\"\n"
    r"shout 3 failed: 'NoneType' object has no attribute 'upper'\n",
}


def _run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=_ROOT, capture_output=True, encoding="utf-8", timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", PRINTED)
def test_example(name: str, server: Server) -> None:
    with redis.Redis.from_url(server.url) as raw:
        for queue in ("mail-asyncio", "circles", "images-threads", "shouts", "books", "pages", "primes", "squares"):
            if keys := list(raw.scan_iter(f"bull:{queue}:*")):
                raw.delete(*keys)
    assert re.fullmatch(PRINTED[name], _run(f"examples.{name}", server.url))


def test_example_of_property_tests() -> None:
    # A user has no plugins.
    without = [part for plugin in ("cacheprovider", "timeout", "xdist") for part in ("-p", f"no:{plugin}")]
    # That profile of Hypothesis' own has no time limits.
    assert "3 passed" in _run("pytest", "-q", *without, "--hypothesis-profile=ci", "examples/test_properties.py")


def test_the_demo_adds_and_works_off_10000_jobs() -> None:
    *_, last = _run("examples.demo").splitlines()
    assert re.fullmatch(r"demo: 10000 added, 10000 completed, 200 retries, [1-9]\d* jobs/s", last)


@pytest.mark.parametrize(
    ("terminal", "printed"),
    [
        (True, "\rwork     [" + " " * 40 + "]      0\rwork     [" + "█" * 40 + "]    200\n"),
        (False, "work 0 %\nwork 100 %\n"),
    ],
)
def test_the_demos_bar_moves_on_a_terminal_only(
    terminal: bool, printed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    bar = Progress("work", 200)
    for done in (0, 1, 200):
        bar.show(done)
    assert capsys.readouterr().out == printed
