"""Run the conformance cases on a blocking transport."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

from bullmq_protocol.command import Batch, Command
from bullmq_protocol.net.transport import InterruptibleTransport, Transport
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


def run_case(
    case: Case, make: Callable[[str], Transport], url: str, key: str, *, network: Network | None = None
) -> None:
    """Play one case with transports made by `make(url)`; raise `AssertionError` where one does not conform.

    `key` is a key name that nobody else uses. A case that needs a network, or calls that can be cancelled, is for the
    caller to leave out.
    """
    stage = _Stage(make, url, network)
    try:
        stage.play(case, key)
    finally:
        stage.clear()


class _Running(threading.Thread):
    """One call aside."""

    def __init__(self, call: Callable[[], Outcome]) -> None:
        super().__init__(name="conformance", daemon=True)
        self._call = call
        self.outcome = Outcome()

    def run(self) -> None:
        self.outcome = self._call()


class _Stage:
    def __init__(self, make: Callable[[str], Transport], url: str, network: Network | None) -> None:
        self._make = make
        self._url = url
        self._network = network
        self._lock = threading.Lock()
        self._transports: dict[Where, Transport] = {}
        self._running: dict[str, _Running] = {}

    def play(self, case: Case, key: str) -> None:
        play = case.play(key)
        answer: Any = None
        try:
            while True:
                answer = self._act(play.send(answer))
        except StopIteration:
            return
        finally:
            play.close()

    def clear(self) -> None:
        if self._network is not None:
            self._network.arm(Fault.NONE)
        for transport in self._transports.values():
            transport.close()
        for running in self._running.values():
            running.join(_AWAIT_S)

    def _act(self, act: Act) -> Any:
        match act:
            case Perform(step, where):
                return self._outcome(step, where)
            case Gather(steps, where):
                names = [f"gathered {number}" for number in range(len(steps))]
                for name, step in zip(names, steps, strict=True):
                    self._begin(name, step, where)
                return [self._settled(name) for name in names]
            case Begin(name, step, where):
                self._begin(name, step, where)
            case Settle(name):
                return self._settled(name)
            case Abort(_, where):
                cast("InterruptibleTransport", self._transport(where)).interrupt()
            case Await(command, holds):
                end = time.monotonic() + _AWAIT_S
                while not holds(self._transport(Where.OBSERVER).perform(command)):
                    if time.monotonic() > end:
                        raise AssertionError("what was waited for did not happen")
                    time.sleep(0.002)
            case Arm(fault, marker, times):
                assert self._network is not None, "this case needs a network"
                self._network.arm(fault, marker, times)
            case Close(where):
                self._transport(where).close()
        return None

    def _begin(self, name: str, step: Command[Any] | Batch, where: Where) -> None:
        running = self._running[name] = _Running(lambda: self._outcome(step, where))
        running.start()

    def _settled(self, name: str) -> Outcome:
        running = self._running[name]
        running.join(_LIMIT_S)
        if running.is_alive():
            raise AssertionError(f"the call {name!r} did not end")
        return running.outcome

    def _outcome(self, step: Command[Any] | Batch, where: Where) -> Outcome:
        try:
            return Outcome(self._transport(where).perform(step))
        except Exception as error:
            return Outcome(error=error)

    def _transport(self, where: Where) -> Transport:
        with self._lock:
            return self._transports.get(where) or self._made(where)

    def _made(self, where: Where) -> Transport:
        if where is Where.DEDICATED:
            main = self._transports.get(Where.MAIN) or self._made(Where.MAIN)
            made: Transport = main.dedicated(client_name=CLIENT_NAME)
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
