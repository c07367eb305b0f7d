"""Let what expires by the server's clock follow a clock of a test's."""

from __future__ import annotations

import re
from typing import Any, Final

from bullmq_protocol.command import Batch, Command, Operation, Repeat
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.reply import Reply, as_bool, as_int, as_list, as_text
from bullmq_protocol.common.units import Millis, check_whole
from bullmq_protocol.errors import BullMQError, UnexpectedReply

_SPECIAL: Final = re.compile(r"([\[\]*?^\\-])")
_COUNT: Final = 1000


def shorten_expiry(keys: QueueKeys, ms: Millis, *, locks: bool = False) -> Operation[int]:
    """Let the queue's keys that expire do so earlier by `ms`: rate limits, deduplication, the stalled check; return how
    many there were.

    The locks of jobs are left as they are, since the worker that holds one would have renewed it. `locks` True treats
    them as the others: their workers have died.

    Steps:   two round trips for about 1,000 keys of the server, a third where some expire
    Atomic:  no
    Raises:  UsageError
    """
    check_whole("ms", ms, least=0)
    pattern = _SPECIAL.sub(r"\\\1", keys.base) + "*"
    cursor, changed = "0", 0
    while True:
        scan = Command("SCAN", (), (cursor, "MATCH", pattern, "COUNT", _COUNT), _scanned, repeat=Repeat.SAFE)
        # In a cluster a key in the same transaction leads to the node.
        exists = Command("EXISTS", (keys.meta,), (), as_bool, repeat=Repeat.SAFE)
        _, found = yield from Batch((exists, scan), atomic=True)
        if isinstance(found, BullMQError):
            raise found
        cursor, names = found
        names = [name for name in names if locks or not name.endswith(":lock")]
        if names:
            left = yield from Batch(tuple(Command("PTTL", (name,), (), as_int, repeat=Repeat.SAFE) for name in names))
            changes: list[Command[Any]] = [
                _change(name, each - ms) for name, each in zip(names, left, strict=True) if _expires(each)
            ]
            if changes:
                yield from Batch(tuple(changes))
            changed += len(changes)
        if cursor == "0":
            return changed


def _expires(left: Any) -> bool:
    if isinstance(left, BullMQError):
        raise left
    return bool(left > 0)


def _change(name: str, left: Millis) -> Command[Any]:
    if left > 0:
        return Command("PEXPIRE", (name,), (left,), as_bool)
    return Command("UNLINK", (name,), (), as_int)


def _scanned(reply: Reply) -> tuple[str, list[str]]:
    parts = as_list(reply)
    if len(parts) != 2:
        raise UnexpectedReply("a cursor and keys", reply)
    return as_text(parts[0]), [as_text(key) for key in as_list(parts[1])]
