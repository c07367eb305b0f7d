"""Sentinels that hang, speak while a command waits, or meet a shortage, in each adapter and on threads alone."""

import functools
import math
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
import anyio.to_thread
import pytest

import bullmq_anyio
import bullmq_anyio.net.sentinel
import bullmq_sync
import bullmq_sync.net.sentinel
from bullmq_anyio.net.answer import Answer
from bullmq_anyio.net.dialling import Attempt, at_once
from bullmq_anyio.net.link import link_over
from bullmq_protocol.command import Command
from bullmq_protocol.common.reply import as_int, as_none, as_texts
from bullmq_protocol.errors import Closed, ConnectionLost, TransportError, UsageError
from bullmq_protocol.net.topology import Named
from bullmq_sync.net.link import Link
from bullmq_sync.net.sentinel import SentinelConnection
from tests.support import servers, topology
from tests.support.topology import SERVICE, Sentinel, SentinelSet, say

pytestmark = pytest.mark.anyio

_SOON_S = 20
_LONG_MS = 240_000
"""A sentinel that hangs takes a quarter of it."""


@pytest.fixture(scope="module")
def own() -> Iterator[SentinelSet]:
    with SentinelSet(topology.kinds()[-1]) as found:
        yield found


@pytest.fixture
def sound(own: SentinelSet) -> SentinelSet:
    own.restore()
    return own


EACH = pytest.mark.parametrize(
    ("anyio_backend", "kind"), [("asyncio", "asyncio"), ("trio", "trio"), ("asyncio", "threads")]
)


def url_of(found: SentinelSet, **query: Any) -> str:
    words = "&".join(f"{name}={value}" for name, value in query.items())
    return f"redis+sentinel://{found.hosts}/{SERVICE}?{words}"


def incr(key: str) -> Command[int]:
    return Command("INCR", (key,), (), as_int)


def pop(key: str) -> Command[list[str]]:
    return Command("BLPOP", (key,), (0,), as_texts, block_ms=0)


async def in_thread(function: Callable[..., Any], *args: Any) -> Any:
    return await anyio.to_thread.run_sync(functools.partial(function, *args))


class _Way:
    """A connection of either package, with one way to call it."""

    def __init__(self, connection: Any, is_async: bool) -> None:
        self.connection = connection
        self._is_async = is_async

    async def perform(self, step: Any) -> Any:
        if self._is_async:
            return await self.connection.perform(step)
        return await in_thread(self.connection.perform, step)

    def dedicated(self, name: str) -> "_Way":
        return _Way(self.connection.dedicated(client_name=name), self._is_async)

    async def close(self) -> None:
        await (self.connection.aclose() if self._is_async else in_thread(self.connection.close))


@asynccontextmanager
async def connected(kind: str, url: str) -> AsyncIterator[_Way]:
    way = _Way((bullmq_sync if kind == "threads" else bullmq_anyio).connect(url), kind != "threads")
    try:
        yield way
    finally:
        await way.close()


@contextmanager
def hanging(sentinels: list[Sentinel]) -> Iterator[None]:
    for each in sentinels:
        os.kill(each.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for each in sentinels:
            os.kill(each.pid, signal.SIGCONT)


def waits(found: SentinelSet, client: str) -> bool:
    rows = say(found.master(), "CLIENT", "LIST").splitlines()
    return any(f" name={client} " in row and " flags=b" in row for row in rows)


async def refuses(call: Callable[[], Awaitable[Any]], kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=match):
        await call()


@EACH
async def test_one_that_hangs_is_not_waited_for(sound: SentinelSet, kind: str, name: str) -> None:
    """Whichever of them it is."""
    for each in sound.sentinels:
        with hanging([each]), anyio.fail_after(_SOON_S):
            async with connected(kind, url_of(sound, connect_timeout_ms=_LONG_MS)) as way:
                assert await way.perform(incr(name)) > 0


@EACH
async def test_the_asking_has_a_share_of_the_time(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sentinel's, had they been asked one after the other, and as much for the master."""
    module: Any = bullmq_sync.net.sentinel if kind == "threads" else bullmq_anyio.net.sentinel
    at_once, limits = module.at_once, []

    def noting(attempt: Any, calls: Any, limit_s: float, grace_s: float) -> Any:
        limits.append(limit_s)
        return at_once(attempt, calls, limit_s, grace_s)

    monkeypatch.setattr(module, "at_once", noting)
    with servers.closed_port() as one, servers.closed_port() as other:
        url = f"redis+sentinel://127.0.0.1:{one},127.0.0.1:{other}/{SERVICE}?connect_timeout_ms=3000"
        async with connected(kind, url) as way:
            with pytest.raises(ConnectionLost):
                await way.perform(Command("PING", (), (), as_none))
    assert set(limits) == {1.0}


@EACH
async def test_nobody_listens_to_sentinels_that_know_no_master(sound: SentinelSet, kind: str) -> None:
    async with connected(kind, f"redis+sentinel://{sound.hosts}/nobody") as way:
        with pytest.raises(UsageError, match="not known"):
            await way.perform(Command("PING", (), (), as_none))
        assert way.connection._watches == []


@pytest.mark.parametrize("module", [bullmq_anyio, bullmq_sync])
def test_sentinels_that_forgot_the_master_are_named_as_such(module: Any) -> None:
    """It was known to them before: no word of the user's is wrong."""
    connection = module.connect(f"redis+sentinel://127.0.0.1:1/{SERVICE}")
    connection._info = "that of the master"
    error = connection._failure({})
    assert isinstance(error, ConnectionLost) and error.maybe_applied is False
    assert error.reason == f"no master of '{SERVICE}' is to be had: the sentinels do not know it"


@EACH
async def test_a_master_that_cannot_be_had_is_named(
    sound: SentinelSet, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(kind, url_of(sound)) as way:

        def lose(place: Any, attempt: Any) -> Any:
            raise ConnectionLost("planted", maybe_applied=False)

        async def lose_later(place: Any, attempt: Any) -> Any:
            lose(place, attempt)

        monkeypatch.setattr(way.connection, "_connect_to", lose if kind == "threads" else lose_later)
        with pytest.raises(ConnectionLost, match=f"they name 127.0.0.1:{sound.master().port}: planted"):
            await way.perform(Command("PING", (), (), as_none))


@pytest.mark.parametrize(("listened", "after"), [(3, math.inf), (2, "_SOME_S"), (1, "_SOME_S"), (0, "_ALONE_S")])
@pytest.mark.parametrize("package", [bullmq_anyio, bullmq_sync])
def test_when_to_look_for_sentinels_that_are_missing(
    package: Any, listened: int, after: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = package.net.sentinel
    monkeypatch.setattr(module, "monotonic", lambda: 100.0)
    connection = package.connect(f"redis+sentinel://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/{SERVICE}")
    connection._doubtful, connection._watches = True, [object()] * listened
    connection._meet()
    assert (connection._doubtful, connection._look_at) == (False, 100.0 + module._LOOK_S)
    assert connection._complete_at == 100.0 + (getattr(module, after) if isinstance(after, str) else after)
    connection._watches = []


@EACH
async def test_a_wait_ends_with_the_word_of_a_failover(sound: SentinelSet, kind: str, name: str) -> None:
    """The old master would let it wait for seconds more."""
    async with connected(kind, url_of(sound)) as way:
        assert await way.perform(incr(name)) == 1
        child = way.dedicated(f"{name}-child")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                refuses, functools.partial(child.perform, pop(f"{name}-list")), ConnectionLost, "sentinels"
            )
            await in_thread(topology.until, lambda: waits(sound, f"{name}-child"), "it waits")
            await in_thread(sound.failover)


@EACH
async def test_a_wait_outlives_a_sentinel(sound: SentinelSet, kind: str, name: str) -> None:
    """The others name the master still: the command goes on where it is."""
    async with connected(kind, url_of(sound)) as way:
        child = way.dedicated(f"{name}-child")
        popped: list[Any] = []

        async def wait() -> None:
            popped.append(await child.perform(pop(f"{name}-list")))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await in_thread(topology.until, lambda: waits(sound, f"{name}-child"), "it waits")
            sound.sentinels[0].kill()

            def asked_anew() -> bool:
                watches = child.connection._watches
                return len(watches) == 2 and not any(watch.dead for watch in watches)

            await in_thread(topology.until, asked_anew, "the others are asked")
            assert popped == []
            await way.perform(Command("RPUSH", (f"{name}-list",), ("x",), as_int))
        assert popped == [[f"{name}-list".encode(), b"x"]]


@pytest.mark.parametrize("end", ["interrupt", "close"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_asking_ends_at_once_in_threads(sound: SentinelSet, end: str, name: str) -> None:
    """While a command waits, and the sentinels that are asked beside it hang."""
    transport = bullmq_sync.connect(url_of(sound, connect_timeout_ms=_LONG_MS))
    child: Any = transport.dedicated(client_name=f"{name}-child")
    kind, match = (ConnectionLost, "interrupted") if end == "interrupt" else (Closed, "closed")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(refuses, functools.partial(in_thread, child.perform, pop(f"{name}-list")), kind, match)
        await in_thread(topology.until, lambda: waits(sound, f"{name}-child"), "it waits")
        with hanging(list(sound.sentinels[1:])):
            sound.sentinels[0].kill()

            def asks() -> bool:
                return any(thread.name == "bullmq asking" for thread in threading.enumerate())

            await in_thread(topology.until, asks, "the others are asked")
            with anyio.fail_after(_SOON_S):
                await in_thread(getattr(child, end))
                await in_thread(topology.until, lambda: not asks(), "the asking has ended")
    await in_thread(transport.close)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_sentinels_are_asked_where_there_is_no_thread(
    sound: SentinelSet, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def use() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", none)
            transport = bullmq_sync.connect(url_of(sound))
            assert transport.perform(incr(name)) == 1
            assert isinstance(transport, SentinelConnection)
            assert len(transport._watches) == 3
            transport.close()

    await in_thread(use)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_what_is_about_to_be_sent_to_a_former_master_goes_to_the_next(
    sound: SentinelSet, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread retires the link between the look at it and the call."""
    transport = bullmq_sync.connect(url_of(sound))
    assert isinstance(transport, SentinelConnection)
    ready = SentinelConnection._ready
    retired: list[Link] = []

    def late(connection: SentinelConnection) -> Link | None:
        link = ready(connection)
        if link is not None and not retired:
            retired.append(link)
            connection._link = None
            connection._retire(link)
        return link

    def use() -> None:
        assert transport.perform(incr(name)) == 1
        monkeypatch.setattr(SentinelConnection, "_ready", late)
        assert transport.perform(incr(name)) == 2
        assert len(retired) == 1
        transport.close()

    await in_thread(use)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_child_of_a_fork_asks_the_sentinels_itself(sound: SentinelSet, name: str) -> None:
    """And the parent's links, to them and to the master, stay as they are."""

    def use() -> None:
        transport = bullmq_sync.connect(url_of(sound))
        assert isinstance(transport, SentinelConnection)
        assert transport.perform(incr(name)) == 1
        links = transport._links()
        assert len(links) == 4
        for lock in (transport._lock, transport._keeping, *(link._lock for link in links)):
            # As if another thread held it.
            assert lock.acquire(timeout=1)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                signal.alarm(60)
                code = 0 if transport.perform(incr(name)) == 2 and len(transport._watches) == 3 else 2
                transport.close()
            finally:
                os._exit(code)
        for lock in (transport._lock, transport._keeping, *(link._lock for link in links)):
            lock.release()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert transport.perform(incr(name)) == 3
        assert transport._links() == links
        assert not any(link.has_ended() for link in links)
        transport.close()

    await in_thread(use)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_threads_share_a_connection_behind_sentinels_through_a_failover(sound: SentinelSet, name: str) -> None:
    """No call of any of them is refused as if the client were closed, and none waits for ever."""
    transport = bullmq_sync.connect(url_of(sound))
    over = threading.Event()
    wrong: list[BaseException] = []
    counts = [0] * 4

    def call(number: int) -> None:
        while not over.is_set():
            try:
                transport.perform(incr(f"{name}-{number}"))
                counts[number] += 1
            except TransportError as error:
                if isinstance(error, Closed):
                    wrong.append(error)
            except BaseException as error:
                wrong.append(error)

    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(in_thread, call, number)
        await in_thread(sound.failover)
        before = list(counts)
        with anyio.fail_after(_SOON_S):
            while not all(count > first for count, first in zip(counts, before, strict=True)):
                await anyio.sleep(0.01)
        over.set()
    assert wrong == []
    await in_thread(transport.close)


TASKS = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


@TASKS
async def test_a_call_that_hangs_is_cut_off_at_its_own_limit(anyio_backend: str) -> None:
    async def hangs(part: Attempt) -> Answer:
        await anyio.sleep(_SOON_S)
        raise AssertionError(part)

    with anyio.fail_after(_SOON_S / 2):
        outcomes = await at_once(Attempt(), [hangs, hangs], limit_s=0.05, grace_s=0.0)
    assert [str(each).partition(";")[0] for each in outcomes] == ["no answer in time"] * 2


@TASKS
async def test_answers_are_listened_to_no_more_where_another_call_meets_a_fault(anyio_backend: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        link = link_over(ours, None, exclusive=False)
        has_answered = anyio.Event()

        async def answers(part: Attempt) -> Answer:
            has_answered.set()
            return Answer(Named(None), link)

        async def meets_a_fault(part: Attempt) -> Answer:
            await has_answered.wait()
            raise RecursionError

        with pytest.raises(RecursionError):
            await at_once(Attempt(), [answers, meets_a_fault], limit_s=_SOON_S, grace_s=0.0)
        assert link.dead
