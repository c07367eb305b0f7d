"""Hostile replies and payloads against every decoder: `python -m tests.support.hostile --cases 100000 --seed 1`.

Each family of decoders takes each case as a value or refuses it with a `BullMQError`, within `LIMIT_MS` of processor
time and `LIMIT_MB` of memory.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import hiredis
import msgspec

from bullmq_protocol.command import Batch
from bullmq_protocol.commands.batches import add_many, fetch_many, finish_many
from bullmq_protocol.common.codec import parse_json
from bullmq_protocol.errors import BullMQError, ServerError, script_error
from bullmq_protocol.events.stream import RawEntry, read_entry
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.net.server_info import read_server_info
from bullmq_protocol.net.topology import explained, read_master, read_redirect, read_sentinel, read_slots
from tests.support import vectors
from tests.support.building import build
from tests.support.hostile_jobs import Hashes, Life, read_fields, read_hash, work_manually
from tests.unit.test_command_table import KEYS, PLAIN, SAMPLES, WITHOUT_KEYS

LIMIT_MS = 100.0
LIMIT_MB = 64.0
DEPTH = 100_000
_NOTHING = object()
_NUMBERS: tuple[Any, ...] = (
    *(0, -1, 1, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**30, -0.0, 0.5, 1e308, float("inf"), float("nan")),
)
_TEXTS: tuple[bytes, ...] = (
    *(
        b"",
        b"0",
        b"-1",
        b"1e999",
        b"NaN",
        b"-inf",
        b"Infinity",
        b"\x00",
        b"a\x00b",
        b"\xed\xa0\x80",
        b"\xff\xfe",
        b" 1 ",
    ),
    *(
        b"9" * 5000,
        b"0x10",
        b"1_000",
        b"\xd9\xa3",
        b"null",
        b"true",
        b"{}",
        b"[]",
        b'""',
        b'"\\ud800"',
        b'{"a":1,"a":2}',
    ),
    *(b'{"__proto__":{}}', b"[1e999]", b'{"', b"[" * DEPTH, b"{" * 1000, b'{"a":' * DEPTH, b"[" * 900 + b"]" * 900),
    *(b'{"attempts":1e400}', b'{"backoff":{"type":[],"delay":{}}}', b'{"repeat":{"every":null}}', b"x" * 1_000_000),
    *(
        b"1-1",
        b"18446744073709551616-0",
        b"-",
        b"*",
        b"bull:q:1",
        b"a:b:c:d",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
    ),
    *(
        b"redis_version:" + b"9" * 4400,
        b"id=1 name=a\nname=",
        b"name=" + b"=" * 100,
        b"MOVED x y",
        b"ASK -1 :0",
        b"ERR",
    ),
)


class Worst(NamedTuple):
    ms: float
    case: str


class Outcome(NamedTuple):
    """What a family did: how many cases were values, how many refused, and the slowest; memory of the whole family."""

    family: str
    cases: int
    values: int
    refused: int
    worst: Worst
    grown_mb: float


class Hostile:
    """Makes replies, from nothing and out of real ones."""

    def __init__(self, rolls: random.Random) -> None:
        self._rolls = rolls

    def text(self) -> bytes:
        rolls = self._rolls
        chosen = rolls.choice(_TEXTS)
        if rolls.random() < 0.3 and len(chosen) < 1000:
            mixed = bytearray(chosen + rolls.choice(_TEXTS)[:50])
            for _ in range(rolls.randrange(3)):
                if mixed:
                    mixed[rolls.randrange(len(mixed))] = rolls.randrange(256)
            return bytes(mixed)
        return chosen

    def scalar(self) -> Any:
        roll = self._rolls.random()
        if roll < 0.6:
            return self.text()
        if roll < 0.85:
            return self._rolls.choice(_NUMBERS)
        return self._rolls.choice((None, True, False, "text", "\ud800", ServerError("ERR no")))

    def reply(self, depth: int = 0) -> Any:
        rolls = self._rolls
        if depth < 4 and rolls.random() < 0.4:
            return [self.reply(depth + 1) for _ in range(rolls.randrange(6))]
        if depth < 4 and rolls.random() < 0.1:
            return {self.text(): self.reply(depth + 1) for _ in range(rolls.randrange(4))}
        if rolls.random() < 0.01:
            deep: Any = []
            for _ in range(rolls.choice((10, 500, 5000))):
                deep = [deep]
            return deep
        return self.scalar()

    def mutated(self, reply: Any) -> Any:
        """Change one place of a reply, sometimes several."""
        for _ in range(self._rolls.choice((1, 1, 1, 2, 5))):
            reply = self._changed(reply)
        return reply

    def _changed(self, reply: Any) -> Any:
        rolls = self._rolls
        if isinstance(reply, list) and reply and rolls.random() < 0.85:
            items: list[Any] = list(reply)
            place = rolls.randrange(len(items))
            match rolls.randrange(8):
                case 0:
                    del items[place]
                case 1:
                    items.insert(place, self.scalar())
                case 2:
                    items[place] = items[rolls.randrange(len(items))]
                case _:
                    items[place] = self._changed(items[place])
            return items
        if isinstance(reply, bytes) and reply and rolls.random() < 0.4:
            torn = bytearray(reply)
            torn[rolls.randrange(len(torn))] = rolls.randrange(256)
            return bytes(torn[: rolls.randrange(len(torn) + 1)]) if rolls.random() < 0.3 else bytes(torn)
        return self.reply()

    def fields(self) -> dict[str, bytes]:
        """Return the hash of a job."""
        names = ("name", "data", "opts", "timestamp", "delay", "priority", "processedOn", "finishedOn", "ats", "atm")
        more = ("attemptsMade", "stc", "failedReason", "stacktrace", "returnvalue", "progress", "parent", "parentKey")
        last = ("rjk", "nrjid", "deid", "defa", "id", "tm", "pb", "\ud800", "")
        chosen = self._rolls.sample((*names, *more, *last), self._rolls.randrange(1, 12))
        return {name: self.text() for name in chosen}

    def wire(self) -> bytes:
        """Return bytes that are almost RESP."""
        rolls = self._rolls
        # hiredis makes room for as many elements as an array declares: see docs/security.md.
        lengths = (b"-1", b"0", b"1", b"3", b"100000", b"-5", b"18446744073709551617", b"x")
        parts = [
            rolls.choice(
                (b"*", b"$", b"+", b"-", b":", b"%", b"~", b">", b"_", b"#", b",", b"(", b"=", b"|", b"!", b"?")
            )
            + rolls.choice((*lengths, self.text()[:5]))
            + rolls.choice((b"\r\n", b"\n", b"", b"\r"))
            for _ in range(rolls.randrange(1, 8))
        ]
        return b"".join(parts) if rolls.random() < 0.98 else b"*1\r\n" * rolls.choice((8, 500, 50_000))


def _touch(value: object, depth: int = 0) -> None:
    """Look at everything a value offers, as it is decoded lazily."""
    if depth > 6:
        return
    if isinstance(value, (list, tuple)):
        for item in value:
            _touch(item, depth + 1)
        return
    if isinstance(value, Mapping):
        for item in value.values():
            _touch(item, depth + 1)
        return
    if not isinstance(value, msgspec.Struct):
        return
    for name in dir(type(value)):
        if name.startswith("_"):
            continue
        try:
            found = getattr(value, name)
        except BullMQError:
            continue
        if not callable(found) and name not in ("data", "returnvalue", "progress"):
            _touch(found, depth + 1)


def unread(reply: Any) -> Any:
    """Return a vector's reply as it came from the server."""
    if isinstance(reply, str) or (isinstance(reply, dict) and set(reply) == {"base64"}):
        return vectors.raw(reply)
    if isinstance(reply, dict):
        return [unread(part) for pair in reply.items() for part in pair]
    if isinstance(reply, list):
        return [unread(each) for each in reply]
    return reply


Decoder = tuple[Callable[[Any], Any], list[Any]]


def _scripts() -> list[Decoder]:
    """Return the decoders of all scripts, with replies of real servers."""
    found: list[Decoder] = []
    for name in vectors.scripts():
        known = [
            each for each in vectors.load(name) if not (isinstance(each["reply"], dict) and "error" in each["reply"])
        ]
        command = build(name, next(each["inputs"] for each in vectors.load(name) if each["inputs"] is not None))
        found.append((command.decode, [unread(each["reply"]) for each in known] or [0]))
    adds = [build("addStandardJob", vectors.load("addStandardJob")[0]["inputs"]) for _ in range(2)]
    ends = [build("moveToFinished", vectors.load("moveToFinished")[0]["inputs"]) for _ in range(2)]
    job = [unread(each["reply"]) for each in vectors.load("moveToActive")][:20]
    found.append((add_many(KEYS, adds).decode, [[b"1", b"2"], [b"1", -5]]))
    found.append((finish_many(KEYS, ends).decode, [job[:2], [0, -1]]))
    found.append((fetch_many(KEYS, tokens=("a", "b"), lock_ms=1, now=1).decode, [job[:2], [0]]))
    return found


def _plain() -> list[Decoder]:
    """Return the decoders of all commands that are no script."""
    found: list[Decoder] = []
    for made in plain_commands():
        commands = made.commands if isinstance(made, Batch) else (made,)
        found += [(command.decode, [1, b"1", [b"a", b"b"], [[b"1", b"2"], 3]]) for command in commands]
    return found


def families(rolls: random.Random) -> dict[str, Callable[[], tuple[Callable[[Any], Any], Any]]]:
    """Return, per family, what gives the next case: a function and what it is given."""
    hostile, hashes = Hostile(rolls), Hashes(rolls)
    scripts, plain = _scripts(), _plain()

    def replies() -> tuple[Callable[[Any], Any], Any]:
        decode, known = rolls.choice(scripts)
        return decode, hostile.reply() if rolls.random() < 0.2 else hostile.mutated(rolls.choice(known))

    def getters() -> tuple[Callable[[Any], Any], Any]:
        decode, known = rolls.choice(plain)
        return decode, hostile.reply() if rolls.random() < 0.7 else hostile.mutated(rolls.choice(known))

    def entries() -> tuple[Callable[[Any], Any], Any]:
        names = (b"event", b"jobId", b"prev", b"data", b"returnvalue", b"delay", b"count", b"attemptsMade")
        events = (b"completed", b"progress", b"delayed", b"cleaned", b"retries-exhausted", b"added", b"failed")
        fields: list[Any] = [b"event", rolls.choice(events)]
        for name in rolls.sample(names[1:], rolls.randrange(7)):
            fields += [name, hostile.text()]
        given = hostile.mutated(fields) if rolls.random() < 0.5 else fields
        return read_entry, RawEntry(rolls.choice(("1-1", "x", "9" * 5000, "-")), given)

    def payloads() -> tuple[Callable[[Any], Any], Any]:
        kind: Any = rolls.choice((Any, int, list[int], dict[str, float], str, list[Any]))
        return lambda text: parse_json(text, kind), hostile.text()

    def wire() -> tuple[Callable[[Any], Any], Any]:
        return _read_wire, hostile.wire()

    def servers() -> tuple[Callable[[Any], Any], Any]:
        text = hostile.text().decode("utf-8", "surrogateescape")
        place = ("h", 1)
        match rolls.randrange(7):
            case 0:
                return read_server_info, text
            case 1:
                return lambda reply: read_slots(reply, place), hostile.mutated([[0, 16383, [b"h", 1, b"id"]]])
            case 2:
                return read_master, hostile.mutated([b"h", b"6379"])
            case 6:
                state = [b"config-epoch", b"1"]
                replica = [b"ip", b"h", b"port", b"1", b"flags", b"slave,promoted"]
                return read_sentinel, (
                    hostile.mutated([b"h", b"6379"]),
                    hostile.mutated(state),
                    [hostile.mutated(replica)],
                )
            case 3:
                return lambda given: read_redirect(ServerError(given), place), rolls.choice(
                    ("MOVED 1 ", "ASK ", "")
                ) + text
            case 4:
                return lambda given: explained(ServerError(given)), f"MOVED {text}"
            case _:
                return lambda code: script_error(code, "s"), rolls.choice((-1, -2, -99, 0, -(10**30)))

    return {
        "replies of scripts": replies,
        "replies of plain commands": getters,
        "hashes of jobs": lambda: (lambda fields: JobRecord.from_fields("1", fields), hostile.fields()),
        "jobs that another program stored": lambda: (read_hash, read_fields(hashes.hash())),
        "lives of a worker with such jobs": lambda: (
            lambda seed: Life(random.Random(seed)).live(),
            rolls.getrandbits(64),
        ),
        "such jobs by hand": lambda: (work_manually, rolls.getrandbits(64)),
        "entries of the event stream": entries,
        "JSON payloads": payloads,
        "RESP": wire,
        "INFO, sentinels, slots, redirections, script errors": servers,
    }


def _read_wire(payload: bytes) -> None:
    """Read as the native connection does."""
    reader = hiredis.Reader(protocolError=_Torn, replyError=ServerError, notEnoughData=_NOTHING)
    try:
        reader.feed(payload)
        for _ in range(20):
            if reader.gets() is _NOTHING:
                return
    except (TypeError, MemoryError) as error:
        raise _Torn(str(error)) from None


class _Torn(BullMQError):
    pass


def attack(family: str, following: Callable[[], tuple[Callable[[Any], Any], Any]], cases: int) -> Outcome:
    """Run the cases of a family. Raises whatever is no `BullMQError`, with the case in a note."""
    values = refused = 0
    worst = Worst(0.0, "")
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(cases):
        read, given = following()
        begun = time.process_time()
        try:
            _touch(read(given))
            values += 1
        except BullMQError:
            refused += 1
        except BaseException as error:
            error.add_note(f"{family}: {shown(given)}")
            raise
        spent = (time.process_time() - begun) * 1000
        if spent > worst.ms:
            worst = Worst(spent, shown(given))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return Outcome(family, cases, values, refused, worst, grown)


def shown(given: object) -> str:
    try:
        text = repr(given)
    except RecursionError:
        text = f"a {type(given).__name__}, nested"
    return text if len(text) < 300 else f"{text[:300]}... ({len(text)} characters)"


def run(cases: int, seed: int) -> Iterator[Outcome]:
    rolls = random.Random(seed)
    for family, following in families(rolls).items():
        yield attack(family, following, cases)


def plain_commands() -> list[Any]:
    """Build every command that is no script."""
    made: list[Any] = []
    for name in PLAIN:
        (path,) = vectors.table()[name]["builders"]
        module, _, function = path.partition(".")
        builder = getattr(importlib.import_module(f"bullmq_protocol.commands.{module}"), function)
        sample = SAMPLES.get(name, ())
        keys = () if name in WITHOUT_KEYS else (KEYS,)
        made.append(builder(*keys, **sample) if isinstance(sample, dict) else builder(*keys, *sample))
    return made


def is_within_limits(outcome: Outcome) -> bool:
    return outcome.worst.ms <= LIMIT_MS and outcome.grown_mb <= LIMIT_MB


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.hostile")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    failed = False
    for outcome in run(given.cases, given.seed):
        failed = failed or not is_within_limits(outcome)
        sys.stdout.write(
            f"{outcome.family}: {outcome.cases} cases, {outcome.values} values, {outcome.refused} refused, "
            f"at most {outcome.worst.ms:.1f} ms, {outcome.grown_mb:.1f} MB\n"
        )
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
