"""Events of a worker, which its driver passes to the machine, each with the time at which it happened."""

from __future__ import annotations

from typing import Any, TypeAlias, final

import msgspec

from bullmq_protocol.common.reply import Reply
from bullmq_protocol.errors import AuthenticationFailed, BullMQError, ServerError, ServerTooOld, TransportError
from bullmq_protocol.model.failure import Failure


@final
class Replied(msgspec.Struct, frozen=True, tag="replied"):
    """The raw reply of a `Call` or a `Wait`."""

    ticket: int
    reply: Reply


class CallFailed(msgspec.Struct, frozen=True, tag="call-failed"):
    """A `Call` or `Wait` gave no reply, or an error reply.

    `lost` is True for a `TransportError` (`maybe_applied` as in the error), False for an error reply of the server
    (`code` is its first word); `of` makes one from an error. A `Wait` that `CancelWait` ended is answered by
    `WaitCancelled` instead.
    """

    ticket: int
    message: str
    lost: bool
    maybe_applied: bool = False
    code: str = ""
    roll: float = 0.5

    @classmethod
    def of(cls, ticket: int, error: BullMQError, *, roll: float = 0.5) -> CallFailed:
        """Make the event of a call that raised. `roll`, from 0 to 1, spreads the attempts to reconnect."""
        if isinstance(error, TransportError):
            return cls(ticket, str(error), lost=True, maybe_applied=error.maybe_applied, roll=roll)
        if isinstance(error, (AuthenticationFailed, ServerTooOld)):
            # It could not connect.
            return cls(ticket, str(error), lost=True, roll=roll)
        code = error.code if isinstance(error, ServerError) else ""
        return cls(ticket, str(error), lost=False, code=code, roll=roll)


class WaitCancelled(msgspec.Struct, frozen=True, tag="unlistened"):
    """The `Wait` ended because of `CancelWait`, without a reply."""

    ticket: int


@final
class JobReturned(msgspec.Struct, frozen=True, tag="job-returned"):
    """The handler of a `RunJob` returned; `value` is its JSON text (`null` for None)."""

    run: int
    value: str


class JobRaised(msgspec.Struct, frozen=True, tag="job-raised"):
    """The handler of a `RunJob` raised, was cancelled, or its value has no JSON form.

    `roll` in [0, 1) is the driver's dice for jitter. `strategy_delay_ms` is the value of the user's backoff strategy,
    if the job's backoff type is a custom one; `strategy_error` its failure. `exception` is carried along to the notice;
    `telemetry` is the context to store with the failed attempt.
    """

    run: int
    failure: Failure
    roll: float
    strategy_delay_ms: float | None = None
    strategy_error: str | None = None
    exception: Any = None
    telemetry: str | None = None


class Tick(msgspec.Struct, frozen=True, tag="tick"):
    """Time has reached `deadline()`."""

    roll: float = 0.5


class PauseRequested(msgspec.Struct, frozen=True, tag="pause"):
    """Start nothing new; running jobs continue."""


class ResumeRequested(msgspec.Struct, frozen=True, tag="resume"):
    """Fetch again."""


class CancelRequested(msgspec.Struct, frozen=True, tag="cancel"):
    """Cancel the handler of a job, or with None those of all jobs; each ends as its handler decides, or as failed with
    this reason."""

    job_id: str | None
    reason: str


class CloseRequested(msgspec.Struct, frozen=True, tag="close"):
    """Stop: wait for running jobs up to the shutdown time, then release them; with `force`, release them
    immediately."""

    force: bool = False


class ConnectionEnded(msgspec.Struct, frozen=True, tag="connection-ended"):
    """The connection was found closed though no call was under way on it. `roll` as in `CallFailed`."""

    message: str
    roll: float = 0.5


Event: TypeAlias = (
    Replied
    | CallFailed
    | WaitCancelled
    | JobReturned
    | JobRaised
    | Tick
    | PauseRequested
    | ResumeRequested
    | CancelRequested
    | CloseRequested
    | ConnectionEnded
)
