"""What clients of different versions of BullMQ do differently: the switches of a profile.

Source: specs/06-later-versions.md#sec-8-3
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec

from bullmq_protocol.errors import UsageError

_BUILT: Final = MappingProxyType({"stalled_exemption": ("live-scheduler",)})
"""The values that can be had beside those of `strict`."""


class Switches(msgspec.Struct, frozen=True, kw_only=True):
    """One value for each row of the table of switches. The defaults are those of `strict`, which is BullMQ 5.62.0.

    Values that are not implemented yet are refused (`UsageError`).
    """

    waiting_layout: Literal["v5"] = "v5"
    merging_pause: bool = False
    debounced_event: bool = True
    keep_last_if_active: bool = False
    stale_key_repair: bool = False
    reschedule: bool = False
    deferred_parent_release: bool = False
    age_retention_limit: int | None = None
    stalled_exemption: Literal["opts-repeat", "live-scheduler"] = "opts-repeat"
    """Which job never fails for stalling too often: one whose options repeat it, or one whose scheduler is there."""
    next_job_of_move_to_delayed: bool = False
    scheduler_priority: Literal["nonzero"] = "nonzero"
    obliterate_marker: bool = False
    counts_cut_off: bool = False
    text_ids: bool = False
    scheduler_rules: Literal["5.62"] = "5.62"
    write_nrjid: bool = True
    scheduler_data_fallback: bool = True
    single_retry: Literal["5.62"] = "5.62"
    token_for_deferred_failure: bool = True
    max_priority: int = 2_097_152
    legacy_repeat: Literal["5.62"] = "5.62"
    repeat_without_rjk: Literal["legacy"] = "legacy"
    cron: Literal["4.9"] = "4.9"

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(type(self)):
            value: Any = getattr(self, field.name)
            built = (field.default, *_BUILT.get(field.name, ()))
            if not any(value == each and type(value) is type(each) for each in built):
                raise UsageError(field.name, value, f"must be {' or '.join(map(repr, built))}")

    @property
    def chosen(self) -> frozenset[str]:
        """The blocks of the scripts that are taken, as `<switch> <value>`: none with the defaults."""
        return frozenset(
            f"{field.name} {getattr(self, field.name)}"
            for field in msgspec.structs.fields(type(self))
            if getattr(self, field.name) != field.default
        )


STRICT_SWITCHES: Final = Switches()
