"""Settings that all workers of a queue obey: global concurrency and global rate limit."""

from __future__ import annotations

from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.commands._shared import Limiter
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.reply import Reply, as_int, as_list
from bullmq_protocol.common.units import Millis, check_whole
from bullmq_protocol.errors import UnexpectedReply


def set_global_concurrency(keys: QueueKeys, concurrency: int) -> Command[int]:
    """Let at most `concurrency` jobs of the queue be active at a time.

    Keys:    meta
    Reply:   1 new, 0 changed -> int
    Raises:  UsageError
    Repeat:  safe
    Source:  specs/03-transitions-admin-getters.md#sec-10
    """
    check_whole("concurrency", concurrency, least=1)
    return Command("HSET", (keys.meta,), ("concurrency", concurrency), as_int, repeat=Repeat.SAFE)


def get_global_concurrency(keys: QueueKeys) -> Command[int | None]:
    """Return the global concurrency.

    Keys:    meta
    Reply:   the number as text, or nil -> int, or None when it is not set
    Raises:  UnexpectedReply
    Repeat:  safe
    Source:  specs/03-transitions-admin-getters.md#sec-10
    """
    return Command("HGET", (keys.meta,), ("concurrency",), _optional_int, repeat=Repeat.SAFE)


def remove_global_concurrency(keys: QueueKeys) -> Command[int]:
    """Lift the global concurrency.

    Keys:    meta
    Reply:   1, or 0 when it was not set -> int
    Repeat:  safe
    Source:  specs/03-transitions-admin-getters.md#sec-10
    """
    return Command("HDEL", (keys.meta,), ("concurrency",), as_int, repeat=Repeat.SAFE)


def set_global_rate_limit(keys: QueueKeys, maximum: int, duration_ms: Millis) -> Command[int]:
    """Let at most `maximum` jobs of the queue start per `duration_ms`, whatever the workers' own limits.

    Keys:    meta
    Reply:   number of fields that are new -> int
    Raises:  UsageError
    Repeat:  safe
    Source:  specs/03-transitions-admin-getters.md#sec-10
    """
    check_whole("maximum", maximum, least=1)
    check_whole("duration", duration_ms, least=1)
    return Command("HSET", (keys.meta,), ("max", maximum, "duration", duration_ms), as_int, repeat=Repeat.SAFE)


def get_global_rate_limit(keys: QueueKeys) -> Command[Limiter | None]:
    """Return the global rate limit.

    Keys:    meta
    Reply:   two texts or nils -> Limiter, or None unless both are set
    Raises:  UnexpectedReply
    Repeat:  safe
    Source:  specs/03-transitions-admin-getters.md#sec-10
    """
    return Command("HMGET", (keys.meta,), ("max", "duration"), _optional_limiter, repeat=Repeat.SAFE)


def remove_global_rate_limit(keys: QueueKeys) -> Command[int]:
    """Lift the global rate limit.

    Keys:    meta
    Reply:   number of fields that were set -> int
    Repeat:  safe
    Source:  specs/03-transitions-admin-getters.md#sec-10
    """
    return Command("HDEL", (keys.meta,), ("max", "duration"), as_int, repeat=Repeat.SAFE)


def _optional_int(reply: Reply) -> int | None:
    return None if reply in (None, b"", "") else as_int(reply)


def _optional_limiter(reply: Reply) -> Limiter | None:
    parts = as_list(reply)
    if len(parts) != 2:
        raise UnexpectedReply("two values", reply)
    maximum, duration = map(_optional_int, parts)
    if maximum is None or duration is None:
        return None
    return Limiter(max=maximum, duration=duration)
