"""The rules of realistic sequences: what clients and workers do to a few queues, with the knowledge they have.

Both drivers use them: `sequences.py` with a seeded random source, `test_machine.py` with hypothesis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.oracle import calls, later_calls
from tests.oracle.calls import COUNTED, Call, Command, T
from tests.oracle.harness import Bench, Reply

STATE_OF = {"processed": "completed", "failed": "failed", "unsuccessful": "failed"}
"""The state of the children of a kind."""

FLAGS = ("fpof", "cpof", "idof", "rdof")
LIMITS = ({"max": 1, "duration": 600_000}, {"max": 3, "duration": 900_000}, {"max": 100, "duration": 600_000})
Rule = Callable[["World"], None]


class Difference(AssertionError):
    """The two sides differ; `differences` says how, `log` holds all steps from an empty server."""

    def __init__(self, differences: tuple[str, ...], log: list[Call | Command]) -> None:
        super().__init__("\n".join(differences))
        self.differences = differences
        self.log = log


@dataclass(frozen=True, slots=True)
class Held:
    """A job that a worker holds."""

    base: str
    id: str
    token: str


class World:
    """One sequence: the clock, what was handed out, and the steps taken so far.

    `later`: clients also do what came after 5.62.0.
    """

    def __init__(self, bench: Bench, random: Random) -> None:
        self.bench = bench
        self.random = random
        self.later = bench.version != "5.62.0"
        self.log: list[Call | Command] = []
        self.now = T
        prefix = self.pick("bull", "bull", "bull", "{b}", "a:b")
        self.queues = [f"{prefix}:q:", f"{prefix}:p:", f"{prefix}:r:"][: self.pick(1, 2, 2, 3)]
        self.jobs: list[tuple[str, str]] = []
        self.held: list[Held] = []
        self.schedulers: dict[tuple[str, str], dict[str, Any]] = {}
        self.tokens = 0
        self.ids = 0
        self.limiter = self.pick(*[None] * 5, *LIMITS)
        self.metrics: Any = self.pick("", "", 15, 2)
        bench.reset()

    # What rules draw and do

    def pick(self, *options: Any) -> Any:
        return self.random.choice(options)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def call(self, call: Call) -> Reply:
        """Run a call on both sides; raise `Difference` when they differ."""
        self.log.append(call)
        result = self.bench.call(call)
        if result.differences:
            raise Difference(result.differences, self.log)
        return result.reply

    def plain(self, *command: calls.Arg) -> None:
        self.log.append(command)
        self.bench.plain([command], strict=False)

    def queue(self) -> str:
        return str(self.pick(self.queues[0], *self.queues))

    def any_job(self) -> tuple[str, str]:
        if self.jobs and self.chance(0.93):
            return self.random.choice(self.jobs)
        return self.queue(), str(self.pick("gone", "999", "a:b:c"))

    def job_in(self, *names: str) -> tuple[str, str]:
        """Choose a job that one of the lists or sets holds, mostly; else any."""
        base, name = self.queue(), self.pick(*names)
        read = ("LRANGE" if name in ("wait", "paused") else "ZRANGE", base + name, 0, -1)
        (ids,) = self.bench.plain([read], strict=False)
        if isinstance(ids, list) and ids and self.chance(0.85):
            return base, self.random.choice(ids).decode()
        return self.any_job()

    def split(self, key: str) -> tuple[str, str]:
        """Split a job key into base prefix and id, whatever colons the id has."""
        base = next(base for base in self.queues if key.startswith(base))
        return base, key.removeprefix(base)

    def parent_with(self, kind: str) -> tuple[str, list[str]]:
        """Choose the key of a parent that has children of a kind, mostly, and these children."""
        (found,) = self.bench.plain([("KEYS", f"{self.queue()}*:{kind}")])
        keys = sorted(key.decode() for key in found if b":metrics:" not in key)
        if not keys:
            return "".join(self.any_job()), []
        key = self.random.choice(keys)
        read = {"dependencies": "SMEMBERS", "processed": "HKEYS", "failed": "HKEYS"}.get(kind)
        command = (read, key) if read else ("ZRANGE", key, 0, -1)
        (children,) = self.bench.plain([command], strict=False)
        return key.removesuffix(f":{kind}"), sorted(child.decode() for child in children)

    def hold(self) -> Held:
        """Choose a held job, mostly; else one that is not held, with a token out of the air."""
        if not self.held and self.chance(0.8):
            fetch(self)
        if self.held and self.chance(0.9):
            held = self.random.choice(self.held)
            if self.chance(0.93):
                return held
            return Held(held.base, held.id, self.pick("0", "wrong", ""))
        base, id = self.any_job()
        return Held(base, id, self.pick("0", "wrong", "t1"))

    def drop(self, base: str, id: str) -> None:
        self.held = [held for held in self.held if (held.base, held.id) != (base, id)]

    def know(self, base: str, reply: Reply) -> None:
        if isinstance(reply, bytes):
            job = (base, reply.decode())
            if job not in self.jobs:
                self.jobs.append(job)

    def take(self, base: str, token: str, reply: Reply) -> None:
        """Note the job of a fetch, and do what a worker does with a job of a scheduler."""
        if not (isinstance(reply, list) and len(reply) == 4 and isinstance(reply[0], list)):
            return
        id = reply[1].decode()
        self.drop(base, id)
        self.held.append(Held(base, id, token))
        if (base, id) not in self.jobs:
            self.jobs.append((base, id))
        if id.startswith("repeat:") and self.chance(0.85):
            scheduler = id.split(":", 1)[1].rsplit(":", 1)[0]
            known = self.schedulers.get((base, scheduler))
            if known is not None:
                self.advance(base, scheduler, known, id)

    def advance(self, base: str, scheduler: str, known: dict[str, Any], producer: str) -> None:
        slot = "" if "every" in known else str((self.now // 60_000 + self.pick(0, 0, 1)) * 60_000)
        options = {
            "attempts": 0,
            "repeat": {**known, "count": self.pick(1, 2), "offset": None},
            "jobId": f"repeat:{scheduler}:undefined",
            "timestamp": self.now,
            **self.pick({}, {"priority": 3}, {"lifo": True}, {"de": {"id": "d1"}}, {"priority": 0}),
        }
        self.call(
            calls.update_scheduler(
                base,
                scheduler,
                slot=slot,
                data=self.pick("{}", '{"b":2}'),
                options=options,
                at=self.now,
                producer=self.pick(producer, producer, producer, f"repeat:{scheduler}:5"),
                producer_key=self.pick(None, None, ""),
            )
        )

    def token(self) -> str:
        self.tokens += 1
        return f"t{self.tokens}"

    def fetch_options(self, token: str) -> dict[str, Any]:
        return {
            "token": token if self.chance(0.97) else "0",
            "lockDuration": self.pick(30_000, 60_000),
            "limiter": self.limiter,
            "name": self.pick(None, None, "w1", ""),
        }

    # Adding

    def new_id(self) -> str:
        if self.chance(0.6):
            return ""
        if self.jobs and self.chance(0.35):
            return self.random.choice(self.jobs)[1]
        self.ids += 1
        return str(self.pick(f"c{self.ids}", f"c{self.ids}", f"x:y:{self.ids}", f"ü {self.ids}/"))

    def options(self) -> dict[str, Any]:
        found: dict[str, Any] = {"attempts": self.pick(0, 0, 1, 3)}
        if self.chance(0.3):
            found["delay"] = self.pick(1, 5, 5, 1000, 5000, 20_000, 0.5)
        if self.chance(0.3):
            found["priority"] = self.pick(1, 2, 3, 10, 2_097_152)
        if self.chance(0.15):
            found["lifo"] = self.pick(True, True, False)
        if self.chance(0.2):
            found["backoff"] = self.pick({"type": "fixed", "delay": 1000}, {"type": "exponential", "delay": 1 / 3})
        if self.chance(0.25):
            found["de"] = {
                "id": self.pick("d1", "d1", "d/ü"),
                **self.pick({}, {"ttl": 600_000}, {"ttl": 900_000.0}),
                **self.pick({}, {"extend": True}, {"replace": True}, {"replace": True, "extend": True}),
            }
            if self.later:
                found["de"] |= self.pick({}, {"keepLastIfActive": True}, {"reschedule": True})
        if self.chance(0.2):
            found |= self.pick({"removeOnComplete": True}, {"kl": 5}, {"tm": 'a/b"\x01'}, {"timestamp": self.now})
        items = list(found.items())
        if self.chance(0.3):
            self.random.shuffle(items)
        return dict(items)

    def add_job(
        self,
        base: str,
        *,
        parent: tuple[str, str] | None,
        id: str,
        options: dict[str, Any],
        node: bool = False,
        deferring: bool = False,
    ) -> Reply:
        delay = options.get("delay", 0)
        command = (
            "addParentJob"
            if node
            else "addDelayedJob"
            if delay > 0
            else "addPrioritizedJob"
            if options.get("priority")
            else "addStandardJob"
        )
        call = calls.add(
            command,
            base,
            id=id,
            name=self.pick("n", "n", "mail/ü"),
            at=self.pick(self.now, float(self.now)),
            data=self.pick("{}", '{"a":1}', '"' + "y" * 70 + '"'),
            options=options,
            parent=parent,
            flags=self.random.sample(FLAGS, self.pick(0, 0, 1, 1, 2)) if parent is not None else (),
            scheduler=self.pick(*[None] * 20, "rk", ""),
        )
        reply = self.call(later_calls.deferring(call) if deferring else call)
        self.know(base, reply)
        return reply


# The rules


def add(world: World) -> None:
    """Add one job, now and then to a parent, now and then a duplicate."""
    parent = world.any_job() if world.chance(0.2) else None
    world.add_job(world.queue(), parent=parent, id=world.new_id(), options=world.options())


def add_flow(world: World) -> None:
    """Add a parent, then its children, one of which may have children of its own."""
    grand = world.any_job() if world.chance(0.15) else None
    base = world.queue()
    root_id = world.new_id() or f"f{world.random.randrange(10**6)}"
    deferring = world.later and world.chance(0.6)
    world.add_job(base, parent=grand, id=root_id, options=world.options(), node=True, deferring=deferring)
    nodes = [(base, root_id)]
    for _ in range(world.pick(1, 2, 3)):
        parent = world.random.choice(nodes)
        child, child_id = world.queue(), world.new_id() or f"k{world.random.randrange(10**6)}"
        node = world.chance(0.2)
        world.add_job(child, parent=parent, id=child_id, options=world.options(), node=node, deferring=deferring)
        if node:
            nodes.append((child, child_id))
    for node_base, node_id in (*(() if grand is None else (grand,)), *nodes) if deferring else ():
        world.call(later_calls.release_parent(node_base, node_id, at=world.now))
    for _ in range(world.pick(0, 1, 2)):
        work_off(world)


def fetch(world: World) -> None:
    """A worker asks for a job."""
    base, token = world.queue(), world.token()
    options = world.fetch_options(token)
    world.take(base, options["token"], world.call(calls.move_to_active(base, at=world.now, **options)))


def finish(world: World) -> None:
    """A worker ends a job, completed or failed, mostly fetching the next."""
    end(world, world.hold())


def work_off(world: World) -> None:
    """One worker takes and ends several jobs of one queue."""
    base = world.queue()
    for _ in range(world.pick(2, 3, 4)):
        mine = [held for held in world.held if held.base == base]
        if mine:
            end(world, world.random.choice(mine))
        else:
            token = world.token()
            options = world.fetch_options(token)
            world.take(base, options["token"], world.call(calls.move_to_active(base, at=world.now, **options)))


def end(world: World, held: Held) -> None:
    outcome = world.pick("completed", "completed", "failed")
    options = {
        **world.fetch_options(held.token),
        "token": held.token,
        "keepJobs": world.pick(
            {"count": -1},
            {"count": -1},
            {"count": 0},
            {"count": 2},
            {},
            {"age": 5},
            {"age": 4.5, "count": 3},
            {"age": 0},
            *(({"age": 0, "limit": 1}, {"age": 5, "limit": 2, "count": 3}) if world.later else ()),
        ),
        "attempts": world.pick(0, 1, 2, 3),
        "maxMetricsSize": world.metrics,
        **dict.fromkeys(FLAGS, False),
    }
    update = ["failedReason", "boom", "stacktrace", '["a"]'] if outcome == "failed" and world.chance(0.9) else None
    reply = world.call(
        calls.move_to_finished(
            held.base,
            held.id,
            outcome=outcome,
            value=world.pick("null", '{"x":1}') if outcome == "completed" else world.pick("boom", ""),
            at=world.now,
            fetch=world.pick("1", "1", "0"),
            update=update,
            **options,
        )
    )
    if not isinstance(reply, int) or reply >= 0:
        world.drop(held.base, held.id)
        world.take(held.base, held.token, reply)


def retry(world: World) -> None:
    """A worker puts a failed job back at once."""
    held = world.hold()
    update = world.pick(None, ["failedReason", "x", "stacktrace", "[]"], ["tm", "t", "n", 1.5])
    push = world.pick("LPUSH", "RPUSH")
    reply = world.call(calls.retry_job(held.base, held.id, at=world.now, push=push, token=held.token, update=update))
    if reply == 0:
        world.drop(held.base, held.id)


def delay(world: World) -> None:
    """A worker puts a job off, and may ask for the next."""
    held = world.hold()
    call = calls.move_to_delayed(
        held.base,
        held.id,
        at=world.now,
        delay=str(world.pick(0, 5, 1000, 1000, 20_000, -5, 0.5)),
        token=held.token,
        skip=world.pick("0", "0", "1"),
        update=world.pick(None, ["failedReason", "x", "stacktrace", "[]"]),
    )
    if world.later and world.chance(0.6):
        call = later_calls.then_fetch(call, **(world.fetch_options(held.token) | {"token": held.token}))
    reply = world.call(call)
    if reply == 0 or isinstance(reply, list):
        world.drop(held.base, held.id)
        world.take(held.base, held.token, reply)


def give_back(world: World) -> None:
    """A worker gives a job back."""
    held = world.hold()
    reply = world.call(calls.back_to_wait(held.base, held.id, token=held.token))
    if isinstance(reply, int) and reply >= 0:
        world.drop(held.base, held.id)


def wait_for_children(world: World) -> None:
    """A worker parks a job until its children are done."""
    held = world.hold()
    if world.call(calls.move_to_waiting_children(held.base, held.id, token=held.token, at=world.now)) == 0:
        world.drop(held.base, held.id)


def locks(world: World) -> None:
    """Locks are renewed, one or many, rightly or wrongly, or let go."""
    held = world.hold()
    which = world.random.randrange(5)
    if which == 0:
        world.call(calls.extend_lock(held.base, held.id, token=held.token))
    elif which == 1 and world.chance(0.3):
        world.call(calls.release_lock(held.base, held.id, token=held.token))
    else:
        mine = [each for each in world.held if each.base == held.base][:5]
        tokens = [each.token if world.chance(0.9) else "wrong" for each in mine]
        world.call(calls.extend_locks(held.base, tokens=tokens, ids=[each.id for each in mine], duration="60000"))


def lose_lock(world: World) -> None:
    """A lock runs out."""
    if world.held:
        held = world.random.choice(world.held)
        world.plain("DEL", f"{held.base}{held.id}:lock")


def stalled(world: World) -> None:
    """A stalled check, mostly after the last one ran out."""
    base = world.queue()
    if world.chance(0.85):
        world.plain("DEL", f"{base}stalled-check")
    reply = world.call(calls.stalled_check(base, most=world.pick("0", "1", "1", "2"), at=world.now, interval="600000"))
    for id in reply if isinstance(reply, list) else ():
        world.drop(base, id.decode())


def crash(world: World) -> None:
    """A worker dies: its lock runs out between two stalled checks."""
    held = world.hold()
    world.plain("DEL", f"{held.base}stalled-check")
    world.call(calls.stalled_check(held.base, at=world.now, interval="600000"))
    for each in [each for each in world.held if each.base == held.base and world.chance(0.7)]:
        world.plain("DEL", f"{each.base}{each.id}:lock")
        if world.chance(0.8):
            world.drop(each.base, each.id)
    world.plain("DEL", f"{held.base}stalled-check")
    world.call(calls.stalled_check(held.base, most=world.pick("0", "1"), at=world.now, interval="600000"))


def pause(world: World) -> None:
    """The queue is paused or, more often, resumed."""
    call = calls.pause(world.queue(), on=world.chance(0.35))
    world.call(call if not world.later else later_calls.whole(call).with_arg(1, world.pick("1", "1", "0")))


def settings(world: World) -> None:
    """Somebody changes the queue's settings, or limits the rate by hand."""
    base = world.queue()
    commands: list[Command] = [
        ("HSET", f"{base}meta", "concurrency", world.pick("1", "2", "3", "0")),
        ("HDEL", f"{base}meta", "concurrency"),
        ("HDEL", f"{base}meta", "concurrency"),
        ("HSET", f"{base}meta", "max", world.pick("1", "3"), "duration", "600000"),
        ("HDEL", f"{base}meta", "max", "duration"),
        ("HSET", f"{base}meta", "opts.maxLenEvents", world.pick("10000", "5", "0"), "version", "bullmq:5.62.0"),
        ("SET", f"{base}limiter", "9007199254740991", "PX", 600_000),
    ]
    world.plain(*world.random.choice(commands))


def scheduler(world: World) -> None:
    """A scheduler is created or replaced, whatever its current job does."""
    base, name = world.queue(), world.pick("s1", "s1", "a:b")
    every = world.chance(0.6)
    known = {"every": world.pick(1000, 60_000, 7)} if every else {"pattern": "* * * * *"}
    world.schedulers[base, name] = known
    slot = "" if every else str((world.now // 60_000 + 1) * 60_000)
    schedule = {
        "name": "sj",
        "startDate": world.pick(None, None, world.now + 5000),
        "endDate": None,
        "tz": None,
        "pattern": known.get("pattern"),
        "every": known.get("every"),
        "limit": None,
        "offset": world.pick(None, 3, 900) if world.later and every else None,
    }
    options = {"repeat": {**known, "count": 1}, "timestamp": world.now, "jobId": f"repeat:{name}:undefined"}
    reply = world.call(
        calls.add_scheduler(
            base,
            name,
            slot=slot,
            schedule=schedule,
            data=world.pick("{}", '{"a":1}'),
            template=world.pick({}, {"attempts": 3}),
            options=options,
            at=world.now,
        )
    )
    if isinstance(reply, list):
        world.know(base, reply[0])


def scheduled_run(world: World) -> None:
    """The time of a scheduler's job comes, and a worker takes it."""
    if world.schedulers:
        base, name = world.pick(*world.schedulers)
        world.now += world.pick(1000, 60_000, 61_000)
        for _ in range(world.pick(1, 2)):
            token = world.token()
            options = world.fetch_options(token)
            world.take(base, options["token"], world.call(calls.move_to_active(base, at=world.now, **options)))
        producers = [held.id for held in world.held if held.base == base and held.id.startswith(f"repeat:{name}:")]
        if producers:
            world.advance(base, name, world.schedulers[base, name], producers[-1])


def unschedule(world: World) -> None:
    """A scheduler is read, or removed with its delayed job."""
    base, name = world.pick(*world.schedulers) if world.schedulers else (world.queue(), "s1")
    if world.chance(0.5):
        world.call(calls.get_scheduler(base, name))
    elif world.call(calls.remove_scheduler(base, name)) == 0 and world.chance(0.5):
        world.schedulers.pop((base, name), None)


def repeatable(world: World) -> None:
    """An older client stores, advances or removes a repeatable job; the one of the newer kind has a delayed job."""
    base, member = world.queue(), world.pick("m", "m", "s1")
    oldest = world.pick("n::::1000", "n::::1000", "")
    slot = world.now + world.pick(0, 1000, 5000)
    which = world.random.randrange(5)
    if which < 2:
        reply = world.call(calls.add_repeatable(base, member, oldest, slot=slot))
        if isinstance(reply, bytes) and world.chance(0.8):
            repeat = {"every": 1000, "count": 1}
            options = {"repeat": repeat, "delay": max(slot - world.now, 1), "prevMillis": slot}
            id = f"repeat:{reply.decode()}:{slot}"
            added = calls.add("addDelayedJob", base, id=id, at=world.now, options=options, scheduler=member)
            world.know(base, world.call(added))
    elif which == 2:
        world.call(calls.update_repeatable(base, member, oldest, slot=slot))
    else:
        world.call(calls.remove_repeatable(base, member, oldest))


def reads(world: World) -> None:
    """Somebody asks for counts, a state, a result, a limit."""
    base, id = world.any_job()
    which = world.random.randrange(10)
    if which == 6:
        world.call(calls.get_counts_per_priority(base, "0", "3", "1"))
    elif which == 7:
        start, end = world.pick("0", "1"), world.pick("-1", "0", "2", "-2")
        world.call(calls.get_ranges(base, start, end, *COUNTED, ascending=world.pick("0", "1")))
    elif which == 8:
        world.call(calls.is_job_in_list(base, world.pick("wait", "active", "paused"), id))
    elif which == 9:
        world.call(calls.get_metrics(base, world.pick("completed", "failed"), end=world.pick("-1", "1")))
    elif which == 0:
        world.call(calls.get_counts(base, *COUNTED))
    elif which == 1:
        world.call(calls.get_state(base, id, version="getState"))
    elif which == 2:
        world.call(calls.get_state(base, id))
    elif which == 3:
        world.call(calls.is_finished(base, id, full=world.pick("", "1")))
    elif which == 4:
        world.call(calls.rate_limit_ttl(base, world.pick("0", "0", "1", "3")))
    else:
        world.call(calls.is_maxed(base))


def edits(world: World) -> None:
    """Progress, data, logs and stack traces of a job are written."""
    base, id = world.any_job()
    which = world.random.randrange(4)
    if which == 0:
        world.call(calls.update_progress(base, id, world.pick("50", '{"a":1}', "")))
    elif which == 1:
        world.call(calls.update_data(base, id, world.pick("{}", '{"z":1}', "")))
    elif which == 2:
        world.call(calls.add_log(base, id, world.pick("row", "", "ü"), world.pick("", "", "1", "2")))
    else:
        world.call(calls.save_stacktrace(base, id))


def remove(world: World) -> None:
    """A job is removed."""
    base, id = world.any_job()
    if world.call(calls.remove_job(base, id, children=world.pick("1", "1", "0"))) == 1:
        world.drop(base, id)


def destroy(world: World) -> None:
    """A queue is destroyed, in one call or several, or the attempt is refused."""
    base = world.queue()
    if world.chance(0.8):
        world.call(calls.pause(base))
    for _ in range(world.pick(1, 3, 10)):
        if world.call(calls.obliterate(base, count=world.pick("2", "5", "1000"), force=world.pick("", "force"))) != 1:
            break


def pop_marker(world: World) -> None:
    """A worker that waited is woken."""
    world.plain("ZPOPMIN", f"{world.queue()}marker")


def expire(world: World) -> None:
    """Something with a lifetime runs out."""
    base = world.queue()
    world.plain("DEL", base + world.pick("limiter", "limiter", "de:d1", "de:d/ü", "stalled-check"))


def moves(world: World) -> None:
    """Somebody moves one job, or many."""
    which = world.random.randrange(6)
    if which == 0:
        world.call(calls.promote(*world.job_in("delayed")))
    elif which == 1:
        delay = world.pick("5", "1000", "20000")
        world.call(calls.change_delay(*world.job_in("delayed"), delay=delay, at=world.now))
    elif which == 2:
        base, id = world.job_in("wait", "prioritized", "paused", "delayed")
        world.call(calls.change_priority(base, id, priority=world.pick("0", "3", "7"), lifo=world.pick("0", "1")))
    elif which == 3:
        state, push = world.pick("failed", "completed"), world.pick("LPUSH", "RPUSH")
        call = calls.reprocess_job(*world.job_in(state), state=state, push=push)
        world.call(later_calls.resetting(call, world.pick("0", "1"), world.pick("0", "1")) if world.later else call)
    else:
        state = world.pick("failed", "completed", "delayed")
        until = "1.7976931348623157e+308" if state == "delayed" else world.now
        world.call(calls.move_jobs_to_wait(world.queue(), state=state, count=world.pick("1", "3", "1000"), until=until))


def clean(world: World) -> None:
    """Somebody cleans a state, or drains the queue."""
    base = world.queue()
    if world.chance(0.3):
        world.call(calls.drain(base, delayed=world.pick("0", "1")))
    else:
        until = world.now - world.pick(0, 1, 1000, 5000)
        world.call(calls.clean(base, state=world.pick(*COUNTED), until=until, limit=world.pick("0", "0", "1", "2")))


def families(world: World) -> None:
    """Somebody counts, pages, unties, runs again or removes the children of a job."""
    which = world.random.randrange(5)
    kind = world.pick("dependencies", "dependencies", "processed", "failed", "unsuccessful")
    parent, children = world.parent_with(kind)
    base, id = world.split(parent)
    if which == 0:
        world.call(calls.get_dependency_counts(base, id, "processed", "unprocessed", "ignored", "failed"))
    elif which == 1:
        fetch = world.pick((), ("1",))
        world.call(
            calls.paginate(f"{parent}:{kind}", world.pick("0", "1"), world.pick("-1", "1"), "0", "0", "5", *fetch)
        )
    elif which == 2:
        child = world.pick(*children, "".join(world.any_job()))
        world.call(calls.remove_child_dependency(child, parent, base))
    elif which == 3 and children:
        child_base, child_id = world.split(world.pick(*children))
        state = world.pick("failed", "completed") if kind == "dependencies" else STATE_OF.get(kind, "failed")
        world.call(calls.reprocess_job(child_base, child_id, state=state))
    else:
        world.call(calls.remove_unprocessed_children(base, id))


def newer(world: World) -> None:
    """Somebody reads jobs with their hashes, counts what is due, sweeps, or gives up a deduplication key."""
    base, id = world.any_job()
    which = world.random.randrange(5)
    if which < 2:
        start, end = world.pick("0", "1", "-2"), world.pick("-1", "0", "2")
        ascending = world.pick("0", "1")
        world.call(later_calls.get_jobs(base, start, end, *world.random.sample(COUNTED, 2), ascending=ascending))
    elif which == 2:
        world.call(later_calls.due_counts(str(world.now), base, "wait", "delayed"))
    elif which == 3:
        world.call(later_calls.remove_deduplication_key(base, "d1", id))
    else:
        states = ("active", "wait", "paused", "delayed", "prioritized", "waiting-children", "completed", "failed")
        world.call(later_calls.remove_orphans(base, states, ("logs", "lock", "processed"), id, "gone"))


RULES: tuple[tuple[Rule, float], ...] = (
    (add, 6),
    (add_flow, 2),
    (fetch, 5),
    (finish, 7),
    (work_off, 2),
    (retry, 1.2),
    (delay, 1.2),
    (give_back, 0.7),
    (wait_for_children, 0.4),
    (locks, 1.3),
    (lose_lock, 0.6),
    (stalled, 0.7),
    (crash, 0.7),
    (pause, 0.7),
    (settings, 0.8),
    (scheduler, 0.8),
    (scheduled_run, 0.8),
    (unschedule, 0.3),
    (repeatable, 0.4),
    (reads, 2),
    (edits, 1.6),
    (remove, 0.9),
    (destroy, 0.12),
    (pop_marker, 0.6),
    (expire, 0.6),
    (moves, 1.2),
    (clean, 0.25),
    (families, 0.7),
)
"""Every rule and how often it comes."""


def rules_of(bench: Bench) -> tuple[tuple[Rule, float], ...]:
    """Return the rules that the scripts of a bench have, with what came after 5.62.0 if its version does."""
    found = RULES if bench.knows("addRepeatableJob") else tuple(each for each in RULES if each[0] is not repeatable)
    return found if bench.version == "5.62.0" else (*found, (newer, 1))


def apply(world: World, rule: Rule) -> None:
    """Let some time pass, then apply a rule."""
    world.now += world.pick(0, 0, 0, 1, 1, 1, 7, 500, 500, 5000, 5000, 5000 if world.chance(0.8) else 90_000)
    rule(world)
