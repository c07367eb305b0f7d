"""The test kit: a clock turned by hand, transports that follow a script."""

import anyio
import pytest

from bullmq_protocol.command import Batch, Command, Repeat
from bullmq_protocol.common.reply import as_int, as_text
from bullmq_protocol.common.units import Instant
from bullmq_protocol.errors import Closed, ConnectionLost, ServerError, UsageError
from bullmq_protocol.testing.clock import SimulatedClock
from bullmq_protocol.testing.scripted import AsyncScriptedTransport, OutOfScript, ScriptedTransport

PING = Command("PING", (), (), as_text, repeat=Repeat.SAFE)
INCR = Command("INCR", ("n",), (), as_int)
BOTH = Batch((PING, INCR))


def test_time_passes_only_when_advanced() -> None:
    clock = SimulatedClock(wall=1000, mono=5)
    assert clock() == clock() == Instant(wall=1000, mono=5)
    assert clock.advance(10) == Instant(wall=1010, mono=15)
    assert clock.advance_to(20) == Instant(wall=1015, mono=20)
    assert clock.jump_wall(-500) == Instant(wall=515, mono=20)
    assert (clock.wall, clock.mono) == (515, 20)
    with pytest.raises(UsageError, match="must not be negative"):
        clock.advance(-1)


def test_a_scripted_transport_answers_in_order() -> None:
    script = [
        (PING, b"PONG"),
        ("INCR", 1),
        ("PING INCR", [b"PONG", 2]),
        (BOTH, []),
        (lambda step: step == PING, 3),
        (None, 4),
    ]
    transport = ScriptedTransport(script)
    steps = [PING, INCR, BOTH, BOTH, PING, INCR]
    assert [transport.perform(step) for step in steps] == [b"PONG", 1, [b"PONG", 2], [], 3, 4]
    assert transport.sent == steps
    transport.check_done()


def test_exceptions_in_the_script_are_raised() -> None:
    transport = ScriptedTransport([(None, ServerError("OOM full")), (None, ConnectionLost("cut", maybe_applied=True))])
    with pytest.raises(ServerError, match="OOM"):
        transport.perform(PING)
    with pytest.raises(ConnectionLost):
        transport.perform(PING)


@pytest.mark.parametrize("expected", [INCR, "INCR", BOTH, lambda step: False])
def test_another_step_is_out_of_script(expected: object) -> None:
    transport = ScriptedTransport([(expected, 1)])  # type: ignore[list-item]
    with pytest.raises(OutOfScript, match="step 1 should be"):
        transport.perform(PING)


def test_too_many_and_too_few_steps_are_out_of_script() -> None:
    with pytest.raises(OutOfScript, match="one too many"):
        ScriptedTransport([]).perform(PING)
    with pytest.raises(OutOfScript, match="1 steps were not asked for, next: 'PING'"):
        ScriptedTransport([("PING", 1)]).check_done()


def test_dedicated_connections_share_the_script() -> None:
    transport = ScriptedTransport([(None, 1), (None, 2)])
    dedicated = transport.dedicated(client_name="bull:cQ==")
    dedicated.interrupt()
    assert [dedicated.perform(PING), transport.perform(PING)] == [1, 2]
    assert transport.client_names == ["bull:cQ=="]
    transport.close()
    assert transport.closed
    with pytest.raises(Closed):
        dedicated.perform(PING)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_asynchronous_twin_does_the_same(backend: str) -> None:
    transport = AsyncScriptedTransport([(PING, b"PONG"), ("INCR", 1), ("INCR", 2)])

    async def main() -> None:
        assert await transport.perform(PING) == b"PONG"
        dedicated = transport.dedicated(client_name="x")
        assert await dedicated.perform(INCR) == 1
        with pytest.raises(OutOfScript):
            await transport.perform(PING)
        await transport.aclose()
        with pytest.raises(Closed):
            await transport.perform(PING)

    anyio.run(main, backend=backend)
    assert transport.sent == [PING, INCR, PING]
    assert transport.client_names == ["x"]
    assert transport.closed
    transport.check_done()
