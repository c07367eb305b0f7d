"""Run the conformance cases on an asynchronous transport, on asyncio or trio."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import anyio
from anyio.abc import TaskGroup, TaskStatus
from anyio.lowlevel import checkpoint

from bullmq_protocol.command import Batch, Command
from bullmq_protocol.net.transport import AsyncTransport
from bullmq_protocol.testing.conformance import (
    CLIENT_NAME,
    Abort,
    Act,
    Arm,
    Await,
    Begin,
    Case,
    Close,
    Fault,
    Gather,
    Network,
    Outcome,
    Perform,
    Settle,
    Where,
)

_LIMIT_S = 60
_AWAIT_S = 5


async def run_case(
    case: Case, make: Callable[[str], AsyncTransport], url: str, key: str, *, network: Network | None = None
) -> None:
    """Play one case with transports made by `make(url)`; raise `AssertionError` where one does not conform.

    `key` is a key name that nobody else uses. A case that needs a network is for the caller to leave out where there
    is none.
    """
    failure: Exception | None = None
    with anyio.fail_after(_LIMIT_S):
        async with anyio.create_task_group() as tasks:
            stage = _Stage(make, url, network, tasks)
            try:
                await stage.play(case, key)
            except Exception as error:
                failure = error
            finally:
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await stage.clear()
    if failure is not None:
        raise failure


class _Running:
    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.over = anyio.Event()
        self.outcome = Outcome()


class _Stage:
    def __init__(
        self, make: Callable[[str], AsyncTransport], url: str, network: Network | None, tasks: TaskGroup
    ) -> None:
        self._make = make
        self._url = url
        self._network = network
        self._tasks = tasks
        self._transports: dict[Where, AsyncTransport] = {}
        self._running: dict[str, _Running] = {}

    async def play(self, case: Case, key: str) -> None:
        play = case.play(key)
        answer: Any = None
        try:
            while True:
                answer = await self._act(play.send(answer))
        except StopIteration:
            return
        finally:
            play.close()

    async def clear(self) -> None:
        if self._network is not None:
            self._network.arm(Fault.NONE)
        for transport in self._transports.values():
            await transport.aclose()

    async def _act(self, act: Act) -> Any:
        match act:
            case Perform(step, where):
                return await self._outcome(step, where)
            case Gather(steps, where):
                names = [f"gathered {number}" for number in range(len(steps))]
                for name, step in zip(names, steps, strict=True):
                    running = self._running[name] = _Running()
                    self._tasks.start_soon(self._run, running, step, where)
                return [await self._settled(name) for name in names]
            case Begin(name, step, where):
                running = self._running[name] = _Running()
                await self._tasks.start(self._run, running, step, where)
                # Its own first steps, up to where it waits.
                for _ in range(3):
                    await checkpoint()
            case Settle(name):
                return await self._settled(name)
            case Abort(name):
                self._running[name].scope.cancel()
            case Await(command, holds):
                with anyio.fail_after(_AWAIT_S):
                    while not holds(await self._transport(Where.OBSERVER).perform(command)):
                        await anyio.sleep(0.002)
            case Arm(fault, marker, times):
                assert self._network is not None, "this case needs a network"
                self._network.arm(fault, marker, times)
            case Close(where):
                await self._transport(where).aclose()
        return None

    async def _settled(self, name: str) -> Outcome:
        running = self._running[name]
        await running.over.wait()
        return running.outcome

    async def _run(
        self,
        running: _Running,
        step: Command[Any] | Batch,
        where: Where,
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        task_status.started()
        try:
            with running.scope:
                running.outcome = await self._outcome(step, where)
            if running.scope.cancelled_caught:
                running.outcome = Outcome(cancelled=True)
        finally:
            running.over.set()

    async def _outcome(self, step: Command[Any] | Batch, where: Where) -> Outcome:
        try:
            return Outcome(await self._transport(where).perform(step))
        except Exception as error:
            return Outcome(error=error)

    def _transport(self, where: Where) -> AsyncTransport:
        if where not in self._transports:
            if where is Where.DEDICATED:
                made = self._transport(Where.MAIN).dedicated(client_name=CLIENT_NAME)
            elif where is Where.CUT:
                assert self._network is not None, "this case needs a network"
                made = self._make(self._network.url)
            elif where is Where.STRANGER:
                parts = urlsplit(self._url)
                place = parts.netloc.rpartition("@")[2]
                made = self._make(urlunsplit(parts._replace(netloc=f"nobody:wrong@{place}")))
            else:
                made = self._make(self._url)
            self._transports[where] = made
        return self._transports[where]
