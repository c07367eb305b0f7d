"""Remove the old jobs of one state, in pages."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from bullmq_protocol.command import Operation
from bullmq_protocol.commands.cleaning import CLEANABLE, clean_jobs_in_set
from bullmq_protocol.commands.queues import get_counts
from bullmq_protocol.common.codec import check_choice
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.units import Millis, check_whole
from bullmq_protocol.operations.paging import Page

PAGE_SIZE = 10_000
_BY_RANGE = ("completed", "failed", "waiting-children")
_TWELVE_DIGITS = 10**12


class Clean(msgspec.Struct, frozen=True, kw_only=True):
    """Remove the jobs of `state` that are not newer than `until` (ms), at most `limit` (0: all).

    A page is the ids it removed, never more than `page_size`. Of waiting, paused, active, delayed and prioritized jobs
    the server looks at the `page_size` first ones alone: when none of them goes, the operation ends.

    Raises `UsageError`.

    Source: specs/03-transitions-admin-getters.md#sec-13-1
    """

    state: str
    until: Millis
    limit: int = 0
    page_size: int = PAGE_SIZE

    def checked(self) -> Clean:
        """Return it as it is, or raise `UsageError`."""
        state = check_choice("state", self.state, (*CLEANABLE, "waiting"))
        check_whole("until", self.until)
        check_whole("limit", self.limit, least=0)
        check_whole("page_size", self.page_size, least=1)
        return replace(self, state=state)

    def page(self, keys: QueueKeys) -> Operation[Page[list[str]]]:
        self.checked()
        state = "wait" if self.state == "waiting" else self.state
        size = min(self.page_size, self.limit) if self.limit else self.page_size
        # The script compares texts: a moment of fewer digits than those of the jobs would be later than all of them.
        until = self.until if self.until >= _TWELVE_DIGITS else 0
        removed = yield from clean_jobs_in_set(keys, state, until=until, limit=size)
        left = self.limit - len(removed)
        last = not removed
        if 0 < len(removed) < size:
            # Some of those looked at stay; were there more than those?
            last = state in _BY_RANGE or sum((yield from get_counts(keys, (state,)))) + len(removed) <= size
        if left == 0 or (last and not (state == "wait" and keys.switches.merging_pause)):
            return Page(removed, None)
        # Jobs may wait in both lists (specs/06-later-versions.md#sec-8-2).
        return Page(removed, replace(self, state="paused" if last else self.state, limit=left if self.limit else 0))
