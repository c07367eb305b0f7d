"""The pytest plugin, in runs of pytest of its own: its fixtures under xdist and with each plugin for async tests."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from textwrap import dedent
from typing import TypeAlias

import pytest
import redis

import bullmq_pytest
from tests.support import plugins, servers
from tests.support.servers import Server

pytestmark = pytest.mark.any_server

_ROOT = Path(__file__).parents[2]
Run: TypeAlias = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run pytest on one file; return what it prints. `beside` is the plugin for async tests that it has, too."""

    def run(
        text: str, *options: str, fails: bool = False, names: dict[str, str] | None = None, beside: str = ""
    ) -> str:
        (tmp_path / "test_it.py").write_text(dedent(text))
        (tmp_path / "pytest.ini").write_text(f"[pytest]\nfilterwarnings = error\n{plugins.settings(beside)}")
        own = {name: value for name, value in os.environ.items() if not name.startswith(("BULLMQ_", "PYTEST_", "COV"))}
        own |= {"BULLMQ_TEST_CACHE": os.environ["BULLMQ_TEST_CACHE"], **plugins.environment(beside)}
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly", *options]
        done = subprocess.run(
            [*command, *plugins.options(beside)],
            cwd=tmp_path,
            env={**own, **(names or {})},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stdout

    return run


def _kind() -> str:
    return servers.chosen()[0]


SHARED = """
    import pytest
    from bullmq_sync import Queue

    @pytest.mark.parametrize("n", range(6))
    def test_alone(bullmq_url, bullmq_prefix, n):
        with Queue("mail", bullmq_url, prefix=bullmq_prefix) as queue:
            for _ in range(5):
                queue.add("welcome", {"n": n})
            assert queue.get_job_counts("waiting")["waiting"] == 5
"""


def test_it_is_found_by_its_entry_point() -> None:
    (found,) = entry_points(group="pytest11", name="bullmq")
    assert found.load() is bullmq_pytest
    (found,) = entry_points(group="hypothesis", name="bullmq")
    assert found.value == "bullmq_protocol.testing.strategies"


def test_it_costs_other_suites_nothing(run: Run) -> None:
    program = "import sys, bullmq_pytest; print(*[name for name in sys.modules if name.startswith('bullmq_protocol')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
    run(
        """
        import sys

        def test_others():
            assert not [name for name in sys.modules if name.startswith(("bullmq_protocol", "hypothesis."))]
        """
    )


def test_the_kit_needs_no_pytest() -> None:
    rooms = [
        "clock",
        "conformance",
        "expiry",
        "jobs",
        "model",
        "recording",
        "scripted",
        "server",
        "simulate",
        "vectors",
    ]
    program = (
        f"import sys\nfor name in {rooms!r}: __import__(f'bullmq_protocol.testing.{{name}}')\n"
        "import bullmq_anyio.testing, bullmq_sync.testing\n"
        "print(*{'pytest', '_pytest', 'hypothesis', 'testcontainers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=_ROOT)
    assert done.stdout.strip() == ""


def test_each_test_has_a_database_of_its_own(run: Run) -> None:
    out = run(
        """
        import os
        from bullmq_protocol.testing.server import ask
        from bullmq_sync import Queue

        urls = []

        def test_one(bullmq_server, bullmq_url):
            assert bullmq_url.startswith(bullmq_server.url.rpartition("/")[0])
            assert os.environ["BULLMQ_URL"] == bullmq_url
            urls.append(bullmq_url)
            with Queue("mail") as queue:
                queue.add("welcome")
            assert ask(bullmq_url, "DBSIZE") > 0

        def test_two(bullmq_server, bullmq_url):
            assert "BULLMQ_URL" in os.environ and bullmq_url not in urls
            with Queue("mail") as queue:
                assert queue.get_jobs() == []
            # What the first has left is gone.
            assert ask(urls[0], "DBSIZE") == 0

        def test_three():
            assert "BULLMQ_URL" not in os.environ
        """,
        f"--bullmq-server={_kind()}",
    )
    assert "3 passed" in out


def test_parallel_tests_on_one_server_do_not_meet(run: Run, server: Server) -> None:
    with redis.Redis.from_url(server.url) as admin:
        admin.set("kept", "yes", ex=60)
        out = run(SHARED, "-n", "2", f"--bullmq-server={server.url}")
        assert "6 passed" in out
        assert list(admin.scan_iter("test-*")) == []
        assert admin.get("kept") == b"yes"
        run(SHARED, names={"BULLMQ_TEST_REDIS_URL": server.url})
        assert list(admin.scan_iter("test-*")) == []


def test_keys_of_every_layout_are_removed(run: Run, server: Server) -> None:
    out = run(
        """
        from bullmq_protocol import KeyLayout
        from bullmq_sync import Queue

        def test_layouts(bullmq_url, bullmq_prefix):
            for layout in KeyLayout:
                with Queue("mail", bullmq_url, prefix=bullmq_prefix, layout=layout) as queue:
                    queue.add("welcome")
        """,
        f"--bullmq-server={server.url}",
    )
    assert "1 passed" in out
    with redis.Redis.from_url(server.url) as admin:
        assert [*admin.scan_iter("test-*"), *admin.scan_iter("{test-*")] == []


def test_processes_of_xdist_have_servers_of_their_own(run: Run, tmp_path: Path) -> None:
    text = f"""
        import os, pathlib, pytest

        @pytest.mark.parametrize("n", range(8))
        def test_one(bullmq_server, n):
            worker = os.environ["PYTEST_XDIST_WORKER"]
            pathlib.Path({str(tmp_path)!r}, f"seen-{{worker}}").write_text(bullmq_server.url)
    """
    assert "8 passed" in run(text, "-n", "2", "--dist", "load", f"--bullmq-server={_kind()}")
    assert len({path.read_text() for path in tmp_path.glob("seen-*")}) == 2


ASYNC = """
    import {library}
    import pytest
    from bullmq_anyio import Queue, Worker
    from bullmq_anyio.testing import assert_added, work_off

    {mark}
    async def test_async(bullmq_url, bullmq_prefix):
        async with Queue("mail", bullmq_url, prefix=bullmq_prefix) as queue:
            await queue.add("welcome", {{"to": "ada"}})
            await {library}.sleep(0)

            async def greet(job):
                return f"hello {{job.data['to']}}"

            done = await work_off(queue, greet)
            assert [each.result for each in done.completed] == ["hello ada"]
            await assert_added(queue, "welcome", to="ada")
"""


@pytest.mark.parametrize(
    ("library", "beside"),
    [("asyncio", "asyncio"), ("trio", "trio"), ("anyio", "")],
    ids=["pytest-asyncio", "pytest-trio", "anyio"],
)
def test_async_tests_of_every_plugin(run: Run, library: str, beside: str) -> None:
    text = ASYNC.format(library=library, mark=f"@pytest.mark.{library}")
    out = run(text, f"--bullmq-server={_kind()}", beside=beside)
    assert f"{2 if library == 'anyio' else 1} passed" in out


def test_async_fixtures_end_before_the_database_is_emptied(run: Run) -> None:
    out = run(
        """
        import pytest_asyncio, pytest
        from bullmq_anyio import Queue
        from bullmq_anyio.testing import queued

        @pytest_asyncio.fixture
        async def queue(bullmq_url):
            async with Queue("mail", bullmq_url) as made:
                yield made
                # Nothing is emptied yet.
                assert len(await queued(made)) == 1

        @pytest.mark.asyncio
        async def test_it(queue):
            await queue.add("welcome")
        """,
        f"--bullmq-server={_kind()}",
        beside="asyncio",
    )
    assert "1 passed" in out


def test_workers_in_fixtures_and_nurseries_of_pytest_trio(run: Run) -> None:
    out = run(
        """
        import pytest
        import trio
        from bullmq_anyio import Queue, QueueEvents, Worker

        pytestmark = pytest.mark.trio

        async def handle(job):
            return f"hello {job.data}"

        @pytest.fixture
        async def queue(bullmq_url):
            async with Queue("mail", bullmq_url) as made:
                yield made

        @pytest.fixture
        async def worker(bullmq_url):
            async with Worker("mail", handle, bullmq_url) as made:
                yield made

        async def greeted(queue, bullmq_url):
            async with QueueEvents("mail", bullmq_url) as events:
                job = await queue.add("welcome", "ada")
                assert await job.wait_until_finished(events, 30_000) == "hello ada"

        async def test_a_fixture(queue, worker, bullmq_url):
            await greeted(queue, bullmq_url)

        @pytest.mark.parametrize("closes", [True, False])
        async def test_a_nursery(queue, nursery, bullmq_url, closes):
            worker = Worker("mail", handle, bullmq_url)
            nursery.start_soon(worker.run)
            await greeted(queue, bullmq_url)
            if closes:
                await worker.aclose()
        """,
        f"--bullmq-server={_kind()}",
        beside="trio",
    )
    assert "3 passed" in out


def test_a_server_that_a_test_has_killed_is_started_again(run: Run) -> None:
    out = run(
        """
        from bullmq_sync import Queue

        def test_one(bullmq_server, bullmq_url):
            bullmq_server.kill()

        def test_two(bullmq_url):
            with Queue("mail", bullmq_url) as queue:
                queue.add("welcome")
        """,
        f"--bullmq-server={_kind()}",
    )
    assert "2 passed" in out


def test_no_server_is_left_running(run: Run) -> None:
    out = run(
        """
        def test_one(bullmq_server):
            print(f"pid {bullmq_server.pid}.")
        """,
        "-s",
        f"--bullmq-server={_kind()}",
    )
    pid = int(re.findall(r"pid (\d+)\.", out)[0])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("redis-1.0", "bullmq_server: redis-1.0 cannot be started here; known: "),
        (
            "redis://127.0.0.1:1",
            "bullmq_server: the server at redis://127.0.0.1:1/0 does not answer: [Errno 111] Connection refused",
        ),
        ("localhost:6379", "named by its URL, such as redis://localhost:6379"),
        ("http://127.0.0.1", "bullmq_server: url: "),
    ],
)
def test_a_server_that_cannot_be_had_fails_the_tests(run: Run, asked: str, message: str) -> None:
    out = run("def test_one(bullmq_url): pass", f"--bullmq-server={asked}", fails=True)
    assert message in out
    assert "Traceback" not in out and "During handling" not in out


def test_a_password_that_the_server_refuses_fails_the_tests(run: Run, server: Server) -> None:
    place = server.url.partition("://")[2]
    out = run("def test_one(bullmq_url): pass", f"--bullmq-server=redis://:secret@{place}", fails=True)
    assert re.search("bullmq_server: the server at redis://127.0.0.1:[0-9]+/0 refuses: (WRONGPASS|ERR) ", out)
    assert "secret" not in out and "Traceback" not in out


def test_there_is_a_database_for_more_tests_than_a_server_has_by_default(run: Run) -> None:
    out = run(
        """
        import pytest
        from bullmq_protocol.testing.server import ask

        @pytest.mark.parametrize("n", range(40))
        def test_one(bullmq_url, n):
            assert ask(bullmq_url, "DBSIZE") == 0
            ask(bullmq_url, "SET", "left", n)
        """,
        f"--bullmq-server={_kind()}",
    )
    assert "40 passed" in out


def test_the_clock_goes_on_and_jumps(run: Run) -> None:
    out = run(
        """
        import time

        def test_one(bullmq_clock):
            first, began = bullmq_clock(), time.monotonic()
            assert abs(first.wall - time.time() * 1000) < 60_000
            while time.monotonic() < began + 0.005:
                pass
            then = bullmq_clock()
            assert then.mono - first.mono == then.wall - first.wall > 0
            assert bullmq_clock.advance(hours=1).mono - then.mono >= 3_600_000

        def test_two(bullmq_clock):
            assert bullmq_clock.wall < time.time() * 1000 + 60_000
        """
    )
    assert "2 passed" in out
