"""A model of the server in memory: what our Lua answers a worker and a producer on one queue.

Not modelled: flows, deduplication, metrics, the event stream, and markers of very old producers. Of schedulers there is
one answer: that they were removed.
"""

from __future__ import annotations

from bisect import insort
from typing import Any

import msgspec

from bullmq_protocol.command import Command
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.reply import Reply, as_list
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import UsageError

PRIORITY_STEP = 1 << 32
SLOTS = 4096
STALLED_REASON = "job stalled more than allowable limit"

Scored = tuple[float, str]


class ServerModel:
    """One queue on one server. Time is passed in, and moves the expiry of keys; it must not go back.

    Its replies are compared with those of our Lua on real servers (tests/server/test_model.py).
    """

    def __init__(self, keys: QueueKeys) -> None:
        self.keys = keys
        self.jobs: dict[str, dict[str, str]] = {}
        self.wait: list[str] = []
        self.paused: list[str] = []
        self.active: list[str] = []
        self.prioritized: list[Scored] = []
        self.delayed: list[Scored] = []
        self.finished: dict[str, list[Scored]] = {"completed": [], "failed": []}
        self.marker: dict[str, float] = {}
        self.meta: dict[str, str] = {}
        self.stalled: set[str] = set()
        self.values: dict[str, tuple[str, Millis | None]] = {}
        """Plain keys: the value, and when it expires."""
        self._ids = 0
        self._turn = 0
        self._at: Millis = 0

    def answer(self, command: Command[Any], at: Millis) -> Reply:
        """Return the raw reply. `BZPOPMIN` gives nil at once where the server would wait.

        Raises `UsageError` for a command that is not modelled.
        """
        self._at = at
        args = command.args
        match command.name:
            case "moveToActive":
                options = _unpacked(args[2])
                return self._fetch_next(int(args[1]), options) or [0, 0, 0, 0]
            case "fetchMany":
                return self._fetch_many(int(args[1]), _unpacked(args[2]), _unpacked(args[3]))
            case "moveToFinished":
                return self._move_to_finished(command)
            case "retryJob":
                return self._retry(command)
            case "moveToDelayed":
                return self._move_to_delayed(command)
            case "moveJobFromActiveToWait":
                return self._release(str(args[0]), str(args[1]))
            case "extendLocks":
                tokens, ids = _unpacked(args[1]), _unpacked(args[2])
                return [i.encode() for i, t in zip(ids, tokens, strict=True) if not self._renew(i, t, int(args[3]))]
            case "moveStalledJobsToWait":
                return self._move_stalled(command)
            case "addStandardJob" | "addDelayedJob" | "addPrioritizedJob":
                return self._add(command)
            case "pause":
                if args[0] != "healed":
                    self._pause(str(args[0]) == "paused")
                # The lists are never both filled here.
                return 0 if len(args) > 1 else None
            case "PTTL":
                return self._ttl(command.keys[0])
            case "BZPOPMIN":
                return self._pop_marker()
            case "ZADD":
                return self._mark(float(args[0]), str(args[1]))
            case "SET":
                self._set(command.keys[0], str(args[0]), int(args[2]))
                return b"OK"
            case "HSET":
                self.meta[str(args[0])] = str(args[1])
                return 1
            case "DEL":
                return int(self.values.pop(command.keys[0], None) is not None)
            case "updateJobScheduler":
                return None
            case "PING":
                return b"PONG"
            case _:
                raise UsageError("command", command.name, "is not modelled")

    # --- keys that expire ---------------------------------------------------------------------------------------------

    def lock_owner(self, job_id: str, at: Millis) -> str | None:
        """Return the token that holds the job's lock, or None."""
        self._at = at
        return self._get(self.keys.lock(job_id))

    def _get(self, key: str) -> str | None:
        value, expires_at = self.values.get(key, (None, None))
        if expires_at is not None and expires_at <= self._at:
            del self.values[key]
            return None
        return value

    def _set(self, key: str, value: str, ttl: Millis) -> None:
        self.values[key] = (value, self._at + ttl)

    def _ttl(self, key: str) -> int:
        if self._get(key) is None:
            return -2
        expires_at = self.values[key][1]
        return -1 if expires_at is None else expires_at - self._at

    def _renew(self, job_id: str, token: str, lock_ms: Millis) -> bool:
        key = self.keys.lock(job_id)
        if self._get(key) != token:
            return False
        self._set(key, token, lock_ms)
        self.stalled.discard(job_id)
        return True

    def _surrender(self, job_id: str, token: str) -> int:
        """Return 0 to continue, or the error code."""
        if job_id not in self.jobs:
            return -1
        key = self.keys.lock(job_id)
        owner = self._get(key)
        if owner == token:
            del self.values[key]
            self.stalled.discard(job_id)
            return 0
        return -2 if owner is None else -6

    def _leave_active(self, job_id: str) -> bool:
        if job_id not in self.active:
            return False
        self.active.remove(job_id)
        return True

    # --- the queue ----------------------------------------------------------------------------------------------------

    def _gate(self) -> tuple[list[str], bool]:
        """Return the list for new work, and whether no ready marker is written."""
        paused, limit = "paused" in self.meta, self.meta.get("concurrency")
        return self.paused if paused else self.wait, paused or (limit is not None and len(self.active) >= int(limit))

    def _mark(self, score: float, member: str) -> int:
        new = member not in self.marker
        self.marker[member] = score
        return int(new)

    def _mark_ready(self, held: bool) -> None:
        if not held:
            self._mark(0, "0")

    def _mark_delayed(self) -> None:
        if self.delayed:
            self._mark(self.delayed[0][0] / SLOTS, "1")

    def _pop_marker(self) -> Reply:
        if not self.marker:
            return None
        score, member = min((score, member) for member, score in self.marker.items())
        del self.marker[member]
        return [self.keys.marker.encode(), member.encode(), format(score, ".17g").encode()]

    def _place(self, job_id: str, priority: int) -> None:
        self._turn += 1
        insort(self.prioritized, (priority * PRIORITY_STEP + self._turn % PRIORITY_STEP, job_id))

    def _delay(self, job_id: str, now: Millis, delay: Millis) -> None:
        due = now + max(delay, 0)
        first, last = due * SLOTS, (due + 1) * SLOTS - 1
        taken = [score for score, _ in self.delayed if first <= score <= last]
        insort(self.delayed, (min(max(taken) + 1, last) if taken else first, job_id))
        self._mark_delayed()

    def _promote(self, now: Millis, target: list[str], held: bool) -> None:
        last = (now + 1) * SLOTS - 1
        due = [entry for entry in self.delayed[:1000] if entry[0] <= last]
        if not due:
            return
        del self.delayed[: len(due)]
        for _, job_id in due:
            priority = int(self.jobs[job_id]["priority"])
            if priority:
                self._place(job_id, priority)
            else:
                target.insert(0, job_id)
            self.jobs[job_id]["delay"] = "0"
        self._mark_ready(held)

    def _count(self, job_id: str, field: str) -> int:
        job = self.jobs[job_id]
        job[field] = str(int(job.get(field, "0")) + 1)
        return int(job[field])

    def _fetch_next(self, now: Millis, options: dict[str, Any]) -> Reply:
        target, held = self._gate()
        self._promote(now, target, held)
        limiter = options["limiter"]
        if limiter is not None:
            remaining = self._ttl(self.keys.limiter)
            if remaining > 0 and int(self.values[self.keys.limiter][0]) >= limiter["max"]:
                return [0, 0, remaining, 0]
        if held:
            return [0, 0, 0, 0]
        job_id = self._take()
        if job_id is None:
            return [0, 0, 0, int(self.delayed[0][0] / SLOTS)] if self.delayed else None
        if limiter is not None:
            self._count_start(limiter["duration"])
        self._set(self.keys.lock(job_id), options["token"], options["lockDuration"])
        job = self.jobs[job_id]
        job["processedOn"] = str(now)
        if options["name"]:
            job["pb"] = options["name"]
        self._count(job_id, "ats")
        self._mark_ready(held)
        return [
            [text.encode("utf-8", "surrogateescape") for pair in job.items() for text in pair],
            job_id.encode(),
            0,
            0,
        ]

    def _take(self) -> str | None:
        if self.wait:
            job_id = self.wait.pop()
        elif self.prioritized:
            job_id = self.prioritized.pop(0)[1]
        else:
            self._turn = 0
            return None
        self.active.insert(0, job_id)
        return job_id

    def _count_start(self, duration: Millis) -> None:
        key = self.keys.limiter
        used = self._get(key)
        if used is None:
            self._set(key, "1", duration)
        else:
            self.values[key] = (str(int(used) + 1), self.values[key][1])

    # --- commands -----------------------------------------------------------------------------------------------------

    def _add(self, command: Command[Any]) -> Reply:
        head, options = _unpacked(command.args[0]), _unpacked(command.args[2])
        _, job_id, name, born_at, *_ = head
        self._ids += 1
        job_id = job_id or str(self._ids)
        if job_id in self.jobs:
            return str(job_id).encode()
        self.jobs[job_id] = {
            "name": name,
            "data": str(command.args[1]),
            "opts": msgspec.json.encode(options).decode(),
            "timestamp": str(born_at),
            "delay": str(options.get("delay", 0)),
            "priority": str(options.get("priority", 0)),
        }
        target, held = self._gate()
        if command.name == "addDelayedJob":
            self._delay(job_id, born_at, options.get("delay", 0))
            return str(job_id).encode()
        if command.name == "addPrioritizedJob":
            self._place(job_id, options["priority"])
        else:
            target.insert(len(target) if options.get("lifo") else 0, job_id)
        self._mark_ready(held)
        return str(job_id).encode()

    def _fetch_many(self, now: Millis, options: Any, tokens: Any) -> Reply:
        replies: list[Reply] = []
        for token in tokens:
            reply = self._fetch_next(now, {**options, "token": token}) or [0, 0, 0, 0]
            replies.append(reply)
            if as_list(reply)[1] == 0:
                break
        return replies

    def _move_to_finished(self, command: Command[Any]) -> Reply:
        job_id, now, field, value, outcome, fetch = (str(arg) for arg in command.args[:6])
        options = _unpacked(command.args[7])
        code = self._surrender(job_id, options["token"])
        if code:
            return code
        self._write(job_id, command.args[8])
        if not self._leave_active(job_id):
            return -3
        self._count(job_id, "atm")
        keep = options["keepJobs"]
        if keep.get("count") == 0:
            del self.jobs[job_id]
        else:
            self._keep(job_id, outcome, int(now), keep)
            # it may be gone by its own age
            self.jobs.get(job_id, {}).update({field: value, "finishedOn": now})
        reply = self._fetch_next(int(now), options) if fetch == "1" else None
        return 0 if reply is None else reply

    def _keep(self, job_id: str, outcome: str, now: Millis, keep: dict[str, Any]) -> None:
        done = self.finished[outcome]
        insort(done, (now, job_id))
        if outcome == "failed":
            self.jobs[job_id].pop("defa", None)
        age, count = keep.get("age"), keep.get("count")
        gone = [] if age is None else [entry for entry in done if entry[0] <= now - age * 1000]
        if count is not None and count > 0:
            gone = [*gone, *[entry for entry in done if entry not in gone][:-count]]
        for entry in gone:
            done.remove(entry)
            del self.jobs[entry[1]]

    def _write(self, job_id: str, packed: Any) -> None:
        if packed:
            fields = _unpacked(packed)
            self.jobs[job_id].update(zip(fields[::2], fields[1::2], strict=True))

    def _retry(self, command: Command[Any]) -> Reply:
        _, now, push, job_id, token, fields = command.args
        job_id = str(job_id)
        target, held = self._gate()
        self._promote(int(now), target, held)
        code = self._surrender(job_id, str(token))
        if code:
            return code
        self._write(job_id, fields)
        if not self._leave_active(job_id):
            return -3
        priority = int(self.jobs[job_id]["priority"])
        held = self._gate()[1]
        if priority:
            self._place(job_id, priority)
        else:
            target.insert(len(target) if push == "RPUSH" else 0, job_id)
        self._mark_ready(held)
        self._count(job_id, "atm")
        return 0

    def _move_to_delayed(self, command: Command[Any]) -> Reply:
        _, now, job_id, token, delay, skip, fields, *fetch = command.args
        job_id = str(job_id)
        code = self._surrender(job_id, str(token))
        if code:
            return code
        self._write(job_id, fields)
        if not self._leave_active(job_id):
            return -3
        if skip == "0":
            self._count(job_id, "atm")
        self.jobs[job_id]["delay"] = str(delay)
        self._delay(job_id, int(now), round(float(delay)))
        if fetch and fetch[0] == "1":
            found = self._fetch_next(int(now), _unpacked(fetch[1]))
            if isinstance(found, list) and found[0]:
                return found
        return 0

    def _release(self, job_id: str, token: str) -> Reply:
        code = self._surrender(job_id, token)
        if code:
            return code
        if self._leave_active(job_id):
            target, held = self._gate()
            priority = int(self.jobs[job_id]["priority"])
            if priority:
                insort(self.prioritized, (priority * PRIORITY_STEP, job_id))
            else:
                target.append(job_id)
                self._mark_ready(held)
        return max(self._ttl(self.keys.limiter), 0)

    def _move_stalled(self, command: Command[Any]) -> Reply:
        limit, _, now, interval = command.args
        key = self.keys.stalled_check
        recovered: list[Reply] = []
        if self._get(key) is not None:
            return recovered
        self._set(key, str(now), int(interval))
        for job_id in sorted(self.stalled, key=_set_order):
            if self._get(self.keys.lock(job_id)) is None and self._leave_active(job_id):
                if self._count(job_id, "stc") > int(limit):
                    self.jobs[job_id]["defa"] = STALLED_REASON
                target, held = self._gate()
                target.append(job_id)
                self._mark_ready(held)
                recovered.append(job_id.encode())
        self.stalled = set(self.active)
        return recovered

    def _pause(self, pause: bool) -> None:
        source, target = (self.wait, self.paused) if pause else (self.paused, self.wait)
        moved = bool(source)
        if moved:
            target[:] = source
            source.clear()
        if pause:
            self.meta["paused"] = "1"
            self.marker.clear()
        else:
            self.meta.pop("paused", None)
            if moved or self.prioritized:
                self._mark_ready(held=False)
            else:
                self._mark_delayed()


def _unpacked(packed: Any) -> Any:
    return msgspec.msgpack.decode(packed)


def _set_order(job_id: str) -> tuple[int, str]:
    # a set of whole numbers is kept in their order; the server promises none for other sets
    return (int(job_id), "") if job_id.isdecimal() else (-1, job_id)
