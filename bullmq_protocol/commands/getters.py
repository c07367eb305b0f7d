"""Read a queue, and the logs, children and place of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from bullmq_protocol.command import Batch, Command, Repeat
from bullmq_protocol.common.codec import check_choice, parse_json
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.reply import (
    Reply,
    as_fields,
    as_int,
    as_list,
    as_optional_text,
    as_text,
    as_text_fields,
    as_texts,
)
from bullmq_protocol.common.units import check_whole
from bullmq_protocol.errors import BullMQError, UnexpectedReply
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.model.options import MAX_PRIORITY
from bullmq_protocol.scripts._lua import (
    GET_COUNTS_PER_PRIORITY,
    GET_DEPENDENCY_COUNTS,
    GET_METRICS,
    GET_RANGES,
    IS_JOB_IN_LIST,
    PAGINATE,
)
from bullmq_protocol.scripts._lua_later import GET_JOBS

_ROUNDS = 5
LIST_STATES = ("active", "wait", "waiting", "paused")
DEPENDENCY_KINDS = ("processed", "unprocessed", "ignored", "failed")


class PriorityCounts(msgspec.Struct, frozen=True):
    """Decode getCountsPerPriority into a map from the priorities."""

    priorities: tuple[int, ...]

    def __call__(self, reply: Reply) -> dict[int, int]:
        return dict(_named(self.priorities, reply))


def get_counts_per_priority(keys: QueueKeys, priorities: Sequence[int]) -> Command[dict[int, int]]:
    """Count the waiting jobs of each priority; 0: those without.

    Keys:    wait, paused, meta, prioritized; with `waiting_layout` v6 wait, prioritized
    Args:    priorities
    Reply:   one integer per priority -> map from priority to integer, in the order given, duplicates dropped
    Raises:  UsageError, UnexpectedReply
    Repeat:  safe
    Cost:    O(log n) per priority
    Source:  specs/03-transitions-admin-getters.md#get-counts-per-priority
    """
    distinct = tuple(dict.fromkeys(priorities))
    for priority in distinct:
        check_whole("priority", priority, least=0, most=MAX_PRIORITY)
    return Command(
        "getCountsPerPriority",
        (keys.wait, keys.prioritized)
        if keys.switches.waiting_layout == "v6"
        else (keys.wait, keys.paused, keys.meta, keys.prioritized),
        distinct,
        PriorityCounts(distinct),
        script=GET_COUNTS_PER_PRIORITY,
        repeat=Repeat.SAFE,
    )


class RangedIds(msgspec.Struct, frozen=True):
    """Decode getRanges into one list of ids: lists in ascending order are turned round, duplicates dropped."""

    states: tuple[str, ...]
    ascending: bool

    def __call__(self, reply: Reply) -> list[str]:
        found: dict[str, None] = {}
        for state, part in _paired(self.states, reply):
            ids = as_texts(part)
            found.update(dict.fromkeys(reversed(ids) if self.ascending and state in LIST_STATES else ids))
        return list(found)


def get_ranges(
    keys: QueueKeys, states: Sequence[str], *, start: int = 0, end: int = -1, ascending: bool = False
) -> Command[list[str]]:
    """Return ids of jobs by their place in each of the states (`waiting` is `wait`); both ends are included.

    Ascending is next to run first, next due first, or finished first. The range holds for each state separately.

    Keys:    base prefix
    Args:    start, end, 1 for ascending, state names as in the keys
    Reply:   one array of ids per state -> list of str, in the order of the states
    Raises:  UsageError, UnexpectedReply
    Repeat:  safe
    Cost:    O(ids returned), plus the distance from the end for wait, paused and active
    Source:  specs/03-transitions-admin-getters.md#get-ranges
    """
    named = tuple(states)
    check_whole("start", start)
    check_whole("end", end)
    return Command(
        "getRanges",
        (keys.base,),
        (start, end, "1" if ascending else "0", *("wait" if state == "waiting" else state for state in named)),
        RangedIds(named, ascending),
        script=GET_RANGES,
        repeat=Repeat.SAFE,
    )


class JobsAt(msgspec.Struct, frozen=True):
    """Decode getJobs into the jobs of all states, each id once."""

    states: tuple[str, ...]

    def __call__(self, reply: Reply) -> list[JobRecord]:
        found: dict[str, JobRecord] = {}
        for _, part in _paired(self.states, reply):
            for each in as_list(part):
                pair = as_list(each)
                if len(pair) != 2:
                    raise UnexpectedReply("ids and fields", reply)
                job_id = as_text(pair[0])
                found.setdefault(job_id, JobRecord.from_fields(job_id, as_fields(pair[1])))
        return list(found.values())


def get_jobs_at(
    keys: QueueKeys, states: Sequence[str], *, start: int, end: int, ascending: bool = False
) -> Command[list[JobRecord]]:
    """Read jobs by their place in each of the states (`waiting` is `wait`), without ids whose job is gone.

    For each of those the jobs of a later place come instead, up to 5 times.

    Keys:    base prefix
    Args:    start, end, 1 for ascending, most rounds, state names as in the keys
    Reply:   one array of ids and fields per state -> list of JobRecord, in the order of the states
    Raises:  UsageError, UnexpectedReply
    Repeat:  safe
    Cost:    O(jobs read), plus the distance from the end for wait, paused and active
    Source:  specs/06-later-versions.md#sec-4-11
    """
    named = tuple(dict.fromkeys("wait" if state == "waiting" else state for state in states))
    check_whole("start", start)
    check_whole("end", end)
    return Command(
        "getJobs",
        (keys.base,),
        (start, end, "1" if ascending else "0", _ROUNDS, *named),
        JobsAt(named),
        script=GET_JOBS,
        repeat=Repeat.SAFE,
    )


def is_job_in_list(list_key: str, job_id: str) -> Command[bool]:
    """Tell whether a list holds an id, without LPOS: what clients send to servers below 6.0.6.

    Keys:    wait, paused or active
    Args:    id
    Reply:   1 or nil -> bool
    Repeat:  safe
    Cost:    O(list)
    Source:  specs/03-transitions-admin-getters.md#sec-9-6
    """
    return Command("isJobInList", (list_key,), (job_id,), _is_there, script=IS_JOB_IN_LIST, repeat=Repeat.SAFE)


def is_in_list(list_key: str, job_id: str) -> Command[bool]:
    """Tell whether wait, paused or active holds an id.

    Keys:    wait, paused or active
    Reply:   position or nil -> bool
    Repeat:  safe
    Cost:    O(list)
    Source:  specs/03-transitions-admin-getters.md#sec-10
    """
    return Command("LPOS", (list_key,), (job_id,), _is_there, repeat=Repeat.SAFE)


def is_in_set(set_key: str, job_id: str) -> Command[bool]:
    """Tell whether completed, failed, delayed, prioritized or waiting-children holds an id.

    Keys:    one of those sets
    Reply:   score or nil -> bool
    Repeat:  safe
    Cost:    O(1)
    Source:  specs/03-transitions-admin-getters.md#sec-10
    """
    return Command("ZSCORE", (set_key,), (job_id,), _is_there, repeat=Repeat.SAFE)


class Metrics(msgspec.Struct, frozen=True):
    """Finished jobs of a queue. `data` has one number per minute, newest first; `count` is the number of all of them.

    `total` is the number of finished jobs; `prev_total` that at the moment `prev_at`, when the newest point was made.

    Source: specs/03-transitions-admin-getters.md#get-metrics
    """

    total: int
    prev_at: int
    prev_total: int
    data: list[float]
    count: int


def get_metrics(keys: QueueKeys, outcome: str, *, start: int = 0, end: int = -1) -> Command[Metrics]:
    """Read how many jobs were `completed` or `failed` per minute; both ends of the range are included.

    Keys:    metrics, metrics data
    Args:    start, end
    Reply:   [count, prevTS, prevCount], data points, number of points -> Metrics
    Raises:  UsageError (another outcome), UnexpectedReply
    Repeat:  safe
    Cost:    O(points returned)
    Source:  specs/03-transitions-admin-getters.md#get-metrics
    """
    outcome = check_choice("outcome", outcome, ("completed", "failed"))
    check_whole("start", start)
    check_whole("end", end)
    key = keys.metrics_completed if outcome == "completed" else keys.metrics_failed
    return Command(
        "getMetrics", (key, f"{key}:data"), (start, end), _as_metrics, script=GET_METRICS, repeat=Repeat.SAFE
    )


class KindCounts(msgspec.Struct, frozen=True):
    """Decode getDependencyCounts into a map from the kinds."""

    kinds: tuple[str, ...]

    def __call__(self, reply: Reply) -> dict[str, int]:
        return dict(_named(self.kinds, reply))


def get_dependency_counts(keys: QueueKeys, job_id: str, kinds: Sequence[str] = ()) -> Command[dict[str, int]]:
    """Count a job's children by kind: `processed`, `unprocessed`, `ignored`, `failed`; without kinds: all four.

    Keys:    processed, dependencies, failed, unsuccessful
    Args:    kinds
    Reply:   one integer per kind -> map from kind to integer, in the order of the kinds
    Raises:  UsageError (another kind), UnexpectedReply
    Repeat:  safe
    Cost:    O(kinds)
    Source:  specs/03-transitions-admin-getters.md#get-dependency-counts
    """
    named = tuple(check_choice("kind", kind, DEPENDENCY_KINDS) for kind in kinds) or DEPENDENCY_KINDS
    return Command(
        "getDependencyCounts",
        (keys.processed(job_id), keys.dependencies(job_id), keys.ignored(job_id), keys.unsuccessful(job_id)),
        named,
        KindCounts(named),
        script=GET_DEPENDENCY_COUNTS,
        repeat=Repeat.SAFE,
    )


class PageItem(msgspec.Struct, frozen=True):
    """One element of a page: a member of a set, or a field of a hash with its value."""

    id: str
    value: str | None = None


class Page(msgspec.Struct, frozen=True):
    """A part of a set or hash. The next call continues from `cursor` (0 at the end) and `passed`.

    `hashes` has the hash behind each element when those were asked for, empty for a missing one.

    Source: specs/03-transitions-admin-getters.md#sec-9-9
    """

    cursor: int
    passed: int
    items: list[PageItem]
    total: int
    hashes: list[dict[str, bytes]]


def paginate(
    key: str,
    *,
    start: int,
    end: int = -1,
    cursor: int = 0,
    passed: int = 0,
    max_scans: int = 5,
    with_hashes: bool = False,
) -> Command[Page]:
    """Read elements `start` to `end` (-1: to the last) of a set or hash in the order of a scan.

    Continue with the reply's cursor, its `passed`, and `start` raised by the number of elements already read, until the
    cursor is 0 or enough has been read.

    Keys:    the set or hash
    Args:    start, end, cursor, elements passed, most scans, 1 to read the hashes or nothing
    Reply:   cursor, elements passed, elements, size, hashes -> Page
    Raises:  UnexpectedReply; ServerError for a key of another type
    Repeat:  safe
    Cost:    O(elements scanned), at most about 100 per scan of a large key; plus one hash per element
    Source:  specs/03-transitions-admin-getters.md#sec-9-9
    """
    hashes = ("1",) if with_hashes else ()
    return Command(
        "paginate",
        (key,),
        (start, end, cursor, passed, max_scans, *hashes),
        _as_page,
        script=PAGINATE,
        repeat=Repeat.SAFE,
    )


class JobLogs(msgspec.Struct, frozen=True):
    """Rows of a job's log, and how many there are in all."""

    logs: list[str]
    count: int


def read_job_logs(keys: QueueKeys, job_id: str, *, start: int = 0, end: int = -1, ascending: bool = True) -> Batch:
    """Read rows of a job's log; not ascending: `start` and `end` count from the newest. `job_logs` reads the answer.

    Keys:    job logs
    Repeat:  safe
    Cost:    O(rows returned)
    Source:  specs/03-transitions-admin-getters.md#sec-10
    """
    first, last = (start, end) if ascending else (-(end + 1), -(start + 1))
    key = keys.logs(job_id)
    return Batch(
        (
            Command("LRANGE", (key,), (first, last), as_texts, repeat=Repeat.SAFE),
            Command("LLEN", (key,), (), as_int, repeat=Repeat.SAFE),
        ),
        atomic=True,
    )


def job_logs(answer: Sequence[Any], *, ascending: bool = True) -> JobLogs:
    """Make the decoded answer of `read_job_logs` into one value, or raise the error in it."""
    rows, count = _unwrapped(answer)
    return JobLogs(rows if ascending else rows[::-1], count)


def get_children_values(keys: QueueKeys, job_id: str) -> Command[dict[str, Any]]:
    """Return what the finished children of a job returned.

    Keys:    processed
    Reply:   child keys and JSON -> map from child key to value
    Raises:  UnexpectedReply (a value that is no JSON)
    Repeat:  safe
    Cost:    O(children)
    Source:  specs/03-transitions-admin-getters.md#sec-10
    """
    return Command("HGETALL", (keys.processed(job_id),), (), _as_values, repeat=Repeat.SAFE)


def get_ignored_failures(keys: QueueKeys, job_id: str) -> Command[dict[str, str]]:
    """Return why those children of a job failed whose failure was ignored.

    Keys:    failed
    Reply:   child keys and failure texts -> map
    Repeat:  safe
    Cost:    O(children)
    Source:  specs/03-transitions-admin-getters.md#sec-10
    """
    return Command("HGETALL", (keys.ignored(job_id),), (), as_text_fields, repeat=Repeat.SAFE)


class Dependencies(msgspec.Struct, frozen=True):
    """The children of a job: values of finished ones, keys of pending ones, failures that were ignored, and the keys of
    those whose failure fails the job.

    Source: specs/03-transitions-admin-getters.md#sec-12-4
    """

    processed: dict[str, Any]
    unprocessed: list[str]
    ignored: dict[str, str]
    failed: list[str]


def read_dependencies(keys: QueueKeys, job_id: str) -> Batch:
    """Read all children of a job at one moment. `dependencies` reads the answer.

    Keys:    processed, dependencies, failed, unsuccessful
    Repeat:  safe
    Cost:    O(children)
    Source:  specs/03-transitions-admin-getters.md#sec-12-4
    """
    return Batch(
        (
            get_children_values(keys, job_id),
            Command("SMEMBERS", (keys.dependencies(job_id),), (), as_texts, repeat=Repeat.SAFE),
            get_ignored_failures(keys, job_id),
            Command("ZRANGE", (keys.unsuccessful(job_id),), (0, -1), as_texts, repeat=Repeat.SAFE),
        ),
        atomic=True,
    )


def dependencies(answer: Sequence[Any]) -> Dependencies:
    """Make the decoded answer of `read_dependencies` into one value, or raise the error in it."""
    return Dependencies(*_unwrapped(answer))


class ValuesPage(msgspec.Struct, frozen=True):
    """Some finished children; `cursor` 0: the last page."""

    cursor: int
    processed: dict[str, Any]


class FailuresPage(msgspec.Struct, frozen=True):
    """Some children whose failure was ignored; `cursor` 0: the last page."""

    cursor: int
    ignored: dict[str, str]


class KeysPage(msgspec.Struct, frozen=True):
    """Some child keys; `cursor` 0: the last page."""

    cursor: int
    children: list[str]


def scan_processed(keys: QueueKeys, job_id: str, *, cursor: int = 0, count: int = 20) -> Command[ValuesPage]:
    """Read some finished children of a job. `count` is a hint; an element may come twice.

    Keys:    processed
    Reply:   cursor, child keys and JSON -> ValuesPage
    Raises:  UnexpectedReply (a value that is no JSON)
    Repeat:  safe
    Cost:    O(count)
    Source:  specs/03-transitions-admin-getters.md#sec-12-4
    """
    return Command("HSCAN", (keys.processed(job_id),), (cursor, "COUNT", count), _values_page, repeat=Repeat.SAFE)


def scan_unprocessed(keys: QueueKeys, job_id: str, *, cursor: int = 0, count: int = 20) -> Command[KeysPage]:
    """Read some pending children of a job. `count` is a hint; an element may come twice.

    Keys:    dependencies
    Reply:   cursor, child keys -> KeysPage
    Repeat:  safe
    Cost:    O(count)
    Source:  specs/03-transitions-admin-getters.md#sec-12-4
    """
    return Command("SSCAN", (keys.dependencies(job_id),), (cursor, "COUNT", count), _keys_page, repeat=Repeat.SAFE)


def scan_ignored(keys: QueueKeys, job_id: str, *, cursor: int = 0, count: int = 20) -> Command[FailuresPage]:
    """Read some children of a job whose failure was ignored. `count` is a hint; an element may come twice.

    Keys:    failed
    Reply:   cursor, child keys and failure texts -> FailuresPage
    Repeat:  safe
    Cost:    O(count)
    Source:  specs/03-transitions-admin-getters.md#sec-12-4
    """
    return Command("HSCAN", (keys.ignored(job_id),), (cursor, "COUNT", count), _failures_page, repeat=Repeat.SAFE)


class FailedPage(msgspec.Struct, frozen=True):
    """Decode a range of `count` child keys that began at `start`."""

    start: int
    count: int

    def __call__(self, reply: Reply) -> KeysPage:
        children = as_texts(reply)
        return KeysPage(self.start + self.count if len(children) == self.count else 0, children)


def range_failed(keys: QueueKeys, job_id: str, *, cursor: int = 0, count: int = 20) -> Command[KeysPage]:
    """Read some children of a job whose failure fails the job, in the order of their failures.

    BullMQ's own client reads a wrong range for every page but the first; this one does not.

    Keys:    unsuccessful
    Reply:   child keys -> KeysPage
    Raises:  UsageError
    Repeat:  safe
    Cost:    O(log n + count)
    Source:  specs/03-transitions-admin-getters.md#sec-12-4
    """
    check_whole("count", count, least=1)
    return Command(
        "ZRANGE",
        (keys.unsuccessful(job_id),),
        (cursor, cursor + count - 1),
        FailedPage(cursor, count),
        repeat=Repeat.SAFE,
    )


def get_deduplication_job_id(keys: QueueKeys, deduplication_id: str) -> Command[str | None]:
    """Return the id of the job that owns a deduplication id.

    Keys:    deduplication key
    Reply:   the job's id or nil -> str or None
    Repeat:  safe
    Source:  specs/03-transitions-admin-getters.md#sec-10
    """
    return Command("GET", (keys.deduplication(deduplication_id),), (), as_optional_text, repeat=Repeat.SAFE)


def _is_there(reply: Reply) -> bool:
    return reply is not None


def _paired(names: Sequence[Any], reply: Reply) -> list[tuple[Any, Reply]]:
    parts = as_list(reply)
    if len(parts) != len(names):
        raise UnexpectedReply(f"{len(names)} elements", reply)
    return list(zip(names, parts, strict=True))


def _named(names: Sequence[Any], reply: Reply) -> list[tuple[Any, int]]:
    return [(name, as_int(count)) for name, count in _paired(names, reply)]


def _number(reply: Reply) -> float:
    # a point that is no number counts as none, as in BullMQ's clients
    text = as_text(reply)
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return 0


def _total(reply: Reply) -> int:
    return 0 if reply is None else as_int(reply)


def _as_metrics(reply: Reply) -> Metrics:
    (_, totals), (_, points), (_, count) = _paired(("totals", "points", "count"), reply)
    (_, total), (_, prev_at), (_, prev_total) = _paired(("count", "prevTS", "prevCount"), totals)
    data = [_number(point) for point in as_list(points)]
    return Metrics(_total(total), _total(prev_at), _total(prev_total), data, as_int(count))


def _as_page(reply: Reply) -> Page:
    parts = as_list(reply)
    if len(parts) not in (4, 5):
        raise UnexpectedReply("a page of four or five elements", reply)
    items: list[PageItem] = []
    for item in as_list(parts[2]):
        if isinstance(item, (bytes, str)):
            items.append(PageItem(as_text(item)))
        else:
            (_, name), (_, value) = _paired(("field", "value"), item)
            items.append(PageItem(as_text(name), as_text(value)))
    hashes = [as_fields(fields) for fields in as_list(parts[4])] if len(parts) == 5 else []
    return Page(as_int(parts[0]), as_int(parts[1]), items, as_int(parts[3]), hashes)


def _as_values(reply: Reply) -> dict[str, Any]:
    try:
        return {child: parse_json(value) for child, value in as_fields(reply).items()}
    except msgspec.DecodeError as error:
        raise UnexpectedReply(f"JSON ({error})", reply) from None


def _scan(reply: Reply) -> tuple[int, Reply]:
    (_, cursor), (_, found) = _paired(("cursor", "elements"), reply)
    return as_int(cursor), found


def _values_page(reply: Reply) -> ValuesPage:
    cursor, found = _scan(reply)
    return ValuesPage(cursor, _as_values(found))


def _failures_page(reply: Reply) -> FailuresPage:
    cursor, found = _scan(reply)
    return FailuresPage(cursor, as_text_fields(found))


def _keys_page(reply: Reply) -> KeysPage:
    cursor, found = _scan(reply)
    return KeysPage(cursor, as_texts(found))


def _unwrapped(answer: Sequence[Any]) -> Sequence[Any]:
    for part in answer:
        if isinstance(part, BullMQError):
            raise part
    return answer
