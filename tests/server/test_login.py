"""What a worker does when its password is changed, and when its credentials come from a function."""

import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import msgspec
import pytest
import redis

from bullmq_protocol import ConnectionOptions, WorkerOptions
from bullmq_protocol.errors import AuthenticationFailed, ConnectionLost, TransportTimeout
from bullmq_protocol.net.address import parse_url
from bullmq_protocol.worker.notices import JobCompleted, Reconnected, ReconnectFailed
from tests.support.adapters import Adapter
from tests.support.cut_proxy import CutProxy, Fault
from tests.support.seen import Seen
from tests.support.servers import Server

pytestmark = pytest.mark.any_python


@pytest.fixture
def admin(server: Server, name: str) -> Iterator[redis.Redis]:
    """Give a client that may do all, beside a user of the test's name with the password `first`."""
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", name, "on", ">first", "~*", "&*", "+@all")
        yield client
        client.execute_command("ACL", "DELUSER", name)


async def nothing(_: Any) -> None:
    pass


def asked_for(adapter: Adapter, answers: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function for `credentials`: async where the adapter can await it."""

    async def ask() -> Any:
        return answers()

    return answers if adapter.name == "threads" else ask


async def test_changed_password(
    adapter: Adapter, server: Server, name: str, admin: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, adapter.logger)
    options = ConnectionOptions(host=server.host, port=server.port, username=name, password="first")
    worker = adapter.Worker(name, nothing, options, options=WorkerOptions(max_reconnect_delay=50))
    seen = Seen(worker, JobCompleted, ReconnectFailed, Reconnected)
    async with adapter.Queue(name, server.url) as queue, worker:
        await queue.add("before")
        await seen.wait(JobCompleted)
        admin.execute_command("ACL", "SETUSER", name, "resetpass", ">second")
        # Open connections go on.
        await queue.add("after")
        await seen.wait(JobCompleted, 2)
        admin.execute_command("CLIENT", "KILL", "USER", name)
        # A refused login is retried, and logged.
        await seen.wait(ReconnectFailed, 2)
        assert "WRONGPASS" in caplog.text
        await queue.add("later")
        admin.execute_command("ACL", "SETUSER", name, ">first")
        await seen.wait(Reconnected)
        await seen.wait(JobCompleted, 3)
        await queue.obliterate(force=True)
    assert "first" not in caplog.text


async def test_credentials_are_asked_anew(adapter: Adapter, server: Server, name: str, admin: redis.Redis) -> None:
    current: list[Any] = [(name, "first")]
    asked: list[Any] = []

    def answers() -> Any:
        asked.append(current[0])
        if isinstance(current[0], Exception):
            raise current[0]
        return current[0]

    options = ConnectionOptions(host=server.host, port=server.port, credentials=asked_for(adapter, answers))
    worker = adapter.Worker(name, nothing, options, options=WorkerOptions(max_reconnect_delay=50))
    seen = Seen(worker, JobCompleted, ReconnectFailed)
    async with adapter.Queue(name, server.url) as queue, worker:
        await queue.add("a")
        await seen.wait(JobCompleted)
        # Each connection asks once: that of the commands, and that of the blocking wait if it has begun.
        assert len(asked) in (1, 2)
        for number, wrong in enumerate((OSError("the vault is shut: hunter2"), "hunter2", (name, "hunter2"))):
            current[0] = wrong
            failed = len(seen.of(ReconnectFailed))
            admin.execute_command("CLIENT", "KILL", "USER", name)
            await seen.wait(ReconnectFailed, failed + 1)
            admin.execute_command("ACL", "SETUSER", name, "resetpass", f">password {number}")
            current[0] = (name, f"password {number}")
            await queue.add("again")
            await seen.wait(JobCompleted, number + 2)
        messages = [notice.message for notice in seen.of(ReconnectFailed)]
        await queue.obliterate(force=True)
    assert any("credentials raised OSError" in message for message in messages)
    assert any("credentials must return a user name" in message for message in messages)
    assert any("WRONGPASS" in message for message in messages)
    assert not any("hunter2" in message for message in messages)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("secret", AuthenticationFailed),
        (("user", b"secret"), AuthenticationFailed),
        (KeyError("secret"), ConnectionLost),
    ],
    ids=["no-pair", "bytes", "raises"],
)
async def test_credentials_that_give_nothing(
    adapter: Adapter, server: Server, name: str, answer: Any, error: Any
) -> None:
    def answers() -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    options = ConnectionOptions(host=server.host, port=server.port, credentials=asked_for(adapter, answers))
    async with adapter.Queue(name, options) as queue:
        with pytest.raises(error, match="credentials") as caught:
            await queue.add("a")
    assert "secret" not in str(caught.value)


async def test_async_credentials_need_an_event_loop(adapter: Adapter, server: Server, name: str) -> None:
    async def ask() -> tuple[str | None, str | None]:
        return None, None

    options = ConnectionOptions(host=server.host, port=server.port, credentials=ask)
    async with adapter.Queue(name, options) as queue:
        adding: Awaitable[Any] = queue.add("a")
        if adapter.name == "threads":
            with pytest.raises(AuthenticationFailed, match="not a coroutine"):
                await adding
        else:
            with anyio.fail_after(30):
                assert (await adding).id == "1"
            await queue.obliterate(force=True)


async def test_a_login_without_info_is_warned_about_once(
    adapter: Adapter, server: Server, name: str, admin: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither a connection made again nor the one on which a worker waits says it again."""
    caplog.set_level(logging.WARNING, adapter.logger)
    admin.execute_command("ACL", "SETUSER", name, "-info")
    options = ConnectionOptions(host=server.host, port=server.port, username=name, password="first")
    async with adapter.Queue(name, options) as queue:
        await queue.add("a")
        admin.execute_command("CLIENT", "KILL", "USER", name)
        await queue.add("b")
    warnings = [each.getMessage() for each in caplog.records if "cannot check" in each.getMessage()]
    assert warnings == [f"{options.address}: cannot check version and eviction policy: {_refusal(warnings)}"]
    caplog.clear()
    worker = adapter.Worker(name, nothing, options, options=WorkerOptions(max_reconnect_delay=50))
    seen = Seen(worker, JobCompleted)
    async with adapter.Queue(name, server.url) as queue, worker:
        await seen.wait(JobCompleted, 2)
        await queue.add("c")
        await seen.wait(JobCompleted, 3)
        await queue.obliterate(force=True)
    assert sum("cannot check" in each.getMessage() for each in caplog.records) == 1


def _refusal(warnings: list[str]) -> str:
    refusal = warnings[0].rpartition("policy: ")[2]
    assert refusal.startswith("NOPERM")
    return refusal


@pytest.mark.parametrize("limits", [(250, 3000), (3000, 250)], ids=["of connecting", "of commands"])
async def test_a_server_that_leaves_the_first_commands_unanswered(
    adapter: Adapter, server: Server, name: str, limits: tuple[int, int]
) -> None:
    connect_timeout_ms, command_timeout_ms = limits
    with CutProxy(server.host, server.port) as proxy:
        proxy.arm(Fault.SWALLOW, "INFO", times=100)
        options = msgspec.structs.replace(
            parse_url(proxy.url), connect_timeout_ms=connect_timeout_ms, command_timeout_ms=command_timeout_ms
        )
        async with adapter.Queue(name, options) as queue:
            with pytest.raises(TransportTimeout) as caught:
                await queue.add("a")
            assert caught.value.maybe_applied is False
            proxy.arm(Fault.NONE)
            assert (await queue.add("a")).id == "1"
            await queue.obliterate(force=True)
