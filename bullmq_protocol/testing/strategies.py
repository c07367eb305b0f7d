"""Hypothesis strategies for the values of the protocol. Needs the extra `testing`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeAlias

try:
    from hypothesis import strategies as st
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"the strategies need hypothesis ({error.name} is missing): pip install 'bullmq-protocol[testing]'",
        name=error.name,
    ) from error
from msgspec import UNSET
from msgspec.structs import replace

from bullmq_protocol.common.codec import MAX_SAFE_INTEGER, json_text
from bullmq_protocol.common.reply import Reply
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.backoff import Backoff
from bullmq_protocol.model.flow import FlowNode
from bullmq_protocol.model.job import JobRecord, NewJob
from bullmq_protocol.model.options import (
    MAX_PRIORITY,
    Deduplication,
    JobOptions,
    KeepJobs,
    ParentRef,
    Telemetry,
    check_job_id,
    stored,
)
from bullmq_protocol.model.schedule import RepeatOptions

Strategy: TypeAlias = st.SearchStrategy[Any]


def texts(*, surrogates: bool = False, min_size: int = 0, max_size: int = 20) -> st.SearchStrategy[str]:
    """Give text: NUL, controls, emoji and text of many scripts; lone surrogates only if asked for."""
    characters = st.characters() if surrogates else st.characters(exclude_categories=["Cs"])
    return st.text(characters, min_size=min_size, max_size=max_size)


def safe_integers(least: int = -MAX_SAFE_INTEGER, most: int = MAX_SAFE_INTEGER) -> st.SearchStrategy[int]:
    """Give integers that JavaScript holds exactly."""
    return st.integers(least, most)


def json_values(*, surrogates: bool = True, max_leaves: int = 20) -> Strategy:
    """Give values that `json_text` takes and `parse_json` gives back equal."""
    key = st.one_of(texts(surrogates=surrogates), st.integers(0, 2**33).map(str))
    leaf = st.one_of(
        st.none(),
        st.booleans(),
        safe_integers(),
        st.floats(allow_nan=False, allow_infinity=False).filter(_reads_back),
        texts(surrogates=surrogates).map(joined),
    )
    return st.recursive(
        leaf,
        lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(key.map(joined), inner, max_size=5)),
        max_leaves=max_leaves,
    )


def _reads_back(number: float) -> bool:
    # JavaScript writes these as integers of shortened digits, which Python reads as another integer.
    return not MAX_SAFE_INTEGER < abs(number) < 1e21


def joined(text: str) -> str:
    """Join surrogates that stand side by side into the character that they are to JavaScript."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def job_ids() -> st.SearchStrategy[str]:
    """Give ids that a caller may choose."""
    plain = texts(min_size=1).filter(lambda text: ":" not in text)
    three_parts = st.tuples(plain, plain, plain).map(":".join)
    return st.one_of(plain, three_parts).filter(_is_job_id)


def _is_job_id(text: str) -> bool:
    try:
        check_job_id("job_id", text)
    except UsageError:
        return False
    return True


def durations(least: int = 0) -> Strategy:
    """Give durations as callers write them: milliseconds or a `timedelta`."""
    ms = st.integers(least, 10**10)
    return st.one_of(ms, ms.map(lambda value: timedelta(milliseconds=value)))


def backoffs() -> Strategy:
    """Give backoffs: built in ones, custom types, numbers."""
    jitter = st.one_of(st.just(UNSET), st.floats(0, 1))
    custom = texts(min_size=1).filter(lambda text: text not in ("fixed", "exponential"))
    return st.one_of(
        durations(1),
        st.builds(Backoff, st.sampled_from(["fixed", "exponential"]), durations(1), jitter),
        st.builds(Backoff, custom, st.one_of(st.just(UNSET), durations(1)), jitter),
    )


def retentions() -> Strategy:
    """Give retentions: flags, counts, `KeepJobs`."""
    count = st.integers(-1, 10**6)
    age = st.one_of(st.integers(0, 10**6), st.floats(0, 10**6), st.timedeltas(timedelta(0), timedelta(days=30)))
    absent = st.just(UNSET)
    return st.one_of(st.booleans(), count, st.builds(KeepJobs, st.one_of(absent, count), st.one_of(absent, age)))


def parents() -> st.SearchStrategy[ParentRef]:
    """Give references to a parent in the queue `parents`."""
    return job_ids().map(lambda job_id: ParentRef(job_id, "bull:parents"))


def deduplications() -> st.SearchStrategy[Deduplication]:
    """Give deduplication options of all modes."""
    flag = st.one_of(st.just(UNSET), st.booleans())
    ttl = st.one_of(st.just(UNSET), durations(1))
    return st.builds(Deduplication, texts(min_size=1), ttl, flag, flag)


_PARENT_FLAGS: Final = (
    "fail_parent_on_failure",
    "continue_parent_on_failure",
    "ignore_dependency_on_failure",
    "remove_dependency_on_failure",
)


def job_options(*, job_id: bool = True, parent: bool = True) -> st.SearchStrategy[JobOptions]:
    """Give options that `validate` accepts; without an id of the caller's, or without a parent, if asked."""
    optional: dict[str, Strategy] = {
        "attempts": st.integers(1, 100),
        "backoff": backoffs(),
        "delay": durations(),
        "priority": st.integers(0, MAX_PRIORITY),
        "lifo": st.booleans(),
        "timestamp": st.integers(1, 2**41),
        "remove_on_complete": retentions(),
        "remove_on_fail": retentions(),
        "keep_logs": st.integers(0, 1000),
        "stack_trace_limit": st.integers(0, 100),
        "size_limit": st.integers(10**6, MAX_SAFE_INTEGER),
        "deduplication": deduplications(),
        "telemetry": _telemetry(),
    }
    if job_id:
        optional["job_id"] = job_ids()
    if parent:
        optional["parent"] = parents()
    # BullMQ takes one of these flags at most.
    flags = st.dictionaries(st.sampled_from(_PARENT_FLAGS), st.booleans(), max_size=1)
    return st.builds(_options, st.fixed_dictionaries({}, optional=optional), flags)


def _options(fields: dict[str, Any], flags: dict[str, Any]) -> JobOptions:
    return JobOptions(**fields, **flags)


def new_jobs() -> st.SearchStrategy[NewJob]:
    """Give jobs that `prepare` accepts."""
    return st.builds(NewJob, texts(min_size=1), st.one_of(st.just(UNSET), json_values()), job_options())


def job_records() -> st.SearchStrategy[JobRecord]:
    """Give jobs as read from a hash, with fields of other clients among them."""
    moment = st.integers(0, 2**41).map(str)
    count = st.integers(0, 1000).map(str)
    name = texts(min_size=1)
    value = json_values(max_leaves=5).map(json_text)
    optional: dict[str, st.SearchStrategy[str]] = {
        "rjk": name,
        "deid": name,
        "nrjid": name,
        "progress": value,
        "processedOn": moment,
        "pb": name,
        "ats": count,
        "atm": count,
        "stc": count,
        "defa": name,
        "failedReason": texts(),
        "stacktrace": st.lists(texts()).map(json_text),
        "returnvalue": value,
        "finishedOn": moment,
        "tm": name,
        "attemptsMade": count,
        "x-other": texts(),
    }
    always: dict[str, st.SearchStrategy[str]] = {
        "name": name,
        "data": value,
        "opts": job_options().map(stored).map(json_text),
        "timestamp": moment,
        "delay": moment,
        "priority": st.integers(0, MAX_PRIORITY).map(str),
    }
    return st.builds(_record, job_ids(), st.fixed_dictionaries(always, optional=optional))


def _record(job_id: str, fields: dict[str, str]) -> JobRecord:
    return JobRecord.from_fields(job_id, {field: text.encode() for field, text in fields.items()})


def replies(*, max_leaves: int = 12) -> st.SearchStrategy[Reply]:
    """Give raw replies of any shape, RESP2 and RESP3: what a decoder must answer with a value or a `BullMQError`."""
    text = st.one_of(st.binary(max_size=12), texts(max_size=12), st.integers().map(lambda number: b"%d" % number))
    leaf: Strategy = st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), text
    )
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.lists(inner, max_size=6),
            st.dictionaries(st.one_of(st.binary(max_size=8), texts(max_size=8)), inner, max_size=4),
        ),
        max_leaves=max_leaves,
    )


# --- by type ----------------------------------------------------------------------------------------------------------


def _telemetry() -> st.SearchStrategy[Telemetry]:
    absent = st.just(UNSET)
    return st.builds(Telemetry, st.one_of(absent, texts()), st.one_of(absent, st.booleans()))


def _kept() -> Strategy:
    return retentions().filter(lambda value: isinstance(value, KeepJobs))


def _backoffs() -> Strategy:
    return backoffs().filter(lambda value: isinstance(value, Backoff))


def repeat_options() -> st.SearchStrategy[RepeatOptions]:
    """Give rules of job schedulers: intervals, and cron patterns in UTC."""
    limit = st.one_of(st.just(UNSET), st.integers(1, 1000))
    every = st.integers(1, 10**9)
    minutes, hours = st.integers(0, 59), st.integers(0, 23)
    days = st.sampled_from(["*", "1", "1-5", "sun"])
    pattern = st.builds("{} {} * * {}".format, minutes, hours, days)
    return st.one_of(
        st.builds(_interval, every, limit),
        st.builds(_cron, pattern, limit),
    )


def _interval(every: int, limit: Any) -> RepeatOptions:
    return RepeatOptions(every=every, limit=limit)


def _cron(pattern: str, limit: Any) -> RepeatOptions:
    return RepeatOptions(pattern=pattern, tz="utc", limit=limit)


def flow_nodes(*, max_leaves: int = 5) -> st.SearchStrategy[FlowNode]:
    """Give flows of a few levels, whose jobs have neither parents outside nor ids of their own."""
    options = job_options(job_id=False, parent=False).map(_without_deduplication)
    data = st.one_of(st.just(UNSET), json_values(max_leaves=5))
    queues = st.sampled_from(["mail", "prints", "renders"])
    leaf = st.builds(FlowNode, texts(min_size=1), queues, data, options)
    return st.recursive(
        leaf,
        lambda inner: st.builds(
            FlowNode, texts(min_size=1), queues, data, options, children=st.lists(inner, min_size=1, max_size=3)
        ),
        max_leaves=max_leaves,
    )


def _without_deduplication(options: JobOptions) -> JobOptions:
    # Nothing is linked to a job that gave way to another one.
    return replace(options, deduplication=UNSET)


_BY_TYPE: Final[tuple[tuple[type[Any], Callable[[], Strategy]], ...]] = (
    (NewJob, new_jobs),
    (JobOptions, job_options),
    (JobRecord, job_records),
    (FlowNode, flow_nodes),
    (RepeatOptions, repeat_options),
    (Backoff, _backoffs),
    (Deduplication, deduplications),
    (KeepJobs, _kept),
    (ParentRef, parents),
    (Telemetry, _telemetry),
)


def register() -> None:
    """Let `st.from_type` give these types: done when this module is imported, as hypothesis does (an entry point)."""
    for kind, make in _BY_TYPE:
        st.register_type_strategy(kind, partial(_made, make))


def _made(make: Callable[[], Strategy], kind: type[Any]) -> Strategy:
    return make()


# Not by the entry point: where this module is imported first, hypothesis finds a part of it.
register()
