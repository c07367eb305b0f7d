"""The blocking transports, native and over clients, on real servers: addresses, logins, losses, sharing, close."""

import hashlib
import logging
import os
import signal
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
import redis
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.retry import Retry

from bullmq_protocol.command import Batch, Command, Repeat, Script
from bullmq_protocol.common.reply import as_int, as_none
from bullmq_protocol.errors import (
    AuthenticationFailed,
    Closed,
    ConnectionLost,
    ServerError,
    TransportTimeout,
    UsageError,
)
from bullmq_protocol.net.address import ConnectionOptions
from bullmq_sync.connecting import connect
from bullmq_sync.net.connection import Connection
from bullmq_sync.net.redis_py import RedisPyTransport
from tests.support import servers
from tests.support.clients import OwnClient
from tests.support.open_sockets import sockets
from tests.support.saying import Signalled
from tests.support.servers import Server

_ADD = "return redis.call('INCRBY', KEYS[1], ARGV[1])"
ADD = Script("add", hashlib.sha1(_ADD.encode()).hexdigest(), 1, _ADD)
_NAME = "return redis.call('APPEND', KEYS[1], ARGV[1])"
APPEND = Script("append", hashlib.sha1(_NAME.encode()).hexdigest(), 1, _NAME)


def command(*wire: bytes | str | int, repeat: Repeat = Repeat.UNSAFE, block_ms: int | None = None) -> Command[None]:
    name, *args = wire
    return Command(str(name), (), tuple(args), as_none, block_ms=block_ms, repeat=repeat)


def add(key: str, amount: int, *, repeat: Repeat = Repeat.UNSAFE) -> Command[int]:
    return Command("add", (key,), (amount,), as_int, ADD, repeat=repeat)


def append(key: str, text: str) -> Command[int]:
    return Command("append", (key,), (text,), as_int, APPEND)


def pop(key: str, block_ms: int) -> Command[None]:
    return command("BZPOPMIN", key, f"{block_ms / 1000}", block_ms=block_ms)


def hanging(key: str, *, repeat: Repeat = Repeat.UNSAFE) -> Command[None]:
    """A command that the server answers only once `key` has an element."""
    return command("BLPOP", key, 0, repeat=repeat)


@pytest.fixture
def key() -> str:
    return f"transport-{uuid4().hex}"


@pytest.fixture
def admin(server: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as client:
        yield client


Kind = Callable[[Any], Any]
Blocking = Connection | OwnClient


@pytest.fixture(params=[Connection, OwnClient], ids=["native", "client"])
def kind(request: pytest.FixtureRequest) -> Kind:
    made: Kind = request.param
    return made


@pytest.fixture
def transport(server: Server, kind: Kind) -> Iterator[Blocking]:
    # A call that hangs until the test ends it must outlive a busy machine.
    made = kind(ConnectionOptions(host=server.host, port=server.port, command_timeout_ms=60_000))
    yield made
    made.close()


@pytest.fixture
def native(server: Server) -> Iterator[Connection]:
    made = Connection(ConnectionOptions(host=server.host, port=server.port, command_timeout_ms=60_000))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    threads = set(threading.enumerate())
    before = sockets()
    yield
    assert set(threading.enumerate()) <= threads
    _until(lambda: sockets() <= before, "a socket was left")


def _until(holds: Callable[[], Any], otherwise: str, limit_s: float = 30.0) -> None:
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, otherwise
        time.sleep(0.002)


def _blocked(admin: redis.Redis) -> list[int]:
    """Return the ids of the clients that wait in a blocking command."""
    waiting = ("blpop", "bzpopmin")
    return [int(row["id"]) for row in admin.client_list() if "b" in row["flags"] and row["cmd"].lower() in waiting]


def _led(transport: Connection) -> bool:
    """Tell whether a thread reads, not only writes: before that, the next caller may become the reader."""
    link = transport._link
    return link is not None and link._reading is not None


def _behind(transport: Connection) -> int:
    """Count the calls that wait while another thread reads."""
    link = transport._link
    return 0 if link is None else sum(call.turn is not None for call in link._pending)


@pytest.fixture
def aside() -> Iterator[ThreadPoolExecutor]:
    """Give threads for the calls that wait."""
    with ThreadPoolExecutor(4) as pool:
        yield pool


# --- where and who ----------------------------------------------------------------------------------------------------


def test_url_options_and_client_reach_the_same_database(server: Server, key: str) -> None:
    client = redis.Redis(host=server.host, port=server.port, db=3, retry=Retry(NoBackoff(), 0), protocol=3)
    ways: list[Any] = [f"{server.url}/3", ConnectionOptions(host=server.host, port=server.port, db=3), client]
    for number, way in enumerate(ways, 1):
        transport = connect(way)
        assert transport.perform(command("INCR", key)) == number
        transport.close()
    # The client stays its owner's.
    assert client.get(key) == b"3"
    client.delete(key)
    client.close()


def test_tls(kind: Kind, key: str) -> None:
    with servers.start(tls=True) as server:
        assert server.ca_file is not None
        context = ssl.create_default_context(cafile=str(server.ca_file))
        transport = (
            OwnClient(server.url, ssl_ca_certs=str(server.ca_file))
            if kind is OwnClient
            else kind(ConnectionOptions(host=server.host, port=server.port, tls=context))
        )
        assert [transport.perform(command("INCR", key)) for _ in range(3)] == [1, 2, 3]
        transport.close()
        stranger = kind(server.url)
        with pytest.raises(ConnectionLost, match=r"(?i)certificate") as caught:
            stranger.perform(command("PING"))
        assert caught.value.maybe_applied is False
        stranger.close()


def test_unix_socket(kind: Kind, key: str) -> None:
    with servers.start() as server:
        assert server.socket_path is not None
        transport = kind(f"unix://{server.socket_path}?db=2")
        assert transport.perform(command("INCR", key)) == 1
        transport.close()


def test_password_of_the_default_user(kind: Kind) -> None:
    with servers.start(config=("--requirepass", "se:cret/1")) as server:
        place = f"{server.host}:{server.port}"
        transport = kind(f"redis://:se%3Acret%2F1@{place}")
        assert transport.perform(command("PING")) == b"PONG"
        transport.close()
        for url in (f"redis://:wrong@{place}", f"redis://nobody:wrong@{place}", f"redis://{place}"):
            refused = kind(url)
            with pytest.raises(AuthenticationFailed) as caught:
                refused.perform(command("PING"))
            assert caught.value.code in ("WRONGPASS", "NOAUTH")
            refused.close()


def test_acl_user_and_what_it_may_not_do(kind: Kind, server: Server, admin: redis.Redis, key: str) -> None:
    admin.execute_command("ACL", "SETUSER", key, "on", ">pass", f"~{key}*", "+@all", "-keys")
    transport = kind(ConnectionOptions(host=server.host, port=server.port, credentials=lambda: (key, "pass")))
    assert transport.perform(command("INCR", key)) == 1
    with pytest.raises(ServerError) as caught:
        transport.perform(command("KEYS", "*"))
    assert caught.value.code == "NOPERM"
    transport.close()
    admin.execute_command("ACL", "DELUSER", key)


def test_a_login_without_info_is_warned_about_once(
    kind: Kind, server: Server, admin: redis.Redis, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    admin.execute_command("ACL", "SETUSER", key, "on", ">pass", f"~{key}*", "+@all", "-info")
    blind = kind(f"redis://{key}:pass@{server.host}:{server.port}")
    with caplog.at_level(logging.WARNING, "bullmq_sync"):
        assert blind.perform(command("INCR", key)) == 1
        admin.execute_command("CLIENT", "KILL", "USER", key)
        assert blind.perform(command("INCR", key)) == 2
        assert blind.dedicated().perform(command("INCR", key)) == 3
    assert sum("NOPERM" in record.getMessage() for record in caplog.records) == 1
    assert f"{server.host}:{server.port}" in caplog.text
    assert blind.server_info().version_text == ""
    blind.close()
    admin.execute_command("ACL", "DELUSER", key)


def test_eviction_policy_is_warned_about_once(kind: Kind, caplog: pytest.LogCaptureFixture) -> None:
    with servers.start(config=("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")) as server:
        transport = kind(server.url)
        with caplog.at_level(logging.WARNING, "bullmq_sync"):
            transport.perform(command("PING"))
            server.restart()
            transport.perform(command("PING"))
            transport.dedicated().perform(command("PING"))
        transport.close()
    assert [record.getMessage() for record in caplog.records if "allkeys-lru" in record.getMessage()] == [
        caplog.records[0].getMessage()
    ]


@pytest.mark.parametrize(
    "build",
    [
        lambda: redis.Redis(),
        lambda: redis.Redis(retry=Retry(ExponentialBackoff(), 1)),
        lambda: redis.Redis(retry=Retry(NoBackoff(), 0), retry_on_error=[redis.exceptions.ConnectionError]),
    ],
)
def test_client_with_retries_is_refused(build: Callable[[], redis.Redis]) -> None:
    with build() as client, pytest.raises(UsageError, match=r"Retry\(NoBackoff\(\), 0\)"):
        RedisPyTransport(client)


def test_database_that_is_not_there(kind: Kind, server: Server) -> None:
    transport = kind(f"{server.url}/99")
    with pytest.raises(UsageError, match="DB index"):
        transport.perform(command("PING"))
    transport.close()


def test_server_info(server: Server, transport: Blocking) -> None:
    info = transport.server_info()
    assert info.version >= (6, 2, 0)
    assert info.cluster is False


@pytest.mark.parametrize("server_", [None, 6379, redis.asyncio.Redis, "http://localhost"])
def test_what_is_no_server_is_refused(server_: Any) -> None:
    with pytest.raises(UsageError):
        Connection(server_)


@pytest.mark.parametrize("client", [None, redis.Redis, "redis://localhost", ConnectionOptions()])
def test_what_is_no_client_is_refused(client: Any) -> None:
    with pytest.raises(UsageError, match=r"must be a redis\.Redis; .* bullmq_sync\.connect") as caught:
        RedisPyTransport(client)
    assert caught.value.field == "client"


# --- replies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "replies"),
    [
        ({"protocol": 2}, [[b"a", b"\xff\x00"], b"7"]),
        ({"protocol": 2, "decode_responses": True}, [[b"a", b"\xff\x00"], b"7"]),
        ({"protocol": 3, "decode_responses": True}, [{b"a": b"\xff\x00"}, 7.0]),
    ],
)
def test_replies_are_raw(server: Server, key: str, options: dict[str, Any], replies: list[Any]) -> None:
    """They are those of the client's protocol, which commands read alike."""
    transport = OwnClient(server.url, **options)
    transport.perform(command("HSET", key, "a", b"\xff\x00"))
    transport.perform(command("ZADD", f"{key}-z", 7, "b"))
    read = Batch((command("HGETALL", key), command("ZSCORE", f"{key}-z", "b")))
    assert transport.perform(read.commands[0]) == replies[0]
    assert transport.perform(read) == replies
    assert transport.perform(Batch(read.commands, atomic=True)) == replies
    assert transport.dedicated().perform(read) == replies
    transport.perform(command("DEL", key, f"{key}-z"))
    transport.close()


def test_text_that_was_no_utf_8_goes_back_as_it_came(transport: Blocking, key: str) -> None:
    with pytest.raises(UsageError, match="surrogate"):
        transport.perform(command("SET", key, "\ud83d"))
    transport.perform(command("SET", key, b"\xff\xc3".decode("utf-8", "surrogateescape")))
    assert transport.perform(command("GET", key)) == b"\xff\xc3"


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (("EVALSHA", "0" * 40, 0), "NOSCRIPT"),
        (("INCR",), "ERR"),
        (("EVAL", "return redis.error_reply('WRONGTYPE x')", 0), "WRONGTYPE"),
        (("EVAL", "return redis.error_reply('LOADING x')", 0), "LOADING"),
        (("EVAL", "return redis.error_reply('NOAUTH x')", 0), "NOAUTH"),
        (("EVAL", "return redis.error_reply('OOM command not allowed')", 0), "OOM"),
        (("EVAL", "return redis.error_reply('MY own words')", 0), "MY"),
    ],
)
def test_error_replies_keep_their_code(transport: Blocking, wire: tuple[str | int, ...], code: str) -> None:
    with pytest.raises(ServerError) as caught:
        transport.perform(command(*wire))
    assert caught.value.code == code
    if code != "ERR":
        assert caught.value.message.startswith(f"{code} ")
    if isinstance(transport, OwnClient) and code in ("LOADING", "NOAUTH"):
        # redis-py takes these for the end of the connection.
        return
    # An error reply costs no connection.
    identity = transport.perform(command("CLIENT", "ID"))
    with pytest.raises(ServerError):
        transport.perform(command(*wire))
    assert transport.perform(command("CLIENT", "ID")) == identity


@pytest.mark.parametrize("atomic", [False, True])
def test_errors_stand_as_values_in_a_batch(transport: Blocking, key: str, atomic: bool) -> None:
    batch = Batch((add(key, 5), command("LPUSH", key, "x"), add(key, 1)), atomic=atomic)
    first, second, third = transport.perform(batch)
    assert (first, third) == (5, 6)
    assert isinstance(second, ServerError)
    assert second.code == "WRONGTYPE"
    assert transport.perform(Batch((), atomic=atomic)) == []


def test_transaction_that_cannot_be_queued_runs_nothing(transport: Blocking, key: str) -> None:
    replies = transport.perform(Batch((add(key, 5), command("INCR")), atomic=True))
    assert [type(reply) for reply in replies] == [ServerError, ServerError]
    assert [reply.code for reply in replies] == ["EXECABORT", "ERR"]
    assert transport.perform(command("EXISTS", key)) == 0


@pytest.mark.parametrize("atomic", [False, True])
def test_flushed_scripts_are_sent_again_and_run_once(
    transport: Blocking, admin: redis.Redis, key: str, atomic: bool
) -> None:
    order = Batch(tuple(append(key, letter) for letter in "abc"), atomic=atomic)
    assert transport.perform(add(f"{key}-n", 1)) == 1
    assert transport.perform(order) == [1, 2, 3]
    admin.script_flush()
    assert transport.perform(add(f"{key}-n", 1)) == 2
    admin.script_flush()
    assert transport.perform(order) == [4, 5, 6]
    assert admin.get(key) == b"abcabc"


def test_ten_megabytes(transport: Blocking, key: str) -> None:
    text = b"\x00" * (10 << 20)
    transport.perform(command("SET", key, text))
    assert transport.perform(command("GET", key)) == text
    transport.perform(command("DEL", key))


def test_blocking_command_is_refused_on_the_shared_connection(transport: Blocking, key: str) -> None:
    with pytest.raises(UsageError, match="dedicated"):
        transport.perform(pop(key, 10))


# --- losses -----------------------------------------------------------------------------------------------------------


def test_nobody_listens(kind: Kind) -> None:
    with servers.start() as server:
        transport = kind(server.url)
        server.kill()
        with pytest.raises(ConnectionLost) as caught:
            transport.perform(command("PING"))
        assert caught.value.maybe_applied is False
        server.restart()
        assert transport.perform(command("PING")) == b"PONG"
        transport.close()


def test_restart_between_two_calls_is_not_seen(kind: Kind, key: str) -> None:
    with servers.start() as server:
        transport = kind(server.url)
        for _ in range(3):
            assert transport.perform(add(key, 1)) == 1
            server.restart()
        transport.close()


@pytest.mark.parametrize("repeat", list(Repeat))
def test_killed_while_waiting_for_the_reply(
    aside: ThreadPoolExecutor, transport: Blocking, admin: redis.Redis, key: str, repeat: Repeat
) -> None:
    waiting = aside.submit(transport.perform, hanging(key, repeat=repeat))
    _until(lambda: _blocked(admin), "nobody waits")
    (victim,) = _blocked(admin)
    admin.client_kill_filter(_id=str(victim))
    if repeat is Repeat.SAFE:
        _until(lambda: _blocked(admin) not in ([], [victim]), "it was not sent again")
        admin.rpush(key, "x")
        assert waiting.result(30) == [key.encode(), b"x"]
    else:
        with pytest.raises(ConnectionLost) as caught:
            waiting.result(30)
        assert caught.value.maybe_applied is True
        assert _blocked(admin) == []


def test_safe_call_is_repeated_only_once(
    aside: ThreadPoolExecutor, transport: Blocking, admin: redis.Redis, key: str
) -> None:
    waiting = aside.submit(transport.perform, hanging(key, repeat=Repeat.SAFE))
    _until(lambda: _blocked(admin), "nobody waits")
    first = _blocked(admin)
    admin.client_kill_filter(_id=str(first[0]))
    _until(lambda: _blocked(admin) not in ([], first), "it was not sent again")
    admin.client_kill_filter(_id=str(_blocked(admin)[0]))
    with pytest.raises(ConnectionLost):
        waiting.result(30)


def test_time_limit_of_a_command(kind: Kind, server: Server, key: str) -> None:
    options = ConnectionOptions(host=server.host, port=server.port, command_timeout_ms=250)
    transport = kind(options)
    begun = time.monotonic()
    with pytest.raises(TransportTimeout) as caught:
        transport.perform(hanging(key, repeat=Repeat.SAFE))
    assert caught.value.maybe_applied is True
    assert 0.08 <= time.monotonic() - begun < 10
    assert transport.perform(command("PING")) == b"PONG"
    transport.close()


def test_time_limit_of_a_blocking_command_is_above_its_block_time(kind: Kind, key: str) -> None:
    with servers.start() as server:
        options = ConnectionOptions(host=server.host, port=server.port, command_timeout_ms=100)
        main = kind(options)
        dedicated = main.dedicated()
        assert dedicated.perform(pop(key, 300)) is None
        os.kill(server.pid, signal.SIGSTOP)
        begun = time.monotonic()
        with pytest.raises(TransportTimeout):
            dedicated.perform(pop(key, 10))
        assert 2.0 <= time.monotonic() - begun < 10
        os.kill(server.pid, signal.SIGCONT)
        assert dedicated.perform(pop(key, 10)) is None
        dedicated.close()
        main.close()


def test_dedicated_is_named_at_each_connect(transport: Blocking, admin: redis.Redis, key: str) -> None:
    dedicated = transport.dedicated(client_name=key)
    for _ in range(2):
        identity = dedicated.perform(command("CLIENT", "ID"))
        assert [row["id"] for row in admin.client_list() if row["name"] == key] == [str(identity)]
        admin.client_kill_filter(_id=str(identity))
        assert dedicated.perform(pop(key, 10)) is None
    assert transport.perform(command("CLIENT", "GETNAME")) is None
    dedicated.close()


# --- sharing, interruption, close -------------------------------------------------------------------------------------


def test_sixty_four_threads_share_it(transport: Blocking, admin: redis.Redis, key: str) -> None:
    def work(number: int) -> list[Any]:
        found: list[Any] = []
        for turn in range(100):
            text = f"{number}-{turn}"
            found.append(transport.perform(command("ECHO", text)) == text.encode())
            if turn == 50 and number == 7:
                admin.script_flush()
            transport.perform(add(key, 1))
        with pytest.raises(ServerError):
            transport.perform(command("LPUSH", key, "x"))
        return found

    before = len(admin.client_list())
    identity = transport.perform(command("CLIENT", "ID"))
    with ThreadPoolExecutor(64) as pool:
        results = list(pool.map(work, range(64)))
    assert all(all(found) for found in results)
    assert admin.get(key) == b"6400"
    if isinstance(transport, Connection):
        assert transport.perform(command("CLIENT", "ID")) == identity
    else:
        assert 2 <= len(admin.client_list()) - before <= 10


def test_interrupt_wakes_at_once_and_leaves_it_usable(
    aside: ThreadPoolExecutor, transport: Blocking, admin: redis.Redis, key: str
) -> None:
    dedicated = transport.dedicated(client_name=key)
    dedicated.interrupt()
    for repeat in (Repeat.UNSAFE, Repeat.SAFE):
        blocking = command("BZPOPMIN", key, "30", block_ms=30_000, repeat=repeat)
        waiting = aside.submit(dedicated.perform, blocking)
        _until(lambda: _blocked(admin), "nobody waits")
        begun = time.monotonic()
        dedicated.interrupt()
        with pytest.raises(ConnectionLost, match="interrupted"):
            waiting.result(30)
        assert time.monotonic() - begun < 10
        assert dedicated.perform(pop(key, 10)) is None
        _until(lambda: not _blocked(admin), "the server still waits")
    dedicated.interrupt()
    assert dedicated.perform(command("PING")) == b"PONG"
    dedicated.close()


def test_close_while_waiting(aside: ThreadPoolExecutor, native: Connection, admin: redis.Redis, key: str) -> None:
    first = aside.submit(native.perform, hanging(key))
    _until(lambda: _blocked(admin), "nobody waits")
    second = aside.submit(native.perform, command("PING"))
    _until(lambda: _behind(native) == 1, "the second call does not wait")
    native.close()
    for call in (first, second):
        with pytest.raises(Closed) as caught:
            call.result(30)
        assert caught.value.maybe_applied is True
    with pytest.raises(Closed):
        native.perform(command("PING"))
    native.close()


def test_close_while_a_client_waits(aside: ThreadPoolExecutor, server: Server, admin: redis.Redis, key: str) -> None:
    """Nothing but its own time limit ends the call of a client."""
    transport = OwnClient(server.url, socket_timeout=3)
    waiting = aside.submit(transport.perform, hanging(key))
    _until(lambda: _blocked(admin), "nobody waits")
    transport.close()
    with pytest.raises(Closed) as caught:
        waiting.result(30)
    assert caught.value.maybe_applied is True
    with pytest.raises(Closed) as caught:
        transport.perform(command("PING"))
    assert caught.value.maybe_applied is False


def test_close_before_first_use_and_by_a_dedicated_one(transport: Blocking, key: str) -> None:
    transport.dedicated().close()
    abandoned = transport.dedicated()
    abandoned.perform(pop(key, 10))
    dedicated = transport.dedicated()
    dedicated.perform(pop(key, 10))
    dedicated.close()
    assert transport.perform(command("PING")) == b"PONG"
    transport.close()
    with pytest.raises(Closed):
        abandoned.perform(pop(key, 10))
    with pytest.raises(Closed):
        transport.dedicated().perform(pop(key, 10))


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


def test_signal_in_the_thread_that_leads(
    aside: ThreadPoolExecutor, native: Connection, admin: redis.Redis, key: str, signalling: Callable[[], None]
) -> None:
    def follow() -> Any:
        _until(lambda: _blocked(admin) and _led(native), "nobody waits")
        follower = aside.submit(native.perform, command("PING", repeat=Repeat.SAFE))
        _until(lambda: _behind(native) == 1, "the follower does not wait")
        signalling()
        return follower.result(30)

    follower = aside.submit(follow)
    with pytest.raises(Signalled):
        native.perform(hanging(key))
    assert follower.result(30) == b"PONG"
    assert native.perform(command("PING")) == b"PONG"


def test_signal_in_a_thread_that_follows(
    aside: ThreadPoolExecutor, native: Connection, admin: redis.Redis, key: str, signalling: Callable[[], None]
) -> None:
    leader = aside.submit(native.perform, hanging(key))
    _until(lambda: _blocked(admin) and _led(native), "nobody waits")

    def signal_it() -> None:
        _until(lambda: _behind(native) == 1, "the follower does not wait")
        signalling()

    other = aside.submit(signal_it)
    with pytest.raises(Signalled):
        native.perform(command("PING"))
    admin.rpush(key, "x")
    assert leader.result(30) == [key.encode(), b"x"]
    other.result(30)
    assert native.perform(command("PING")) == b"PONG"


def test_signal_while_a_client_waits(
    aside: ThreadPoolExecutor, server: Server, admin: redis.Redis, key: str, signalling: Callable[[], None]
) -> None:
    """The reply that was not waited for is nobody else's."""
    transport = OwnClient(server.url, socket_timeout=60)

    def signal_it() -> None:
        _until(lambda: _blocked(admin), "nobody waits")
        signalling()

    other = aside.submit(signal_it)
    with pytest.raises(Signalled):
        transport.perform(hanging(key))
    other.result(30)
    admin.rpush(key, "x")
    assert transport.perform(command("PING")) == b"PONG"
    transport.close()


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_child_of_a_fork_makes_its_own_connection(transport: Blocking, key: str) -> None:
    identity = transport.perform(command("CLIENT", "ID"))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, str(transport.perform(command("CLIENT", "ID"))).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(read, 100)) != identity
    os.close(read)
    os.close(write)
    assert transport.perform(command("CLIENT", "ID")) == identity
