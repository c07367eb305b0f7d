"""What clients of different versions of BullMQ do differently: the switches of a profile.

Source: specs/06-later-versions.md#sec-8-3
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec

from bullmq_protocol.errors import UsageError

_VALUES: Final = MappingProxyType(
    {
        "waiting_layout": ("v5", "adaptive", "v6"),
        "age_retention_limit": (None, 1000),
        "stalled_exemption": ("opts-repeat", "live-scheduler"),
        "scheduler_priority": ("nonzero", "positive"),
        "scheduler_rules": ("5.62", "5.81", "6"),
        "single_retry": ("5.62", "5.81", "6.3"),
        "max_priority": (2_097_152, 2_097_151),
        "legacy_repeat": ("5.62", "refused"),
        "repeat_without_rjk": ("legacy", "ordinary"),
        "repeat_continuation": ("5.62", "5.76", "6"),
        "deduplication_in_families": ("5.62", "5.70", "6"),
        "cron": ("4.9", "common", "5.10"),
    }
)
"""The values of each switch that is more than on or off; that of `strict` first."""
_ON_OR_OFF: Final = (False, True)


class Switches(msgspec.Struct, frozen=True, kw_only=True):
    """One value for each row of the table of switches. The defaults are those of `strict`, which is BullMQ 5.62.0.

    Another value than the listed ones is refused (`UsageError`).
    """

    waiting_layout: Literal["v5", "adaptive", "v6"] = "v5"
    """Where a job waits in a paused queue: in `paused`, in `paused` unless only `wait` is there, or in `wait`."""
    merging_pause: bool = False
    """Pause and resume lose no job where both lists are filled; a waiting job is looked for in both."""
    debounced_event: bool = True
    """Deduplication writes the event `debounced` too."""
    keep_last_if_active: bool = False
    """Deduplication may keep the newest job for the time after the active one."""
    stale_key_repair: bool = False
    """A deduplication key whose job is gone is taken over."""
    reschedule: bool = False
    """Deduplication may move a delayed job."""
    deferred_parent_release: bool = False
    """A flow is added before its parents are let go, and a child that is there already comes under its new parent."""
    age_retention_limit: int | None = None
    """How many jobs one finish removes for their age, if the options do not say: any number, or this one."""
    stalled_exemption: Literal["opts-repeat", "live-scheduler"] = "opts-repeat"
    """Which job never fails for stalling too often: one whose options repeat it, or one whose scheduler is there."""
    next_job_of_move_to_delayed: bool = False
    """Moving a job to `delayed` may fetch the next one in the same call."""
    scheduler_priority: Literal["nonzero", "positive"] = "nonzero"
    """Which priority of a scheduler's job is one."""
    obliterate_marker: bool = False
    """Obliterating a queue deletes its marker."""
    counts_cut_off: bool = False
    """Counting delayed jobs may leave out those that are due."""
    text_ids: bool = False
    """An id that the server gives is a text from the start."""
    scheduler_rules: Literal["5.62", "5.81", "6"] = "5.62"
    """The version whose slots and collisions job schedulers have."""
    write_nrjid: bool = True
    """The job of a scheduler names the next one."""
    scheduler_data_fallback: bool = True
    """The data of a scheduler's next job may come from the job before."""
    single_retry: Literal["5.62", "5.81", "6.3"] = "5.62"
    """The version whose retry of a finished job this is."""
    token_for_deferred_failure: bool = True
    """A job that is only fetched to fail counts in the rate limit."""
    max_priority: int = 2_097_152
    """The largest priority of a job."""
    legacy_repeat: Literal["5.62", "refused"] = "5.62"
    """What becomes of an add with `repeat`: a repeatable job, or an error."""
    repeat_without_rjk: Literal["legacy", "ordinary"] = "legacy"
    """How a worker treats a job with `opts.repeat` and no `rjk`."""
    repeat_continuation: Literal["5.62", "5.76", "6"] = "5.62"
    """The version that continues a repeatable job as this worker does: since 5.76 a scheduler is known by its record,
    and 6 continues schedulers alone."""
    retry_after_last_start: bool = True
    """A failed job is retried though it was started as often as the worker lets it."""
    deduplication_in_families: Literal["5.62", "5.70", "6"] = "5.62"
    """The version that judges a deduplicated job with a parent or children: 5.70 refuses a parent, 6 children too."""
    cron: Literal["4.9", "common", "5.10"] = "4.9"
    """The version of cron-parser whose patterns are read; `common`: what both read alike."""

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            value: Any = getattr(self, field)
            values = _VALUES.get(field, _ON_OR_OFF)
            if not any(value == each and type(value) is type(each) for each in values):
                raise UsageError(field, value, f"must be {' or '.join(map(repr, values))}")

    @property
    def chosen(self) -> frozenset[str]:
        """What holds of conditions in the sources of the scripts: `<switch> <value>`, and `<switch>` if it is on."""
        found: list[str] = []
        for field in self.__struct_fields__:
            value: Any = getattr(self, field)
            is_on = value is not False and value is not None
            if is_on:
                found.append(field)
            if is_on and value is not True:
                found.append(f"{field} {value}")
        return frozenset(found)

    @property
    def changed(self) -> frozenset[str]:
        """What differs from `strict`, as `<switch> <value>`."""
        return frozenset(
            f"{field.name} {getattr(self, field.name)}"
            for field in msgspec.structs.fields(type(self))
            if getattr(self, field.name) != field.default
        )


STRICT_SWITCHES: Final = Switches()
"""BullMQ 5.62.0."""

FLEET_SWITCHES: Final = Switches(
    waiting_layout="adaptive",
    merging_pause=True,
    keep_last_if_active=True,
    stale_key_repair=True,
    reschedule=True,
    deferred_parent_release=True,
    age_retention_limit=1000,
    stalled_exemption="live-scheduler",
    next_job_of_move_to_delayed=True,
    scheduler_priority="positive",
    obliterate_marker=True,
    counts_cut_off=True,
    text_ids=True,
    scheduler_rules="5.81",
    single_retry="6.3",
    token_for_deferred_failure=False,
    max_priority=2_097_151,
    legacy_repeat="refused",
    repeat_without_rjk="ordinary",
    repeat_continuation="5.76",
    retry_after_last_start=False,
    deduplication_in_families="6",
    cron="common",
)
"""What may work beside every version from 5.62 to 6.7."""

V6_7_SWITCHES: Final = msgspec.structs.replace(
    FLEET_SWITCHES,
    waiting_layout="v6",
    merging_pause=False,
    debounced_event=False,
    scheduler_rules="6",
    write_nrjid=False,
    scheduler_data_fallback=False,
    repeat_continuation="6",
    cron="5.10",
)
"""BullMQ 6.7.0."""

V5_81_SWITCHES: Final = Switches(
    keep_last_if_active=True,
    age_retention_limit=1000,
    stalled_exemption="live-scheduler",
    next_job_of_move_to_delayed=True,
    scheduler_priority="positive",
    obliterate_marker=True,
    text_ids=True,
    scheduler_rules="5.81",
    single_retry="5.81",
    max_priority=2_097_151,
    repeat_continuation="5.76",
    deduplication_in_families="5.70",
)
"""BullMQ 5.81.5, for comparison."""
