"""What threads, spans and connections are called, and where the options of a connection go."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import redis

import bullmq_anyio
import bullmq_sync
from bullmq_protocol import ConnectionOptions, WorkerOptions
from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.common.reply import as_text
from bullmq_protocol.errors import ConnectionLost
from bullmq_protocol.observability.telemetry import Attributes, SpanKind
from tests.support.adapters import Adapter
from tests.support.servers import Server

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]


def test_threads_are_named_after_their_queue_and_hold_no_process_up(server: Server, name: str) -> None:
    before = set(threading.enumerate())
    seen: list[threading.Thread] = []
    all_run = threading.Barrier(2)

    def process(_: object) -> None:
        all_run.wait(30)
        seen.extend(set(threading.enumerate()) - before)
        all_run.wait(30)

    with (
        bullmq_sync.Queue[Any](name, server.url) as queue,
        bullmq_sync.QueueEvents(name, server.url) as events,
        bullmq_sync.Worker[Any](name, process, server.url, options=WorkerOptions(concurrency=2)),
    ):
        for job in [queue.add("a"), queue.add("a")]:
            job.wait_until_finished(events, timeout=30_000)
        queue.obliterate(force=True)
    found = set(seen)
    names = [each.name for each in found]
    assert len(set(names)) == len(names) >= 4
    assert all(re.fullmatch(rf"bullmq (events )?{name}( \w+)?", each) for each in names), names
    assert sum(re.search(r" \d+$", each) is not None for each in names) >= 2
    assert all(each.daemon for each in found)


class Span:
    def __init__(self, name: str, kind: SpanKind, attributes: Attributes) -> None:
        self.name, self.kind, self.attributes, self.ended = name, kind, dict(attributes), False

    def metadata(self) -> str:
        return ""

    def set_attributes(self, attributes: Attributes) -> None:
        self.attributes.update(attributes)

    def add_event(self, name: str, attributes: Attributes) -> None:
        """None is looked at."""

    def record_exception(self, error: BaseException | str) -> None:
        raise AssertionError(error)

    def active(self) -> AbstractContextManager[object, bool | None]:
        return nullcontext()

    def end(self) -> None:
        self.ended = True


class Provider:
    def __init__(self) -> None:
        self.spans: list[Span] = []

    def start_span(self, name: str, kind: SpanKind, attributes: Attributes, *, parent: str | None = None) -> Span:
        self.spans.append(Span(name, kind, attributes))
        return self.spans[-1]


async def test_the_spans_of_a_workers_own_methods(adapter: Adapter, server: Server, name: str) -> None:
    provider = Provider()

    async def process(_: object) -> None:
        """Nothing is added."""

    async with adapter.Worker(name, process, server.url, telemetry=provider) as worker:
        await worker.pause()
        worker.resume()
        await worker.pause(wait=False)
        await worker.aclose(force=True)
        # Leaving the block closes it once more, in order.
    own = [each for each in provider.spans if each.name.split(" ")[0] in ("pause", "resume", "close")]
    assert all(each.ended and each.kind == "internal" for each in own)
    shown = [(each.name, {key: value for key, value in each.attributes.items() if "." in key}) for each in own]
    assert [title for title, _ in shown] == [f"pause {name}", f"resume {name}", f"pause {name}", *[f"close {name}"] * 2]
    assert "bullmq.worker.do.not.wait.active" not in shown[0][1]
    assert shown[2][1]["bullmq.worker.do.not.wait.active"] is True
    assert [each["bullmq.worker.force.close"] for _, each in shown[3:]] == [True, False]


def _wire(*words: str) -> Command[str]:
    return Command(words[0], (), words[1:], as_text, repeat=Repeat.SAFE)


def _transport(kind: str, options: Any) -> tuple[Callable[[Command[str]], Any], Callable[[], Any]]:
    """Return how to ask over a transport of one package, and how to close it."""
    made: Any = {"anyio": bullmq_anyio.Connection, "sync": bullmq_sync.Connection}[kind](options)
    return made.perform, made.aclose if kind == "anyio" else made.close


async def _awaited(value: Any) -> Any:
    return await value if hasattr(value, "__await__") else value


@pytest.mark.parametrize("kind", ["anyio", "sync"])
async def test_options_of_a_connection_reach_the_server(server: Server, name: str, kind: str) -> None:
    options = ConnectionOptions(host=server.host, port=server.port, db=3, client_name=f"me-{name}")
    perform, close = _transport(kind, options)
    assert await _awaited(perform(_wire("SET", name, "x"))) == b"OK"
    assert await _awaited(perform(_wire("CLIENT GETNAME"))) == f"me-{name}".encode()
    await _awaited(close())
    with redis.Redis(host=server.host, port=server.port, db=3) as admin:
        assert admin.getdel(name) == b"x"


@pytest.mark.parametrize("kind", ["anyio", "sync"])
async def test_nothing_was_sent_where_credentials_raise(server: Server, kind: str) -> None:
    def credentials() -> tuple[str, str]:
        raise LookupError("no secret here")

    options = ConnectionOptions(host=server.host, port=server.port, credentials=credentials)
    perform, close = _transport(kind, options)
    with pytest.raises(ConnectionLost, match="credentials raised LookupError") as caught:
        await _awaited(perform(_wire("PING")))
    assert caught.value.maybe_applied is False
    assert "no secret here" not in str(caught.value)
    await _awaited(close())


@pytest.mark.parametrize("kind", ["anyio", "sync"])
async def test_a_name_that_the_server_refuses_is_logged_for_debugging(
    server: Server, name: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with redis.Redis(host=server.host, port=server.port) as admin:
        admin.execute_command("ACL", "SETUSER", name, "on", ">pass", "~*", "+@all", "-client")
        options = ConnectionOptions(
            host=server.host, port=server.port, username=name, password="pass", client_name=f"me-{name}"
        )
        perform, close = _transport(kind, options)
        with caplog.at_level(logging.DEBUG, f"bullmq_{kind}"):
            assert await _awaited(perform(_wire("PING"))) == b"PONG"
        await _awaited(close())
        admin.execute_command("ACL", "DELUSER", name)
    (line,) = [each for each in caplog.records if "refused the connection name" in each.getMessage()]
    assert line.levelno == logging.DEBUG
    assert f"'me-{name}'" in line.getMessage() and "NOPERM" in line.getMessage()
