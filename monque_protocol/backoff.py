"""Delay before a retry.

Source: specs/monque.md#sec-6
"""

from __future__ import annotations

import math
from typing import Final

from bullmq_protocol.common.units import Millis

JITTER: Final = 0.25
_FAR: Final = 2.0**62


def backoff_delay(runs: int, *, base_ms: Millis, most_ms: Millis | None, roll: float) -> Millis:
    """Return the milliseconds to wait after this many failed runs, from 1 on. `roll` in [0, 1) is the dice for jitter.

    Source: specs/monque.md#sec-6
    """
    cap = _FAR if most_ms is None else float(most_ms)
    # No larger power fits into a cap.
    bound = min(math.ldexp(float(base_ms), min(runs, 100)), cap)
    spread = max(0, math.floor(bound + (2 * roll - 1) * JITTER * bound + 0.5))
    return min(spread, int(cap))
