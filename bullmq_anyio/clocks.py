"""The clocks of the process."""

import time

from bullmq_protocol.common.units import Instant


def clock() -> Instant:
    """Read both clocks, in milliseconds.

    Examples:
        >>> clock().wall > 1_600_000_000_000
        True
    """
    return Instant(time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000)
