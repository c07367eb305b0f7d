"""One look at several queues: counts, rates, the job that waits longest. In two round trips, whatever their number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from bullmq_cli.ctl.session import Session
from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.commands.events import read_events_back
from bullmq_protocol.commands.getters import get_ranges
from bullmq_protocol.commands.queues import get_job_counts, is_paused
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.reply import Reply, as_fields, as_list, as_text
from bullmq_protocol.events.stream import RawEntry, event_time

COUNTED: Final = ("waiting", "paused", "active", "delayed", "prioritized", "waiting-children", "completed", "failed")
RATED: Final = ("added", "completed", "failed")
_READY: Final = ("waiting", "paused", "prioritized")
_EVENTS: Final = 1000
"""How many events of a queue are read, the newest ones."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One queue at one moment. Rates are jobs per second; `oldest_ms`: for how long the job has waited that would run
    next, None if none does; `workers`: None if the server does not tell."""

    queue: str
    is_paused: bool
    counts: dict[str, int]
    rates: dict[str, float]
    oldest_ms: int | None
    workers: int | None = None

    @property
    def ready(self) -> int:
        """How many jobs could run now, but for a pause."""
        return sum(self.counts[state] for state in _READY)

    def fields(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "queue": self.queue,
            "is_paused": self.is_paused,
            "workers": self.workers,
            **self.counts,
            **{f"{name}_per_s": round(rate, 3) for name, rate in self.rates.items()},
            "oldest_waiting_ms": self.oldest_ms,
        }


def look(
    session: Session, all_keys: Sequence[QueueKeys], workers: Callable[[QueueKeys], int | None], window_ms: int
) -> list[Look]:
    """Look at queues. `window_ms`: the time before now that rates are of."""
    session.check(all_keys)
    asked: list[Command[Any]] = [Command("TIME", (), (), _moment, repeat=Repeat.SAFE)]
    for keys in all_keys:
        asked += [
            get_job_counts(keys),
            is_paused(keys),
            get_ranges(keys, _READY, start=0, end=0, ascending=True),
            read_events_back(keys, count=_EVENTS),
        ]
    now, *found = session.answers(asked) if all_keys else (0,)
    parts = [found[start : start + 4] for start in range(0, len(found), 4)]
    stamps = [_stamp(keys, each) for keys, part in zip(all_keys, parts, strict=True) for each in part[2]]
    ready = iter(session.answers(stamps))
    looks: list[Look] = []
    for keys, (counts, paused, ids, entries) in zip(all_keys, parts, strict=True):
        since = [stamp for stamp in (next(ready) for _ in ids) if stamp is not None]
        looks.append(
            Look(
                queue=keys.name,
                is_paused=paused,
                counts={state: counts[state] for state in COUNTED},
                rates=rates(entries, now, window_ms),
                oldest_ms=max(0, now - min(since)) if since else None,
                workers=workers(keys),
            )
        )
    return looks


def rates(entries: Sequence[RawEntry], now: int, window_ms: int) -> dict[str, float]:
    """Return jobs per second of each kind of event, from the newest entries of a stream, the newest first.

    If they do not reach back over the whole window, what they reach over counts.
    """
    counts = dict.fromkeys(RATED, 0)
    begin = now - window_ms
    moments = [event_time(entry.entry_id) or 0 for entry in entries]
    for entry, moment in zip(entries, moments, strict=True):
        kind = as_fields(entry.fields).get("event", b"").decode("utf-8", "replace")
        if moment > begin and kind in counts:
            counts[kind] += 1
    reach = now - moments[-1] if len(entries) >= _EVENTS and moments[-1] > begin else window_ms
    return {kind: count * 1000 / max(1, reach) for kind, count in counts.items()}


def _moment(reply: Reply) -> int:
    seconds, micros = (int(as_text(part)) for part in as_list(reply))
    return seconds * 1000 + micros // 1000


def _stamp(keys: QueueKeys, job_id: str) -> Command[int | None]:
    return Command("HMGET", (keys.job(job_id),), ("timestamp", "delay"), _since, repeat=Repeat.SAFE)


def _since(reply: Reply) -> int | None:
    """Return since when a job waits: from when it was added, or from when it was due."""
    texts = ["" if part is None else as_text(part) for part in as_list(reply)]
    if not texts[0].isascii() or not texts[0].isdigit():
        return None
    return int(texts[0]) + (int(texts[1]) if texts[1].isascii() and texts[1].isdigit() else 0)
