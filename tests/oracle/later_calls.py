"""Calls of what came after 5.62.0 (06 §11): new commands, and what later versions take in older ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from tests.oracle.calls import Arg, Call, P, Q, T, get_counts, pack, pause
from tests.oracle.layouts import whole


def deferring(call: Call, flag: Any = "1") -> Call:
    """Give an add the tenth element of its packed array: whoever adds releases the parent."""
    return call.with_arg(0, pack([*msgspec.msgpack.decode(bytes(call.args[0])), flag]))  # type: ignore[arg-type]


def then_fetch(call: Call, fetch: Arg = "1", **options: Any) -> Call:
    """Let moveToDelayed fetch the next job; `options` go into the packed map."""
    packed = {"token": "tk2", "lockDuration": 30000} | options
    return whole(call).with_arg(7, fetch).with_arg(8, pack(packed))


def resetting(call: Call, made: Arg = "1", started: Arg = "1") -> Call:
    """Let reprocessJob reset the attempts made and the attempts started."""
    return whole(call).with_arg(4, made).with_arg(5, started)


def pausing(how: str, flag: Arg = "1", base: str = Q) -> Call:
    """Pause (`paused`), resume (`resumed`) or heal (`healed`), with the flag whether to emit the event."""
    return replace(pause(base, on=how == "paused"), args=(how, flag))


def due_counts(cut: Arg, base: str = Q, *names: Arg) -> Call:
    """Count jobs per state, of the delayed ones those that are due before a moment."""
    call = get_counts(base, *names)
    return replace(call, args=(cut, *call.args))


def get_jobs(
    base: str = Q, start: Arg = "0", end: Arg = "-1", *names: Arg, ascending: Arg = "0", rounds: Arg = "5"
) -> Call:
    """Read ids and hashes per state."""
    return Call("getJobs", (base,), (start, end, ascending, rounds, *names))


def remove_orphans(base: str, states: tuple[str, ...], parts: tuple[str, ...], *ids: Arg) -> Call:
    """Delete the keys of ids that no state has."""
    return Call("removeOrphanedJobs", (base,), (str(len(states)), *states, str(len(parts)), *parts, *ids))


def remove_deduplication_key(base: str = Q, key: str = "d", id: Arg = "1") -> Call:
    """Let a job give up its deduplication key."""
    return Call("removeDeduplicationKey", (f"{base}de:{key}",), (id,))


def release_parent(base: str = P, id: str = "P", *, at: Arg = T) -> Call:
    """Release a parent that waits for no child."""
    key = base + id
    return Call("releaseParentIfNoPendingDependencies", (key, f"{key}:dependencies"), (base[:-1], id, str(at)))
