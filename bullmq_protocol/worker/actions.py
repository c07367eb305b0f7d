"""What the machine wants done. Actions of one list are not ordered among themselves.

Answers owed to the machine: exactly one for each `Call` (`Replied` or `CallFailed`), `Listen` (those, or `Unlistened`)
and `RunJob` (`JobReturned` or `JobRaised`, also when cancelled). `CancelJob`, `Unlisten`, `Notify` and `Stopped` have
none.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from bullmq_protocol.command import Command
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.worker.notices import Notice


class Call(msgspec.Struct, frozen=True, tag="call"):
    """Perform the command on the shared connection. `shielded`: not to be cancelled (a job's report)."""

    ticket: int
    command: Command[Any]
    shielded: bool = False


class Listen(msgspec.Struct, frozen=True, tag="listen"):
    """Perform the blocking command on the worker's own connection. At most one is in flight."""

    ticket: int
    command: Command[Any]


class Unlisten(msgspec.Struct, frozen=True, tag="unlisten"):
    """Interrupt the `Listen` in flight; answer it `Unlistened` (or `Replied`, if the reply came first)."""

    ticket: int


class RunJob(msgspec.Struct, frozen=True, tag="run-job"):
    """Run the user's handler on this job. `run` identifies the run: one job may be fetched twice."""

    run: int
    job: JobRecord
    token: str


class CancelJob(msgspec.Struct, frozen=True, tag="cancel-job"):
    """Cancel the handler of that run (anyio), or set its stop flag (threads). Its `RunJob` is still to be answered."""

    run: int
    reason: str


class Notify(msgspec.Struct, frozen=True, tag="notify"):
    """Log the notice and hand it to the user's listeners."""

    notice: Notice


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    """The machine is done: close the connections and return. `error` set means `run()` raises with it."""

    error: str | None = None


Action: TypeAlias = Call | Listen | Unlisten | RunJob | CancelJob | Notify | Stopped
