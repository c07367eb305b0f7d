"""Contact: what a worker does when its connection is lost. It starts nothing, probes with doubling delays, and on the
first answer resends the calls that settle jobs.

Source: specs/05-worker-runtime.md#sec-13
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from bullmq_protocol.commands.queues import ping
from bullmq_protocol.common.units import FIRST_RECONNECT_MS, Millis, reconnect_ms
from bullmq_protocol.errors import BullMQError
from bullmq_protocol.worker._fetching import Fetching
from bullmq_protocol.worker._running import Running
from bullmq_protocol.worker._runs import Pending
from bullmq_protocol.worker._shared import Shared, earlier
from bullmq_protocol.worker._upkeep import Upkeep
from bullmq_protocol.worker.events import CallFailed
from bullmq_protocol.worker.notices import Disconnected, Reconnected, ReconnectFailed, WorkerProblem
from bullmq_protocol.worker.snapshot import WorkerState

RECONNECT_JITTER: Final = 0.2


class ProbeCall(Pending, frozen=True, eq=False):
    """Ask whether the connection is back."""

    contact: Contact

    def answered(self, value: Any) -> None:
        self.contact.restored()

    def refused(self, error: BullMQError | None, message: str, transient: bool) -> None:
        # an answer, even an error, shows that the connection is there
        self.contact.restored()

    def lost(self, event: CallFailed) -> bool:
        self.contact.probe_failed(event.message, event.roll)
        return False

    def abandoned(self) -> None:
        self.contact.probe_again()


class Contact:
    """When the connection was lost, and when it is tried again. `close` ends the worker that gives up."""

    def __init__(
        self, shared: Shared, fetching: Fetching, running: Running, upkeep: Upkeep, close: Callable[[], None]
    ) -> None:
        self._shared = shared
        self._fetching = fetching
        self._running = running
        self._upkeep = upkeep
        self._close = close
        self._probing = False
        self.lost_at: Millis = 0
        self.attempts = 0
        self.probe_at: Millis | None = None
        self.given_up: str | None = None
        """Why the worker ended without being closed."""

    def go_offline(self, message: str, roll: float) -> None:
        """Treat the connection as lost, and plan the first attempt."""
        shared = self._shared
        if not shared.connected:
            return
        shared.connected = False
        self.lost_at = shared.at.mono
        self.attempts = 0
        shared.notify(Disconnected(message))
        # The connection of the wait may be just as dead, which would be noticed much later.
        self._fetching.cancel_wait()
        self.probe_at = shared.at.mono + self._reconnect_delay(roll)

    def tick(self) -> None:
        """Probe, if it is time."""
        shared = self._shared
        if self.probe_at is not None and not self._probing and shared.at.mono >= self.probe_at:
            self._probing = True
            shared.call(ProbeCall(ping(), self))

    def deadline(self, due: Millis | None) -> Millis | None:
        """Return when the next attempt is due, while disconnected, or `due` if that is earlier."""
        if self._probing or self._shared.state is WorkerState.STOPPED:
            return due
        return earlier(due, self.probe_at)

    def _reconnect_delay(self, roll: float) -> Millis:
        base = reconnect_ms(self.attempts, self._shared.settings.max_reconnect_ms)
        return max(1, round(base * (1 - RECONNECT_JITTER + 2 * RECONNECT_JITTER * roll)))

    def probe_failed(self, message: str, roll: float) -> None:
        """Plan the next attempt, or give up where that is wanted."""
        shared = self._shared
        is_reported = not shared.is_leaving
        self._probing = False
        self.attempts += 1
        limit = shared.settings.max_reconnect_attempts
        if limit and self.attempts >= limit and self.given_up is None:
            self.given_up = f"gave up after {self.attempts} attempts to reconnect: {message}"
            shared.notify(WorkerProblem(self.given_up))
            self._close()
        # Also while it ends: the outcomes of running jobs are stored if the server is back in time.
        delay = self._reconnect_delay(roll)
        self.probe_at = shared.at.mono + delay
        if is_reported:
            shared.notify(ReconnectFailed(self.attempts, delay, message))

    def probe_again(self) -> None:
        """Probe once more, soon."""
        self._probing = False
        self.probe_at = self._shared.at.mono + FIRST_RECONNECT_MS

    def restored(self) -> None:
        """Continue: resend, fetch, renew."""
        shared = self._shared
        self._probing = False
        self.probe_at = None
        shared.connected = True
        shared.notify(Reconnected(self.attempts + 1, shared.at.mono - self.lost_at))
        self.attempts = 0
        self._fetching.resume()
        self._running.resume_all()
        self._upkeep.renew()
