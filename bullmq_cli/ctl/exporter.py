"""The command `exporter`: queues for Prometheus, looked at whenever it asks."""

from __future__ import annotations

import importlib
import signal
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import click
from redis.exceptions import RedisError

from bullmq_cli.ctl.frame import Look
from bullmq_cli.ctl.program import DONE, REFUSED, ctl, fail, shared
from bullmq_cli.ctl.session import Session
from bullmq_cli.ctl.show import console, flush, print_json, say, write
from bullmq_cli.ctl.top import Watch
from bullmq_cli.text import visible
from bullmq_protocol.errors import BullMQError


class Queues:
    """A collector of prometheus_client. A server that does not answer is `bullmq_up` 0, and nothing else."""

    def __init__(self, watch: Watch, core: Any) -> None:
        self._watch = watch
        self._core = core
        self._lock = threading.Lock()

    def collect(self) -> Iterator[Any]:
        """Look, and return the metrics."""
        gauge = self._core.GaugeMetricFamily
        with self._lock:
            try:
                self._watch.look()
                is_up = not self._watch.trouble
            except (BullMQError, RedisError):
                is_up = False
            looks = list(self._watch.looks) if is_up else []
        yield gauge("bullmq_up", "Whether the server answered", value=float(is_up))
        lengths = gauge("bullmq_queue_length", "Jobs by state", labels=("queue", "state"))
        paused = gauge("bullmq_queue_paused", "1 for a paused queue", labels=("queue",))
        oldest = gauge(
            "bullmq_queue_oldest_waiting_seconds", "Age of the job that would run next; 0: none", labels=("queue",)
        )
        workers = gauge("bullmq_queue_workers", "Connections by which workers wait", labels=("queue",))
        for each in looks:
            self._add(each, lengths, paused, oldest, workers)
        yield from (lengths, paused, oldest, workers)

    def _add(self, each: Look, lengths: Any, paused: Any, oldest: Any, workers: Any) -> None:
        for state, count in each.counts.items():
            lengths.add_metric((each.queue, state), count)
        paused.add_metric((each.queue,), float(each.is_paused))
        oldest.add_metric((each.queue,), (each.oldest_ms or 0) / 1000)
        if each.workers is not None:
            workers.add_metric((each.queue,), each.workers)


@ctl.command("exporter")
@click.argument("names", nargs=-1, metavar="[QUEUE]...")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where it listens; 0.0.0.0: everywhere.")
@click.option("--port", type=click.IntRange(0, 65_535), default=9538, show_default=True, help="0: any port.")
@click.option("--once", is_flag=True, help="Print the metrics, and end.")
@shared
def exporter(session: Session, /, names: tuple[str, ...], host: str, port: int, once: bool) -> int:
    """Serve figures of queues to Prometheus.

    At /metrics, until Ctrl-C: jobs by state, age of the oldest, workers, pauses. The names of the metrics are those of
    docs/ctl.md; bullmq_queue_length is that of our workers, too. Needs prometheus_client.

    \b
    bullmq-ctl exporter --host 0.0.0.0
    bullmq-ctl exporter mail --once

    JSON: one line when it begins: {host, port}.
    """
    if find_spec("prometheus_client") is None:
        raise click.UsageError("exporter needs prometheus_client: pip install 'bullmq-protocol[prometheus]'")
    client: Any = importlib.import_module("prometheus_client")
    watch = Watch(session, names, 0)
    try:
        watch.look()
        registry = client.CollectorRegistry()
        registry.register(Queues(watch, importlib.import_module("prometheus_client.core")))
        if once:
            text: str = client.generate_latest(registry).decode().rstrip("\n")
            write(visible(text, lines=True) if console().is_terminal else text)
            return DONE
        try:
            serving: tuple[Any, threading.Thread] = client.start_http_server(port, addr=host, registry=registry)
        except OSError as error:
            fail(REFUSED, f"--port {port}: {error.strerror}")
        server, thread = serving
        try:
            bound = server.server_address[1]
            if session.as_json:
                print_json({"host": host, "port": bound})
            else:
                say(f"http://{host}:{bound}/metrics")
            flush()
            _until_interrupted(thread)
        finally:
            server.shutdown()
            server.server_close()
    finally:
        watch.close()
    return DONE


def _until_interrupted(thread: threading.Thread) -> None:
    """Wait for Ctrl-C or SIGTERM: the first process of a container has no other way to take that."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        thread.join()
    except KeyboardInterrupt:
        return
    finally:
        signal.signal(signal.SIGTERM, before)
