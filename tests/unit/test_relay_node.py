"""What a node of the relay sends, and when: both packages, against a script and a clock of the test's own."""

import functools
from collections.abc import Callable
from typing import Any

import anyio
import pytest

import bullmq_anyio.relay
import bullmq_sync.relay
from bullmq_protocol.common.units import Instant
from bullmq_protocol.relay.names import RelayKeys
from bullmq_protocol.testing.scripted import AsyncScriptedTransport, ScriptedTransport

K = RelayKeys.of()
WAIT = "XREAD COUNT 1 BLOCK 3000 STREAMS"
REGISTER = [("relayRegisterNode", 1), ("relayTouchNamespace", None)]
RENEW = [("relayHeartbeat", 1), ("relayTouchNamespace", None)]


def entry(place: str) -> Any:
    return [[b"inbox", [[place.encode(), [b"k", b"msg", b"t", b"a", b"m", b"1", b"ts", b"2", b"d", b"3"]]]]]


class Played:
    """A node of one of the packages, on a script, with a clock that stands still."""

    def __init__(self, package: Any, exchanges: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000_000
        monkeypatch.setattr(package, "clock", lambda: Instant(7, self.now))
        is_async = package is bullmq_anyio.relay
        self.transport: Any = AsyncScriptedTransport(exchanges) if is_async else ScriptedTransport(exchanges)
        self.node = package.Relay(self.transport).node("n1", lease=9000)
        self._is_async = is_async

    def call(self, method: Callable[..., Any], *args: Any) -> Any:
        return anyio.run(functools.partial(method, *args)) if self._is_async else method(*args)


@pytest.fixture(params=["anyio", "sync"])
def play(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Any]], Played]:
    package = bullmq_anyio.relay if request.param == "anyio" else bullmq_sync.relay
    return lambda exchanges: Played(package, exchanges, monkeypatch)


def test_reading_renews_and_sweeps_when_it_is_time(play: Callable[[list[Any]], Played]) -> None:
    empty = [("relayReadInbox", None), (WAIT, None), ("relayReadInbox", None)]
    script = [*REGISTER, ("relaySweep", []), *empty, *empty, *RENEW, *empty, *RENEW, ("relaySweep", []), *empty]
    played = play(script)
    node = played.node
    assert played.call(node.read) == []
    played.now += 2999
    assert played.call(node.read) == []
    played.now += 1
    assert played.call(node.read) == []
    played.now += 6000
    assert played.call(node.read) == []
    played.transport.check_done()
    assert played.transport.client_names == [K.client_name("n1")]


def test_what_was_read_is_done_with_at_the_next_read(play: Callable[[list[Any]], Played]) -> None:
    played = play(
        [
            *REGISTER,
            ("relaySweep", []),
            (lambda step: step.args[2:] == ("0-0", 100), entry("5-0")),
            (lambda step: (step.name, *step.args[2:]) == ("relayTrimInbox", "5-0", 10_000), 0),
            (lambda step: step.args[2:] == ("5-0", 100), None),
            (WAIT, entry("6-0")),
            (lambda step: step.args[2:] == ("5-0", 100), entry("6-0")),
        ]
    )
    assert [each.entry_id for each in played.call(played.node.read)] == ["5-0"]
    assert [each.entry_id for each in played.call(played.node.read)] == ["6-0"]
    played.transport.check_done()


def test_registering_is_tried_until_it_is_done_and_brings_the_subscriptions_back(
    play: Callable[[list[Any]], Played],
) -> None:
    subscribed = ("relaySubscribe", [1, b"", b"", b""])
    again = [("relayHeartbeat", 0), ("relayRegisterNode", 0), ("relayRegisterNode", 0), ("relayRegisterNode", 1)]
    script = [*REGISTER, subscribed, subscribed, ("relayRemoveEndpoint", 1), *again, subscribed]
    played = play([*script, ("relayTouchNamespace", None), ("relayUnregisterNode", 1)])
    node = played.node
    played.call(node.subscribe, "a")
    played.call(node.subscribe, "b", "e")
    assert played.call(node.remove_endpoint, "e") == 1
    assert played.call(node.renew) is False
    assert [step.args[2:] for step in played.transport.sent if step.name == "relaySubscribe"][-1] == ("default", "a")
    played.call(getattr(node, "aclose", None) or node.close)
    played.transport.check_done()
    assert node.closed


def test_a_node_that_never_began_has_nothing_to_remove(play: Callable[[list[Any]], Played]) -> None:
    played = play([])
    played.call(getattr(played.node, "aclose", None) or played.node.close)
    assert (played.transport.sent, played.transport.closed) == ([], True)
