"""What is read from a server: bounded reads, and nothing that writes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from redis.exceptions import AuthenticationError, RedisError, ResponseError

from bullmq_doctor.server import (
    SCANNED,
    client_names,
    connected,
    count_workers,
    find_queues,
    is_cluster,
    port_name,
    scan,
)
from bullmq_protocol.common.keys import DEFAULT_PREFIX, QueueKeys
from bullmq_protocol.errors import BullMQError
from bullmq_protocol.net.server_info import ServerInfo
from bullmq_protocol.net.topology import Address, parse_address

SAMPLE = 100
"""Jobs per list that are looked at one by one."""
WEIGHED = 20
"""Finished jobs per state whose memory is measured."""
CHILDREN = 5
"""Children per waiting parent that are looked for."""

_LISTS = ("wait", "paused", "active")
_SETS = ("prioritized", "delayed", "waiting-children", "completed", "failed")
_SECOND_LOOK_S = 0.25
_DELAY_BITS = 4096


class Unreachable(Exception):
    """The server cannot be examined: no connection, a refused login, no permission for `INFO`."""


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What concerns all queues. Sizes in bytes."""

    address: str
    version: tuple[int, ...] = (7, 0, 0)
    cluster: bool = False
    role: str = "master"
    policy: str = "noeviction"
    memory_limit: int = 0
    memory_used: int = 0
    append_only: bool = True
    snapshots: bool = True
    last_write: str = "ok"
    skew_ms: int = 0
    scripts: str | None = None
    """The error of a script that does nothing, None if it ran."""
    clients: str | None = None
    """The error of `CLIENT LIST`, None if it could be read."""
    unsearched: bool = False
    """Whether the search for queues ended before the last key."""


class QueueFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One queue; what is said of single jobs comes from at most `SAMPLE` of each list."""

    name: str
    known: bool = True
    """Whether any client has made this queue: it has a description or jobs."""
    tagged: bool = False
    counts: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    paused: bool = False
    limited: bool = False
    max_len_events: int | None = None
    version: str = ""
    """Whose object of this queue was made last, as `meta` has it: `bullmq:6.7.0`. Python ports write nothing."""
    workers: int | None = None
    """Connections by which workers wait, None if that could not be read."""
    port: bool = False
    """Whether workers of BullMQ's Python port are among them: they bear the queue's name as it is."""
    unlocked: tuple[str, ...] = ()
    """Active jobs without a lock, seen twice."""
    missing: tuple[tuple[str, str], ...] = ()
    """State and id of jobs that a list holds and of which there is no hash."""
    late_ms: int = 0
    """How long the first delayed job is due, by the server's clock."""
    unmarked: bool = False
    """Whether, twice, jobs waited, none was active, and no marker was there to wake a worker."""
    orphans: tuple[str, ...] = ()
    """Waiting parents none of whose pending children exists (at most `CHILDREN` of each are looked for)."""
    finished_bytes: int = 0
    """What completed and failed jobs hold, estimated from `WEIGHED` of each."""
    kept: tuple[str, ...] = ()
    """Deduplication ids of which a newer BullMQ keeps a job, to be added when the one before it ends."""
    stranded: tuple[str, ...] = ()
    """Those of them whose job before is over, so that nothing adds the kept one any more."""
    left: int = 0
    """Jobs that, twice, were in the list `paused` of a queue that runs."""
    repeatables: tuple[str, ...] = ()
    """Members of `repeat` that are no job schedulers: repeatable jobs of BullMQ 5."""
    unlisted: tuple[str, ...] = ()
    """Jobs of a series that no member of `repeat` stands for."""
    patterns: tuple[tuple[str, str, str], ...] = ()
    """Member, cron pattern and zone (empty: none) of what repeats by a pattern."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    server: ServerFacts
    queues: tuple[QueueFacts, ...] = ()


def look(url: str, queues: Sequence[str] = (), *, prefix: str = DEFAULT_PREFIX) -> Facts:
    """Read the facts of a server and of these queues (none named: all that `<prefix>:*:meta` finds).

    `url` is as everywhere in this library; names and prefix are as they stand in the keys, with their braces. Reads
    are bounded (`SAMPLE`, `WEIGHED`, `CHILDREN`, `SCANNED`). Raises `Unreachable`, and `UsageError` for a bad argument.
    """
    return look_at(parse_address(url), queues, prefix=prefix)


def look_at(options: Address, queues: Sequence[str] = (), *, prefix: str = DEFAULT_PREFIX) -> Facts:
    """Read the facts of a server whose address was read already."""
    wanted = [QueueKeys.of(name, prefix=prefix) for name in queues]
    try:
        with connected(options) as client:
            return _read(client, options.address, wanted, prefix)
    except AuthenticationError as error:
        raise Unreachable(f"{options.address} refuses the login: {error}") from None
    except RedisError as error:
        raise Unreachable(f"{options.address} cannot be examined: {error}") from None
    except BullMQError:
        raise
    except OSError as error:
        raise Unreachable(f"{options.address} cannot be reached: {error}") from None


def _read(client: Any, address: str, wanted: list[QueueKeys], prefix: str) -> Facts:
    server = _server(client, address)
    names, error = client_names(client)
    unsearched = False
    if not wanted:
        found, unsearched = find_queues(client, prefix, SCANNED)
        wanted = [QueueKeys.of(name, prefix=prefix) for name in sorted(found)]
    server = msgspec.structs.replace(server, clients=error, unsearched=unsearched)
    kept = _kept(client, prefix)
    return Facts(server=server, queues=tuple(_queue(client, keys, names, kept) for keys in wanted))


def _server(client: Any, address: str) -> ServerFacts:
    info: dict[str, Any] = {}
    node = client.get_primaries()[0] if is_cluster(client) else None
    at = {} if node is None else {"target_nodes": node}
    for section in ("server", "memory", "persistence", "replication", "cluster"):
        info |= client.info(section, **at)
    before = time.time()
    seconds, micros = client.time(**at)
    here = (before + time.time()) / 2
    return ServerFacts(
        address=address,
        version=ServerInfo(version_text=str(info.get("redis_version", ""))).version,
        cluster=info.get("cluster_enabled") == 1,
        role=str(info.get("role", "")),
        policy=str(info.get("maxmemory_policy", "")),
        memory_limit=int(info.get("maxmemory", 0)),
        memory_used=int(info.get("used_memory", 0)),
        append_only=info.get("aof_enabled") == 1,
        snapshots=_snapshots(client, at),
        last_write=_last_write(info),
        skew_ms=round((seconds + micros / 1e6 - here) * 1000),
        scripts=_refusal(client),
    )


def _snapshots(client: Any, at: dict[str, Any]) -> bool:
    """Whether the server saves automatically; where CONFIG is forbidden, nothing is claimed."""
    try:
        return bool(client.config_get("save", **at).get("save", ""))
    except ResponseError:
        return True


def _last_write(info: dict[str, Any]) -> str:
    failed = [name for name in ("rdb_last_bgsave_status", "aof_last_write_status") if info.get(name, "ok") != "ok"]
    return f"{failed[0]} is {info[failed[0]]}" if failed else "ok"


def _refusal(client: Any) -> str | None:
    try:
        client.eval("return 1", 0)
    except ResponseError as error:
        return str(error)
    return None


def _kept(client: Any, prefix: str) -> list[str]:
    """Return the records that a newer BullMQ has made for jobs with `keepLastIfActive`, of all queues.

    Source: specs/06-later-versions.md
    """
    return sorted(scan(client, f"{prefix}:", "*:dn:*")[0])


def _queue(client: Any, keys: QueueKeys, names: list[str] | None, records: Sequence[str]) -> QueueFacts:
    meta: dict[str, str] = client.hgetall(keys.meta)
    counts = _counts(client, keys)
    cap = meta.get("opts.maxLenEvents", "")
    unlocked, unmarked, left = _unlocked(client, keys), _is_unmarked(client, keys), _left(client, keys)
    if unlocked or unmarked or left:
        # What a worker, or a resume of many jobs, is about to put right is not to be reported: look again.
        time.sleep(_SECOND_LOOK_S)
        unlocked = [job_id for job_id in _unlocked(client, keys) if job_id in unlocked]
        unmarked = unmarked and _is_unmarked(client, keys)
        left = min(left, _left(client, keys))
    repeating = _repeating(client, keys)
    begin = f"{keys.base}dn:"
    kept = [record.removeprefix(begin) for record in records if record.startswith(begin)][:SAMPLE]
    return QueueFacts(
        name=keys.qualified,
        known=bool(meta) or any(counts.values()),
        tagged=keys.has_hash_tag,
        counts=counts,
        paused="paused" in meta,
        limited=client.pttl(keys.limiter) > 0,
        max_len_events=int(cap) if cap.isdecimal() else None,
        version=meta.get("version", ""),
        workers=count_workers(keys, names),
        port=names is not None and port_name(keys) in names,
        unlocked=tuple(unlocked),
        missing=tuple(_missing(client, keys)),
        late_ms=_late(client, keys),
        unmarked=unmarked,
        orphans=tuple(_orphans(client, keys)),
        finished_bytes=_weigh(client, keys, counts),
        kept=tuple(kept),
        stranded=tuple(each for each in kept if _is_over(client, keys, each)),
        left=left,
        # Source: specs/06-later-versions.md#sec-4-7-1
        repeatables=tuple(member for member, found in repeating if "ic" not in found),
        unlisted=tuple(_unlisted(client, keys)),
        patterns=tuple((member, at["pattern"], at.get("tz", "")) for member, at in repeating if "pattern" in at),
    )


def _counts(client: Any, keys: QueueKeys) -> dict[str, int]:
    pipeline = client.pipeline(transaction=False)
    for state in _LISTS:
        pipeline.llen(f"{keys.base}{state}")
    for state in _SETS:
        pipeline.zcard(f"{keys.base}{state}")
    return dict(zip((*_LISTS, *_SETS), pipeline.execute(), strict=True))


def _left(client: Any, keys: QueueKeys) -> int:
    """Count what is in the list `paused` of a queue that is not paused."""
    count: int = client.llen(keys.paused)
    return 0 if count == 0 or client.hexists(keys.meta, "paused") else count


def _repeating(client: Any, keys: QueueKeys) -> list[tuple[str, dict[str, str]]]:
    """Return the members of `repeat` that come first, with the record of each."""
    members: list[str] = client.zrange(keys.repeat, 0, SAMPLE - 1)
    return [(member, client.hgetall(f"{keys.repeat}:{member}")) for member in members]


def _unlisted(client: Any, keys: QueueKeys) -> Iterator[str]:
    """Return the jobs that BullMQ 5 makes, one after the other, of a job to which BullMQ 6 gave the option `repeat`.

    Source: specs/06-later-versions.md#sec-4-7-3
    """
    for state in ("delayed", "wait", "paused", "prioritized", "active"):
        yield from (job_id for job_id in _ids(client, keys, state) if job_id.startswith("repeat::"))


def _ids(client: Any, keys: QueueKeys, state: str) -> list[str]:
    """Return the jobs of a state that come first."""
    key = f"{keys.base}{state}"
    if state in _LISTS:
        # Old producers have put marker elements into the lists.
        return [job_id for job_id in client.lrange(key, -SAMPLE, -1) if not job_id.startswith("0:")]
    return list(client.zrange(key, 0, SAMPLE - 1))


def _missing(client: Any, keys: QueueKeys) -> Iterator[tuple[str, str]]:
    for state in (*_LISTS, *_SETS):
        ids = _ids(client, keys, state)
        if ids:
            pipeline = client.pipeline(transaction=False)
            for job_id in ids:
                pipeline.exists(keys.job(job_id))
            there = pipeline.execute()
            gone = [job_id for job_id, exists in zip(ids, there, strict=True) if not exists]
            # Whatever was removed since then is not in its list any more.
            yield from ((state, job_id) for job_id in gone if job_id in _ids(client, keys, state))


def _unlocked(client: Any, keys: QueueKeys) -> list[str]:
    ids = _ids(client, keys, "active")
    pipeline = client.pipeline(transaction=False)
    for job_id in ids:
        pipeline.exists(keys.lock(job_id))
    return [job_id for job_id, locked in zip(ids, pipeline.execute() if ids else [], strict=True) if not locked]


def _late(client: Any, keys: QueueKeys) -> int:
    first: list[tuple[str, float]] = client.zrange(keys.delayed, 0, 0, withscores=True)
    if not first:
        return 0
    if is_cluster(client):
        seconds, micros = client.time(target_nodes=client.get_node_from_key(keys.delayed))
    else:
        seconds, micros = client.time()
    late: int = round(seconds * 1000 + micros / 1000 - first[0][1] / _DELAY_BITS)
    return max(0, late)


def _is_unmarked(client: Any, keys: QueueKeys) -> bool:
    ready = client.llen(keys.wait) + client.zcard(keys.prioritized)
    return bool(ready) and not client.llen(keys.active) and not client.exists(keys.marker)


def _orphans(client: Any, keys: QueueKeys) -> Iterator[str]:
    for parent in _ids(client, keys, "waiting-children"):
        children: list[str] = client.srandmember(keys.dependencies(parent), CHILDREN)
        # The second look is for one whose last child was just about to let it go.
        if not any(map(client.exists, children)) and client.zscore(keys.waiting_children, parent) is not None:
            yield parent


def _is_over(client: Any, keys: QueueKeys, deduplication_id: str) -> bool:
    """Tell whether no unfinished job holds this deduplication id."""
    owner = client.get(keys.deduplication(deduplication_id))
    return owner is None or not client.exists(keys.job(owner)) or client.hexists(keys.job(owner), "finishedOn")


def _weigh(client: Any, keys: QueueKeys, counts: dict[str, int]) -> int:
    total = 0.0
    for state in ("completed", "failed"):
        ids: list[str] = client.zrange(f"{keys.base}{state}", 0, WEIGHED - 1)
        sizes = [size for size in (client.memory_usage(keys.job(job_id), samples=0) for job_id in ids) if size]
        if sizes:
            total += sum(sizes) / len(sizes) * counts[state]
    return round(total)
