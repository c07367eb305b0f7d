"""Jobs as another program may have stored them, against the worker.

`python -m tests.support.hostile_jobs --adapter asyncio --cases 100000` puts them on a real server, some hundreds
in a queue, with a good job behind them that must complete. `Life` is the life of one machine without a server: hostile
hashes, replies and handlers; `python -m tests.support.hostile` runs many.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import logging
import math
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import anyio
import hiredis
import msgspec
import redis

import bullmq_anyio
import bullmq_sync
from bullmq_anyio.zones import find_zone
from bullmq_protocol import BullMQError, DelayedError, UnrecoverableError, WorkerOptions
from bullmq_protocol.command import Command, Now, Operation
from bullmq_protocol.commands.fetching import Limiter
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.units import Instant
from bullmq_protocol.errors import ConnectionLost, ServerError
from bullmq_protocol.model.failure import Failure, FailureKind, RetryPolicy, failure_of
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.net.wire import packer
from bullmq_protocol.worker.actions import Call, CancelJob, CancelWait, Notify, RunJob, Stopped, Wait
from bullmq_protocol.worker.events import (
    CallFailed,
    CloseRequested,
    Event,
    JobRaised,
    JobReturned,
    PauseRequested,
    Replied,
    ResumeRequested,
    Tick,
    WaitCancelled,
)
from bullmq_protocol.worker.machine import WorkerMachine
from bullmq_protocol.worker.manual import ManualWork, Taken
from bullmq_protocol.worker.notices import JobCompleted, WorkerProblem
from bullmq_protocol.worker.typed import CommandCall, CommandWait
from tests.support import servers

ADAPTERS: Final = ("asyncio", "trio", "threads")
IN_A_QUEUE: Final = 500
PATIENCE_S: Final = 120.0
_START = 1_700_000_000_000
_pack_command: Any = hiredis.pack_command
_pack = packer(_pack_command)

_NUMBERS: Final = (
    *("0", "-0", "1", "-1", "2", "0.5", "1.5", "-2.5", "1e16", "1e21", "1e300", "-1e300", "5e-324", "1e400", "-1e400"),
    *("1.7976931348623157e+308", "-1.7976931348623157e+308", "9007199254740991", "9007199254740993"),
    *("18446744073709551616", "-9223372036854775809", "1" + "0" * 400, "9" * 5000, "2147483648", "1700000000000"),
)
_VALUES: Final = (
    *("null", "true", "false", '""', '"x"', '"5"', '"-1"', '"\\ud800"', '"\\u0000"', "[]", "{}", "[1]", '{"a":1}'),
    *("[null]", '"2026-11-28"', '"0001-01-01T00:00:00+23:59"', '"9999-12-31T23:59:59-23:59"', '"NaN"', '"Infinity"'),
    *(
        '"fixed"',
        '"exponential"',
        '"custom"',
        '"* * * * *"',
        '"*/5 * * * * *"',
        '"0 0 31 2 *"',
        '"0x' + "f" * 400 + '"',
    ),
    *('"UTC"', '"UTC+99"', '"Europe/Berlin"', '"../etc/passwd"', '"local"', '"' + "/" * 300 + '"', "[" * 60 + "]" * 60),
    *('{"__proto__":{"attempts":3}}', '"' + "x" * 5000 + '"', '"* * * * L"', '"1-1/0 * * * *"', '"😀"'),
)
_TEXTS: Final = (
    *(b"", b"0", b"-1", b"x", b"\xff\xfe", b"\x00", b"\xed\xa0\x80", b"null", b"true", b"{}", b"[]", b'""', b"{bad"),
    *(b"1e999", b"NaN", b"-inf", b"Infinity", b"1.7976931348623157e+308", b"1e300", b"10000000000000000", b" 7 "),
    *(b"9" * 400, b"-" + b"9" * 308, b"9" * 5000, b"0x10", b"\xd9\xa3", b"1_000", b"2026-11-28", b"bull:q:1"),
    *(b"a:b:c:d", b"a:b:c:d:e", b'"\\ud800"', b"[1e999]", b'["\xff"]', b"[99999999999999999999,1e300,null,{}]"),
    *(b'{"id":5,"queueKey":[]}', b'{"id":"p","queueKey":"bull:q","fpof":1}', b"7", b'"text"', b"\xf0\x9f\x98\x80"),
    *(b"[" * 900 + b"]" * 900, b"[" * 3000 + b"]" * 3000, b'{"a":' * 200 + b"1" + b"}" * 200),
)
_DEEP: Final = (b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b"x" * 1_000_000, b'{"x":"' + b"y" * 1_000_000 + b'"}')
_OPTIONS: Final = (
    *("attempts", "backoff", "delay", "priority", "lifo", "timestamp", "jobId", "parent", "removeOnComplete"),
    *("removeOnFail", "kl", "stackTraceLimit", "sizeLimit", "repeat", "prevMillis", "repeatJobKey", "de", "fpof"),
    *("cpof", "idof", "rdof", "tm", "omc", "xyz", "__proto__", "0"),
)
_MEMBERS: Final = {
    "backoff": ("type", "delay", "jitter", "maxDelay", "x"),
    "removeOnComplete": ("count", "age", "limit", "x"),
    "removeOnFail": ("count", "age", "limit", "x"),
    "parent": ("id", "queue", "x"),
    "de": ("id", "ttl", "extend", "replace", "keepLastIfActive"),
    "repeat": (
        *("every", "pattern", "cron", "tz", "utc", "limit", "count", "offset", "startDate", "endDate", "immediately"),
        *("key", "jobId", "nthDayOfWeek", "x"),
    ),
}
_FIELDS: Final = (
    *("name", "data", "opts", "timestamp", "delay", "priority", "processedOn", "finishedOn", "ats", "atm", "stc"),
    *("attemptsMade", "failedReason", "stacktrace", "returnvalue", "progress", "parent", "parentKey", "rjk", "nrjid"),
    *("deid", "defa", "tm", "pb", "xyz", ""),
)
_DATA: Final = (
    *(
        "return",
        "fail",
        "fail",
        "unrecoverable",
        "moved",
        "group",
        "object",
        "none",
        "system",
        "cancelled",
        "surrogate",
    ),
)


class Hashes:
    """Makes the hashes of jobs: a good one with one field changed, two, some, or all."""

    def __init__(self, rolls: random.Random) -> None:
        self._rolls = rolls

    def hash(self) -> dict[bytes, bytes]:
        rolls = self._rolls
        found: dict[bytes, bytes] = {
            b"name": b"n",
            b"data": json.dumps({"do": rolls.choice(_DATA)}).encode(),
            b"opts": b"{}",
            b"timestamp": b"1700000000000",
            b"delay": b"0",
            b"priority": b"0",
        }
        count = rolls.choice((1, 1, 1, 2, 2, 2, 3, 6, len(_FIELDS)))
        for field in rolls.sample(_FIELDS, count):
            found[field.encode()] = self.value(field)
        if rolls.random() < 0.5:
            # By far the most is decided by the options.
            found[b"opts"] = self.options()
        if rolls.random() < 0.15:
            found[b"rjk"] = rolls.choice((b"s", b"a:b:c:d:e", b"\xff", b""))
        for name in rolls.sample(list(found), rolls.choice((0, 0, 0, 1, 2))):
            del found[name]
        return found or {b"xyz": b""}

    def value(self, field: str) -> bytes:
        rolls = self._rolls
        if rolls.random() < 0.002:
            return rolls.choice(_DEEP)
        if field == "opts" and rolls.random() < 0.8:
            return self.options()
        if rolls.random() < 0.3:
            return rolls.choice(_NUMBERS).encode()
        if rolls.random() < 0.2:
            return rolls.choice(_VALUES).encode()
        return rolls.choice(_TEXTS)

    def options(self) -> bytes:
        rolls = self._rolls
        names = rolls.sample(_OPTIONS, rolls.choice((1, 1, 1, 2, 2, 3, 8)))
        return self._object(names, self._option)

    def _object(self, names: list[str], value: Callable[[str], str]) -> bytes:
        return ("{" + ",".join(f'"{name}":{value(name)}' for name in names) + "}").encode()

    def _option(self, name: str) -> str:
        rolls = self._rolls
        members = _MEMBERS.get(name)
        if members is None or rolls.random() < 0.3:
            return self._scalar(name)
        chosen = rolls.sample(members, rolls.randrange(1, min(len(members), 5) + 1))
        return self._object(chosen, self._scalar).decode()

    def _scalar(self, name: str) -> str:
        rolls = self._rolls
        if name == "attempts" and rolls.random() < 0.5:
            # Such that there is a retry.
            return rolls.choice(("2", "3", "1e16", "1.7976931348623157e+308"))
        if name == "type" and rolls.random() < 0.7:
            return rolls.choice(('"fixed"', '"exponential"', '"custom"'))
        return rolls.choice(_NUMBERS if rolls.random() < 0.6 else _VALUES)

    def error(self) -> BaseException:
        """Return what a handler may raise."""
        rolls = self._rolls
        text = rolls.choice(("", "boom", "\ud800", "x" * 100_000, "0", "\x00", "ReplyError: ERR", "OOM"))
        made: BaseException = rolls.choice(
            (
                RuntimeError(text),
                KeyError(text),
                OSError(10**30, text),
                UnrecoverableError(text),
                ExceptionGroup("g", [ValueError(text), DelayedError()]),
                _Unprintable(),
                MemoryError(),
                StopIteration(text),
                TimeoutError({}),
            )
        )
        if rolls.random() < 0.2:
            made.__cause__ = made
        return made


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    @property
    def status_code(self) -> int:
        raise ValueError


def look_at(job: Any) -> None:
    """Look at all that a job or its record offers; what is no value is a `BullMQError`."""
    for name in dir(type(job)):
        if not name.startswith("_") and not callable(getattr(type(job), name, None)):
            try:
                getattr(job, name)
            except BullMQError:
                continue


# --- the machine alone ------------------------------------------------------------------------------------------------


class Life:
    """A machine, and a driver that tells it anything. `live` raises where a rule is broken."""

    STEPS = 12

    def __init__(self, rolls: random.Random) -> None:
        self._rolls = rolls
        self._hashes = Hashes(rolls)
        self._mono = 1_000
        self._wall = _START
        self._calls: dict[int, Call] = {}
        self._wait: CommandWait | None = None
        self._handlers: dict[int, RunJob] = {}
        self._stopped = False
        self._ids = itertools.count(1)
        self.settings, _ = WorkerOptions(
            concurrency=rolls.choice((1, 1, 2, 5)),
            max_backoff_delay=rolls.choice((None, 3_600_000)),
            extra_jitter=rolls.choice((None, 0.2, 1.0)),
            retry_policy=rolls.choice(tuple(RetryPolicy)),
            max_started_attempts=rolls.choice((None, 3)),
            limiter=rolls.choice((None, Limiter(max=1, duration=1_000))),
            cancel_on_lost_lock=rolls.random() < 0.5,
            shutdown_timeout=rolls.choice((0, 1_000)),
            name=rolls.choice((None, "name")),
        ).checked(zones=find_zone)
        self._machine = WorkerMachine(QueueKeys.of("q"), self.settings, "w", batches=rolls.random() < 0.5)

    def live(self) -> int:
        """Live to the end; return the number of events."""
        rolls, steps = self._rolls, 0
        self._do(self._machine.start(self._at()))
        while steps < self.STEPS:
            steps += 1
            self._happen()
            if rolls.random() < 0.3:
                self._mono += rolls.choice((1, 100, 10_000, 10**12))
                self._wall += rolls.choice((-(10**9), 0, 10_000, 10**12))
        self._tell(CloseRequested(rolls.random() < 0.5))
        while not self._stopped:
            steps += 1
            if steps > 40 * self.STEPS:
                raise AssertionError(f"does not end: {self._machine.snapshot()} {self._calls}")
            self._end()
        held = (self._calls, self._wait, self._machine.running_jobs, self._machine.deadline())
        if any(held):
            raise AssertionError(f"a stopped machine holds {held}")
        return steps

    def _at(self) -> Instant:
        return Instant(self._wall, self._mono)

    def _tell(self, *events: Event) -> None:
        self._do(self._machine.handle_all(events, self._at()))
        msgspec.json.encode(self._machine.snapshot())
        self._machine.deadline()

    def _do(self, actions: list[Any]) -> None:
        if self._stopped and actions:
            raise AssertionError(f"a stopped machine says {actions}")
        for action in actions:
            match action:
                case Call(ticket, command):
                    _pack(command.wire())
                    self._calls[ticket] = action
                case Wait():
                    if self._wait is not None:
                        raise AssertionError("listens twice")
                    self._wait = action
                case RunJob(run):
                    look_at(action.job)
                    self._handlers[run] = action
                case Notify(WorkerProblem(exception=Exception() as error)):
                    raise error
                case Stopped():
                    self._stopped = True
                case CancelJob() | CancelWait() | Notify() | _:
                    pass

    def _happen(self) -> None:
        rolls = self._rolls
        roll = rolls.random()
        if self._handlers and roll < 0.4:
            run = rolls.choice(list(self._handlers))
            del self._handlers[run]
            self._tell(self.outcome(run))
        elif self._calls and roll < 0.85:
            call = self._calls.pop(rolls.choice(list(self._calls)))
            self._tell(self._answer(call))
        elif self._wait is not None and roll < 0.95:
            wait, self._wait = self._wait, None
            ticket = wait.ticket
            self._tell(WaitCancelled(ticket) if rolls.random() < 0.2 else Replied(ticket, self._marker()))
        else:
            self._tell(rolls.choice((Tick(rolls.random()), Tick(0.5), PauseRequested(), ResumeRequested())))

    def outcome(self, run: int) -> JobReturned | JobRaised:
        """Return how a handler may end."""
        rolls = self._rolls
        if rolls.random() < 0.4:
            return JobReturned(run, rolls.choice(("null", "{}", "[" * 500 + "]" * 500, '"\\ud800"', '"é"')))
        failure = failure_of(
            self._hashes.error(), stack=rolls.choice(("", "at", "\ud800", "x" * 10_000)), now_ms=_START
        )
        if rolls.random() < 0.2:
            kind = rolls.choice(tuple(FailureKind))
            wait = rolls.choice((None, 0, 10**18, 10**400))
            failure = Failure(kind=kind, message=rolls.choice((None, "", "m")), retry_after_ms=wait, explicit=True)
        delays = (None, None, 0.0, -1, float("nan"), float("inf"), float("-inf"), 1e308, 10**400, -5.5)
        return JobRaised(
            run,
            failure,
            roll=rolls.random(),
            strategy_delay_ms=rolls.choice(delays),
            strategy_error=rolls.choice((None, None, "\ud800 no", "")),
            telemetry=rolls.choice((None, None, "\ud800", "t")),
        )

    def _answer(self, call: CommandCall) -> Event:
        rolls, ticket = self._rolls, call.ticket
        roll = rolls.random()
        if roll < 0.05:
            return CallFailed(ticket, "lost", lost=True, maybe_applied=rolls.random() < 0.5, roll=rolls.random())
        if roll < 0.1:
            text = rolls.choice(("ERR no", "OOM", "WRONGTYPE", "", "NOPERM", "\ud800"))
            return CallFailed(ticket, text, lost=False, code=text)
        return Replied(ticket, self._reply(call.command))

    def reply_to(self, step: Any) -> Any:
        """Return a reply to a step of an operation, or raise."""
        _pack(step.wire())
        if step.name == "BZPOPMIN":
            return self._marker()
        if self._rolls.random() < 0.05:
            raise self._rolls.choice((ServerError("ERR no"), ConnectionLost("lost", maybe_applied=True)))
        return self._reply(step)

    def _reply(self, command: Command[Any]) -> Any:
        rolls = self._rolls
        if rolls.random() < 0.1:
            scalars: tuple[Any, ...] = (
                *(None, 0, -1, -2, -3, -4, -6, -9, -99, 10**30, 2**63, b"x", b"", True, 0.5, [], [0], {}, "text"),
                *([[], [], [], []], [0, 0, 2**62, 2**62], [0, 0, b"inf", b"nan"], [b"a"] * 7, ServerError("ERR x")),
            )
            return rolls.choice(scalars)
        match command.name:
            case "moveToActive" | "moveToFinished":
                return self._fetched()
            case "fetchMany":
                return [self._fetched() for _ in range(rolls.randrange(1, 4))]
            case "moveStalledJobsToWait" | "extendLocks":
                return rolls.choice(([], [b"1"], [b"\xff"], [b"1", b"1", b"none"]))
            case "updateJobScheduler" | "updateRepeatableJobMillis":
                return rolls.choice((None, b"id", b"\xff:\xff", b"a:b:c:d", b""))
            case _:
                return rolls.choice((0, 1, b"PONG", -1, 2**53))

    def _marker(self) -> Any:
        score = self._rolls.choice((*_NUMBERS, "inf", "-inf", "nan", "x")).encode()
        return self._rolls.choice((None, [b"k", b"1", score], [b"k", b"1", score], [b"k"], 7))

    def _fetched(self) -> Any:
        rolls = self._rolls
        if rolls.random() < 0.2:
            return [0, 0, rolls.choice((0, 0, 150, 2**62)), rolls.choice((0, self._wall + 5, 2**62, -(2**63)))]
        flat: list[Any] = []
        for field, value in self._hashes.hash().items():
            flat += [field, value]
        job_id = rolls.choice((b"%d" % next(self._ids), b"%d" % next(self._ids), b"", b"\xff", b"a:b"))
        return [flat, job_id, 0, 0]

    def _end(self) -> None:
        """Answer what is owed in peace, so that the machine can come to its end."""
        self._mono += 500
        self._wall += 500
        for ticket, call in list(self._calls.items()):
            del self._calls[ticket]
            self._tell(Replied(ticket, [] if call.command.name in ("moveStalledJobsToWait", "extendLocks") else 0))
        if self._wait is not None:
            wait, self._wait = self._wait, None
            self._tell(WaitCancelled(wait.ticket))
        for run in list(self._handlers):
            del self._handlers[run]
            self._tell(JobReturned(run, "null"))
        if not self._stopped:
            self._tell(Tick(0.5))


def read_hash(fields: dict[str, bytes]) -> JobRecord:
    """Return a record after its methods were called, too."""
    record = JobRecord.from_fields("1", fields)
    for method in (lambda: record.data_as(dict[str, int]), lambda: record.returnvalue_as(int), record.without_parent):
        with contextlib.suppress(BullMQError):
            look_at(method())
    look_at(record)
    return record


def work_manually(seed: int) -> int:
    """Fetch and finish hostile jobs by hand; return the number of steps. Raises what is no `BullMQError`."""
    rolls = random.Random(seed)
    life = Life(rolls)
    work = ManualWork(QueueKeys.of("q"), life.settings)
    job, steps = JobRecord("1", read_fields(Hashes(rolls).hash())), 0
    for _ in range(4):
        outcome = life.outcome(1)
        operation: Operation[Taken] = rolls.choice(
            (
                work.next_job("w:1"),
                work.complete(job, "w:1", "null", fetch_next=True),
                work.next_job("w:1", block=False)
                if isinstance(outcome, JobReturned)
                else work.fail(
                    job,
                    "w:1",
                    outcome.failure,
                    roll=outcome.roll,
                    strategy_delay=outcome.strategy_delay_ms,
                    strategy_error=outcome.strategy_error,
                    telemetry=outcome.telemetry,
                    fetch_next=True,
                ),
            )
        )
        answer: Any = None
        with contextlib.suppress(BullMQError, StopIteration):
            while True:
                step = operation.send(answer)
                steps += 1
                answer = Instant(_START, steps) if isinstance(step, Now) else life.reply_to(step)
    return steps


def read_fields(found: dict[bytes, bytes]) -> dict[str, bytes]:
    """Return a hash with its names as the library reads them."""
    return {name.decode("utf-8", "surrogateescape"): value for name, value in found.items()}


# --- real servers -----------------------------------------------------------------------------------------------------


def _never(*_: object) -> float:
    return math.inf


def _hostile_delay(attempt: int, *_: object) -> Any:
    return (math.nan, "x", -math.inf, 10**400, None)[attempt % 5]


class Round:
    """Hostile jobs in a queue, and a good one behind them."""

    def __init__(self, server: servers.Server, name: str, rolls: random.Random, cases: int) -> None:
        self.name = name
        self.url = server.url
        self.good = threading.Event()
        self.faults: list[BaseException] = []
        self.looked = 0
        """Jobs that a handler was given."""
        self.options = WorkerOptions(
            concurrency=rolls.choice((1, 10, 50)),
            drain_delay=1,
            skip_stalled_check=True,
            retry_policy=rolls.choice(tuple(RetryPolicy)),
            shutdown_timeout=0,
        )
        self.strategy = rolls.choice((None, _never, _hostile_delay))
        self._errors = Hashes(rolls)
        keys = QueueKeys.of(name)
        with redis.Redis.from_url(server.url) as client:
            client.flushall()
            pipe = client.pipeline(transaction=False)
            for number in range(cases):
                found = self._errors.hash()
                if rolls.random() < 0.98:
                    # One that the fetch itself meets an error with costs its queue 100 ms.
                    found[b"ats"] = b"0"
                mapping: Any = found
                pipe.hset(keys.job(f"h{number}"), mapping=mapping)
                pipe.lpush(keys.wait, f"h{number}")
            pipe.hset(keys.job("good"), mapping={"name": "good", "data": "{}", "opts": "{}", "timestamp": 1})
            pipe.lpush(keys.wait, "good")
            pipe.zadd(keys.marker, {"0": 0, "1": rolls.choice((1.0, float("inf")))})
            pipe.execute()

    def work(self, job: Any) -> Any:
        """Do what the job says, as far as it says anything."""
        look_at(job)
        self.looked += 1
        do = job.data.get("do") if isinstance(job.data, dict) else None
        match do:
            case "return":
                return {"a": [1, "é", None]}
            case "fail" | "unrecoverable" | "group":
                raise self._errors.error()
            case "moved":
                raise DelayedError
            case "object":
                return object()
            case "surrogate":
                return "\ud800"
            case _:
                return None

    def noticed(self, notice: Any) -> None:
        if isinstance(notice, WorkerProblem):
            if notice.exception is not None:
                self.faults.append(notice.exception)
        elif notice.job.name == "good":
            self.good.set()


def run_round(adapter: str, made: Round) -> None:
    """Work a round off. Raises what `run()` raises, and where the good job does not complete."""
    if adapter == "threads":
        _in_threads(made)
    else:
        anyio.run(_in_tasks, made, backend=adapter)
    if made.faults:
        raise made.faults[0]


async def _in_tasks(made: Round) -> None:
    async def work(job: Any) -> Any:
        return made.work(job)

    worker: bullmq_anyio.Worker[Any] = bullmq_anyio.Worker(
        made.name, work, made.url, options=made.options, backoff_strategy=made.strategy
    )
    worker.on(JobCompleted, made.noticed)
    worker.on(WorkerProblem, made.noticed)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            while not made.good.is_set():
                await anyio.sleep(0.005)
            await worker.aclose()


def _in_threads(made: Round) -> None:
    worker: bullmq_sync.Worker[Any] = bullmq_sync.Worker(
        made.name, made.work, made.url, options=made.options, backoff_strategy=made.strategy
    )
    worker.on(JobCompleted, made.noticed)
    worker.on(WorkerProblem, made.noticed)
    raised: list[BaseException] = []

    def run() -> None:
        try:
            worker.run()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    limit = time.monotonic() + PATIENCE_S
    while not made.good.wait(0.05) and thread.is_alive() and time.monotonic() < limit:
        pass
    worker.close()
    thread.join()
    if raised:
        raise raised[0]
    if not made.good.is_set():
        raise AssertionError(f"{made.name}: the good job did not complete")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.hostile_jobs")
    parser.add_argument("--adapter", choices=ADAPTERS, default="asyncio")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--source", default="redis-6.2")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    begun, done = time.monotonic(), 0
    with servers.start(given.source) as server:
        for number in itertools.count():
            cases = min(IN_A_QUEUE, given.cases - done)
            if cases <= 0:
                break
            seed = given.seed + number
            try:
                run_round(given.adapter, Round(server, f"hostile{number}", random.Random(seed), cases))
            except BaseException as error:
                error.add_note(f"round with --seed {seed} --cases {cases}")
                raise
            done += cases
    sys.stdout.write(
        f"{given.adapter}: {done} hostile jobs in {number} queues, the good job behind them completed in each; "
        f"{time.monotonic() - begun:.0f} s\n"
    )


if __name__ == "__main__":
    main()
