"""What the machine asks its driver to do. The actions of one list have no order among themselves.

The machine must get exactly one answer for each `Call` (`Replied` or `CallFailed`), `Wait` (those, or `WaitCancelled`)
and `RunJob` (`JobReturned` or `JobRaised`, also when cancelled), and none for `CancelJob`, `CancelWait`, `Notify` and
`Stopped`.

The types of calls, jobs and notices are left open: `typed` fixes them for a BullMQ worker.

None has subclasses: `type(action) is Call` costs a sixth of `isinstance`, where the answer is no.
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeAlias, TypeVar, final

import msgspec


class Mergeable(Protocol):
    """The command of a call. `merge` is None if it cannot be merged with others of its kind."""

    @property
    def merge(self) -> object: ...


class Identified(Protocol):
    """A job."""

    @property
    def id(self) -> str: ...


C = TypeVar("C", bound=Mergeable)
J = TypeVar("J", bound=Identified)
N = TypeVar("N")


@final
class Call(msgspec.Struct, Generic[C], frozen=True, tag="call"):
    """Perform the command on the shared connection. `shielded`: not to be cancelled (a job's report)."""

    ticket: int
    command: C
    shielded: bool = False


@final
class Wait(msgspec.Struct, Generic[C], frozen=True, tag="listen"):
    """Perform the blocking command on the worker's own connection. At most one is in flight."""

    ticket: int
    command: C


class CancelWait(msgspec.Struct, frozen=True, tag="unlisten"):
    """Interrupt the `Wait` in flight; answer it `WaitCancelled` (or `Replied`, if the reply came first)."""

    ticket: int


@final
class RunJob(msgspec.Struct, Generic[J], frozen=True, tag="run-job"):
    """Run the user's handler on this job. `run` identifies the run: one job may be fetched twice."""

    run: int
    job: J
    token: str


class CancelJob(msgspec.Struct, frozen=True, tag="cancel-job"):
    """Cancel the handler of that run (anyio), or set its stop flag (threads). Its `RunJob` is still to be answered."""

    run: int
    reason: str


@final
class Notify(msgspec.Struct, Generic[N], frozen=True, tag="notify"):
    """Log the notice and hand it to the user's listeners."""

    notice: N


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    """The machine is done: close the connections and return. `error` set means `run()` raises with it."""

    error: str | None = None


Action: TypeAlias = Call[Any] | Wait[Any] | CancelWait | RunJob[Any] | CancelJob | Notify[Any] | Stopped
