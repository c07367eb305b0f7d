"""The thread behind `with QueueEvents(...)`."""

from __future__ import annotations

import threading

from bullmq_sync import QueueEvents
from tests.support.servers import Server


def test_the_thread_of_events_ends_with_the_block(server: Server, name: str) -> None:
    def behind() -> list[threading.Thread]:
        return [each for each in threading.enumerate() if each.name == f"bullmq events {name}"]

    with QueueEvents(name, server.url):
        assert len(behind()) == 1
    assert behind() == []
