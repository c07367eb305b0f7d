"""Celery: a process for each core, its default, and threads of one process where more jobs are to run at once."""

import os
from collections.abc import Sequence
from typing import Any

from celery import Celery
from celery.signals import worker_ready

from bench.peers.common import IMPATIENT, FirstStart, serve_peer, started
from bench.peers.processes import OfProcesses

_URL, _READY = "BENCH_URL", "bench:ready"

app = Celery("bench", broker=os.environ.get(_URL))
app.conf.update(
    # What its documentation says of short tasks, and of tasks that must not be lost.
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=64,
    worker_enable_remote_control=False,
    broker_transport_options={"visibility_timeout": 2, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}
    if IMPATIENT
    else {},
)


@app.task(name="nothing", autoretry_for=(FirstStart,), default_retry_delay=0)
def nothing(n: int) -> None:
    started(n)


@worker_ready.connect
def _ready(sender: Any, **_: Any) -> None:
    with app.connection_for_write() as connection:
        connection.default_channel.client.set(_READY, 1)


class OfCelery(OfProcesses):
    async def open(self) -> None:
        os.environ[_URL] = app.conf.broker_url = self.url

    @property
    def waiting(self) -> str:
        return self.queue

    async def add(self, n: int) -> object:
        return nothing.apply_async((n,), queue=self.queue)

    async def add_many(self, numbers: Sequence[int]) -> None:
        # One after the other, by one producer: a group does the same.
        with app.producer_or_acquire() as producer:
            for n in numbers:
                nothing.apply_async((n,), queue=self.queue, producer=producer)

    async def left(self) -> int:
        return self.raw.llen(self.queue) + self.raw.hlen("unacked")

    async def all_ready(self, concurrency: int) -> bool:
        return bool(self.raw.getdel(_READY))

    def program(self, concurrency: int) -> Sequence[str]:
        chatter = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "CRITICAL")
        pool = "prefork" if concurrency <= (os.cpu_count() or 1) else "threads"
        size = ("--pool", pool, "--concurrency", str(concurrency), "--queues", self.queue)
        return ("celery", "--app", "bench.peers.celery", "worker", *size, *chatter)


if __name__ == "__main__":
    serve_peer(OfCelery)
