"""The native connection of threads: what it does that the one over redis-py does not."""

from __future__ import annotations

import gc
import math
import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

import bullmq_sync.net.link
import bullmq_sync.net.waking
from bullmq_protocol import JobOptions, NewJob, ParentRef, prepare
from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.commands.adding import add_job
from bullmq_protocol.common.reply import as_none
from bullmq_protocol.errors import (
    AuthenticationFailed,
    Closed,
    ConnectionLost,
    ParentNotFound,
    TransportError,
    TransportTimeout,
    UsageError,
)
from bullmq_protocol.net.address import ConnectionOptions
from bullmq_sync import Connection, Queue, RedisPyTransport, connect
from bullmq_sync.net.dialling import Attempt
from bullmq_sync.net.link import Link
from bullmq_sync.net.resp import pack
from bullmq_sync.net.waking import Call
from tests.support import servers
from tests.support.cut_proxy import CutProxy
from tests.support.saying import Signalled
from tests.support.servers import Server

GONE = JobOptions(parent=ParentRef("gone", "bull:nowhere"))


def command(*wire: bytes | str | int, repeat: Repeat = Repeat.UNSAFE, block_ms: int | None = None) -> Command[None]:
    name, *args = wire
    return Command(str(name), (), tuple(args), as_none, repeat=repeat, block_ms=block_ms)


def _calls(reply: Any) -> int:
    lines = [line for line in reply.decode().splitlines() if line.startswith(("cmdstat_evalsha:", "cmdstat_eval:"))]
    return sum(int(line.partition("calls=")[2].partition(",")[0]) for line in lines)


SCRIPT_CALLS = Command("INFO", (), ("commandstats",), _calls, repeat=Repeat.SAFE)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(64) as made:
        yield made


@pytest.fixture
def transport(server: Server) -> Iterator[Connection]:
    # A busy machine may take long to bring all the callers of a test together.
    made = Connection(ConnectionOptions(host=server.host, port=server.port, command_timeout_ms=30_000))
    yield made
    made.close()


@pytest.fixture
def queue(transport: Connection, name: str) -> Iterator[Queue[Any]]:
    with Queue[Any](name, transport) as made:
        made.add("first", {})
        yield made
        made.obliterate(force=True)


@pytest.fixture
def signalling() -> Iterator[Callable[[], None]]:
    """Give a function that makes the main thread raise `Signalled`."""

    def handle(*_: Any) -> None:
        raise Signalled

    main = threading.main_thread().ident
    assert main is not None
    before = signal.signal(signal.SIGUSR1, handle)
    yield lambda: signal.pthread_kill(main, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(("rarely_s", "looks"), [(math.inf, True), (-1.0, False)])
def test_a_connection_that_is_used_rarely_sleeps(
    server: Server, monkeypatch: pytest.MonkeyPatch, rarely_s: float, looks: bool
) -> None:
    """Rarely: for less than 1 % of the time."""
    module, looked = bullmq_sync.net.link, list[int]()
    assert module._RARELY_S == 100 * module._LINGER_S
    monkeypatch.setattr(module, "_RARELY_S", rarely_s)

    class Ear(module._Ear):
        def __init__(self, sock: socket.socket) -> None:
            super().__init__(sock)
            poll = self.poll

            def noted(limit_ms: float | None = None, /) -> list[tuple[int, int]]:
                looked.append(1)
                return poll(limit_ms)

            self.poll = noted

    monkeypatch.setattr(module, "_Ear", Ear)
    with Connection(server.url) as connection:
        for _ in range(20):
            assert connection.perform(command("PING", repeat=Repeat.SAFE)) == b"PONG"
    assert (looked != []) is looks


class _Paused:
    """The server runs no script until the end of the block."""

    def __init__(self, server: Server) -> None:
        self._admin = Connection(server.url)

    def __enter__(self) -> None:
        self._admin.perform(command("CLIENT", "PAUSE", 20_000, "WRITE"))

    def __exit__(self, *_: object) -> None:
        self._admin.perform(command("CLIENT", "UNPAUSE"))
        self._admin.close()


def until(holds: Callable[[], object]) -> None:
    """Wait for something that no event tells of."""
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


def under_way(transport: Connection) -> int:
    """Count the calls that were made and not answered."""
    link = transport._link
    assert link is not None
    with link._lock:
        return len(link._out) + sum(len(call.members) or 1 for call in link._pending)


def writes_under_way(transport: Connection) -> int:
    """Count the writes with adds that are not answered; 0 while one is being sent."""
    link = transport._link
    assert link is not None
    with link._lock:
        return 0 if link._writing is not None else link._merges_under_way


def add_at_once(
    pool: ThreadPoolExecutor, server: Server, queue: Queue[Any], transport: Connection, options: list[Any]
) -> list[Any]:
    """Add jobs in as many threads; return their ids, or what was raised."""

    def add(number: int) -> Any:
        try:
            return queue.add("n", {"n": number}, options[number]).id
        except Exception as error:
            return error

    with _Paused(server):
        adding = [pool.submit(add, number) for number in range(len(options))]
        until(lambda: under_way(transport) == len(options))
    return [each.result(30) for each in adding]


def test_adds_at_once_take_few_calls(
    pool: ThreadPoolExecutor, server: Server, queue: Queue[Any], transport: Connection
) -> None:
    before = queue.call(SCRIPT_CALLS)
    added = add_at_once(pool, server, queue, transport, [None] * 50)
    assert sorted(map(int, added)) == list(range(2, 52))
    assert queue.call(SCRIPT_CALLS) - before <= 8
    for number, job_id in enumerate(added):
        job = queue.get_job(job_id)
        assert job is not None
        assert job.data == {"n": number}


def test_each_gets_its_own_answer(
    pool: ThreadPoolExecutor, server: Server, queue: Queue[Any], transport: Connection
) -> None:
    kinds = [None, GONE, JobOptions(delay=5000), JobOptions(priority=3), JobOptions(job_id="mine")]
    added = add_at_once(pool, server, queue, transport, kinds * 8)
    assert all(isinstance(each, ParentNotFound) for each in added[1::5])
    assert set(added[4::5]) == {"mine"}
    assert queue.get_job_counts("waiting", "delayed", "prioritized") == {
        "waiting": 10,
        "paused": 0,
        "delayed": 8,
        "prioritized": 8,
    }


def test_scripts_that_the_server_forgot_are_sent_again(
    pool: ThreadPoolExecutor, server: Server, queue: Queue[Any], transport: Connection
) -> None:
    add_at_once(pool, server, queue, transport, [None] * 20)
    for _ in range(2):
        transport.perform(command("SCRIPT", "FLUSH"))
        added = add_at_once(pool, server, queue, transport, [None] * 20)
        assert len(set(added)) == 20
    assert queue.get_job_counts("waiting")["waiting"] == 61


def test_what_has_no_form_on_the_wire_does_not_touch_the_others(
    pool: ThreadPoolExecutor, server: Server, queue: Queue[Any], transport: Connection
) -> None:
    good = add_job(queue.keys, prepare(queue.keys, NewJob("n"), now_ms=1))
    bad = msgspec.structs.replace(good, args=(good.args[0], '"\ud800"', good.args[2]))
    with _Paused(server):
        # Those that are alone, and those that gather behind them.
        first = [pool.submit(queue.call, good)]
        until(lambda: writes_under_way(transport) == 1)
        first.append(pool.submit(queue.call, good))
        until(lambda: writes_under_way(transport) == 2)
        calls = [pool.submit(queue.call, bad if number % 10 == 7 else good) for number in range(31)]
        until(lambda: under_way(transport) == 33)
        calls.append(pool.submit(queue.call, bad))
        until(lambda: calls[-1].done())
    refused = [call for number, call in enumerate(calls) if number % 10 == 7 or number == 31]
    for call in refused:
        with pytest.raises(UsageError, match="surrogate"):
            call.result(30)
    assert len({call.result(30) for call in (*first, *calls) if call not in refused}) == 30
    assert queue.get_job_counts("waiting")["waiting"] == 31


def test_an_interrupted_add_does_not_touch_the_others(
    pool: ThreadPoolExecutor,
    server: Server,
    queue: Queue[Any],
    transport: Connection,
    signalling: Callable[[], None],
) -> None:
    def interrupt() -> None:
        until(lambda: under_way(transport) == 3)
        signalling()

    with _Paused(server):
        others = []
        for number in (1, 2):
            others.append(pool.submit(queue.add, "other", {}))
            until(lambda number=number: writes_under_way(transport) == number)  # type: ignore[misc]
        aside = pool.submit(interrupt)
        with pytest.raises(Signalled):
            queue.add("mine", {})
        aside.result(30)
        assert under_way(transport) == 2
    assert {each.result(30).id for each in others} == {"2", "3"}
    assert queue.get_job_counts("waiting")["waiting"] == 3


# A socket that was just made, and is not noted yet, is closed by Python.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_may_come_at_any_moment(pool: ThreadPoolExecutor, transport: Connection) -> None:
    over = threading.Event()
    armed = False

    def handle(*_: Any) -> None:
        nonlocal armed
        if armed:
            armed = False
            raise Signalled

    def ask(number: int) -> int:
        right = lost = 0
        # Those that never got through while it was disturbed do so afterwards.
        while not (over.is_set() and right):
            text = f"{number}-{right}"
            try:
                assert transport.perform(command("ECHO", text)) == text.encode()
                right += 1
            except ConnectionLost:
                lost += 1
        return right

    def disturb(main: int) -> None:
        while not over.wait(0.0005):
            signal.pthread_kill(main, signal.SIGUSR1)

    main = threading.get_ident()
    before = signal.signal(signal.SIGUSR1, handle)
    aside = [pool.submit(ask, number) for number in range(4)]
    disturbing = pool.submit(disturb, main)
    interrupted = 0
    try:
        while interrupted < 100:
            try:
                armed = True
                transport.perform(command("PING"))
                armed = False
            except Signalled:
                interrupted += 1
    finally:
        armed = False
        over.set()
        disturbing.result(30)
        signal.signal(signal.SIGUSR1, before)
    assert all(each.result(30) > 0 for each in aside)
    assert transport.perform(command("PING")) == b"PONG"
    # Here, and not in a later test.
    gc.collect()


def test_an_interrupt_at_the_end_of_an_attempt_leaves_nobody_behind(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    die = Link.die
    interrupts = [Signalled()]

    def interrupted(link: Link, kind: type[TransportError], message: str) -> None:
        if interrupts:
            raise interrupts.pop()
        die(link, kind, message)

    monkeypatch.setattr(Link, "die", interrupted)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        transport = Connection(f"redis://127.0.0.1:{silent.getsockname()[1]}")
        first = pool.submit(transport.perform, command("PING"))
        accepted, _ = silent.accept()
        assert accepted.recv(4)
        second = pool.submit(transport.perform, command("PING"))
        until(lambda: transport._attempt is not None and transport._attempt.turns)
        accepted.close()
        with pytest.raises(Signalled):
            first.result(30)
        with pytest.raises(ConnectionLost):
            second.result(30)
        assert transport._attempt is None
        transport.close()


def test_a_link_that_cannot_end_leaves_nobody_behind(
    pool: ThreadPoolExecutor, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its attempt was given up at the last moment, and there is no room on the stack."""
    die, open_ = Link.die, Connection._open
    opened: list[Link] = []
    errors = [RecursionError(), RecursionError()]

    def too_deep(link: Link, kind: type[TransportError], message: str) -> None:
        if errors:
            raise errors.pop()
        die(link, kind, message)

    def given_up(self: Connection, attempt: Attempt) -> Link:
        opened.append(open_(self, attempt))
        until(lambda: attempt.turns)
        self.stop_connecting()
        return opened[0]

    monkeypatch.setattr(Link, "die", too_deep)
    monkeypatch.setattr(Connection, "_open", given_up)
    transport = Connection(server.url)
    first, second = (pool.submit(transport.perform, command("PING")) for _ in range(2))
    outcomes = {type(each.exception(30)) for each in (first, second)}
    assert outcomes == {RecursionError, ConnectionLost}
    assert transport._attempt is None
    monkeypatch.undo()
    opened[0].die(ConnectionLost, "over")
    assert transport.perform(command("PING")) == b"PONG"
    transport.close()


def test_an_interrupt_while_a_link_dies_leaves_nobody_behind(
    pool: ThreadPoolExecutor, server: Server, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    wake = Call.wake
    interrupts: list[BaseException] = []

    def interrupted(call: Call) -> None:
        if interrupts:
            raise interrupts.pop()
        wake(call)

    monkeypatch.setattr(Call, "wake", interrupted)
    with CutProxy(server.host, server.port) as proxy:
        transport = Connection(proxy.url)
        transport.perform(command("PING"))
        reading = pool.submit(transport.perform, command("BLPOP", name, 0))
        until(lambda: transport._link is not None and transport._link._reading is not None)
        others = [pool.submit(transport.perform, command("PING")) for _ in range(3)]
        link = transport._link
        assert link is not None
        until(lambda: sum(call.turn is not None for call in tuple(link._pending)) == 3)
        interrupts.append(Signalled())
        proxy.drop_all()
        with pytest.raises(Signalled):
            reading.result(30)
        for other in others:
            with pytest.raises(ConnectionLost):
                other.result(10)
        assert transport.perform(command("PING")) == b"PONG"
        transport.close()


@pytest.mark.parametrize("times", [1, 2, 3])
def test_interrupts_while_the_role_of_reading_is_handed_on_leave_nobody_behind(
    pool: ThreadPoolExecutor,
    transport: Connection,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    times: int,
) -> None:
    wake = Call.wake
    interrupts: list[BaseException] = []

    def interrupted(call: Call) -> None:
        if interrupts and not call.done:
            raise interrupts.pop()
        wake(call)

    monkeypatch.setattr(Call, "wake", interrupted)
    transport.perform(command("PING"))
    link = transport._link
    assert link is not None
    first = pool.submit(transport.perform, command("BLPOP", f"{name}:1", 0))
    until(lambda: link._reading is not None and not link._out)
    second = pool.submit(transport.perform, command("BLPOP", f"{name}:2", 0))
    until(lambda: sum(call.turn is not None for call in tuple(link._pending)) == 1)
    interrupts += [Signalled() for _ in range(times)]
    with redis.Redis.from_url(server.url) as admin:
        admin.rpush(f"{name}:1", "x")
        with pytest.raises(Signalled):
            first.result(30)
        assert interrupts == []
        admin.rpush(f"{name}:2", "y")
        assert second.result(30) == [f"{name}:2".encode(), b"y"]
    assert transport.perform(command("PING")) == b"PONG"


@pytest.mark.parametrize("soon_s", [-1.0, math.inf], ids=["together", "one after another"])
def test_threads_are_woken_together_or_one_after_another(
    pool: ThreadPoolExecutor,
    queue: Queue[Any],
    transport: Connection,
    monkeypatch: pytest.MonkeyPatch,
    soon_s: float,
) -> None:
    """In turn unless a thread does not run soon after it was woken: for one setting none ever does, for the other each
    one does."""
    monkeypatch.setattr(bullmq_sync.net.waking, "_FEW", 0)
    monkeypatch.setattr(bullmq_sync.net.waking, "_SOON_S", soon_s)
    wake_all = Link._wake_all
    together: list[int] = []

    def counted(link: Link) -> None:
        together.append(len(link._to_wake))
        wake_all(link)

    monkeypatch.setattr(Link, "_wake_all", counted)

    def work(number: int) -> list[str]:
        added = [queue.add("n", {"by": number, "at": at}).id for at in range(25)]
        for at, job_id in enumerate(added):
            job = queue.get_job(job_id)
            assert job is not None
            assert job.data == {"by": number, "at": at}
        return added

    working = [pool.submit(work, number) for number in range(20)]
    assert len({job_id for each in working for job_id in each.result(60)}) == 500
    link = transport._link
    assert link is not None
    assert (bool(together), link._woken, len(link._to_wake)) == (soon_s < 0, None, 0)


def test_an_interrupt_as_the_next_thread_is_to_be_woken_leaves_nobody_behind(
    pool: ThreadPoolExecutor,
    server: Server,
    queue: Queue[Any],
    transport: Connection,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    monkeypatch.setattr(bullmq_sync.net.waking, "_FEW", 0)
    monkeypatch.setattr(bullmq_sync.net.waking, "_SOON_S", math.inf)
    wake_next = Link._wake_next
    interrupts: list[BaseException] = []
    later: list[Any] = []

    def interrupted(link: Link, call: Any) -> bytes:
        if interrupts:
            until(lambda: link._reading is None and not link._pending)
            # It waits for those who are being woken, and has the role of reading.
            later.append(pool.submit(queue.add, "later", {}))
            until(lambda: link._reading is not None and link._out)
            raise interrupts.pop()
        return wake_next(link, call)

    monkeypatch.setattr(Link, "_wake_next", interrupted)
    calls = [pool.submit(transport.perform, command("BLPOP", name, 0))]
    for number in range(1, 6):
        until(lambda number=number: under_way(transport) == number)  # type: ignore[misc]
        calls.append(pool.submit(transport.perform, command("ECHO", number)))
    until(lambda: under_way(transport) == 6)
    interrupts.append(Signalled())
    with redis.Redis.from_url(server.url) as admin:
        admin.rpush(name, "x")
    errors = [each.exception(30) for each in calls]
    assert [type(each) for each in errors if each is not None] == [Signalled]
    assert later[0].result(30).name == "later"


def test_nobody_waits_for_the_main_thread_to_leave_a_signals_handler(
    pool: ThreadPoolExecutor,
    server: Server,
    queue: Queue[Any],
    transport: Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bullmq_sync.net.waking, "_FEW", 0)
    monkeypatch.setattr(bullmq_sync.net.waking, "_SOON_S", math.inf)
    main = threading.get_ident()
    inside, over = threading.Event(), threading.Event()
    paused = _Paused(server)

    def handle(*_: Any) -> None:
        inside.set()
        assert over.wait(30)

    def others() -> list[str]:
        try:
            until(lambda: writes_under_way(transport) == 2)
            behind = [pool.submit(queue.add, "behind", {}) for _ in range(3)]
            until(lambda: under_way(transport) == 5)
            signal.pthread_kill(main, signal.SIGUSR1)
            assert inside.wait(30)
            paused.__exit__()
            return [each.result(30).name for each in behind]
        finally:
            over.set()

    before = signal.signal(signal.SIGUSR1, handle)
    paused.__enter__()
    try:
        first = pool.submit(queue.add, "first", {})
        until(lambda: writes_under_way(transport) == 1)
        behind = pool.submit(others)
        assert queue.add("mine", {}).name == "mine"
        assert first.result(30).name == "first"
        assert behind.result(30) == ["behind"] * 3
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_interrupt_while_numbers_are_packed() -> None:
    """hiredis crashes where it is given numbers."""

    def handle(*_: Any) -> None:
        raise Signalled

    words = command("ECHO", *range(200)).wire()

    def pack_on() -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0001)
        while True:
            pack(words)

    before = signal.signal(signal.SIGVTALRM, handle)
    try:
        for _ in range(200):
            with pytest.raises(Signalled):
                pack_on()
    finally:
        signal.signal(signal.SIGVTALRM, before)
    assert pack(words).endswith(b"$3\r\n199\r\n")


def test_many_threads_over_tls(pool: ThreadPoolExecutor) -> None:
    with servers.start(tls=True) as server:
        context = ssl.create_default_context(cafile=str(server.ca_file))
        transport = Connection(ConnectionOptions(host=server.host, port=server.port, tls=context))

        def work(number: int) -> bool:
            text = f"{number}-".encode() * 40_000
            return all(transport.perform(command("ECHO", text)) == text for _ in range(5))

        assert all(pool.map(work, range(16)))
        transport.close()


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_fork_while_another_thread_reads(
    pool: ThreadPoolExecutor, server: Server, transport: Connection, name: str
) -> None:
    identity = transport.perform(command("CLIENT", "ID"))
    waiting = pool.submit(transport.perform, command("BLPOP", name, 0))
    until(lambda: under_way(transport) == 1)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, str(transport.perform(command("CLIENT", "ID"))).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(read, 100)) != identity
    os.close(read)
    os.close(write)
    with Queue[Any](name, server.url) as other:
        other.call(command("RPUSH", name, "x"))
    assert waiting.result(30) == [name.encode(), b"x"]
    assert transport.perform(command("CLIENT", "ID")) == identity


def test_threads_share_one_attempt_to_connect(pool: ThreadPoolExecutor, server: Server) -> None:
    with CutProxy(server.host, server.port) as proxy:
        transport = Connection(proxy.url)
        assert list(pool.map(lambda _: transport.perform(command("PING")), range(32))) == [b"PONG"] * 32
        assert len(proxy.upstream_ports()) == 1
        transport.close()


@pytest.mark.parametrize(("end", "kind"), [(Connection.close, Closed), (Connection.interrupt, ConnectionLost)])
def test_ended_while_it_connects(
    pool: ThreadPoolExecutor, end: Callable[[Connection], None], kind: type[Exception]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        transport = Connection(f"redis://127.0.0.1:{silent.getsockname()[1]}")
        calls = [pool.submit(transport.perform, command("PING")) for _ in range(2)]
        accepted, _ = silent.accept()
        assert accepted.recv(4)
        # One asks the server; the other one waits for it, and is not yet to begin an attempt of its own.
        attempt = transport._attempt
        assert attempt is not None
        until(lambda: attempt.turns)
        end(transport)
        for call in calls:
            with pytest.raises(kind):
                call.result(30)
        accepted.close()
        transport.close()


def test_a_server_that_takes_no_bytes(pool: ThreadPoolExecutor) -> None:
    with servers.start() as server:
        options = ConnectionOptions(host=server.host, port=server.port, command_timeout_ms=200)
        transport = Connection(options)
        assert transport.perform(command("PING")) == b"PONG"
        os.kill(server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(TransportTimeout, match="writing") as caught:
                transport.perform(command("SET", "a", b"x" * (30 << 20)))
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert caught.value.maybe_applied is True
        until(lambda: transport.perform(command("PING", repeat=Repeat.SAFE)) == b"PONG")
        transport.close()


def test_credentials_must_not_be_a_coroutine(server: Server) -> None:
    async def login() -> tuple[str | None, str | None]:
        return None, None

    transport = Connection(ConnectionOptions(host=server.host, port=server.port, credentials=login))
    with pytest.raises(AuthenticationFailed, match="credentials must return"):
        transport.perform(command("PING"))
    transport.close()


def test_what_is_no_server_is_refused() -> None:
    for wrong in (6379, redis.Redis()):
        with pytest.raises(UsageError, match="URL or ConnectionOptions"):
            Connection(wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"ssl\.SSLContext"):
        Connection(ConnectionOptions(tls="yes"))


def test_which_transport_is_used_when() -> None:
    plain = redis.Redis(retry=Retry(NoBackoff(), 0))
    kinds = [type(connect(server)) for server in ("redis://h", "rediss://h", "unix:///s", ConnectionOptions(), plain)]
    assert kinds == [Connection] * 4 + [RedisPyTransport]
