"""Measure what large queues cost server and client: `python -m bench.large_queue`. It fails where a limit is missed.

Server times are those of the slow log, per call. That no reply piles up in the server is enforced by the server
itself: it drops a client that has more than 5 MB to come.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import redis

import bullmq_anyio
import bullmq_sync
from bullmq_protocol import ConnectionOptions, QueueKeys, parse_url
from bullmq_protocol.commands.locks import move_stalled_jobs_to_wait
from tests.support import servers

NOW = 1_700_000_000_000
OUTPUT_LIMIT = 5 << 20
RSS_LIMIT_KB = 20 << 10
CLEAN_LIMIT_MS = 50.0
STALLED_LIMIT_MS = 100.0
ACTIVE = 10_000
_NOT_OURS = (b"SLOWLOG", b"INFO", b"CLIENT", b"HMSET")
_ROOT = Path(__file__).parents[1]

FILL = """
local base, state, first, last, now = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local kind = {wait = 'list', active = 'list'}
for n = first, last do
  local id = tostring(n)
  redis.call('HSET', base .. id, 'name', 'mail', 'data', '{"to":"someone@example.org","n":' .. id .. '}',
    'opts', '{"attempts":3,"backoff":{"type":"exponential","delay":1000}}', 'timestamp', now, 'delay', 0,
    'priority', 0, 'processedOn', now + 5, 'finishedOn', now + 9, 'returnvalue', '{"ok":true}', 'ats', 1, 'atm', 1)
  if kind[state] then
    redis.call('LPUSH', base .. state, id)
  elseif state == 'delayed' then
    redis.call('ZADD', base .. state, (now + n) * 4096, id)
  elseif state == 'prioritized' then
    redis.call('ZADD', base .. state, 5 * 4294967296 + n, id)
  else
    redis.call('ZADD', base .. state, now + n, id)
  end
  if state == 'active' then redis.call('SET', base .. id .. ':lock', 'token') end
end
"""


class Rig:
    """A server of its own, and what is measured on it."""

    def __init__(self, server: servers.Server) -> None:
        self.server = server
        self.raw: Any = redis.Redis.from_url(server.url, decode_responses=True)
        self.raw.config_set("slowlog-log-slower-than", 2000)
        self.raw.config_set("slowlog-max-len", 1000)
        self.raw.config_set("client-output-buffer-limit", f"normal {OUTPUT_LIMIT} {OUTPUT_LIMIT} 0")
        self._fill = self.raw.register_script(FILL)
        self.missed: list[str] = []

    def fresh(self, state: str, count: int, name: str = "big") -> QueueKeys:
        """Put this many jobs into one state of an empty database."""
        self.raw.flushall()
        keys = QueueKeys.of(name)
        for first in range(1, count + 1, 10_000):
            self._fill(keys=[keys.base], args=[state, first, min(first + 9_999, count), NOW])
        return keys

    def queue(self, keys: QueueKeys) -> "bullmq_sync.Queue[Any]":
        options = parse_url(self.server.url)
        # One call may take longer here than the usual time limit.
        patient = ConnectionOptions(host=options.host, port=options.port, command_timeout_ms=120_000)
        return bullmq_sync.Queue[Any](keys.name, patient)

    def slowest(self, act: Callable[[], Any]) -> float:
        """Return the milliseconds that the slowest call took the server; 0 for less than the slow log tells."""
        self.raw.slowlog_reset()
        act()
        calls = [entry for entry in self.raw.slowlog_get(1000) if not entry["command"].startswith(_NOT_OURS)]
        assert len(calls) < 1000, "the slow log is too short"
        return max((entry["duration"] for entry in calls), default=0) / 1000

    def show(self, what: str, figure: float, unit: str, limit: float | None = None) -> None:
        missed = limit is not None and figure > limit
        bound = "" if limit is None else f"  (limit {limit:g}{', MISSED' if missed else ''})"
        print(f"{what:<58} {figure:10.2f} {unit}{bound}", flush=True)
        if missed:
            self.missed.append(what)


def getters(rig: Rig, count: int) -> None:
    """Read a whole queue through the paged iterators, in a process of its own per adapter; look at a few places."""
    for state in ("completed", "wait"):
        keys = rig.fresh(state, count)
        for adapter in ("asyncio", "trio", "threads"):
            argument = json.dumps({"adapter": adapter, "url": rig.server.url, "name": keys.name, "state": state})
            command = [sys.executable, "-m", "bench.large_queue", "--reader", argument]
            done = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=True)
            found = json.loads(done.stdout)
            assert found["jobs"] == count, found
            what = f"iter_jobs({state!r}), {adapter}: growth of the client's RSS"
            rig.show(what, found["grown_kb"] / 1024, "MB", RSS_LIMIT_KB / 1024)
        with rig.queue(keys) as queue:
            for start, end in ((0, 99), (count // 2, count // 2 + 99), (-100, -1)):
                slowest = rig.slowest(partial(queue.get_jobs, state, start, end))
                rig.show(f"get_jobs of {state}, {start} to {end}: slowest call", slowest, "ms")
            slowest = rig.slowest(queue.get_job_counts)
            rig.show(f"get_job_counts with {count:,} in {state}", slowest, "ms")


def cleaning(rig: Rig, count: int) -> None:
    """Clean in pages of 500 where the state holds this many jobs."""
    for state in ("completed", "failed", "wait", "delayed", "prioritized"):
        with rig.queue(rig.fresh(state, count)) as queue:
            removed = count // 20
            slowest = rig.slowest(partial(queue.clean, 0, removed, state, page_size=500))
            left = queue.get_job_count_by_types(state)
            assert left == count - removed, (state, left)
            rig.show(f"clean of {state} by 500: slowest call", slowest, "ms", CLEAN_LIMIT_MS)
            slowest = rig.slowest(partial(queue.clean, 0, 10_000, state))
            rig.show(f"clean of {state} by 10,000 (BullMQ's page): slowest call", slowest, "ms")


def draining(rig: Rig, count: int) -> None:
    """Drain in one call, as the protocol has it."""
    for size in sorted({10_000, 100_000, count}):
        for state in ("wait", "prioritized"):
            with rig.queue(rig.fresh(state, size)) as queue:
                slowest = rig.slowest(queue.drain)
                assert queue.count() == 0
                rig.show(f"drain of {size:,} jobs in {state}", slowest, "ms")


def stalled(rig: Rig) -> None:
    """Look at all active jobs, with their locks and without."""
    for locked in (True, False):
        keys = rig.fresh("active", ACTIVE)
        with rig.queue(keys) as queue:
            check = move_stalled_jobs_to_wait(keys, max_stalled_count=1, now=NOW, interval_ms=1)

            def again(queue: "bullmq_sync.Queue[Any]" = queue, keys: QueueKeys = keys, check: Any = check) -> list[str]:
                rig.raw.delete(keys.stalled_check)
                found: list[str] = queue.call(check)
                return found

            again()
            if not locked:
                rig.raw.eval(
                    "for n = 1, tonumber(ARGV[1]) do redis.call('DEL', KEYS[1] .. n .. ':lock') end",
                    1,
                    keys.base,
                    ACTIVE,
                )
            slowest = rig.slowest(again)
            what = "none stalled" if locked else "all stalled"
            assert queue.get_active_count() == (ACTIVE if locked else 0)
            rig.show(
                f"stalled check over {ACTIVE:,} active jobs, {what}",
                slowest,
                "ms",
                STALLED_LIMIT_MS if locked else None,
            )


def rss_kb() -> int:
    """Return how much memory this process has now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise RuntimeError("the system does not tell")


class Reader:
    """Counts jobs, and looks at the memory now and then. The start is what it is after the first 10,000."""

    def __init__(self) -> None:
        self.jobs = 0
        self._start = self._most = 0

    def see(self, job: Any) -> None:
        assert job.data["n"] > 0
        self.jobs += 1
        if self.jobs % 10_000 == 0:
            now = rss_kb()
            self._start = self._start or now
            self._most = max(self._most, now)

    def answer(self) -> dict[str, int]:
        return {"jobs": self.jobs, "grown_kb": self._most - self._start}


def read(adapter: str, url: str, name: str, state: str) -> dict[str, int]:
    """Read all jobs of a state; this is what the process of its own does."""
    reader = Reader()
    if adapter == "threads":
        with bullmq_sync.Queue[Any](name, url) as queue:
            for job in queue.iter_jobs(state):
                reader.see(job)
        return reader.answer()

    async def read_them() -> None:
        async with bullmq_anyio.Queue[Any](name, url) as queue:
            async for job in queue.iter_jobs(state):
                reader.see(job)

    anyio.run(read_them, backend=adapter)
    return reader.answer()


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.large_queue", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--server", default=None, help="kind of server, as in BULLMQ_TEST_SERVERS")
    parser.add_argument("--only", default="getters,cleaning,draining,stalled", help="comma list of parts")
    parser.add_argument("--reader", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.reader is not None:
        print(json.dumps(read(**json.loads(options.reader))))
        return
    with servers.start(options.server) as server:
        print(f"{server.kind}, {options.jobs:,} jobs, Python {sys.version.split()[0]}")
        rig = Rig(server)
        parts: dict[str, Callable[[], None]] = {
            "getters": lambda: getters(rig, options.jobs),
            "cleaning": lambda: cleaning(rig, options.jobs),
            "draining": lambda: draining(rig, options.jobs),
            "stalled": lambda: stalled(rig),
        }
        for name in options.only.split(","):
            parts[name]()
        rig.raw.close()
    if rig.missed:
        sys.exit(f"missed: {'; '.join(rig.missed)}")


if __name__ == "__main__":
    main()
