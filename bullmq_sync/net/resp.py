"""Bytes of commands, as hiredis packs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import hiredis

from bullmq_protocol.command import Arg
from bullmq_protocol.net.wire import packer

# hiredis declares it for tuples of one item, without a result.
pack = packer(
    cast(
        "Callable[[tuple[Arg, ...]], bytes]",
        hiredis.pack_command,  # pyright: ignore[reportUnknownMemberType]
    )
)
