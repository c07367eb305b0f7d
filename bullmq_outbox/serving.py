"""What `bullmq-relay` and `manage.py bullmqrelay` have in common: options of a shell, and signals."""

from __future__ import annotations

import argparse
import logging
import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

from bullmq_outbox.decisions import Relayed
from bullmq_outbox.options import RelayOptions
from bullmq_protocol.errors import BullMQError

_DEFAULTS = RelayOptions()
_STOPPING = (signal.SIGTERM, signal.SIGINT)
_NO_TABLE = "42P01"
_logger = logging.getLogger("bullmq_outbox")


class Relay(Protocol):
    """A relay on threads."""

    def run(self) -> None:
        """Relay until it is stopped."""

    def stop(self) -> None:
        """Let `run` end."""

    def relay_once(self) -> Relayed:
        """Relay a batch."""
        raise NotImplementedError

    def clean_up(self) -> int:
        """Delete what was kept for long enough."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the connections."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a relay."""
    parser.add_argument("--once", action="store_true", help="relay what is due now, then end")
    for name, text in (
        ("batch", "how many entries are taken at once"),
        ("poll", "how long to wait before it looks again, in ms"),
        ("keep", "how long sent entries stay in the table, in ms; 0: they are deleted at once"),
        ("max_attempts", "how often an entry may be refused before it is given up; 0: never"),
        ("retry_delay", "the delay after the first refusal, in ms; it doubles"),
        ("max_retry_delay", "the longest of these delays, in ms"),
        ("max_reconnect_delay", "the longest delay before Redis or the database is tried again, in ms"),
        ("lease", "on SQLite, how long entries belong to the relay that took them, in ms"),
    ):
        default = getattr(_DEFAULTS, name)
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=int, default=default, metavar="N", help=f"{text} [default: {default}]")


def options_of(given: dict[str, Any]) -> RelayOptions:
    """Return the options that were given. Whether they are right shows where the relay is made."""
    values = {name: given[name] for name in RelayOptions.__struct_fields__}
    values["max_attempts"] = values["max_attempts"] or None
    return RelayOptions(**values)


def serve(relay: Relay, *, once: bool) -> int:
    """Run a relay until SIGTERM or SIGINT, or until nothing is due; return how many entries were sent if `once`."""
    with _stopped_by_signals(relay):
        if not once:
            _logger.info("relaying until SIGTERM or SIGINT")
            relay.run()
            return 0
        try:
            return _relay_all(relay)
        finally:
            relay.close()


def said_by_database(error: Exception, makes_it: str) -> str:
    """Return what a database said, in one line; where the table is missing, what makes it."""
    said = str(error).partition("\n")[0]
    # Frameworks have the driver's error as the cause.
    codes = {getattr(each, "sqlstate", None) for each in (error, error.__cause__)}
    return f"{said} ({makes_it})" if _NO_TABLE in codes or said.startswith("no such table") else said


def _relay_all(relay: Relay) -> int:
    count = 0
    trouble: BullMQError | None = None
    while True:
        relayed = relay.relay_once()
        count += relayed.sent
        trouble = trouble or relayed.trouble
        # A batch of refused entries alone is followed by others, too.
        if relayed.sent or relayed.put_off or (relayed.more and relayed.trouble is None):
            continue
        relay.clean_up()
        if trouble is not None:
            raise trouble
        return count


@contextmanager
def _stopped_by_signals(relay: Relay) -> Generator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        relay.stop()

    before = {number: signal.signal(number, stop) for number in _STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
