"""Read a flow back as a tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from bullmq_protocol.command import Batch, Command, Operation
from bullmq_protocol.commands.getters import (
    FailuresPage,
    KeysPage,
    ValuesPage,
    range_failed,
    scan_ignored,
    scan_processed,
    scan_unprocessed,
)
from bullmq_protocol.commands.jobs import get_job
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.units import check_whole
from bullmq_protocol.errors import BullMQError
from bullmq_protocol.model.job import JobRecord

AT_ONCE = 25
"""How many parents are asked for their children in one round trip."""


class FoundFlow(msgspec.Struct, frozen=True):
    """Jobs with the index of the one above (-1: none), level by level; per index the keys of children that are gone."""

    jobs: list[tuple[int, FoundJob]]
    missing: dict[int, list[str]]


class FoundJob(msgspec.Struct, frozen=True):
    """A job and its queue."""

    keys: QueueKeys
    record: JobRecord


def read_flow(keys: QueueKeys, job_id: str, *, depth: int = 10, max_children: int = 20) -> Operation[FoundFlow | None]:
    """Read a job with its children down to `depth` levels (1: the job alone), at most `max_children` of each kind.

    The kinds are finished, pending, failed, ignored, in this order. None when there is no such job.

    Steps:   two round trips per level and 25 jobs, more where a set of children is large
    Atomic:  no
    Raises:  UsageError
    Source:  specs/04-schedulers-flows-events.md#sec-7-5
    """
    check_whole("depth", depth, least=1)
    check_whole("max_children", max_children, least=1)
    root = yield from get_job(keys, job_id)
    if root is None:
        return None
    nodes: list[tuple[int, FoundJob]] = [(-1, FoundJob(keys, root))]
    missing: dict[int, list[str]] = {}
    level: list[int] = [0]
    for _ in range(depth - 1):
        wanted: list[tuple[int, str]] = []
        for first in range(0, len(level), AT_ONCE):
            part = level[first : first + AT_ONCE]
            below = yield from _children([nodes[index][1] for index in part], max_children)
            wanted += [(index, key) for index, found in zip(part, below, strict=True) for key in found]
        level = []
        for first in range(0, len(wanted), AT_ONCE * 4):
            part_wanted = wanted[first : first + AT_ONCE * 4]
            places = [_place(keys, key) for _, key in part_wanted]
            answer = yield from Batch(tuple(get_job(child_keys, id) for child_keys, id in places))
            records: Sequence[JobRecord | None] = _unwrapped(answer)
            for (above, key), (child_keys, _id), record in zip(part_wanted, places, records, strict=True):
                if record is None:
                    missing.setdefault(above, []).append(key)
                else:
                    level.append(len(nodes))
                    nodes.append((above, FoundJob(child_keys, record)))
        if not level:
            break
    return FoundFlow(nodes, missing)


def _children(parents: Sequence[FoundJob], most: int) -> Operation[list[list[str]]]:
    readers = (scan_processed, scan_unprocessed, range_failed, scan_ignored)
    questions = (read(each.keys, each.record.id, count=most) for each in parents for read in readers)
    pages = _unwrapped((yield from Batch(tuple(questions))))
    found: list[list[str]] = []
    for at, parent in enumerate(parents):
        keys: dict[str, None] = {}
        for read, page in zip(readers, pages[at * len(readers) :], strict=False):
            some = dict.fromkeys(_keys_of(page))
            cursor = page.cursor
            # A scan may come back with less than was asked for.
            while cursor and len(some) < most:
                question: Command[Any] = read(parent.keys, parent.record.id, cursor=cursor, count=most)
                more = yield from question
                some.update(dict.fromkeys(_keys_of(more)))
                cursor = more.cursor
            keys.update(dict.fromkeys(list(some)[:most]))
        found.append(list(keys))
    return found


def _keys_of(page: ValuesPage | FailuresPage | KeysPage) -> Sequence[str]:
    if isinstance(page, KeysPage):
        return page.children
    return list(page.processed if isinstance(page, ValuesPage) else page.ignored)


def _place(near: QueueKeys, key: str) -> tuple[QueueKeys, str]:
    """Split the key of a job. In the prefix of the root all is clear; else the prefix is taken to have no colon."""
    prefix = near.prefix
    if key.startswith(f"{prefix}:"):
        rest = key[len(prefix) + 1 :]
    else:
        prefix, _, rest = key.partition(":")
    name, _, job_id = rest.partition(":")
    return QueueKeys.of(name or "?", prefix=prefix, switches=near.switches), job_id


def _unwrapped(answer: Sequence[Any]) -> Sequence[Any]:
    for each in answer:
        if isinstance(each, BullMQError):
            raise each
    return answer
