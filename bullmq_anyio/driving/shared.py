"""What the parts of a worker's driver share."""

from __future__ import annotations

import uuid
from typing import Generic, TypeVar

from bullmq_anyio.clocks import clock as system_clock
from bullmq_anyio.driving.connections import Connections
from bullmq_anyio.driving.tasks import WorkerTasks
from bullmq_anyio.notices import Notices
from bullmq_protocol.net.transport import AsyncTransport
from bullmq_protocol.scripts.profile import Profile
from bullmq_protocol.worker.dispatch import Dispatcher
from bullmq_protocol.worker.failures import Failures
from bullmq_protocol.worker.machine import WorkerMachine
from bullmq_protocol.worker.setup import WorkerSetup
from bullmq_protocol.worker.tracing import WorkerTracing
from bullmq_protocol.worker.typed import MERGING

H = TypeVar("H")


class Shared(Generic[H]):
    """A dispatcher with its machine, the worker's tasks and connections. `H` is the data kept of a job that runs."""

    def __init__(
        self,
        setup: WorkerSetup,
        transport: AsyncTransport,
        tasks: WorkerTasks,
        *,
        owned: bool,
        profile: Profile,
        one_by_one: bool,
    ) -> None:
        # Spans are made for each call, so that they need single ones.
        self.merges = profile.batches and setup.telemetry is None
        self.machine = WorkerMachine(setup.keys, setup.settings, str(uuid.uuid4()), batches=self.merges)
        self.dispatch = Dispatcher[H, Notices](self.machine, merging=MERGING, one_by_one=one_by_one)
        # guarded by the lock of tasks: machine and dispatch; set once: all others
        self.setup = setup
        self.tasks = tasks
        self.transport = transport
        self.connections = Connections(transport, setup.keys, setup.settings.name, owned=owned)
        self.clock = system_clock if setup.clock is None else setup.clock
        self.tracing: WorkerTracing | None = setup.tracing(self.machine, self.clock)
        """What makes the worker's spans."""
        self.failures = Failures(setup, self.tracing)
