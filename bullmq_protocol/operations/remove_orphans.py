"""Remove jobs that are in no state of their queue, in pages."""

from __future__ import annotations

from typing import Final

import msgspec

from bullmq_protocol.command import Batch, Command, Operation, Repeat
from bullmq_protocol.commands.cleaning import remove_orphaned_jobs
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.reply import Reply, as_list, as_optional_text, as_text
from bullmq_protocol.common.units import check_whole
from bullmq_protocol.errors import BullMQError, UnexpectedReply
from bullmq_protocol.lazy import lazy_pattern
from bullmq_protocol.operations.paging import Page

_SPECIAL: Final = lazy_pattern(r"([\[\]*?^\\-])")


class Scanned(msgspec.Struct, frozen=True):
    """Part of the keys of a server, and where the next part begins; the last one says `0`."""

    cursor: str
    keys: list[str]


class RemoveOrphans(msgspec.Struct, frozen=True, kw_only=True):
    """Remove the jobs that no list or set of the queue knows, looking at about `count` keys of the server at a time. A
    page is the number of jobs it removed.

    Only a key `<prefix>:<queue>:<id>` counts that is a hash with a job's timestamp: BullMQ's own sweep also takes
    metrics, deduplicated jobs to come, and keys of programs. Jobs whose ids have colons stay. Raises `UsageError`.

    `in_cluster`: the keys are those of the node that has the queue. While its slot moves to another node, nothing is
    removed: that node refuses the call.

    Source: specs/06-later-versions.md#sec-4-12
    """

    count: int = 1000
    cursor: str = "0"
    in_cluster: bool = False

    def page(self, keys: QueueKeys) -> Operation[Page[int]]:
        check_whole("count", self.count, least=1)
        pattern = _SPECIAL.sub(r"\\\1", keys.base) + "*"
        scan = Command("SCAN", (), (self.cursor, "MATCH", pattern, "COUNT", self.count), _scanned, repeat=Repeat.SAFE)
        if self.in_cluster:
            # A key in the same transaction leads to the node.
            _, found = yield from Batch((_stamp(keys, "meta"), scan), atomic=True)
            if isinstance(found, BullMQError):
                raise found
        else:
            found = yield from scan
        ids = [key.removeprefix(keys.base) for key in found.keys]
        candidates = [job_id for job_id in dict.fromkeys(ids) if job_id and ":" not in job_id]
        removed = 0
        if candidates:
            stamps = yield from Batch(tuple(_stamp(keys, job_id) for job_id in candidates))
            # An error: it is no hash.
            jobs = [job_id for job_id, stamp in zip(candidates, stamps, strict=True) if isinstance(stamp, str)]
            if jobs:
                removed = yield from remove_orphaned_jobs(keys, jobs, in_cluster=self.in_cluster)
        return Page(removed, None if found.cursor == "0" else msgspec.structs.replace(self, cursor=found.cursor))


def _stamp(keys: QueueKeys, job_id: str) -> Command[str | None]:
    return Command("HGET", (keys.job(job_id),), ("timestamp",), as_optional_text, repeat=Repeat.SAFE)


def _scanned(reply: Reply) -> Scanned:
    parts = as_list(reply)
    if len(parts) != 2:
        raise UnexpectedReply("a cursor and keys", reply)
    return Scanned(as_text(parts[0]), [as_text(key) for key in as_list(parts[1])])
