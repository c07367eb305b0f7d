"""The test kit: a clock turned by hand, transports that follow a script."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import anyio
import pytest

from bullmq_protocol.command import Batch, Command, Repeat
from bullmq_protocol.common.reply import as_int, as_text
from bullmq_protocol.common.units import Instant, check_clock
from bullmq_protocol.errors import Closed, ConnectionLost, ServerError, UsageError
from bullmq_protocol.net.transport import subscribed
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


def test_a_clock_begins_and_jumps_as_it_is_told() -> None:
    zone = timezone(timedelta(hours=2))
    clock = SimulatedClock(wall=datetime(2026, 1, 1, 2, tzinfo=zone))
    assert clock.wall == 1_767_225_600_000
    assert clock.advance(timedelta(seconds=1), seconds=1, minutes=1, hours=1, days=1).mono == 90_062_000
    assert clock.advance_until(datetime(2026, 1, 3, tzinfo=UTC)).wall == 1_767_225_600_000 + 2 * 86_400_000
    assert clock.advance_until(clock.wall).mono == 2 * 86_400_000
    assert SimulatedClock()() == Instant(wall=1_700_000_000_000, mono=0)
    with pytest.raises(UsageError, match="wall: must have a time zone"):
        SimulatedClock(wall=datetime(2026, 1, 1))
    with pytest.raises(UsageError, match="moment: must have a time zone"):
        clock.advance_until(datetime(2026, 1, 1))
    wrong: Any = "2026-01-01"
    with pytest.raises(UsageError, match="wall: must be a whole number"):
        SimulatedClock(wall=wrong)
    with pytest.raises(UsageError, match="must be a whole number"):
        clock.advance(0.5)
    with pytest.raises(UsageError, match="must not be negative"):
        clock.advance_until(0)


def test_a_clock_may_go_on_with_others() -> None:
    real = SimulatedClock(wall=5_000, mono=70)
    clock = SimulatedClock(wall=1_000, along=real)
    assert clock() == Instant(wall=1_000, mono=0)
    real.advance(5)
    # Their wall clock may be set while it runs.
    real.jump_wall(1_000_000)
    assert clock() == Instant(wall=1_005, mono=5)
    clock.advance(hours=1)
    real.advance(5)
    assert clock() == Instant(wall=3_601_010, mono=3_600_010)
    assert SimulatedClock(along=real, mono=3)() == Instant(wall=real.wall, mono=3)


def test_who_waits_for_a_clock_is_told_of_its_jumps() -> None:
    clock, told = SimulatedClock(), []
    ends = [clock.subscribe(lambda: told.append(clock.mono)) for _ in range(2)]
    clock.advance(5)
    assert told == [5, 5]
    ends[0]()
    ends[0]()
    clock.jump_wall(-1)
    assert told == [5, 5, 5]
    end = subscribed(clock, ends[1])
    clock.advance(1)
    clock.advance(1)
    assert told == [5, 5, 5, 6]
    end()
    subscribed(SimulatedClock.__call__.__get__(clock), ends[1])()


def test_a_clock_is_a_function() -> None:
    with pytest.raises(UsageError, match="clock: must be a function that returns an Instant"):
        check_clock(5)
    clock = SimulatedClock()
    assert check_clock(clock) is clock
    assert check_clock(None) is None


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
