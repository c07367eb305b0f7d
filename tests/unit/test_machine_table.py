"""The table at the top of machine.py: what becomes of each kind of call when it is answered, refused or lost."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.switches import FLEET_SWITCHES
from bullmq_protocol.errors import UnrecoverableError
from bullmq_protocol.worker import machine
from bullmq_protocol.worker._contact import Contact
from bullmq_protocol.worker._fetching import Fetching
from bullmq_protocol.worker._running import Running
from bullmq_protocol.worker._runs import Pending, RunCall
from bullmq_protocol.worker._upkeep import Upkeep
from bullmq_protocol.worker.events import ConnectionEnded
from bullmq_protocol.worker.notices import Notice
from tests.support.machine_bench import NO_JOB, Bench, job_reply

_ROOT = Path(__file__).parents[2]
_WAYS = ("answered", "refused", "lost")
_NOTICES = {kind.__name__ for kind in get_args(Notice)}
_COMMANDS = {
    *("moveToActive", "BZPOPMIN", "ZADD", "updateJobScheduler", "moveToDelayed", "moveToFinished", "extendLocks"),
    *("moveJobFromActiveToWait", "moveStalledJobsToWait", "PTTL", "PING", "pause"),
}
_WORDS = _NOTICES | _COMMANDS | {"RunJob", "Wait"}
# What goes with every job that begins, that is let go or that is cancelled, and with every end, is not in the table.
_OF_COURSE = {"JobActive", "HandlerAbandoned", "Closing", "ClosedNotice", "Paused", "Resumed"}
_OF_A_LOSS = {"Disconnected", "Reconnected", "PING"}
_AGAIN_MS = 6_000


def _kinds() -> Iterator[type[Pending]]:
    waiting: list[type[Pending]] = [Pending]
    while waiting:
        kind = waiting.pop()
        # What else is loaded may have kinds of its own.
        if kind not in (Pending, RunCall) and kind.__module__.startswith("bullmq_protocol."):
            yield kind
        waiting += kind.__subclasses__()


def _table() -> dict[str, dict[str, str]]:
    """Return the cells by call and column; a row without a call goes on with the one above."""
    lines = (machine.__doc__ or "").split("\n")
    rules = [number for number, line in enumerate(lines) if line.startswith("====")]
    assert len(rules) == 3
    columns = [match.span() for match in re.finditer("=+", lines[rules[0]])]
    columns[-1] = (columns[-1][0], len("x" * 200))
    cells: dict[str, dict[str, str]] = {}
    call = ""
    for line in lines[rules[1] + 1 : rules[2]]:
        name, *rest = (line[begin:end].strip() for begin, end in columns)
        call = name or call
        row = cells.setdefault(call, dict.fromkeys(_WAYS, ""))
        for way, text in zip(_WAYS, rest, strict=True):
            row[way] = f"{row[way]} {text}".strip()
    return cells


_TABLE = _table()


def test_the_table_has_every_kind_of_call() -> None:
    kinds = [kind.__name__ for kind in _kinds()]
    assert sorted(_TABLE) == sorted(kinds)
    assert len(set(kinds)) == len(kinds)


@pytest.mark.parametrize("kind", list(_kinds()), ids=lambda kind: kind.__name__)
def test_a_kind_says_what_becomes_of_it_in_one_place(kind: type[Pending]) -> None:
    """Its own words stand in its class, or in the one that it is a kind of: nowhere else in the machine."""
    places = {inspect.getsourcefile(getattr(kind, way)) for way in _WAYS}
    assert len(places - {inspect.getsourcefile(RunCall)}) == 1
    assert all(way in vars(kind) or way in vars(kind.__base__ or object) for way in _WAYS)


def test_nobody_asks_for_the_kind_of_a_call() -> None:
    names = {kind.__name__ for kind in _kinds()}
    asked = [
        f"{file.name}: {ast.unparse(node)}"
        for file in sorted((_ROOT / "bullmq_protocol" / "worker").glob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance" and names & _names(node.args[1])
    ]
    # A report is not sent again as it was: the time goes with it, and so does the question for the next job.
    assert all("ReportCall" in each for each in asked), asked


def _names(node: ast.expr) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


@pytest.mark.parametrize("part", [Fetching, Running, Upkeep, Contact])
def test_the_page_names_each_part_and_each_call(part: type[Any]) -> None:
    page = (_ROOT / "docs" / "worker-machine.md").read_text(encoding="utf-8")
    assert f"`{part.__name__}`" in page
    for kind in _kinds():
        assert f"`{kind.__name__}`" in page


# --- what is said in the cells


def _fetch(**options: Any) -> Bench:
    return Bench(**{"skip_stalled_check": True, "skip_lock_renewal": True, **options})


def _wait() -> Bench:
    bench = _fetch()
    bench.reply("moveToActive", NO_JOB)
    return bench


def _paused() -> Bench:
    bench = _wait()
    bench.pause()
    bench.end_wait()
    return bench


def _wait_after_a_loss() -> Bench:
    """The wait alone was lost before, and not for the server: it cannot connect."""
    bench = _wait()
    bench.lose_wait(maybe_applied=False)
    bench.tick()
    bench.reply("PING", b"PONG")
    bench.reply("moveToActive", NO_JOB)
    return bench


def _marker() -> Bench:
    bench = _wait()
    bench.pause()
    bench.marker([b"k", b"0", b"0"])
    return bench


def _job(**fields: str) -> Bench:
    bench = _fetch()
    bench.reply("moveToActive", job_reply("1", **fields))
    return bench


def _advance() -> Bench:
    bench = _job(rjk="s", opts='{"repeat":{"every":1000}}')
    bench.pause()
    return bench


def _delay() -> Bench:
    bench = _advance()
    bench.refuse("updateJobScheduler", "ERR no")
    return bench


def _report() -> Bench:
    bench = _job()
    bench.returned("1")
    return bench


def _failure() -> Bench:
    bench = _job()
    bench.raised("1", UnrecoverableError("no"))
    return bench


def _last_report() -> Bench:
    bench = _report()
    bench.pause()
    return bench


def _release() -> Bench:
    bench = _job()
    bench.close(force=True)
    bench.returned("1")
    return bench


def _renewal() -> Bench:
    bench = _fetch(skip_lock_renewal=False)
    bench.reply("moveToActive", job_reply("1"))
    bench.tick()
    return bench


def _check() -> Bench:
    bench = _fetch(skip_stalled_check=False)
    bench.reply("moveToActive", NO_JOB)
    bench.pause()
    bench.end_wait()
    return bench


def _ttl() -> Bench:
    bench = _check()
    bench.reply("moveStalledJobsToWait", [])
    return bench


def _heal() -> Bench:
    bench = _fetch(keys=QueueKeys.of("q", switches=FLEET_SWITCHES))
    bench.reply("moveToActive", NO_JOB)
    bench.pause()
    bench.end_wait()
    return bench


def _probe() -> Bench:
    bench = _paused()
    bench.tell(ConnectionEnded("closed"))
    bench.tick()
    return bench


_CALLS = {
    "FetchCall": "moveToActive",
    "WaitCall": "BZPOPMIN",
    "MarkerCall": "ZADD",
    "AdvanceCall": "updateJobScheduler",
    "DelayCall": "moveToDelayed",
    "ReportCall": "moveToFinished",
    "ReleaseCall": "moveJobFromActiveToWait",
    "RenewCall": "extendLocks",
    "StalledCheckCall": "moveStalledJobsToWait",
    "StalledTtlCall": "PTTL",
    "HealCall": "pause",
    "ProbeCall": "PING",
}
# A case: a machine with the call under way, and the reply. A refusal is one by its reply, or else an error.
_CASES: dict[str, dict[str, list[tuple[Callable[[], Bench], Any]]]] = {
    "answered": {
        "FetchCall": [(_fetch, job_reply("1")), (_fetch, NO_JOB)],
        "WaitCall": [(_wait, None), (_wait, [b"k", b"0", b"0"])],
        "MarkerCall": [(_marker, 1)],
        "AdvanceCall": [(_advance, None)],
        "DelayCall": [(_delay, 0)],
        "ReportCall": [(_report, job_reply("2")), (_failure, job_reply("2"))],
        "ReleaseCall": [(_release, 0)],
        "RenewCall": [(_renewal, []), (_renewal, [b"1"])],
        "StalledCheckCall": [(_check, [b"1"])],
        "StalledTtlCall": [(_ttl, 4000)],
        "HealCall": [(_heal, 0), (_heal, 7)],
        "ProbeCall": [(_probe, b"PONG")],
    },
    "refused": {
        **{
            call: [(make, None)]
            for call, make in {
                "FetchCall": _fetch,
                "WaitCall": _wait,
                "MarkerCall": _marker,
                "AdvanceCall": _advance,
                "DelayCall": _delay,
                "ReleaseCall": _release,
                "RenewCall": _renewal,
                "StalledCheckCall": _check,
                "StalledTtlCall": _ttl,
                "HealCall": _heal,
                "ProbeCall": _probe,
            }.items()
        },
        # No job of that id; its children are not done; a code that nobody knows.
        "ReportCall": [(_last_report, -1), (_last_report, -4), (_last_report, -99)],
    },
    "lost": {
        call: [(make, None) for make in makes]
        for call, makes in {
            "FetchCall": (_fetch,),
            "WaitCall": (_wait, _wait_after_a_loss),
            "MarkerCall": (_marker,),
            "AdvanceCall": (_advance,),
            "DelayCall": (_delay,),
            "ReportCall": (_report,),
            "ReleaseCall": (_release,),
            "RenewCall": (_renewal,),
            "StalledCheckCall": (_check,),
            "StalledTtlCall": (_ttl,),
            "HealCall": (_heal,),
            "ProbeCall": (_probe,),
        }.items()
    },
}


def _end(bench: Bench, name: str, way: str, reply: Any) -> None:
    if name == "BZPOPMIN":
        match way:
            case "answered":
                bench.marker(reply)
            case "refused":
                bench.refuse_wait("ERR no")
            case _:
                bench.lose_wait(maybe_applied=False)
    elif way == "lost":
        bench.lose(name)
    elif way == "refused" and reply is None:
        bench.refuse(name, "ERR no")
    else:
        bench.reply(name, reply)


def _follows(bench: Bench, name: str, way: str, reply: Any) -> set[str]:
    """Return what follows until a first call other than a probe, or until there is nothing to do for a while."""
    handlers, sent, reported, wait = len(bench.handlers), len(bench.sent), len(bench.notices), bench.wait
    _end(bench, name, way, reply)
    until = bench.mono + _AGAIN_MS
    while not [each for each in bench.sent[sent:] if each != "PING" or name == "PING"]:
        if bench.has("PING"):
            bench.reply("PING", b"PONG")
            continue
        due = bench.machine.deadline()
        if due is None or due > until:
            break
        bench.tick()
    words = {*bench.sent[sent:], *(type(notice).__name__ for notice in bench.notices[reported:])}
    words |= {"RunJob"} if len(bench.handlers) > handlers else set()
    words |= {"Wait"} if bench.wait is not None and bench.wait is not wait else set()
    if way == "lost":
        words -= _OF_A_LOSS if name != "PING" else _OF_A_LOSS - {"PING"}
    return words - _OF_COURSE


@pytest.mark.parametrize(
    ("call", "way"),
    [(call, way) for way, cases in _CASES.items() for call in cases],
)
def test_what_follows_is_what_the_table_says(call: str, way: str) -> None:
    follows: set[str] = set()
    for make, reply in _CASES[way][call]:
        follows |= _follows(make(), _CALLS[call], way, reply)
    assert follows == set(re.findall(r"\w+", _TABLE[call][way])) & _WORDS
    assert _TABLE[call][way] == "nothing" or follows


def test_each_cell_has_cases() -> None:
    assert {way: set(cases) for way, cases in _CASES.items()} == {way: set(_TABLE) for way in _WAYS}
