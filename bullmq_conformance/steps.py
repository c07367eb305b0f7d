"""Random sequences of requests: what hypothesis draws, and how a drawn step becomes a request.

A drawn step names no job: it has a number, by which one of those that are there is chosen when its turn comes. So a
step stays meaningful where shrinking leaves out others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypedDict

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from bullmq_conformance.keyspace import PREFIX, UNTIL, State, ids_in, job_ids
from bullmq_conformance.states import Json

QUEUES = ("q", "p")
PAST = 1_700_000_000_000
"""A moment long ago: a job of that time whose delay is short is due."""
HOUR = 3_600_000
LATER = 600_000
"""A job with this delay does not come due while a sequence runs."""
LOCK_MS = 30_000
GONE = "gone"
"""An id that no job has."""

Step: TypeAlias = Mapping[str, Any]
"""What was drawn for a request."""
Args: TypeAlias = dict[str, Json]
_SKIPPED: Step = {"call": "skip"}


class Request(TypedDict):
    """What both sides are asked."""

    call: str
    args: Args


_EMPTY: Args = {}
_SOME: tuple[Json, ...] = (_EMPTY, {"a": 1}, "ü", [1, None], {"é": {"b": [True, 0.5]}})
_RESULTS: tuple[Json, ...] = (None, 42, "done", {"r": [1]}, 0.5, "ü")
_DATA = st.sampled_from(_SOME)
_VALUES = st.sampled_from(_RESULTS)
_NUMBERS = st.integers(0, 15)
_OTHER = st.sampled_from((False, False, True))
"""Whether it is about the second queue, which has less to do."""
_FINISHED = st.sampled_from(("failed", "completed"))
_RETENTION: tuple[Json, ...] = (True, False, 0, 1, {"count": 1}, {"age": 3600}, {"age": 3600, "count": 2})

OPTIONS: Mapping[str, SearchStrategy[Any]] = {
    "delay": st.sampled_from((LATER, 2 * LATER, 5 * LATER)),
    "due": st.sampled_from((0, 1, 5)),
    "priority": st.sampled_from((1, 2, 10, 2_097_151)),
    "lifo": st.just(True),
    "attempts": st.sampled_from((1, 2, 3)),
    "backoff": st.sampled_from((LATER, {"type": "fixed", "delay": LATER}, {"type": "exponential", "delay": LATER})),
    "jobId": st.sampled_from(("a", "b", "ü 1/")),
    "removeOnComplete": st.sampled_from(_RETENTION),
    "removeOnFail": st.sampled_from(_RETENTION),
    "keepLogs": st.sampled_from((1, 2)),
    "deduplication": st.sampled_from(
        (
            *({"id": "d"}, {"id": "d", "ttl": LATER}, {"id": "e", "ttl": LATER, "extend": True}),
            *({"id": "d", "ttl": LATER, "replace": True}, {"id": "e", "replace": True}),
        )
    ),
    "timestamp": st.sampled_from((PAST, PAST + 1)),
    "parent": _NUMBERS,
}
"""Options of a job. `due` stands for a delay that is over, `parent` for a job that is there."""
_FLAGS = (
    *("failParentOnFailure", "ignoreDependencyOnFailure", "removeDependencyOnFailure"),
    "continueParentOnFailure",
)


class World:
    """What is known while a sequence runs: the keys of the reference, and the jobs that are held."""

    def __init__(self) -> None:
        self.state: State = {}
        self.held: list[tuple[str, str, str]] = []
        self.flows = 0

    def job(self, queue: str, number: int, *names: str) -> str:
        """Choose a job that one of the lists or sets holds, if there is one."""
        found = [id for name in names for id in ids_in(self.state, queue, name)]
        ids = found or job_ids(self.state, queue)
        return GONE if not ids or number == 15 else str(ids[number % len(ids)])


class Operation(NamedTuple):
    """A request: how often it comes, what is drawn for it, and its arguments."""

    weight: int
    drawn: Mapping[str, SearchStrategy[Any]]
    args: Callable[[World, Step], Args | None]
    needs: tuple[str, ...] = ()
    """Other requests without which it makes no sense."""


def _queue(step: Step) -> str:
    return QUEUES[int(step["p"])]


def _only_queue(world: World, step: Step) -> Args:
    return {"queue": _queue(step)}


def _with(*members: str) -> Callable[[World, Step], Args]:
    def args(world: World, step: Step) -> Args:
        return {"queue": _queue(step), **{name: step[name] for name in members}}

    return args


def _job_in(*names: str, members: Sequence[str] = ()) -> Callable[[World, Step], Args]:
    def args(world: World, step: Step) -> Args:
        queue = _queue(step)
        return {
            "queue": queue,
            "id": world.job(queue, step["job"], *names),
            **{name: step[name] for name in members},
        }

    return args


def _read(world: World, step: Step) -> Args:
    """Return a job to read: active and finished ones have most to show, and are few."""
    queue = _queue(step)
    return {"queue": queue, "id": world.job(queue, step["job"], *([step["of"]] if step["of"] else []))}


def _held(*members: str) -> Callable[[World, Step], Args | None]:
    def args(world: World, step: Step) -> Args | None:
        if not world.held:
            return None
        queue, id, token = world.held[int(step["job"]) % len(world.held)]
        token = "wrong" if step["job"] == 15 else token
        return {"queue": queue, "id": id, "token": token, **{name: step[name] for name in members}}

    return args


def _options(world: World, drawn: Step) -> Args:
    """Return the options of a job in BullMQ's words."""
    found: dict[str, Any] = dict(drawn)
    due = found.pop("due", None)
    if due is not None:
        found |= {"delay": due, "timestamp": PAST}
    parent = found.pop("parent", None)
    flag = found.pop("flag", None)
    if parent is not None:
        queue = QUEUES[int(parent) % 2]
        found["parent"] = {"id": world.job(queue, parent), "queue": f"{PREFIX}:{queue}"}
        if flag is not None:
            found[flag] = True
    return found


def _added(world: World, step: Step) -> Args:
    return {"queue": _queue(step), "name": step["name"], "data": step["data"], "opts": _options(world, step["opts"])}


def _bulk(world: World, step: Step) -> Args:
    jobs: list[Json] = [{**job, "opts": _options(world, job["opts"])} for job in step["jobs"]]
    return {"queue": _queue(step), "jobs": jobs}


def _flow(world: World, step: Step) -> Args:
    """Return a flow. The ids below the root are given: scripts walk over sets of children in an order that depends on
    their names."""
    world.flows += 1

    def node(drawn: Step, id: str | None, place: str) -> Args:
        opts = drawn["opts"] if id is None else {**drawn["opts"], "jobId": id}
        made: Args = {"name": drawn["name"], "queueName": _queue(drawn), "data": drawn["data"], "opts": opts}
        children: list[Json] = [
            node(child, f"{place}.{at}", f"{place}.{at}") for at, child in enumerate(drawn.get("children", ()))
        ]
        return {**made, "children": children} if children else made

    return {"flow": node(step["flow"], None, f"f{world.flows}")}


def _priorities(world: World, step: Step) -> Args:
    return {"queue": _queue(step), "priorities": [0, 1, 2, 10]}


def _listed(world: World, step: Step) -> Args:
    return {"queue": _queue(step), "states": [step["state"]], "start": 0, "end": step["end"], "asc": step["asc"]}


_JOB = {"job": _NUMBERS}
_STATES = ("completed", "failed", "waiting", "delayed", "prioritized", "active", "waiting-children", "paused")
_STATE = st.sampled_from(_STATES)
_REPEAT = st.sampled_from(
    (
        *({"every": HOUR}, {"every": HOUR, "limit": 2}, {"every": HOUR, "startDate": UNTIL[0]}),
        *({"pattern": "0 0 1 1 *", "tz": "UTC"}, {"pattern": "30 3 29 2 *", "tz": "Europe/Berlin", "limit": 3}),
    )
)


def _strategies(
    options: Collection[str],
) -> tuple[SearchStrategy[Step], SearchStrategy[Step], SearchStrategy[Step]]:
    """Return options of a job, of one of several, and of one in a flow, of the names that a client knows."""
    known = {name: each for name, each in OPTIONS.items() if name in options}
    if "delay" in options and "timestamp" in options:
        known["due"] = OPTIONS["due"]
    if "parent" in known:
        known["flag"] = st.sampled_from(_FLAGS)
    # Where several are added at once, each client reports in its own way that the parent of one is missing.
    bulk = {name: each for name, each in known.items() if name not in ("parent", "flag")}
    inner = {name: each for name, each in bulk.items() if name not in ("deduplication", "due", "timestamp", "jobId")}
    return _some(known, 3), _some(bulk, 3), _some(inner, 2)


def _some(known: Mapping[str, SearchStrategy[Any]], most: int) -> SearchStrategy[Step]:
    """Return the strategy of some of these options, `most` of them at most."""
    if not known:
        return st.just(_EMPTY)
    names = st.lists(st.sampled_from(sorted(known)), max_size=most, unique=True)
    return names.flatmap(lambda chosen: st.fixed_dictionaries({name: known[name] for name in chosen}))


def operations(options: Collection[str]) -> dict[str, Operation]:
    """Return all requests of which sequences are made, for a client that knows these options of a job."""
    opts, bulk, inner = _strategies(options)
    name = st.sampled_from(("n", "mail/ü"))
    template = _together(name=name, data=_DATA, opts=st.sampled_from((_EMPTY, {"priority": 2})))
    leaf = _together(name=name, p=st.booleans(), data=_DATA, opts=inner)
    flagged = st.tuples(leaf, st.none() | st.sampled_from(_FLAGS)).map(_with_flag)
    branch = st.tuples(flagged, st.lists(flagged, max_size=2)).map(_with_children)
    root = st.tuples(leaf, st.lists(branch, min_size=1, max_size=3)).map(_with_children)
    job = _together(name=name, data=_DATA, opts=bulk)
    return {
        "add": Operation(24, {"name": name, "data": _DATA, "opts": opts}, _added),
        "add_bulk": Operation(4, {"jobs": st.lists(job, min_size=1, max_size=3)}, _bulk),
        "flow": Operation(5, {"flow": root}, _flow),
        "take": Operation(20, {}, _only_queue),
        "finish": Operation(16, {**_JOB, "value": _VALUES}, _held("value"), ("take",)),
        "fail": Operation(
            14,
            {**_JOB, "reason": st.sampled_from(("boom", "schön")), "fatal": st.sampled_from((False, False, True))},
            _held("reason", "fatal"),
            ("take",),
        ),
        "delay": Operation(2, {**_JOB, "until": st.sampled_from(UNTIL)}, _held("until"), ("take",)),
        "release": Operation(2, _JOB, _held(), ("take",)),
        "wait_for_children": Operation(3, _JOB, _held(), ("take",)),
        "extend_lock": Operation(2, {**_JOB, "duration": st.just(2 * LOCK_MS)}, _held("duration"), ("take",)),
        "promote": Operation(3, _JOB, _job_in("delayed")),
        "retry": Operation(3, {**_JOB, "state": _FINISHED}, _retried),
        "change_priority": Operation(
            3,
            {**_JOB, "priority": st.sampled_from((0, 1, 7)), "lifo": st.booleans()},
            _job_in("wait", "paused", "prioritized", "delayed", members=("priority", "lifo")),
        ),
        "change_delay": Operation(
            2, {**_JOB, "delay": st.sampled_from((LATER, 3 * LATER))}, _job_in("delayed", members=("delay",))
        ),
        "remove": Operation(3, {**_JOB, "remove_children": st.booleans()}, _job_in(members=("remove_children",))),
        "update_data": Operation(2, {**_JOB, "data": _DATA}, _job_in(members=("data",))),
        "progress": Operation(
            2, {**_JOB, "progress": st.sampled_from((0, 50, 99.5, {"step": 1}))}, _job_in(members=("progress",))
        ),
        "log": Operation(3, {**_JOB, "row": st.sampled_from(("row", "ü", ""))}, _job_in(members=("row",))),
        "clear_logs": Operation(1, {**_JOB, "keep": st.sampled_from((0, 1))}, _job_in(members=("keep",))),
        "remove_parent": Operation(1, _JOB, _job_in()),
        "remove_children": Operation(1, _JOB, _job_in("waiting-children")),
        "job": Operation(4, {**_JOB, "of": st.sampled_from(("", "active", "completed", "failed"))}, _read),
        "state": Operation(3, _JOB, _job_in()),
        "counts": Operation(2, {}, _only_queue),
        "priorities": Operation(1, {}, _priorities),
        "jobs": Operation(3, {"state": _STATE, "end": st.sampled_from((-1, 0, 1)), "asc": st.booleans()}, _listed),
        "logs": Operation(2, _JOB, _job_in()),
        "dependencies": Operation(2, _JOB, _job_in("waiting-children")),
        "children_values": Operation(2, _JOB, _job_in("waiting-children", "active")),
        "pause": Operation(1, {}, _only_queue),
        "resume": Operation(3, {}, _only_queue),
        "is_paused": Operation(1, {}, _only_queue),
        "drain": Operation(1, {"delayed": st.booleans()}, _with("delayed")),
        "clean": Operation(
            2,
            {"grace": st.sampled_from((0, HOUR)), "limit": st.sampled_from((0, 1)), "state": _STATE},
            _with("grace", "limit", "state"),
        ),
        "obliterate": Operation(1, {"force": st.booleans()}, _with("force")),
        "retry_jobs": Operation(1, {"state": _FINISHED}, _with("state")),
        "promote_jobs": Operation(1, {}, _only_queue),
        "set_concurrency": Operation(1, {"concurrency": st.sampled_from((1, 2))}, _with("concurrency")),
        "remove_deduplication": Operation(2, {"id": st.sampled_from(("d", "e"))}, _with("id")),
        "deduplication_job": Operation(1, {"id": st.sampled_from(("d", "e"))}, _with("id")),
        "upsert_scheduler": Operation(
            4,
            {"id": st.sampled_from(("s", "t")), "repeat": _REPEAT, "template": template},
            _with("id", "repeat", "template"),
        ),
        "schedulers": Operation(1, {}, _only_queue),
        "remove_scheduler": Operation(2, {"id": st.sampled_from(("s", "t"))}, _with("id")),
    }


def _together(**parts: SearchStrategy[Any]) -> SearchStrategy[Step]:
    return st.fixed_dictionaries(parts)


def _with_flag(pair: tuple[Step, str | None]) -> Step:
    node, flag = pair
    return node if flag is None else {**node, "opts": {**node["opts"], flag: True}}


def _with_children(pair: tuple[Step, list[Step]]) -> Step:
    node, children = pair
    return {**node, "children": children}


def _retried(world: World, step: Step) -> Args:
    queue = _queue(step)
    return {"queue": queue, "id": world.job(queue, step["job"], step["state"]), "state": step["state"]}


def chosen(can: Collection[str], options: Collection[str] | None) -> dict[str, Operation]:
    """Return the requests that a client can do."""
    found = operations(OPTIONS if options is None else options)
    return {name: each for name, each in found.items() if name in can and all(needed in can for needed in each.needs)}


def sequences(known: Mapping[str, Operation], length: int) -> SearchStrategy[list[Step]]:
    """Return the strategy of sequences of at most `length` steps.

    Steps may be skipped, to which shrinking brings those that are not needed: lists that may be short mostly are.
    """
    weighted = [_SKIPPED["call"], *(name for name, each in known.items() for _ in range(each.weight))]
    drawn: dict[str, SearchStrategy[Step]] = {_SKIPPED["call"]: st.just(_SKIPPED)}
    for name, each in known.items():
        drawn[name] = _together(call=st.just(name), p=_OTHER, **each.drawn)
    step = st.sampled_from(weighted).flatmap(lambda name: drawn[name])
    return st.lists(step, min_size=length // 2, max_size=length)


def request(known: Mapping[str, Operation], world: World, step: Step) -> Request | None:
    """Return the request that a step is now, None where there is nothing that it could be about."""
    if step == _SKIPPED:
        return None
    args = known[step["call"]].args(world, step)
    return None if args is None else {"call": step["call"], "args": args}
