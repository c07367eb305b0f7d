"""What a handler returns or raises of which no result and no reason can be made: the job fails, and it says why."""

import decimal
import math
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from bullmq_protocol import WorkerOptions
from bullmq_protocol.errors import UsageError
from bullmq_protocol.worker.notices import JobCompleted, JobFailed
from tests.support.adapters import Adapter
from tests.support.seen import Seen
from tests.support.servers import Server
from tests.support.silent import NoAttributes, NoClass, OfSilent

pytestmark = pytest.mark.any_server


class Mute:
    """Raises whatever is asked of it."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__

    def __bool__(self) -> bool:
        raise RuntimeError("neither true nor false")

    __len__ = __hash__ = __bool__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not to be compared")


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class FalseWords(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]


class TrickyText(str):
    """It has words, and raises whatever is asked of it."""

    def __len__(self) -> int:
        raise SystemExit(3)

    __bool__ = __iter__ = __contains__ = __eq__ = __getattribute__ = __len__  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class TrickyError(Exception):
    def __str__(self) -> str:
        return TrickyText("tricky words")

    __repr__ = __str__


class OfTricky(Exception):
    pass


OfTricky.__name__ = TrickyText("OfTricky")


class SubStr(str):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class SubInt(int):
    def __repr__(self) -> str:
        raise RuntimeError("no words")


class Endless(list[Any]):
    def __iter__(self) -> Any:
        raise RuntimeError("no items")


class BadStruct(msgspec.Struct):
    inner: Any


def cyclic_list() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def cyclic_dict() -> Any:
    value: dict[str, Any] = {}
    value["self"] = [value]
    return value


def deep(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def raises(error: BaseException) -> Callable[[], Any]:
    def call() -> Any:
        raise error

    return call


def chain(length: int) -> BaseException:
    error = ValueError("first")
    for number in range(length):
        following = ValueError(f"number {number}")
        following.__cause__, error = error, following
    return error


def ring() -> BaseException:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def group(depth: int) -> BaseException:
    error: Exception = ValueError("innermost")
    for _ in range(depth):
        error = ExceptionGroup("group", [error])
    return error


RETURNED: dict[str, tuple[Callable[[], Any], str]] = {
    "cyclic list": (cyclic_list, "returnvalue: .*cyclic"),
    "cyclic dict": (cyclic_dict, "returnvalue: .*cyclic"),
    "deep": (lambda: deep(100_000), "returnvalue: .*deep"),
    "cycle in a struct": (lambda: BadStruct(cyclic_list()), "returnvalue: .*cyclic"),
    "huge int": (lambda: 10**5000, "returnvalue: .*integers exactly only within"),
    "huge int in a list": (lambda: [-(10**5000)], "returnvalue: .*integers exactly only within"),
    "2**53": (lambda: 2**53, "returnvalue: .*integers exactly only within"),
    "NaN": (lambda: math.nan, "returnvalue: must be a finite number"),
    "infinity in a dict": (lambda: {"a": -math.inf}, "returnvalue: must be a finite number"),
    "bytes": (lambda: b"\xff", "returnvalue: JSON has no bytes"),
    "set": (lambda: {1}, "returnvalue: JSON has no set"),
    "keys": (lambda: {1: 2}, "returnvalue: keys of objects must be strings"),
    "mute keys": (lambda: {SubStr("a"): 1, "b": Mute()}, "returnvalue: has no JSON form"),
    "object": (object, "returnvalue: has no JSON form"),
    "mute": (Mute, "returnvalue: has no JSON form"),
    "mute in a list": (lambda: [Mute()], "returnvalue: has no JSON form"),
    "generator": (lambda: (each for each in ()), "returnvalue: has no JSON form"),
    "complex": (lambda: 1j, "returnvalue: has no JSON form"),
    "class": (lambda: Mute, "returnvalue: has no JSON form"),
    "signalling NaN": (lambda: decimal.Decimal("sNaN"), ""),
    "iterator that raises": (Endless, "no items"),
    "int that has no text": (lambda: SubInt(7), ""),
}
RAISED: dict[str, tuple[Callable[[], Any], str]] = {
    "mute": (raises(MuteError()), "^MuteError$"),
    "words that are none": (raises(FalseWords()), "^FalseWords$"),
    "mute argument": (raises(ValueError(Mute())), "^ValueError$"),
    "lone surrogate": (raises(ValueError("a\ud800b")), "a.+b"),
    "NUL": (raises(ValueError("a\0b")), "a\0b"),
    "long": (raises(ValueError("x" * 1_000_000)), "xxx"),
    "long chain": (raises(chain(5_000)), "number 4999"),
    "ring": (raises(ring()), "first"),
    "deep group": (raises(group(2_000)), "group"),
    "recursion": (raises(RecursionError("too deep")), "too deep"),
    "memory": (raises(MemoryError()), "^MemoryError$"),
    "stop iteration": (raises(StopIteration(1)), "StopIteration"),
    "no message": (raises(ValueError()), "^ValueError$"),
    "no class": (raises(NoClass()), "^NoClass$"),
    "no attributes": (raises(NoAttributes()), "^NoAttributes$"),
    "text that raises": (raises(TrickyError()), "^tricky words$"),
    "name that raises": (raises(OfTricky()), "^OfTricky$"),
    "no name of the class": (raises(OfSilent()), "^OfSilent$"),
}


CASES = {f"returns {key}": row for key, row in RETURNED.items()} | {f"raises {key}": row for key, row in RAISED.items()}
COMPLETED = {"returns signalling NaN": "sNaN", "returns int that has no text": 7}


async def test_hostile_results_and_errors(adapter: Adapter, server: Server, name: str) -> None:
    async def process(job: Any) -> Any:
        return CASES[job.name][0]()

    worker = adapter.Worker(name, process, server.url, options=WorkerOptions(concurrency=5))
    seen = Seen(worker, JobCompleted, JobFailed)
    async with adapter.Queue(name, server.url) as queue:
        jobs = {case: await queue.add(case) for case in CASES}
        async with worker:
            await seen.until(lambda: len(seen.all) >= len(CASES))
        for case, job in jobs.items():
            await job.refresh()
            if case in COMPLETED:
                assert (case, job.returnvalue, await job.get_state()) == (case, COMPLETED[case], "completed")
                continue
            assert (case, await job.get_state()) == (case, "failed")
            assert re.search(CASES[case][1], job.failed_reason, re.DOTALL) is not None, (case, job.failed_reason[:200])
            assert len(job.stacktrace) == 1, case
        await queue.obliterate(force=True)


async def test_hostile_data_is_refused(adapter: Adapter, server: Server, name: str) -> None:
    """Where a caller hands it over, before anything is sent."""
    async with adapter.Queue(name, server.url) as queue:
        job = await queue.add("good")
        for case, (make, rule) in RETURNED.items():
            if f"returns {case}" in COMPLETED:
                continue
            kind: type[Exception] = RuntimeError if case == "iterator that raises" else UsageError
            rule = rule.removeprefix("returnvalue: ")
            with pytest.raises(kind, match=rule):
                await queue.add("x", make())
            with pytest.raises(kind, match=rule):
                await job.update_data(make())
            with pytest.raises(kind, match=rule):
                await job.update_progress(make())
            with pytest.raises((kind, UsageError)):
                await job.log(make())
        assert await queue.count() == 1
        await queue.obliterate(force=True)
