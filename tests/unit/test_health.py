"""Whether a worker is well, by its snapshot and the clock."""

from __future__ import annotations

from typing import Any

import msgspec

from bullmq_protocol.worker.events import CloseRequested
from bullmq_protocol.worker.health import Health, health
from tests.support.machine_bench import NO_JOB, Bench, job_reply


def judged(bench: Bench, later: int = 0, **more: Any) -> Health:
    return health(bench.machine.snapshot(bench.at()), bench.wall + later, **more)


def idle() -> Bench:
    bench = Bench(skip_stalled_check=True)
    bench.reply("moveToActive", NO_JOB)
    return bench


def busy(**options: Any) -> Bench:
    bench = Bench(skip_stalled_check=True, **options)
    bench.reply("moveToActive", job_reply("1"))
    return bench


def test_an_idle_worker_is_well_and_ready() -> None:
    assert judged(idle()) == Health(live=True, ready=True, state="running")
    assert msgspec.json.decode(msgspec.json.encode(judged(idle()))) == {
        "live": True,
        "ready": True,
        "state": "running",
        "problems": [],
    }


def test_a_wait_may_take_its_time_and_no_more() -> None:
    bench = idle()
    assert judged(bench, 65_000).live
    found = judged(bench, 65_001)
    # It would still take jobs for all that is known, but no one should rely on it.
    assert (found.live, found.problems) == (False, ("neither fetches nor waits for jobs since 60001 ms",))
    bench.advance(65_001)
    assert not judged(bench).live


def test_a_fetch_without_an_answer_is_noticed() -> None:
    bench = Bench(skip_stalled_check=True)
    bench.advance(65_001)
    assert judged(bench).problems == ("neither fetches nor waits for jobs since 60001 ms",)


def test_a_full_worker_need_not_ask() -> None:
    bench = busy(skip_lock_renewal=True)
    bench.advance(3_600_000)
    assert judged(bench) == Health(live=True, ready=True, state="running")


def test_a_rate_limit_is_no_silence() -> None:
    bench = Bench(skip_stalled_check=True)
    bench.reply("moveToActive", [0, 0, 3_600_000, 0])
    bench.advance(600_000)
    assert judged(bench).live
    bench.advance(3_000_000)
    assert not judged(bench, 70_000).live


def test_late_renewals_are_named() -> None:
    bench = busy()
    assert judged(bench, 22_500).live
    assert judged(bench, 22_501).problems == ("locks are renewed late, of jobs 1",)


def test_a_lost_connection_is_not_ready_and_after_a_while_not_live() -> None:
    bench = busy(concurrency=2)
    bench.lose("moveToActive")
    found = judged(bench)
    assert (found.live, found.ready, found.state) == (True, False, "disconnected")
    # Locks cannot be renewed then: that is not said as well.
    assert judged(bench, 60_000).live
    assert judged(bench, 60_001).problems == ("disconnected for 60001 ms",)
    assert judged(bench, 501, patience_ms=500).problems == ("disconnected for 501 ms",)


def test_a_paused_worker_and_one_that_ends_are_live_and_not_ready() -> None:
    bench = idle()
    bench.pause()
    bench.end_wait()
    bench.advance(3_600_000)
    assert judged(bench) == Health(live=True, ready=False, state="paused")
    bench = busy()
    bench.tell(CloseRequested())
    assert judged(bench) == Health(live=True, ready=False, state="shutting down")


def test_what_was_never_asked_is_not_silent() -> None:
    bench = idle()
    snapshot = msgspec.structs.replace(bench.machine.snapshot(bench.at()), asked_ms_ago=None)
    assert health(snapshot, bench.wall + 3_600_000).live
