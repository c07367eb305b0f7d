"""Golden vectors of Monque: `python -m tests.support.monque_vectors` writes `specs/vectors/monque/`.

Each file is one JSON object: `vectors` holds what other languages can check themselves by. Dates are `{"$date": ...}`,
ids `{"$oid": ...}`. A vector of `commands.json` holds a command, the value of its reply, and which of the documents in
`given` are changed or removed after it; the others hold arguments and a result, or the text of the error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from bson import ObjectId

from bullmq_protocol.errors import BullMQError
from monque_protocol import commands
from monque_protocol.backoff import backoff_delay
from monque_protocol.commands import ListFilter, Selector
from monque_protocol.cron import next_cron
from monque_protocol.cursor import Anchor, Sort, decode_cursor, encode_cursor
from monque_protocol.document import Job, read_job, to_date
from monque_protocol.options import check_key, check_name
from tests.support.monque_model import Collection

FOLDER = Path(__file__).parents[2] / "specs" / "vectors" / "monque"
NOW = 1_766_000_000_000
MINUTE = 60_000
C = "monque_jobs"


def oid(number: int) -> ObjectId:
    return ObjectId(f"69430000{number:016x}")


def _doc(number: int, name: str, status: str, **more: Any) -> dict[str, Any]:
    at = to_date(NOW - 10 * MINUTE + number)
    head = {"_id": oid(number), "name": name, "data": {"n": number}, "status": status}
    document = head | {
        "nextRunAt": to_date(NOW - 5 * MINUTE + number),
        "failCount": 0,
        "createdAt": at,
        "updatedAt": at,
    }
    return {key: value for key, value in (document | more).items() if value is not ...}


def _locked(owner: str, ago: int) -> dict[str, Any]:
    at = to_date(NOW - ago)
    return {"lockedAt": at, "claimedBy": owner, "lastHeartbeat": at, "heartbeatInterval": 30_000}


def documents() -> list[dict[str, Any]]:
    """Return a collection with a document of each kind, in the forms of all versions of Monque."""
    return [
        _doc(1, "mail", "pending"),
        _doc(2, "mail", "pending", nextRunAt=to_date(NOW + MINUTE)),
        _doc(3, "mail", "pending", lockedAt=None, failCount=2, failReason="no"),
        _doc(4, "mail", "pending", uniqueKey="k1"),
        _doc(5, "mail", "processing", **_locked("me", MINUTE)),
        _doc(6, "mail", "processing", **_locked("other", MINUTE), failCount=9),
        _doc(7, "mail", "processing", **_locked("gone", 60 * MINUTE)),
        _doc(8, "report", "processing", **_locked("me", MINUTE), repeatInterval="*/5 * * * *", failReason="x"),
        _doc(9, "report", "processing", lockedAt=to_date(NOW - 60 * MINUTE)),
        _doc(10, "report", "completed", uniqueKey="k2", lockedAt=None),
        _doc(11, "report", "failed", failCount=10, failReason="boom", heartbeatInterval=30_000),
        _doc(12, "clean", "cancelled"),
        _doc(13, "clean", "failed", failCount=1, failReason="no", uniqueKey="k3"),
        _doc(14, "clean", "completed", updatedAt=to_date(NOW - MINUTE)),
    ]  # fmt: skip


def _job(number: int) -> Job[Any]:
    return read_job(next(each for each in documents() if each["_id"] == oid(number)))


def _mine(function: Callable[..., Any], number: int, me: str = "me", **more: Any) -> tuple[str, Any]:
    return f"of {number} by {me}", lambda: function(C, _job(number), me=me, now=NOW, **more)


def _claimed(number: int, later: int) -> Job[Any]:
    job = _job(number)
    return msgspec.structs.replace(job, locked_at=(job.locked_at or 0) + later)


def command_cases() -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Yield function, name of the case, and what makes its command."""
    yield "create_indexes", "without retention", lambda: commands.create_indexes(C, retention=False)
    yield "create_indexes", "with retention", lambda: commands.create_indexes(C, retention=True)
    for lock in (30, 120):
        yield (
            "recover_stale",
            f"{lock} min",
            lambda lock=lock: commands.recover_stale(C, now=NOW, lock_ms=lock * MINUTE),
        )
    for me in ("me", "gone", "nobody"):
        name = f"by {me}"
        yield "find_collision", name, lambda me=me: commands.find_collision(C, me=me, now=NOW, heartbeat_ms=60_000)
        yield "find_claims", name, lambda me=me: commands.find_claims(C, me=me)
        yield "heartbeat", name, lambda me=me: commands.heartbeat(C, me=me, now=NOW)
    for data in (None, {"a": [1, {"b": "ä"}]}, "text", 5, []):
        yield (
            "insert",
            json.dumps(data),
            lambda data=data: commands.insert(C, oid(99), "mail", data, next_run_at=NOW, now=NOW),
        )
    yield (
        "insert",
        "recurring",
        lambda: commands.insert(C, oid(99), "mail", {}, next_run_at=NOW + MINUTE, now=NOW, repeat_interval="* * * * *"),
    )
    for name, key in (("mail", "k1"), ("report", "k1"), ("report", "k2"), ("clean", "k3"), ("mail", "new one")):
        yield (
            "upsert",
            f"{name} {key}",
            lambda name=name, key=key: commands.upsert(C, name, 1, unique_key=key, next_run_at=NOW, now=NOW),
        )
    yield (
        "upsert",
        "recurring",
        lambda: commands.upsert(
            C, "mail", 1, unique_key="r", next_run_at=NOW + MINUTE, now=NOW, repeat_interval="@daily"
        ),
    )
    for name in ("mail", "report", "nothing"):
        for now in (NOW, NOW - 20 * MINUTE, NOW + 2 * MINUTE):
            yield (
                "claim",
                f"{name} at {now}",
                lambda name=name, now=now: commands.claim(C, name, me="me", now=now, heartbeat_ms=30_000),
            )
    for function in (commands.release, commands.complete):
        for number, me in ((5, "me"), (6, "me"), (6, "other"), (1, "me"), (8, "me")):
            yield function.__name__, *_mine(function, number, me)
    for function in (commands.release, commands.complete):
        for number, me, later in ((5, "me", 0), (5, "me", 1), (6, "me", 0), (9, "other", 0)):
            name, make = _mine(function, number, me)
            yield (
                "of_claim",
                f"{function.__name__} {name}, claimed {later} ms later",
                lambda make=make, number=number, later=later: commands.of_claim(make(), _claimed(number, later)),
            )
    yield "complete_recurring", *_mine(commands.complete_recurring, 8, next_run_at=NOW + MINUTE)
    yield "complete_recurring", *_mine(commands.complete_recurring, 7, next_run_at=NOW + MINUTE)
    for number, me in ((5, "me"), (6, "other"), (8, "me"), (7, "me")):
        yield "retry_later", *_mine(commands.retry_later, number, me, next_run_at=NOW + 2_000, reason="boom")
        yield "fail", *_mine(commands.fail, number, me, reason="boom")
    for status in ("completed", "failed"):
        for keep in (0, 5 * MINUTE, 60 * MINUTE):
            yield (
                "clean",
                f"{status} {keep}",
                lambda status=status, keep=keep: commands.clean(C, status, now=NOW, keep_ms=keep),
            )
    for number in (1, 3, 5, 10, 11, 12, 50):
        yield "cancel", f"of {number}", lambda number=number: commands.cancel(C, oid(number), now=NOW)
        yield "retry", f"of {number}", lambda number=number: commands.retry(C, oid(number), now=NOW)
        yield (
            "reschedule",
            f"of {number}",
            lambda number=number: commands.reschedule(C, oid(number), run_at=NOW + MINUTE, now=NOW),
        )
        yield "delete", f"of {number}", lambda number=number: commands.delete(C, oid(number))
        yield "get_job", f"of {number}", lambda number=number: commands.get_job(C, oid(number))
    for selector in selectors():
        name = json.dumps(msgspec.to_builtins(selector))
        yield "cancel_many", name, lambda selector=selector: commands.cancel_many(C, selector, now=NOW)
        yield "retry_many", name, lambda selector=selector: commands.retry_many(C, selector, now=NOW)
        yield "find_retried", name, lambda selector=selector: commands.find_retried(C, selector, now=NOW)
        yield "delete_many", name, lambda selector=selector: commands.delete_many(C, selector)
    for name, status, limit, skip in (
        (None, None, 100, 0),
        ("mail", None, 2, 1),
        (None, ["failed", "completed"], 0, 0),
    ):
        yield (
            "get_jobs",
            f"{name} {status} {limit} {skip}",
            lambda name=name, status=status, limit=limit, skip=skip: commands.get_jobs(
                C, name=name, status=status, limit=limit, skip=skip
            ),
        )
    for sort in sorts():
        for direction in ("forward", "backward"):
            for number in (None, 7):
                for filter in (ListFilter(), ListFilter(name="mail", created_at_to=NOW, updated_at_from=NOW - 600_000)):
                    yield (
                        "get_page",
                        f"{sort.by} {sort.direction} {direction} after {number} {filter.name}",
                        lambda *_, s=sort, d=direction, n=number, f=filter: commands.get_page(
                            C, f, s, direction=d, anchor=_anchor(s, d, n), limit=3
                        ),
                    )
    for name in (None, "mail", "nothing"):
        yield "get_stats", str(name), lambda name=name: commands.get_stats(C, name)
    yield "get_summaries", "all", lambda: commands.get_summaries(C)


def _anchor(sort: Sort, direction: str, number: int | None) -> tuple[Any, Anchor] | None:
    return None if number is None else (oid(number), decode_cursor(encode_cursor(_job(number), sort, direction), sort))


def selectors() -> list[Selector]:
    return [
        Selector(),
        Selector(name="clean"),
        Selector(status="pending"),
        Selector(status=["failed", "completed"]),
        Selector(name="mail", status="cancelled"),
        Selector(older_than=NOW - 10 * MINUTE + 4, newer_than=NOW - 10 * MINUTE + 1),
    ]


def sorts() -> list[Sort]:
    return [Sort(by, way) for by in ("identifier", "createdAt", "nextRunAt") for way in ("asc", "desc")]


def command_vectors() -> Iterator[dict[str, Any]]:
    for function, name, make in command_cases():
        command = make()
        if command is None:
            continue
        made = count(0xA0)
        collection = Collection(lambda made=made: oid(next(made)))
        collection.documents = documents()
        collection.indexes = commands.indexes(retention=False)
        given = {each["_id"]: plain(each) for each in collection.documents}
        try:
            value: Any = {"value": command.decode(collection.run(command.document))}
        except BullMQError as error:
            value = {"error": str(error).partition(":")[0]}
        yield {
            "function": function,
            "name": name,
            "repeat": command.repeat.value,
            "command": plain(command.document),
            **plain(value),
            "changed": [plain(each) for each in collection.documents if given.get(each["_id"]) != plain(each)],
            "removed": [plain(key) for key in given if all(key != each["_id"] for each in collection.documents)],
        }


def plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    match value:
        case datetime():
            return {"$date": value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")}
        case ObjectId():
            return {"$oid": str(value)}
        case dict():
            return {key: plain(each) for key, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case msgspec.Struct():
            fields = {name: plain(getattr(value, name)) for name in value.__struct_fields__ if name != "key"}
            return {name: each for name, each in fields.items() if each is not None}
        case _:
            return value


def _outcome(call: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"result": plain(call())}
    except BullMQError as error:
        return {"error": str(error)}


def backoff_vectors() -> Iterator[dict[str, Any]]:
    for runs in (1, 2, 3, 9, 10, 17, 60):
        for base, most in ((1000, 86_400_000), (100, None), (7, 50)):
            for roll in (0.0, 0.5, 0.875):
                given = {"runs": runs, "base_ms": base, "most_ms": most, "roll": roll}
                yield given | _outcome(lambda given=given: backoff_delay(given.pop("runs"), **given))  # type: ignore[misc,arg-type]


CRON = (
    *("*/15 * * * *", "5/20 * * * *", "0 9 * * 1", "0 0 13 * 5", "0 0 L * *", "0 0 * * 5L", "0 0 * * 1#2", "@weekly"),
    *("@yearly", "@monthly", "@daily", "@hourly", "30 2 * * *", "0 0 29 2 *", "0 0 1-7 * *", "0 0 1,15 * 3"),
    *("*/10 * * * * *", "0 0 12 * * mon-fri", "0 22 * jan,JUL sun", "61 * * * *", "* 24 * * *", "* * 0 * *"),
    *("* * * 13 *", "* * * * 8", "a * * * *", "22-2 * * * *", "0 0 30 2 *", "* * * * * * *", "*/0 * * * *"),
    "1,,2 * * * *",
)  # fmt: skip


def cron_vectors() -> Iterator[dict[str, Any]]:
    after = 1_765_880_995_123
    for expression in CRON:
        yield {
            "expression": expression,
            "after": after,
            "zone": "UTC",
            **_outcome(lambda expression=expression: next_cron(expression, after=after, zone=UTC)),
        }


def identifier_vectors() -> Iterator[dict[str, Any]]:
    texts = (
        "a",
        "a b",
        "",
        " ",
        "\u00a0",
        "a\n",
        "é",
        "a" * 255,
        "a" * 256,
        "\U0001f600" * 128,
        "k" * 1025,
        "a\u2003b",
    )
    for text in texts:
        for kind, check in (("name", check_name), ("unique_key", check_key)):
            yield {"kind": kind, "text": text, **_outcome(lambda check=check, text=text: check(text))}


def cursor_vectors() -> Iterator[dict[str, Any]]:
    for sort in sorts():
        for direction in ("forward", "backward"):
            token = encode_cursor(_job(5), sort, direction)
            yield {"sort": plain(sort), "direction": direction, "job": plain(_job(5)), "cursor": token}
    for cursor, sort in (("", Sort()), ("Xabc", Sort()), ("FAAAA", Sort()), ("FeyI", Sort("createdAt"))):
        yield {"sort": plain(sort), "cursor": cursor, **_outcome(lambda c=cursor, s=sort: decode_cursor(c, s))}


FILES: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
    "commands": command_vectors,
    "backoff": backoff_vectors,
    "cron": cron_vectors,
    "identifiers": identifier_vectors,
    "cursors": cursor_vectors,
}


def text(name: str) -> str:
    """Return the text of a file."""
    lines = ",\n".join(json.dumps(each, ensure_ascii=True, separators=(", ", ": ")) for each in FILES[name]())
    given = f'"given": {json.dumps(plain(documents()))},\n' if name == "commands" else ""
    return f'{{"monque": "1.10.1", "kind": "{name}", {given}"vectors": [\n{lines}\n]}}\n'


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (FOLDER / f"{name}.json").write_text(text(name), encoding="utf-8")


if __name__ == "__main__":
    main()
