"""The golden vectors of the relay against our Lua, on every kind of server."""

from collections.abc import Iterator, Mapping

import pytest

from bullmq_protocol.scripts._lua_relay import RELAY_SCRIPTS
from tests.oracle.harness import Wire
from tests.support import relay_vectors, servers

pytestmark = pytest.mark.any_python


@pytest.fixture(scope="module", params=servers.kinds())
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    with servers.start(request.param) as server:
        made = Wire(server.host, server.port)
        yield made
        made.close()


def wrong(wire: Wire, scripts: Mapping[str, str]) -> list[str]:
    """Return the titles of the cases in which these scripts do otherwise than was recorded."""
    texts = {**scripts, "": relay_vectors.DUMP}
    loaded = wire.run([("SCRIPT", "LOAD", text) for text in texts.values()])
    known = {name: sha.decode() for name, sha in zip(texts, loaded, strict=True)}
    return [
        case["title"]
        for case in relay_vectors.load()
        if relay_vectors.differs(case, relay_vectors.run(wire, known, case["steps"]))
    ]


OURS = {name: script.source for name, script in RELAY_SCRIPTS.items()}


def test_our_scripts_do_what_was_recorded(wire: Wire) -> None:
    assert wrong(wire, OURS) == []


def test_each_script_is_called() -> None:
    called = {step["call"] for case in relay_vectors.load() for step in case["steps"] if "call" in step}
    assert called == OURS.keys()


@pytest.mark.parametrize(
    ("name", "part", "fault", "case"),
    [
        ("relayHeartbeat", "'hb', now", "'hb', now - 60000", "a heartbeat"),
        ("relayHeartbeat", "'hb', now", "'hb', 7", "a heartbeat"),
        ("relayTrimInbox", "'backlog'", "'backlogs'", "trimmed"),
    ],
)
def test_a_mistake_is_seen(wire: Wire, name: str, part: str, fault: str, case: str) -> None:
    text = OURS[name]
    assert part in text
    assert case in wrong(wire, {**OURS, name: text.replace(part, fault)})
