"""Monque's commands against a model without queries: what each does to jobs, by the table of specs/monque.md#sec-2.

`Comparison` runs a command on a store (`Collection` in memory, or a server), and says what the table says: the same
value, and the same documents. Its methods take plain numbers, so that hypothesis draws them and scripts give them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from math import floor
from typing import Any, Protocol

import hypothesis.strategies as st
import msgspec
from bson import ObjectId
from hypothesis.stateful import RuleBasedStateMachine, rule

from bullmq_protocol.errors import BullMQError
from monque_protocol import commands, operations
from monque_protocol.commands import Command, ListFilter, Selector
from monque_protocol.cursor import Sort
from monque_protocol.document import ACTIVE, Job, read_job
from monque_protocol.errors import DUPLICATE_KEY, CommandRefused, JobStateError

START = 1_766_000_000_000
NAMES = ("mail", "report")
OWNERS = ("me", "other")
KEYS = (None, "a", "b")
STATES = ("pending", "processing", "completed", "failed", "cancelled")
RUNS = 3
CRON = "*/5 * * * *"
C = "jobs"
_FEW = st.integers(0, 5)
_ONE = st.sampled_from(("cancel", "retry", "reschedule", "delete"))
_UNLOCKED: dict[str, Any] = {"locked_at": None, "claimed_by": None, "last_heartbeat": None}


class Store(Protocol):
    """Executes commands, and shows the documents."""

    def run(self, command: Command[Any]) -> Any: ...

    def documents(self) -> list[Any]: ...


class Comparison:
    """The store, the model, and the time, which goes on by a millisecond at least with each command."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.jobs: dict[str, Job[Any]] = {}
        self.claims: dict[tuple[str, str], Job[Any]] = {}
        self._first_claims: dict[tuple[str, str], Job[Any]] = {}
        self.now = START

    # --- what is compared ---------------------------------------------------------------------------------------------

    def _run(self, command: Command[Any]) -> Any:
        return command.decode(self.store.run(command))

    def _go(self, operation: Generator[Command[Any], Any, Any]) -> Any:
        reply: Any = None
        while True:
            try:
                command = operation.send(reply)
            except StopIteration as stop:
                return stop.value
            reply = self.store.run(command)

    def _same(self, value: Any, expected: Any) -> None:
        assert value == expected, (value, expected)
        stored = {job.id: job for job in map(read_job, self.store.documents())}
        assert stored == self.jobs, {
            key: (stored.get(key), self.jobs.get(key))
            for key in stored.keys() | self.jobs.keys()
            if stored.get(key) != self.jobs.get(key)
        }

    def _refused(self, call: Callable[[], Any], error: type[BullMQError]) -> None:
        raised: BullMQError | None = None
        try:
            call()
        except BullMQError as found:
            raised = found
        assert type(raised) is error, raised
        if isinstance(raised, CommandRefused):
            assert raised.number == DUPLICATE_KEY
        self._same(None, None)

    def _change(self, job: Job[Any], **fields: Any) -> Job[Any]:
        changed = msgspec.structs.replace(job, updated_at=self.now, **fields)
        self.jobs[job.id] = changed
        return changed

    def _job(self, number: int) -> Job[Any] | None:
        known = sorted(self.jobs)
        return self.jobs[known[number % len(known)]] if known else None

    def _active(self, name: str, key: str | None) -> Job[Any] | None:
        found = [
            job
            for job in self.jobs.values()
            if (job.name, job.unique_key) == (name, key) and key is not None and job.status in ACTIVE
        ]
        assert len(found) <= 1
        return found[0] if found else None

    # --- what may happen ----------------------------------------------------------------------------------------------

    def wait(self, ms: int) -> None:
        self.now += ms

    def add(self, name: int, key: int, delay: int, recurs: bool) -> None:
        self.now += 1
        called, unique = NAMES[name % 2], KEYS[key % 3]
        given: dict[str, Any] = {
            "next_run_at": self.now + delay,
            "now": self.now,
            "repeat_interval": CRON if recurs else None,
        }
        active = self._active(called, unique)
        made = ObjectId()
        command = (
            commands.insert(C, made, called, {"n": delay}, **given)
            if unique is None
            else commands.upsert(C, called, {"n": delay}, unique_key=unique, **given)
        )
        job = self._run(command)
        if active is None:
            key_of: Any = made if unique is None else job.key
            active = Job(
                id=str(key_of),
                key=key_of,
                name=called,
                data={"n": delay},
                status="pending",
                next_run_at=self.now + delay,
                repeat_interval=given["repeat_interval"],
                unique_key=unique,
                created_at=self.now,
                updated_at=self.now,
            )
            assert active.id not in self.jobs
            self.jobs[active.id] = active
        self._same(job, active)

    def claim(self, name: int, owner: int) -> None:
        self.now += 1
        called, me = NAMES[name % 2], OWNERS[owner % 2]
        due = [
            job
            for job in self.jobs.values()
            if (job.name, job.status) == (called, "pending") and (job.next_run_at or 0) <= self.now
        ]
        got = self._run(commands.claim(C, called, me=me, now=self.now, heartbeat_ms=30_000))
        if not due:
            self._same(got, None)
            return
        first = min(job.next_run_at or 0 for job in due)
        # Ties are in no set order.
        assert got is not None and got.id in {job.id for job in due if job.next_run_at == first}, (got, first)
        fields: dict[str, Any] = {"locked_at": self.now, "last_heartbeat": self.now, "heartbeat_interval": 30_000}
        claimed = self._change(self.jobs[got.id], status="processing", claimed_by=me, **fields)
        self.claims[claimed.id, me] = claimed
        self._first_claims.setdefault((claimed.id, me), claimed)
        self._same(got, claimed)

    def end(self, number: int, owner: int, how: int, again: bool) -> None:
        """Report success (0), failure (1, 2), or release (3); `again`: with the moment of the claim."""
        self.now += 1
        me = OWNERS[owner % 2]
        chosen = self._job(number)
        if chosen is None:
            return
        claimed = self.claims.get((chosen.id, me), chosen)
        is_mine = chosen.status == "processing" and chosen.claimed_by == me
        if again:
            is_mine = is_mine and chosen.locked_at == claimed.locked_at
        given: dict[str, Any] = {"me": me, "now": self.now}
        command: Command[Any]
        fields: dict[str, Any]
        later = self.now + 2_000
        if how % 4 == 3:
            command, fields = commands.release(C, claimed, **given), {"status": "pending"}
        elif how % 4 == 0 and claimed.repeat_interval is None:
            command, fields = commands.complete(C, claimed, **given), {"status": "completed", "fail_reason": None}
        elif how % 4 == 0:
            command = commands.complete_recurring(C, claimed, next_run_at=later, **given)
            fields = {"status": "pending", "fail_reason": None, "fail_count": 0, "next_run_at": later}
        elif claimed.fail_count + 1 < RUNS:
            command = commands.retry_later(C, claimed, next_run_at=later, reason="no", **given)
            fields = {"status": "pending", "fail_count": claimed.fail_count + 1, "fail_reason": "no"}
            fields["next_run_at"] = later
        else:
            command = commands.fail(C, claimed, reason="no", **given)
            fields = {"status": "failed", "fail_count": claimed.fail_count + 1, "fail_reason": "no"}
        got = self._run(commands.of_claim(command, claimed) if again else command)
        after = self._change(chosen, **fields, **_UNLOCKED) if is_mine else None
        if how % 4 == 3:
            self._same(got, int(is_mine))
        else:
            self._same(got, after)

    def go_back(self) -> None:
        """Let reports that come now be those of the first claims."""
        self.claims.update(self._first_claims)

    def heartbeat(self, owner: int) -> None:
        self.now += 1
        me = OWNERS[owner % 2]
        mine = [job for job in self.jobs.values() if (job.status, job.claimed_by) == ("processing", me)]
        got = self._run(commands.heartbeat(C, me=me, now=self.now))
        for job in mine:
            self._change(job, last_heartbeat=self.now)
        self._same(got, len(mine))

    def recover(self, lock_ms: int) -> None:
        self.now += 1
        stale = [
            job
            for job in self.jobs.values()
            if job.status == "processing" and (job.locked_at or 0) < self.now - lock_ms
        ]
        got = self._run(commands.recover_stale(C, now=self.now, lock_ms=lock_ms))
        for job in stale:
            self._change(job, status="pending", **_UNLOCKED)
        self._same(got, len(stale))

    def find_claims(self, owner: int) -> None:
        me = OWNERS[owner % 2]
        found = self._run(commands.find_claims(C, me=me))
        mine = {job.id for job in self.jobs.values() if (job.status, job.claimed_by) == ("processing", me)}
        self._same({job.id for job in found}, mine)

    def cancel(self, number: int) -> None:
        self.now += 1
        job = self._job(number)
        key = ObjectId() if job is None else job.key
        call = operations.cancel(C, key, now=self.now)
        if job is None or job.status in ("pending", "cancelled"):
            done = self._go(call)
            if job is not None and job.status == "pending":
                job = self._change(job, status="cancelled")
            self._same(None if done is None else done.job, job)
        else:
            self._refused(lambda: self._go(call), JobStateError)

    def retry(self, number: int) -> None:
        self.now += 1
        job = self._job(number)
        if job is None:
            return
        call = operations.retry(C, job.key, now=self.now)
        if job.status not in ("failed", "cancelled"):
            self._refused(lambda: self._go(call), JobStateError)
        elif self._active(job.name, job.unique_key) is not None:
            self._refused(lambda: self._go(call), CommandRefused)
        else:
            done = self._go(call)
            fields: dict[str, Any] = {"status": "pending", "fail_count": 0, "fail_reason": None}
            self._same(done.job, self._change(job, next_run_at=self.now, **fields, **_UNLOCKED))

    def reschedule(self, number: int, delay: int) -> None:
        self.now += 1
        job = self._job(number)
        if job is None:
            return
        call = operations.reschedule(C, job.key, run_at=self.now + delay, now=self.now)
        if job.status != "pending":
            self._refused(lambda: self._go(call), JobStateError)
        else:
            self._same(self._go(call).job, self._change(job, next_run_at=self.now + delay))

    def delete(self, number: int) -> None:
        job = self._job(number)
        key = ObjectId() if job is None else job.key
        got = self._run(commands.delete(C, key))
        self.jobs.pop(str(key), None)
        self._same(got, job is not None)

    def _selected(self, name: int, state: int, age: int) -> tuple[Selector, list[Job[Any]]]:
        """Return a selector, and what it selects; 0: any name, any state, any age."""
        called = (None, *NAMES)[name % 3]
        status = (None, *STATES)[state % 6]
        before = None if age == 0 else self.now - age
        chosen = [
            job
            for job in self.jobs.values()
            if (called is None or job.name == called)
            and (status is None or job.status == status)
            and (before is None or (job.created_at or 0) < before)
        ]
        return Selector(name=called, status=status, older_than=before), chosen

    def cancel_many(self, name: int, state: int, age: int) -> None:
        self.now += 1
        selector, chosen = self._selected(name, state, age)
        command = commands.cancel_many(C, selector, now=self.now)
        pending = [job for job in chosen if job.status == "pending"]
        got = 0 if command is None else self._run(command)
        for job in pending:
            self._change(job, status="cancelled")
        self._same(got, len(pending))

    def retry_many(self, name: int, state: int, age: int) -> None:
        self.now += 1
        selector, chosen = self._selected(name, state, age)
        ended = [job for job in chosen if job.status in ("failed", "cancelled")]
        keys = [(job.name, job.unique_key) for job in ended if job.unique_key is not None]
        if len(set(keys)) < len(keys) or any(self._active(*key) is not None for key in keys):
            # The command would fail at one of them, and which ones come before it is not said.
            return
        count, found = self._go(operations.retry_many(C, selector, now=self.now))
        due = {job.id: job.next_run_at or 0 for job in map(read_job, self.store.documents())}
        for job in ended:
            assert self.now <= due[job.id] <= self.now + 30_000
            fields: dict[str, Any] = {"status": "pending", "fail_count": 0, "fail_reason": None}
            self._change(job, next_run_at=due[job.id], **fields, **_UNLOCKED)
        assert {job.id: job.next_run_at for job in found} == {job.id: due[job.id] for job in ended}
        self._same(count, len(ended))

    def delete_many(self, name: int, state: int, age: int) -> None:
        selector, chosen = self._selected(name, state, age)
        got = self._run(commands.delete_many(C, selector))
        for job in chosen:
            del self.jobs[job.id]
        self._same(got, len(chosen))

    def clean(self, state: int, keep_ms: int) -> None:
        status = ("completed", "failed")[state % 2]
        old = [job for job in self.jobs.values() if job.status == status and (job.updated_at or 0) < self.now - keep_ms]
        got = self._run(commands.clean(C, status, now=self.now, keep_ms=keep_ms))
        for job in old:
            del self.jobs[job.id]
        self._same(got, len(old))

    def read(self, name: int, state: int) -> None:
        called, status = (None, *NAMES)[name % 3], (None, *STATES)[state % 6]
        found = self._run(commands.get_jobs(C, name=called, status=status, limit=0, skip=0))
        times = [job.next_run_at for job in found]
        assert times == sorted(times)
        _, chosen = self._selected(name, state, 0)
        self._same({job.id: job for job in found}, {job.id: job for job in chosen})

    def walk(self, field: int, descends: bool, size: int) -> None:
        by = ("identifier", "createdAt", "updatedAt", "nextRunAt")[field % 4]
        sort = Sort(by, "desc" if descends else "asc")
        values = {"createdAt": "created_at", "updatedAt": "updated_at", "nextRunAt": "next_run_at"}
        expected = sorted(
            self.jobs.values(),
            key=lambda job: (getattr(job, values[by]) if by in values else 0, job.id),
            reverse=descends,
        )
        seen: list[Job[Any]] = []
        cursor: str | None = None
        while True:
            page = self._go(
                operations.get_page(
                    C, ListFilter(), sort, cursor=cursor, direction="forward", limit=size % 3 + 1, key_of=ObjectId
                )
            )
            seen += page.jobs
            cursor = page.cursor
            if not page.has_next_page:
                break
        self._same(seen, expected)

    def count(self, name: int) -> None:
        called = (None, *NAMES)[name % 3]
        chosen = [job for job in self.jobs.values() if called in (None, job.name)]
        stats = self._run(commands.get_stats(C, called))
        for status in STATES:
            assert getattr(stats, status) == sum(job.status == status for job in chosen)
        took = [(job.updated_at or 0) - (job.created_at or 0) for job in chosen if job.status == "completed"]
        mean = floor(sum(took) / len(took) + 0.5) if took else None
        self._same((stats.total, stats.avg_processing_duration_ms), (len(chosen), mean))
        named = {each.name: each.stats.total for each in self._run(commands.get_summaries(C))}
        assert named == {each: len([job for job in self.jobs.values() if job.name == each]) for each in named}
        assert sum(named.values()) == len(self.jobs)


class Rules(RuleBasedStateMachine):
    """Draws what happens; a class that is derived from it makes the store."""

    @classmethod
    def make_store(cls) -> Store:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.comparison = Comparison(self.make_store())

    @rule(ms=st.sampled_from((1, 1_000, 3_000, 60_000)))
    def wait(self, ms: int) -> None:
        self.comparison.wait(ms)

    @rule(name=_FEW, key=_FEW, delay=st.sampled_from((0, 0, -5, 2_000)), recurs=st.booleans())
    def add(self, name: int, key: int, delay: int, recurs: bool) -> None:
        self.comparison.add(name, key, delay, recurs)

    @rule(name=_FEW, owner=_FEW)
    def claim(self, name: int, owner: int) -> None:
        self.comparison.claim(name, owner)

    @rule(number=_FEW, owner=_FEW, how=_FEW, again=st.booleans())
    def end(self, number: int, owner: int, how: int, again: bool) -> None:
        self.comparison.end(number, owner, how, again)

    @rule(owner=_FEW, lock_ms=st.sampled_from((500, 30_000)))
    def watch_over(self, owner: int, lock_ms: int) -> None:
        self.comparison.heartbeat(owner)
        self.comparison.recover(lock_ms)
        self.comparison.find_claims(owner)

    @rule(
        number=_FEW,
        delay=st.sampled_from((-10, 5_000)),
        what=st.sampled_from(("cancel", "retry", "reschedule", "delete")),
    )
    def manage(self, number: int, delay: int, what: str) -> None:
        getattr(self.comparison, what)(*((number, delay) if what == "reschedule" else (number,)))

    @rule(name=_FEW, state=_FEW, age=st.sampled_from((0, 2_000)), what=st.sampled_from(("cancel_many", "retry_many")))
    def manage_many(self, name: int, state: int, age: int, what: str) -> None:
        getattr(self.comparison, what)(name, state, age)

    @rule(name=_FEW, state=_FEW, keep_ms=st.sampled_from((0, 3_000)))
    def clean(self, name: int, state: int, keep_ms: int) -> None:
        self.comparison.clean(state, keep_ms)
        self.comparison.delete_many(name, state or 1, keep_ms)

    @rule(name=_FEW, state=_FEW, descends=st.booleans(), size=_FEW)
    def read(self, name: int, state: int, descends: bool, size: int) -> None:
        self.comparison.read(name, state)
        self.comparison.walk(state, descends, size)
        self.comparison.count(name)


Step = tuple[Any, ...]
"""The name of a method, and its arguments."""


def play(comparison: Comparison, steps: list[Step]) -> None:
    """Take the steps of a script."""
    for name, *given in steps:
        getattr(comparison, name)(*given)


def is_noticed(comparison: Comparison, steps: list[Step]) -> bool:
    """Tell whether a script finds a difference."""
    with suppress(AssertionError):
        play(comparison, steps)
        return False
    return True


def _drop(part: str, field: str) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        document[part] = {key: value for key, value in document[part].items() if key != field}

    return change


def _keep_lock(document: Any) -> None:
    document["update"] = {"$set": document["update"]["$set"]}


def _keep_reason(document: Any) -> None:
    unset = {key: value for key, value in document["update"]["$unset"].items() if key != "failReason"}
    document["update"] = {**document["update"], "$unset": unset}


def _in_update(**changes: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        document["updates"] = [{**document["updates"][0], **changes}]

    return change


def _renew_lock(document: Any) -> None:
    (update,) = document["updates"]
    fields = update["u"]["$set"]
    document["updates"] = [{**update, "u": {"$set": {**fields, "lockedAt": fields["lastHeartbeat"]}}}]


def _by_creation(document: Any) -> None:
    (delete,) = document["deletes"]
    query = {("createdAt" if key == "updatedAt" else key): value for key, value in delete["q"].items()}
    document["deletes"] = [{**delete, "q": query}]


def _first_alone(document: Any) -> None:
    document["deletes"] = [{**document["deletes"][0], "limit": 1}]


ADD: Step = ("add", 0, 0, 0, False)
KEYED: Step = ("add", 0, 1, 0, False)
CLAIM: Step = ("claim", 0, 0)
FAULTS: dict[str, tuple[str, Callable[[Any], None], list[Step]]] = {
    "a claim takes what is not due": (
        "claim",
        _drop("query", "nextRunAt"),
        [("add", 0, 0, 9000, False), CLAIM],
    ),
    "a claim takes what runs": ("claim", _drop("query", "status"), [ADD, CLAIM, ("claim", 0, 1)]),
    "a claim takes other names": ("claim", _drop("query", "name"), [ADD, ("claim", 1, 0)]),
    "a claim takes the latest": (
        "claim",
        lambda document: document.update(sort={"nextRunAt": -1}),
        [ADD, ("add", 0, 0, -50, False), CLAIM],
    ),
    "a success ends another's": (
        "complete",
        _drop("query", "claimedBy"),
        [ADD, CLAIM, ("end", 0, 1, 0, False)],
    ),
    "a failure ends another's": (
        "retry_later",
        _drop("query", "claimedBy"),
        [ADD, CLAIM, ("end", 0, 1, 1, False)],
    ),
    "a failure keeps its lock": ("retry_later", _keep_lock, [ADD, CLAIM, ("end", 0, 0, 1, False)]),
    "a success keeps the reason": (
        "complete",
        _keep_reason,
        [ADD, CLAIM, ("end", 0, 0, 1, False), ("wait", 3000), CLAIM, ("end", 0, 0, 0, False)],
    ),
    "what is sent again ends a later claim": (
        "of_claim",
        _drop("query", "lockedAt"),
        [ADD, CLAIM, ("recover", -10), CLAIM, ("go_back",), ("end", 0, 0, 0, True)],
    ),
    "a heartbeat renews the lock": ("heartbeat", _renew_lock, [ADD, CLAIM, ("heartbeat", 0)]),
    "a heartbeat is for one job": (
        "heartbeat",
        _in_update(multi=False),
        [ADD, ADD, CLAIM, CLAIM, ("heartbeat", 0)],
    ),
    "recovery takes what lives": (
        "recover_stale",
        _in_update(q={"status": "processing"}),
        [ADD, CLAIM, ("recover", 60_000)],
    ),
    "a unique key is one for all names": (
        "upsert",
        _drop("query", "name"),
        [KEYED, ("add", 1, 1, 0, False)],
    ),
    "a unique key holds after the end": (
        "upsert",
        _drop("query", "status"),
        [KEYED, ("cancel", 0), KEYED],
    ),
    "a cancellation meets what runs": ("cancel", _drop("query", "status"), [ADD, CLAIM, ("cancel", 0)]),
    "a retry meets what is pending": ("retry", _drop("query", "status"), [ADD, ("retry", 0)]),
    "clean-up goes by creation": (
        "clean",
        _by_creation,
        [ADD, ("wait", 5000), CLAIM, ("end", 0, 0, 0, False), ("clean", 0, 2000)],
    ),
    "one of many is deleted": ("delete_many", _first_alone, [ADD, ADD, ("delete_many", 0, 0, 0)]),
    "many cancels what runs": (
        "cancel_many",
        _in_update(q={}),
        [ADD, CLAIM, ("cancel_many", 0, 0, 0)],
    ),
}
"""Faults of commands, each with the function that makes the command, and a script that must notice it."""
