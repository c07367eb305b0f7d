"""What holds for every transport that a caller makes for several objects: the end of its `with` block closes it."""

from typing import Any

import anyio.to_thread
import pytest

import bullmq_anyio
import bullmq_sync
from bullmq_protocol import KeyLayout
from bullmq_protocol.errors import Closed

_LAYOUT = KeyLayout.TAGGED_PREFIX


async def is_closed_by_its_block(transport: Any, name: str) -> None:
    """Two queues use it within the block; after that it is closed."""
    if hasattr(transport, "aclose"):
        await _in_tasks(transport, name)
    else:
        await anyio.to_thread.run_sync(_on_threads, transport, name)


async def _in_tasks(transport: Any, name: str) -> None:
    one, other = (bullmq_anyio.Queue(f"{name}-{each}", transport, layout=_LAYOUT) for each in "ab")
    async with transport as entered:
        assert entered is transport
        assert [(await queue.add("x")).id for queue in (one, other)] == ["1", "1"]
    with pytest.raises(Closed):
        await one.get_waiting_count()


def _on_threads(transport: Any, name: str) -> None:
    one, other = (bullmq_sync.Queue(f"{name}-{each}", transport, layout=_LAYOUT) for each in "ab")
    with transport as entered:
        assert entered is transport
        assert [queue.add("x").id for queue in (one, other)] == ["1", "1"]
    with pytest.raises(Closed):
        one.get_waiting_count()
