"""Upkeep: renew the locks of the jobs that are held, and look for stalled ones.

Source: specs/05-worker-runtime.md#sec-7
"""

from __future__ import annotations

from typing import Any, Final

from bullmq_protocol.commands.fetching import stalled_check_ttl
from bullmq_protocol.commands.locks import extend_locks, move_stalled_jobs_to_wait
from bullmq_protocol.commands.queues import heal
from bullmq_protocol.common.units import FIRST_RECONNECT_MS, Millis
from bullmq_protocol.errors import BullMQError
from bullmq_protocol.worker._fetching import Fetching
from bullmq_protocol.worker._runs import Pending, Phase, Run
from bullmq_protocol.worker._shared import Shared
from bullmq_protocol.worker.actions import CancelJob
from bullmq_protocol.worker.events import CallFailed
from bullmq_protocol.worker.notices import (
    HandlerBlocked,
    JobStalled,
    LockLost,
    RenewalFailed,
    Renewed,
    StalledCheckSkipped,
    WorkerProblem,
)
from bullmq_protocol.worker.snapshot import WorkerState

STALLED_RETRY_MS: Final[Millis] = 5_000


class RenewCall(Pending, frozen=True, eq=False):
    """The renewal of the locks of these runs."""

    upkeep: Upkeep
    runs: tuple[int, ...]
    sent_at: Millis

    def answered(self, value: Any) -> None:
        self.upkeep.renewed(self.runs, self.sent_at, value)

    def refused(self, error: BullMQError | None, message: str, transient: bool) -> None:
        self.upkeep.renewal_failed(self.runs, message)

    def lost(self, event: CallFailed) -> bool:
        self.upkeep.renewal_failed(self.runs, event.message)
        return True

    def abandoned(self) -> None:
        self.upkeep.renewing = False


class StalledCheckCall(Pending, frozen=True, eq=False):
    """The check for stalled jobs, of any worker."""

    upkeep: Upkeep

    def answered(self, value: Any) -> None:
        self.upkeep.checked(value)

    def refused(self, error: BullMQError | None, message: str, transient: bool) -> None:
        self.upkeep.check_failed(STALLED_RETRY_MS)
        self.upkeep.notify_refused_check(message)

    def lost(self, event: CallFailed) -> bool:
        self.upkeep.check_failed(0)
        return True

    def abandoned(self) -> None:
        self.upkeep.check_failed(STALLED_RETRY_MS)


class StalledTtlCall(StalledCheckCall, frozen=True, eq=False):
    """How long the workers of the queue have agreed not to check; it belongs to the check, and fails as that does."""

    def answered(self, value: Any) -> None:
        self.upkeep.next_check_in(value)


class HealCall(Pending, frozen=True, eq=False):
    """Puts in line again what stands in `paused` of a queue that runs: a courtesy, made again with each check."""

    upkeep: Upkeep

    def answered(self, value: Any) -> None:
        self.upkeep.healed(value)

    def refused(self, error: BullMQError | None, message: str, transient: bool) -> None:
        self.upkeep.healing = False
        self.upkeep.notify_refused_heal(message)

    def lost(self, event: CallFailed) -> bool:
        self.upkeep.healing = False
        return True

    def abandoned(self) -> None:
        self.upkeep.healing = False


class Upkeep:
    """The timers of the locks and of the stalled check. `renew_at` is set while a job is held, and does not count while
    `renewing`."""

    def __init__(self, shared: Shared, fetching: Fetching) -> None:
        self._shared = shared
        self._fetching = fetching
        self._period = max(1, shared.settings.renew_ms // 2)
        self.renew_at: Millis | None = None
        self._late_at: Millis | None = None
        """The renewal that came so late that a notice names it."""
        self.renewing = False
        self.stalled_at: Millis | None = None
        self._checking = False
        self.healing = False

    # --- timers -----------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Run the timers that are due."""
        now = self._shared.at.mono
        if self.renew_at is not None and now >= self.renew_at and not self.renewing:
            self.note_late()
            self.renew()
        if self.stalled_at is not None and now >= self.stalled_at:
            self.heal()
            self.check_stalled()

    def defer(self) -> None:
        """Leave a while between attempts that raise exceptions of our own."""
        soonest = self._shared.at.mono + FIRST_RECONNECT_MS
        if self.renew_at is not None:
            self.renew_at = max(self.renew_at, soonest)
        if self.stalled_at is not None:
            self.stalled_at = max(self.stalled_at, soonest)

    def stop_checking(self) -> None:
        """Look for stalled jobs no more: the worker ends."""
        self.stalled_at = None

    # --- locks ------------------------------------------------------------------------------------------------------

    def plan_renewal(self) -> None:
        """A first job is held: renew its lock in time."""
        if not self._shared.settings.skip_lock_renewal:
            self.renew_at = self._shared.at.mono + self._period

    def note_late(self, ended: Run | None = None) -> None:
        """Tell of a renewal that is late by as much as its period, once: while it was due nothing of the worker ran.
        `ended`: a run whose handler has just ended."""
        shared = self._shared
        due, now = self.renew_at, shared.at.mono
        if due is None or now - due <= self._period or self.renewing or not shared.connected or due == self._late_at:
            return
        self._late_at = due
        held = [run for run in shared.runs.values() if run.handler_alive or run is ended]
        for run in held:
            run.blocked_ms = now - run.renewed_at
        # What ends first has held up the others.
        ids = (ended.job.id,) if ended is not None else tuple(run.job.id for run in held)
        if ids:
            shared.notify(HandlerBlocked(ids, max(now - due, now - shared.before.mono)))

    def renew(self) -> None:
        """Renew the locks that are old enough."""
        shared = self._shared
        if shared.settings.skip_lock_renewal or self.renewing or not shared.runs:
            return
        now = shared.at.mono
        period = self._period
        self.renew_at = now + period
        due = [
            run
            for run in shared.runs.values()
            if run.phase in (Phase.SCHEDULING, Phase.RUNNING) and not run.lost and now - run.renewed_at >= period
        ]
        if not due:
            return
        self.renewing = True
        command = extend_locks(
            shared.keys,
            job_ids=[run.job.id for run in due],
            tokens=[run.token for run in due],
            lock_ms=shared.settings.lock_ms,
        )
        shared.call(RenewCall(command, self, tuple(run.number for run in due), now))

    def renewed(self, runs: tuple[int, ...], sent_at: Millis, lost_ids: list[str]) -> None:
        """Note which locks are new, and which are gone."""
        shared = self._shared
        self.renewing = False
        renewed: list[str] = []
        for number in runs:
            run = shared.runs.get(number)
            if run is None:
                continue
            if run.job.id not in lost_ids:
                run.renewed_at = max(run.renewed_at, sent_at)
                run.blocked_ms = 0
                renewed.append(run.job.id)
            elif run.phase in (Phase.SCHEDULING, Phase.RUNNING):
                self._lose(run)
        if renewed:
            shared.notify(Renewed(tuple(renewed), shared.at.mono - sent_at))

    def _lose(self, run: Run) -> None:
        shared = self._shared
        run.lost = True
        shared.notify(LockLost(run.job, run.blocked_ms))
        if run.handler_alive and shared.settings.cancel_on_lost_lock:
            shared.out.append(CancelJob(run.number, "lock lost"))

    def renewal_failed(self, runs: tuple[int, ...], message: str) -> None:
        """Try again soon."""
        shared = self._shared
        self.renewing = False
        ids = tuple(run.job.id for number in runs if (run := shared.runs.get(number)) is not None)
        self.renew_at = shared.at.mono + max(1, self._period // 10)
        shared.notify(RenewalFailed(ids, message))

    # --- the stalled check ------------------------------------------------------------------------------------------

    def check_stalled(self) -> None:
        """Look for stalled jobs, unless a check is under way."""
        shared = self._shared
        settings = shared.settings
        self._plan_check(settings.stalled_ms)
        if self._checking:
            shared.notify(StalledCheckSkipped())
            return
        self._checking = True
        command = move_stalled_jobs_to_wait(
            shared.keys,
            max_stalled_count=settings.max_stalled_count,
            now=shared.at.wall,
            interval_ms=settings.stalled_ms,
        )
        shared.call(StalledCheckCall(command, self))

    def heal(self) -> None:
        """Put in line what is left in `paused`, where the profile knows how: nobody would take it.

        Source: specs/06-later-versions.md#sec-8-2
        """
        shared = self._shared
        if shared.keys.switches.merging_pause and not self.healing:
            self.healing = True
            shared.call(HealCall(heal(shared.keys), self))

    def healed(self, left: int) -> None:
        """Go on with what is left."""
        self.healing = False
        if left and self._shared.state is not WorkerState.DRAINING:
            self.heal()

    def notify_refused_heal(self, message: str) -> None:
        """Emit a notice of the server's refusal."""
        self._shared.notify(WorkerProblem(f"jobs left in a paused list: {message}"))

    def _plan_check(self, wait: Millis) -> None:
        draining = self._shared.state is WorkerState.DRAINING
        self.stalled_at = None if draining else self._shared.at.mono + wait

    def checked(self, stalled: list[str]) -> None:
        """Emit notices of the stalled jobs, and ask when the next check is allowed."""
        shared = self._shared
        for job_id in stalled:
            shared.notify(JobStalled(job_id))
        if stalled:
            self._fetching.empty = False
        if shared.state is WorkerState.DRAINING:
            self._checking = False
        else:
            shared.call(StalledTtlCall(stalled_check_ttl(shared.keys), self))

    def next_check_in(self, ttl: Millis) -> None:
        """Plan the next check for the moment when the last check's key has expired."""
        self._checking = False
        # a key without TTL is not ours: fall back to the interval
        self._plan_check(self._shared.settings.stalled_ms if ttl == -1 else max(ttl, 0) + 1)

    def check_failed(self, wait: Millis) -> None:
        """Check again after a while."""
        self._checking = False
        self._plan_check(wait)

    def notify_refused_check(self, message: str) -> None:
        """Emit a notice of the server's refusal."""
        self._shared.notify(WorkerProblem(f"stalled check: {message}"))
