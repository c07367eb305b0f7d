"""Run the conformance cases on an asynchronous transport."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from bullmq_anyio.aside import Calls, calls_aside
from bullmq_anyio.primitives import Event, Lock, shielded
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

_AWAIT_S = 5


async def run_case(
    case: Case, make: Callable[[str], AsyncTransport], url: str, key: str, *, network: Network | None = None
) -> None:
    """Play one case with transports made by `make(url)`; raise `AssertionError` where one does not conform.

    `key` is a key name that nobody else uses. A case that needs a network is for the caller to leave out where there
    is none, and one that needs calls which can be cancelled, where they cannot.
    """
    failure: Exception | None = None
    async with calls_aside() as calls:
        stage = _Stage(make, url, network, calls)
        try:
            await stage.play(case, key)
        except Exception as error:
            failure = error
        finally:
            with shielded():
                await stage.clear()
    if failure is not None:
        raise failure


class _Stage:
    def __init__(self, make: Callable[[str], AsyncTransport], url: str, network: Network | None, calls: Calls) -> None:
        self._make = make
        self._url = url
        self._network = network
        self._calls = calls
        self._lock = Lock()
        self._transports: dict[Where, AsyncTransport] = {}

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
                    self._start(name, step, where)
                return [await self._calls.settled(name) for name in names]
            case Begin(name, step, where):
                self._start(name, step, where)
                await self._calls.first_steps()
            case Settle(name):
                return await self._calls.settled(name)
            case Abort(name, where):
                self._calls.abort(name, self._transport(where))
            case Await(command, holds):
                end = time.monotonic() + _AWAIT_S
                pause = Event()
                while not holds(await self._transport(Where.OBSERVER).perform(command)):
                    if time.monotonic() > end:
                        raise AssertionError("the awaited condition did not come true")
                    await pause.wait(0.002)
            case Arm(fault, marker, times):
                assert self._network is not None, "this case needs a network"
                self._network.arm(fault, marker, times)
            case Close(where):
                await self._transport(where).aclose()
        return None

    def _start(self, name: str, step: Command[Any] | Batch, where: Where) -> None:
        self._calls.start(name, partial(self._outcome, step, where), Outcome(cancelled=True))

    async def _outcome(self, step: Command[Any] | Batch, where: Where) -> Outcome:
        try:
            return Outcome(await self._transport(where).perform(step))
        except Exception as error:
            return Outcome(error=error)

    def _transport(self, where: Where) -> AsyncTransport:
        with self._lock:
            return self._transports.get(where) or self._made(where)

    def _made(self, where: Where) -> AsyncTransport:
        if where is Where.DEDICATED:
            main = self._transports.get(Where.MAIN) or self._made(Where.MAIN)
            made: AsyncTransport = main.dedicated(client_name=CLIENT_NAME)
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
        return made
