"""An exception in the middle of what callers share: a call finds everything as it was, or the connection is dropped.

A fault is raised at every line of the links and connections in turn, while several callers share one. Each caller
gets its own reply or an error, never the reply of another, and none waits for ever; what an error calls not applied was
not applied; and the connection works afterwards.
"""

import gc
import hashlib
import itertools
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from types import ModuleType
from typing import Any

import anyio
import msgspec
import pytest
import redis
from anyio.lowlevel import checkpoint

import bullmq_anyio.net.cluster
import bullmq_anyio.net.connection
import bullmq_anyio.net.dialling
import bullmq_anyio.net.link
import bullmq_anyio.net.redis_asyncio
import bullmq_anyio.net.redis_client
import bullmq_anyio.net.sentinel
import bullmq_anyio.net.sharing
import bullmq_protocol.net.exchange
import bullmq_protocol.net.wire
import bullmq_sync.net.cluster
import bullmq_sync.net.connection
import bullmq_sync.net.dialling
import bullmq_sync.net.link
import bullmq_sync.net.redis_client
import bullmq_sync.net.redis_py
import bullmq_sync.net.sentinel
import bullmq_sync.net.sharing
import bullmq_sync.net.waking
from bullmq_protocol.command import Command, Script
from bullmq_protocol.common.keys import KeyLayout, QueueKeys
from bullmq_protocol.common.reply import as_text
from bullmq_protocol.errors import TransportError
from bullmq_protocol.net.address import ConnectionOptions, parse_url
from tests.support import topology
from tests.support.clients import OwnAsyncioClient, OwnClient
from tests.support.faults import Planter
from tests.support.servers import Server
from tests.support.topology import SERVICE, ClusterSet, SentinelSet

_CALLERS = 4
_ROUNDS = 3
_HANGING_S = 60.0
"""This long after a fault nobody waits who gets anything at all."""
_ERRORS = (MemoryError, RecursionError, KeyboardInterrupt)
"""In turn. In a callback of asyncio's the last would end the event loop."""
_TEXT = "redis.call('rpush', KEYS[1], ARGV[1]) return ARGV[1]"
_PUSH = Script("push", hashlib.sha1(_TEXT.encode()).hexdigest(), 1, _TEXT)
_LAYOUT = KeyLayout.TAGGED_QUEUE


class _Told:
    """What became of each call."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._numbers = itertools.count()
        self.certain: set[str] = set()
        self.absent: set[str] = set()
        self.wrong: list[str] = []
        self.faults: list[BaseException] = []

    def push(self) -> tuple[str, Command[str]]:
        token = f"{self.name}-{next(self._numbers)}"
        return token, Command("push", (self.name,), (token,), as_text, script=_PUSH)

    def got(self, token: str, reply: str) -> None:
        if reply == token:
            self.certain.add(token)
        else:
            self.wrong.append(f"{token} has the reply {reply!r}")

    def failed(self, token: str, error: BaseException) -> None:
        if not isinstance(error, TransportError):
            self.faults.append(error)
        elif not error.maybe_applied:
            self.absent.add(token)

    def check(self, applied: list[str]) -> None:
        assert not self.wrong
        assert len(set(applied)) == len(applied)
        assert self.certain <= set(applied)
        assert not self.absent & set(applied)


def _applied(client: Any, name: str) -> list[str]:
    with client:
        found: list[bytes] = client.lrange(name, 0, -1)
        keys = client.scan_iter(QueueKeys.of(name, layout=_LAYOUT).job("*"), 1000, _type="HASH")
        added = [client.hget(key, "name") for key in keys]
    return [each.decode() for each in (*found, *added) if each is not None]


# --- asyncio and trio -------------------------------------------------------------------------------------------------


async def _share(connect: Callable[[], Any], planter: Planter, reported: _Told) -> None:
    connection = connect()
    queue: Any = bullmq_anyio.Queue(reported.name, connection, layout=_LAYOUT)

    async def push() -> None:
        token, command = reported.push()
        try:
            reported.got(token, command.decode(await connection.perform(command)))
        except (TransportError, *_ERRORS) as error:
            reported.failed(token, error)

    async def add() -> None:
        token, _ = reported.push()
        try:
            job = await queue.add(token, None)
            reported.certain.add(token)
        except (TransportError, *_ERRORS) as error:
            reported.failed(token, error)
            return
        try:
            reported.got(token, (await queue.get_job(job.id)).name)
        except (TransportError, *_ERRORS):
            pass

    async def call(number: int) -> None:
        for turn in range(_ROUNDS):
            await (add() if (number + turn) % 2 else push())

    async def be_cancelled() -> None:
        for turns in range(_ROUNDS):
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as group:

                    async def cancel(turns: int = turns, scope: anyio.CancelScope = scope) -> None:
                        for _ in range(turns):
                            await checkpoint()
                        scope.cancel()

                    group.start_soon(cancel)
                    try:
                        await connection.perform(reported.push()[1])
                    except (TransportError, *_ERRORS):
                        pass

    with anyio.fail_after(_HANGING_S), planter.here():
        async with anyio.create_task_group() as group:
            for number in range(_CALLERS):
                group.start_soon(call, number)
            group.start_soon(be_cancelled)
    before = len(reported.certain)
    with anyio.fail_after(_HANGING_S):
        # Whatever there was, it is over.
        async with anyio.create_task_group() as group:
            for _ in range(_CALLERS):
                group.start_soon(push)
        assert len(reported.certain) == before + _CALLERS
        await queue.aclose()
        await connection.aclose()


# --- threads ----------------------------------------------------------------------------------------------------------


def _share_between_threads(connect: Callable[[], Any], planter: Planter, reported: _Told) -> None:
    with closing(connect()) as connection:
        queue: Any = bullmq_sync.Queue(reported.name, connection, layout=_LAYOUT)

        def push() -> None:
            token, command = reported.push()
            try:
                reported.got(token, command.decode(connection.perform(command)))
            except (TransportError, *_ERRORS) as error:
                reported.failed(token, error)

        def add() -> None:
            token, _ = reported.push()
            try:
                job = queue.add(token, None)
                reported.certain.add(token)
            except (TransportError, *_ERRORS) as error:
                reported.failed(token, error)
                return
            try:
                reported.got(token, queue.get_job(job.id).name)
            except (TransportError, *_ERRORS):
                pass

        def call(number: int) -> None:
            for turn in range(_ROUNDS):
                (add if (number + turn) % 2 else push)()

        def victim() -> None:
            with planter.here():
                call(0)

        def together(*mains: Callable[[], None]) -> None:
            threads = [threading.Thread(target=main, daemon=True) for main in mains]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(_HANGING_S)
            assert not any(thread.is_alive() for thread in threads)

        together(victim, *(partial(call, number) for number in range(1, _CALLERS)))
        before = len(reported.certain)
        # Whatever there was, it is over.
        together(*[push] * _CALLERS)
        assert len(reported.certain) == before + _CALLERS


def _unlimited(url: str) -> ConnectionOptions:
    """Return options without a time limit that could end what hangs, or what a busy machine holds up."""
    return msgspec.structs.replace(parse_url(url), command_timeout_ms=None, connect_timeout_ms=60_000)


def _native(url: str) -> Any:
    return bullmq_anyio.net.connection.Connection(_unlimited(url))


def _native_on_threads(url: str) -> Any:
    return bullmq_sync.net.connection.Connection(_unlimited(url))


def _over_redis_asyncio(url: str) -> Any:
    return OwnAsyncioClient(url, connect_timeout_ms=60_000, command_timeout_ms=None, socket_timeout=None)


def _over_redis_py(url: str) -> Any:
    return OwnClient(url, socket_timeout=None)


_Kind = tuple[Callable[[str], Any], tuple[ModuleType, ...]]
_NATIVE: dict[str, _Kind] = {
    "asyncio": (
        _native,
        (bullmq_anyio.net.connection, bullmq_anyio.net.dialling, bullmq_anyio.net.sharing, bullmq_anyio.net.link),
    ),
    "trio": (
        _native,
        (bullmq_anyio.net.connection, bullmq_anyio.net.dialling, bullmq_anyio.net.sharing, bullmq_anyio.net.link),
    ),
    "threads": (
        _native_on_threads,
        (
            bullmq_sync.net.connection,
            bullmq_sync.net.dialling,
            bullmq_sync.net.sharing,
            bullmq_sync.net.link,
            bullmq_sync.net.waking,
        ),
    ),
}
_KINDS: dict[str, _Kind] = {
    **_NATIVE,
    "asyncio over redis-py": (
        _over_redis_asyncio,
        (bullmq_anyio.net.redis_client, bullmq_anyio.net.redis_asyncio),
    ),
    "threads over redis-py": (_over_redis_py, (bullmq_sync.net.redis_client, bullmq_sync.net.redis_py)),
}


def _strike(
    name: str, kind: _Kind, backend: str, occurrence: int, url: str, look: Callable[[], Any], least: int
) -> None:
    """Raise at each place in turn, each time on a connection of its own; `look` makes a client to see what was done."""
    make, modules = kind
    planter = Planter(*modules, bullmq_protocol.net.wire, bullmq_protocol.net.exchange)
    errors = _ERRORS[:2] if backend == "asyncio" else _ERRORS
    connect = partial(make, url)

    def run(reported: _Told) -> None:
        if backend == "threads":
            _share_between_threads(connect, planter, reported)
        else:
            anyio.run(_share, connect, planter, reported, backend=backend)

    planter.aim(None)
    run(_Told(f"{name}-0"))
    sites = sorted(site for site, count in planter.seen.items() if count >= occurrence)
    struck = 0
    for number, site in enumerate(sites):
        planter.aim(site, occurrence, errors[number % len(errors)])
        reported = _Told(f"{name}-{number + 1}")
        try:
            run(reported)
            reported.check(_applied(look(), reported.name))
        except BaseException as error:
            error.add_note(f"the fault was {errors[number % len(errors)].__name__} at {site}, time {occurrence}")
            raise
        struck += planter.struck
    assert len(sites) > least
    assert struck > len(sites) / 2
    # What is left of them is collected here, where it is expected, and not in a later test.
    gc.collect()


# What nobody has yet when the fault comes is closed when it is collected.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.any_python
@pytest.mark.any_server
@pytest.mark.timeout(900)  # hundreds of faults in one
# The third time that a line runs, the connection is in use already.
@pytest.mark.parametrize("occurrence", [1, pytest.param(3, marks=pytest.mark.deep)])
@pytest.mark.parametrize("adapter_name", list(_KINDS))
def test_a_fault_at_any_line_leaves_all_as_it_was_or_drops_the_connection(
    server: Server, name: str, adapter_name: str, occurrence: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    look = partial(redis.Redis.from_url, server.url)
    _strike(name, _KINDS[adapter_name], adapter_name.split()[0], occurrence, server.url, look, 40)


@pytest.fixture(scope="module")
def several(request: pytest.FixtureRequest) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Give a URL of a set of servers, and what makes a client for it."""
    kind = topology.kinds()[-1]
    if request.param == "sentinel":
        with SentinelSet(kind) as found:
            yield f"redis+sentinel://{found.hosts}/{SERVICE}", lambda: redis.Redis.from_url(found.master().url)
    else:
        with ClusterSet(kind) as nodes:
            host, port = nodes.addresses[0]
            yield f"redis+cluster://{nodes.hosts}", lambda: redis.RedisCluster(host, port)


_SEVERAL: dict[tuple[str, str], tuple[ModuleType, ...]] = {
    ("sentinel", "asyncio"): (bullmq_anyio.net.sentinel, bullmq_anyio.net.dialling, bullmq_anyio.net.sharing),
    ("sentinel", "trio"): (bullmq_anyio.net.sentinel, bullmq_anyio.net.dialling, bullmq_anyio.net.sharing),
    ("sentinel", "threads"): (bullmq_sync.net.sentinel, bullmq_sync.net.dialling, bullmq_sync.net.sharing),
    ("cluster", "asyncio"): (bullmq_anyio.net.cluster, bullmq_anyio.net.sharing),
    ("cluster", "trio"): (bullmq_anyio.net.cluster, bullmq_anyio.net.sharing),
    ("cluster", "threads"): (bullmq_sync.net.cluster, bullmq_sync.net.sharing),
}


# What nobody has yet when the fault comes is closed when it is collected.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.any_python
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("several", "adapter_name"), list(_SEVERAL), indirect=["several"], ids=[f"{a}-{b}" for a, b in _SEVERAL]
)
def test_a_fault_in_what_follows_several_servers_leaves_nobody_behind(
    several: tuple[str, Callable[[], Any]],
    name: str,
    adapter_name: str,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    url, look = several
    made = (bullmq_sync if adapter_name == "threads" else bullmq_anyio).connect
    modules = _SEVERAL[request.node.callspec.id.split("-")[0], adapter_name]
    _strike(name, (made, modules), adapter_name, 1, url, look, 30)


def _depth() -> int:
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    return depth


_LEFT = range(2, 100)
"""This many levels are left of the stack where a call is made at the end of a recursion."""


async def _dive(left: int, call: Callable[[], Any]) -> None:
    async def dive(levels: int) -> None:
        await (dive(levels - 1) if levels > 0 else call())

    await dive(sys.getrecursionlimit() - _depth() - left)


def _calls(queue: Any, job: Any, left: int) -> tuple[Callable[[], Any], ...]:
    """Calls of either package, for the end of a recursion."""
    return (
        lambda: queue.add("deep", 0),
        lambda: queue.get_job(job.id),
        lambda: job.log("deep"),
        lambda: job.update_progress(left),
        lambda: queue.get_job_counts(),
    )


async def _recurse(url: str, name: str) -> list[str]:
    wrong: list[str] = []
    refused = made = 0
    over = False
    async with bullmq_anyio.Queue[int](name, url) as queue:
        jobs = [await queue.add(str(number), number) for number in range(_CALLERS)]

        async def call(number: int) -> None:
            while not over:
                try:
                    job = await queue.get_job(jobs[number].id)
                    if job is None or job.data != number:
                        wrong.append(f"asked for job {number}, got {job}")
                except Exception as error:
                    wrong.append(f"another caller: {error!r}")
                await checkpoint()

        async with anyio.create_task_group() as group:
            for number in range(_CALLERS):
                group.start_soon(call, number)
            for left in _LEFT:
                for each in _calls(queue, jobs[0], left):
                    try:
                        with anyio.fail_after(_HANGING_S):
                            await _dive(left, each)
                        made += 1
                    except RecursionError:
                        refused += 1
            over = True
    assert refused
    assert made
    return wrong


def _recurse_in_threads(url: str, name: str) -> list[str]:
    wrong: list[str] = []
    refused = made = 0
    over = threading.Event()
    with bullmq_sync.Queue[int](name, url) as queue:
        jobs = [queue.add(str(number), number) for number in range(_CALLERS)]

        def call(number: int) -> None:
            while not over.is_set():
                try:
                    job = queue.get_job(jobs[number].id)
                    if job is None or job.data != number:
                        wrong.append(f"asked for job {number}, got {job}")
                except Exception as error:
                    wrong.append(f"another caller: {error!r}")

        def dive(levels: int, call: Callable[[], object]) -> None:
            if levels > 0:
                dive(levels - 1, call)
            else:
                call()

        threads = [threading.Thread(target=call, args=(number,), daemon=True) for number in range(_CALLERS)]
        for thread in threads:
            thread.start()
        for left in _LEFT:
            for each in _calls(queue, jobs[0], left):
                try:
                    dive(sys.getrecursionlimit() - _depth() - left, each)
                    made += 1
                except RecursionError:
                    refused += 1
        over.set()
        for thread in threads:
            thread.join(_HANGING_S)
        assert not any(thread.is_alive() for thread in threads)
    assert refused
    assert made
    return wrong


# Alone, where nothing counts lines: that takes room on the stack, too.
@pytest.mark.alone
@pytest.mark.any_server
@pytest.mark.parametrize("adapter_name", list(_NATIVE))
def test_a_call_at_the_end_of_a_recursion_is_refused_and_changes_nothing_for_others(
    server: Server, name: str, adapter_name: str
) -> None:
    if adapter_name == "threads":
        assert _recurse_in_threads(server.url, name) == []
    else:
        assert anyio.run(_recurse, server.url, name, backend=adapter_name) == []


async def _begin_deep(url: str, name: str, left: int) -> tuple[bool, dict[str, int]]:
    async with bullmq_anyio.Queue[int](name, url) as queue:
        try:
            await _dive(left, queue.get_job_counts)
            refused = False
        except RecursionError:
            refused = True
        with anyio.fail_after(_HANGING_S):
            return refused, await queue.get_job_counts("wait")


def _begin_deep_in_threads(url: str, name: str, left: int) -> tuple[bool, dict[str, int]]:
    found: list[tuple[bool, dict[str, int]]] = []
    queue = bullmq_sync.Queue[int](name, url)

    def dive(levels: int) -> None:
        if levels > 0:
            dive(levels - 1)
        else:
            queue.get_job_counts()

    def begin() -> None:
        try:
            dive(sys.getrecursionlimit() - _depth() - left)
            refused = False
        except RecursionError:
            refused = True
        found.append((refused, queue.get_job_counts("wait")))

    thread = threading.Thread(target=begin, daemon=True)
    thread.start()
    thread.join(_HANGING_S)
    assert found, f"with {left} levels left: the call after it hangs"
    queue.close()
    return found[0]


@pytest.mark.alone
@pytest.mark.any_server
@pytest.mark.parametrize("adapter_name", list(_NATIVE))
def test_a_first_call_at_the_end_of_a_recursion_lets_the_next_one_connect(
    server: Server, name: str, adapter_name: str
) -> None:
    outcomes = set[bool]()
    for left in range(40, 160):
        if adapter_name == "threads":
            refused, counts = _begin_deep_in_threads(server.url, name, left)
        else:
            refused, counts = anyio.run(_begin_deep, server.url, name, left, backend=adapter_name)
        outcomes.add(refused)
        assert counts["wait"] == 0
    assert outcomes == {False, True}
