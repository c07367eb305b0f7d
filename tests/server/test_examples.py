"""Every example runs as a program of its own and prints what it promises."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import ConstantBackoff, NoBackoff
from redis.retry import Retry

from bullmq_protocol import NewJob, QueueKeys, prepare
from bullmq_protocol.command import Command
from bullmq_protocol.commands.adding import add_job
from bullmq_protocol.common.reply import as_none
from bullmq_protocol.worker.events import CallFailed
from examples.custom_worker import SimpleWorker, clock, send
from examples.demo import Progress
from tests.support import servers
from tests.support.servers import Server

pytestmark = pytest.mark.any_server

_ROOT = Path(__file__).parents[2]

PRINTED = {
    "asyncio_app": r"1: completed, \{'sent': 'ada@example.org'\}\n"
    r"2: completed, \{'sent': 'grace@example.org'\}\n"
    r"3: completed, \{'sent': 'barbara@example.org'\}\n",
    "trio_app": r"1: 3.14\n2: 314.16\n",
    "threads_app": r"1: completed, 640 pixels wide\n2: completed, 1280 pixels wide\n"
    r"3: failed, no picture is so narrow\n",
    "flow_app": r"words: 8\n",
    "coredis_transport": r"1: hello ada\n2: hello grace\n",
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
        for queue in (
            *("mail-asyncio", "circles", "images-threads", "shouts", "books", "pages", "primes", "squares"),
            "greetings",
        ):
            if keys := list(raw.scan_iter(f"bull:{queue}:*")):
                raw.delete(*keys)
    assert re.fullmatch(PRINTED[name], _run(f"examples.{name}", server.url))


_FAILS = """
import sys
import anyio, trio
from bullmq_protocol import UnrecoverableError
import examples.{name} as example

{define} fails(*_):
    raise UnrecoverableError("told so")

example.{handler} = fails
example.{handler}.__qualname__ = "elsewhere"
result = {run}
"""


@pytest.mark.parametrize(
    ("name", "handler", "run"),
    [
        ("asyncio_app", "send", "anyio.run(example.main, sys.argv[1])"),
        ("coredis_transport", "greet", "anyio.run(example.main, sys.argv[1])"),
        ("trio_app", "area", "trio.run(example.main, sys.argv[1])"),
        # That function has no place in a module, so it does not get as far as the other process.
        ("process_pool", "primes", "anyio.run(example.main, sys.argv[1])"),
        ("process_pool_threads", "primes", "example.main(sys.argv[1])"),
    ],
)
def test_an_example_whose_jobs_fail_ends(name: str, handler: str, run: str, server: Server) -> None:
    with redis.Redis.from_url(server.url) as raw:
        for queue in ("mail-asyncio", "circles", "primes", "greetings"):
            if keys := list(raw.scan_iter(f"bull:{queue}:*")):
                raw.delete(*keys)
    define = "def" if handler == "primes" else "async def"
    program = _FAILS.format(name=name, handler=handler, run=run, define=define)
    done = subprocess.run(
        [sys.executable, "-c", program, server.url], cwd=_ROOT, capture_output=True, encoding="utf-8", timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) in (2, 3, 4)
    assert all(re.search("told so|elsewhere|failed", line) for line in done.stdout.splitlines()), done.stdout


class _Watched(SimpleWorker):
    """Tells of calls that failed."""

    def __init__(self, *args: Any, then: Callable[[CallFailed], None]) -> None:
        super().__init__(*args)
        self._then = then

    def _perform(self, ticket: int, command: Command[Any]) -> Any:
        event = super()._perform(ticket, command)
        if isinstance(event, CallFailed):
            self._then(event)
        return event


def _raw(server: Server) -> Any:
    return redis.Redis.from_url(server.url, retry=Retry(NoBackoff(), 0))


@pytest.mark.parametrize(
    "code",
    [
        "READONLY",
        "LOADING",
        "MASTERDOWN",
        "CLUSTERDOWN",
        "TRYAGAIN",
        "OOM",
        "MISCONF",
        "NOREPLICAS",
        "BUSY",
        "NOAUTH",
        "WRONGPASS",
        "NOPERM",
        "ERR",
    ],
)
def test_the_custom_worker_keeps_the_codes_of_errors(code: str, server: Server, name: str) -> None:
    fails: Command[None] = Command("EVAL", (), ("return redis.error_reply(ARGV[1])", 0, f"{code} told so"), as_none)
    with _raw(server) as raw:
        worker = SimpleWorker(QueueKeys.of(name), lambda _: None, raw)
        failed = worker._perform(1, fails)
    assert isinstance(failed, CallFailed)
    # redis-py makes one error of two refusals of a login.
    assert (failed.lost, failed.code) == (False, code if code != "WRONGPASS" else "NOAUTH")


def test_the_custom_worker_tries_a_report_again(name: str) -> None:
    """A master becomes a replica while the handler runs, and a master again when the report was refused."""
    keys = QueueKeys.of(name)
    with servers.start() as server, servers.closed_port() as nobody, _raw(server) as raw:
        send(raw, add_job(keys, prepare(keys, NewJob("x", {}), now_ms=clock().wall)))
        codes: list[str] = []

        def then(failed: CallFailed) -> None:
            codes.append(failed.code)
            raw.slaveof()

        _Watched(keys, lambda _: raw.slaveof("127.0.0.1", nobody), raw, then=then).run()
        assert codes == ["READONLY"]
        assert raw.zcard(keys.completed) == 1 and raw.llen(keys.active) == 0


def test_the_custom_worker_outlives_a_lost_connection(name: str) -> None:
    keys = QueueKeys.of(name)
    with servers.start(config=("--appendonly", "yes", "--appendfsync", "always")) as server, _raw(server) as raw:
        send(raw, add_job(keys, prepare(keys, NewJob("x", {}), now_ms=clock().wall)))
        lost: list[bool] = []

        def then(failed: CallFailed) -> None:
            lost.append(failed.lost)
            if not server.alive:
                server.restart()

        _Watched(keys, lambda _: server.kill(), raw, then=then).run()
        assert lost and all(lost)
        assert raw.zcard(keys.completed) == 1 and raw.llen(keys.active) == 0


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


def test_the_server_of_the_tutorial_runs_until_it_is_interrupted() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "examples.server", str(port)]
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            assert f"redis://127.0.0.1:{port} until Ctrl-C" in running.stdout.readline()
            # It is starting.
            with redis.Redis(port=port, retry=Retry(ConstantBackoff(0.05), 600)) as raw:
                assert raw.ping()
            running.send_signal(signal.SIGINT)
            assert running.wait(60) == 0
        finally:
            running.kill()
