"""Refuse what the profile of a queue does not know, and name those that do.

Source: specs/06-later-versions.md#sec-8-3
"""

from __future__ import annotations

from typing import Final

from bullmq_protocol.errors import UsageError

_LATER: Final = (
    "needs a profile of later versions of BullMQ: scripts=FLEET or scripts=V6_7 (bullmq_protocol.scripts.profile)"
)


def require_later(known: bool, field: str, value: object) -> None:
    """Raise `UsageError` for an argument that scripts as old as those of `STRICT` would pass over in silence."""
    if not known:
        raise UsageError(field, value, _LATER)
