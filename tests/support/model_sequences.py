"""Random sequences of the commands that the server model knows, by seed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from bullmq_protocol.command import Command
from bullmq_protocol.commands.adding import add_job
from bullmq_protocol.commands.fetching import (
    Limiter,
    move_to_active,
    put_marker,
    rate_limit,
    stalled_check_ttl,
    wait_for_marker,
)
from bullmq_protocol.commands.finishing import (
    FinishOptions,
    move_job_from_active_to_wait,
    move_to_delayed,
    move_to_finished,
    retry_job,
)
from bullmq_protocol.commands.locks import extend_locks, move_stalled_jobs_to_wait
from bullmq_protocol.commands.queues import pause, ping, resume
from bullmq_protocol.commands.schedulers import update_job_scheduler
from bullmq_protocol.common.codec import pack
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.reply import Reply, as_text
from bullmq_protocol.model.job import NewJob, prepare
from bullmq_protocol.model.options import JobOptions

START = 1_700_000_000_000
LONG_MS = 600_000
"""No key expires on its own while a sequence runs on a real server; `DEL` stands for the expiry."""

_RETENTIONS: tuple[dict[str, int | float], ...] = (
    {"count": -1},
    {"count": 0},
    {"count": 1},
    {"age": 1},
    {"count": 2, "age": 1},
)


class Sequence:
    """Draws one command after the other; must get each reply, for the ids and tokens in it."""

    def __init__(self, keys: QueueKeys, seed: int) -> None:
        self._keys = keys
        self._dice = Random(seed)
        self._now = START
        self._held: dict[str, str] = {}
        self._ids = 0
        self._tokens = 0
        self._token = ""
        self._limiter = Limiter(max=3, duration=LONG_MS) if seed % 3 == 0 else None

    def next(self) -> Command[Any]:
        """Return the next command."""
        self._now += self._dice.choice((0, 0, 1, 50, 300))
        common = (self._add, self._add, self._fetch, self._fetch, self._fetch, self._finish, self._finish)
        rare = (
            *(self._retry, self._delay, self._release, self._renew, self._check, self._wait, self._pause),
            *(self._lose_lock, self._forget_check, self._limit, self._cap, self._small, self._advance),
        )
        draw: Callable[[], Command[Any]] = self._dice.choice((*common, *common, *rare))
        return draw()

    def reported(self, reply: Reply) -> None:
        """Note a reply."""
        if isinstance(reply, list) and len(reply) == 4 and reply[0]:
            self._held[as_text(reply[1])] = self._token

    def _job(self) -> tuple[str, str]:
        """Draw a job, mostly one held, and mostly its own token."""
        if self._held and self._dice.random() < 0.9:
            job_id = self._dice.choice(sorted(self._held))
            return job_id, self._held[job_id] if self._dice.random() < 0.9 else "other"
        return str(self._dice.randint(1, self._ids + 1)), "other"

    def _add(self) -> Command[Any]:
        self._ids += 1
        options = self._dice.choice(
            (
                JobOptions(),
                JobOptions(attempts=3, lifo=True),
                JobOptions(delay=self._dice.choice((1, 200, 2_000))),
                JobOptions(priority=self._dice.randint(1, 3)),
                JobOptions(delay=100, priority=2),
            )
        )
        return add_job(self._keys, prepare(self._keys, NewJob("n", {"a": 1}, options), now_ms=self._now))

    def _fetch(self) -> Command[Any]:
        self._tokens += 1
        self._token = f"t:{self._tokens}"
        name = self._dice.choice((None, "worker"))
        return move_to_active(
            self._keys, token=self._token, lock_ms=LONG_MS, now=self._now, limiter=self._limiter, worker_name=name
        )

    def _finish(self) -> Command[Any]:
        job_id, token = self._job()
        self._token = token
        failed = self._dice.random() < 0.3
        keep = self._dice.choice(_RETENTIONS)
        return move_to_finished(
            self._keys,
            job_id,
            outcome="failed" if failed else "completed",
            value="boom" if failed else "1",
            now=self._now,
            options=FinishOptions(token=token, keep_jobs=keep, lock_ms=LONG_MS, attempts=1, limiter=self._limiter),
            fetch_next=self._dice.random() < 0.6,
            fields=("failedReason", "boom") if failed else (),
        )

    def _retry(self) -> Command[Any]:
        job_id, token = self._job()
        lifo = self._dice.random() < 0.5
        return retry_job(self._keys, job_id, token=token, now=self._now, lifo=lifo, fields=("failedReason", "x"))

    def _delay(self) -> Command[Any]:
        job_id, token = self._job()
        delay, counted = self._dice.choice((0, 150)), self._dice.random() < 0.5
        return move_to_delayed(self._keys, job_id, token=token, now=self._now, delay=delay, count_attempt=counted)

    def _release(self) -> Command[Any]:
        job_id, token = self._job()
        return move_job_from_active_to_wait(self._keys, job_id, token=token)

    def _renew(self) -> Command[Any]:
        pairs = sorted({self._job() for _ in range(3)})
        ids, tokens = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        return extend_locks(self._keys, job_ids=ids, tokens=tokens, lock_ms=LONG_MS)

    def _check(self) -> Command[Any]:
        return move_stalled_jobs_to_wait(self._keys, max_stalled_count=1, now=self._now, interval_ms=LONG_MS)

    def _wait(self) -> Command[Any]:
        return wait_for_marker(self._keys, block_ms=5)

    def _pause(self) -> Command[Any]:
        return self._dice.choice((pause, resume, resume))(self._keys)

    def _lose_lock(self) -> Command[Any]:
        return Command("DEL", (self._keys.lock(self._job()[0]),), (), _as_it_is)

    def _forget_check(self) -> Command[Any]:
        return Command("DEL", (self._keys.stalled_check,), (), _as_it_is)

    def _limit(self) -> Command[Any]:
        if self._dice.random() < 0.3:
            return rate_limit(self._keys, ttl_ms=LONG_MS)
        return Command("DEL", (self._keys.limiter,), (), _as_it_is)

    def _cap(self) -> Command[Any]:
        return Command("HSET", (self._keys.meta,), ("concurrency", self._dice.choice((1, 2, 50))), _as_it_is)

    def _advance(self) -> Command[Any]:
        job_id, _ = self._job()
        options = pack({"repeat": {"every": 1000}})
        return update_job_scheduler(
            self._keys,
            "removed",
            producer_id=job_id,
            data_text="{}",
            packed_options=options,
            now=self._now,
            next_at=self._now + 1000,
        )

    def _small(self) -> Command[Any]:
        return self._dice.choice((put_marker(self._keys), stalled_check_ttl(self._keys), ping()))


def comparable(command: Command[Any], reply: Reply) -> Any:
    """Return what must be equal in two replies to one command: no order of fields, no remaining times to the ms."""
    if command.name == "HSET":
        return None
    if command.name in ("PTTL", "moveJobFromActiveToWait") and isinstance(reply, int) and reply > 0:
        return "remaining"
    if command.name == "BZPOPMIN" and isinstance(reply, list):
        return [as_text(reply[1]), float(as_text(reply[2]))]
    if isinstance(reply, list) and len(reply) == 4:
        fields, job_id, limited, due = reply
        if isinstance(fields, list):
            flat = [as_text(text) for text in fields]
            found: dict[str, Any] = dict(zip(flat[::2], flat[1::2], strict=True))
            return [found | {"opts": sorted(found["opts"])}, job_id]
        return [bool(limited), due]
    return reply


def _as_it_is(reply: Reply) -> Reply:
    return reply
