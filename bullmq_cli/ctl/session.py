"""What all commands work with: where the server is, and queues there."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

from bullmq_protocol.command import Batch, Command, Repeat
from bullmq_protocol.common.codec import check_choice
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.reply import as_int
from bullmq_protocol.net.topology import Address, parse_address
from bullmq_protocol.scripts.profile import DEFAULT, FLEET, STRICT, V5_81, V6_7, Profile
from bullmq_sync import FlowProducer, Job, Queue, QueueEvents, connect, run
from bullmq_sync.drive import is_cluster, transport_of

LOCAL: Final = "redis://127.0.0.1:6379"
PROFILES: Final[dict[str, Profile]] = {"strict": STRICT, "fleet": FLEET, "5.81": V5_81, "6.7": V6_7}
_DEFAULT: Final = next(name for name, profile in PROFILES.items() if profile is DEFAULT)


class NotThere(Exception):
    """There is no such queue, job or scheduler. Its text says which."""


class Session:
    """A connection to the server, and how its keys begin. Nothing is opened before the first call.

    Raises `UsageError` for a bad URL or profile.
    """

    def __init__(
        self, url: str | None = None, prefix: str | None = None, profile: str | None = None, *, as_json: bool = False
    ) -> None:
        self.address: Address = parse_address(url or LOCAL)
        self.prefix = prefix or "bull"
        self.scripts = PROFILES[check_choice("profile", profile or _DEFAULT, tuple(PROFILES))]
        self.as_json = as_json
        self.transport = connect(self.address)
        self._scripted, _ = transport_of(self.transport, self.scripts)

    def answers(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Perform commands about any queues in one round trip; return their answers. Raises the first error of one."""
        if not commands:
            return []
        found = run(iter(Batch(tuple(commands))), self._scripted)
        for each in found:
            if isinstance(each, Exception):
                raise each
        return found

    def check(self, all_keys: Sequence[QueueKeys]) -> None:
        """Raise `UsageError` for a queue that this server cannot hold: an untagged one on a cluster."""
        if all_keys and is_cluster(self.transport):
            for keys in all_keys:
                keys.require_hash_tag()

    def keys(self, name: str) -> QueueKeys:
        """Return the names of a queue's keys."""
        return QueueKeys.of(name, prefix=self.prefix, switches=self.scripts.switches)

    def queue(self, name: str, *, describes: bool = False) -> Queue[Any]:
        """Return a queue. It writes nothing of its own, unless it `describes` itself as a new queue does."""
        return Queue[Any](
            name, self.transport, prefix=self.prefix, scripts=self.scripts, skip_meta_update=not describes
        )

    def existing(self, name: str) -> Queue[Any]:
        """Return a queue that is there. Raises `NotThere`."""
        queue = self.queue(name)
        if not self.is_there(queue):
            raise NotThere(f"there is no queue {name!r} of the prefix {self.prefix!r}: bullmq-ctl queues lists them")
        return queue

    def is_there(self, queue: Queue[Any]) -> bool:
        """Whether any client has made this queue: it has a description or jobs."""
        described = queue.call(Command("EXISTS", (queue.keys.meta,), (), as_int, repeat=Repeat.SAFE))
        return bool(described) or any(queue.get_job_counts().values())

    def job(self, queue: Queue[Any], job_id: str) -> Job[Any]:
        """Return a job of a queue. Raises `NotThere`."""
        job = queue.get_job(job_id)
        if job is None:
            raise NotThere(f"there is no job {job_id!r} in the queue {queue.name!r}")
        return job

    def flows(self) -> FlowProducer:
        """Return what reads flows."""
        return FlowProducer(self.transport, prefix=self.prefix, scripts=self.scripts)

    def events(self, name: str, last_event_id: str | None = None) -> QueueEvents:
        """Return what reads events of a queue."""
        return QueueEvents(name, self.transport, prefix=self.prefix, scripts=self.scripts, last_event_id=last_event_id)

    def close(self) -> None:
        """Close the connection."""
        self.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
