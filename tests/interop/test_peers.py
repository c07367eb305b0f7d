"""What other queues for Python do with a job that fails and with one whose worker was killed: docs/bench.md says so."""

from pathlib import Path

import pytest
import redis

from bench import sides
from tests.support.port import PEERS
from tests.support.programs import Program, until
from tests.support.servers import Server

pytestmark = pytest.mark.any_python

PATIENCE_S = 120


@pytest.fixture(autouse=True)
def _empty(raw: "redis.Redis[bytes]") -> None:
    raw.flushdb()


def _started(peer: str, home: Server, monkeypatch: pytest.MonkeyPatch, fault: str | None = None) -> Program:
    monkeypatch.setenv("BENCH_IMPATIENT", "yes")
    monkeypatch.delenv("BENCH_FAULT", raising=False)
    if fault is not None:
        monkeypatch.setenv("BENCH_FAULT", fault)
    return sides.start(peer, home)


@pytest.mark.parametrize("peer", PEERS)
def test_a_job_that_fails_is_tried_again(
    peer: str, home: Server, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _started(peer, home, monkeypatch, f"fail:{tmp_path / 'failed'}") as program:
        program.call("fill", queue=queue, count=1)
        assert program.call("left", queue=queue) == 1
        program.call("drain", queue=queue, starts=2, timeout=PATIENCE_S)
        assert program.call("left", queue=queue) == 0


@pytest.mark.parametrize("peer", PEERS)
def test_a_job_whose_worker_was_killed(
    peer: str,
    home: Server,
    raw: "redis.Redis[bytes]",
    queue: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    died = tmp_path / "died"
    with _started(peer, home, monkeypatch) as program:
        killed = _started(peer, home, monkeypatch, f"die:{died}")
        dying = killed.begin("drain", queue=queue, starts=1, timeout=PATIENCE_S)
        if peer == "saq":
            # A sweep that meets a job between its fetch and its mark takes it for stuck; each worker begins with one.
            until(lambda: raw.exists(f"saq:{queue}:sweep"), 1)
        program.call("fill", queue=queue, count=1)
        with pytest.raises(AssertionError, match="the program ended"):
            dying()
        assert died.exists()
        killed.close()
        # What is left is run again; where nothing is, the job was lost.
        assert program.call("left", queue=queue) == (1 if peer in sides.KEEP_PROMISE else 0)
        if peer in sides.KEEP_PROMISE:
            more = 1 if peer == "taskiq" else 0
            if more:
                # It looks for what was abandoned after it has got another job.
                until(lambda: raw.xpending_range(queue, "taskiq", "-", "+", 1, idle=2_000) != [], True)
                program.call("fill", queue=queue, count=more)
            program.call("drain", queue=queue, starts=1 + more, timeout=PATIENCE_S)
            assert program.call("left", queue=queue) == 0


@pytest.mark.parametrize("peer", ["saq", "rq"])
def test_a_program_ends_with_its_caller(peer: str, home: Server, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = _started(peer, home, monkeypatch)
    answer = program.begin("drain", queue=queue, starts=1)
    program.close()
    with pytest.raises(AssertionError, match="the program ended"):
        answer()
