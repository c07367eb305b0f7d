"""cron-parser in Node, which comes with a pinned BullMQ."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.node import bullmq_folder

_PROGRAM = Path(__file__).parents[1] / "interop" / "node" / "cron.js"


def ask_node(
    zones: Mapping[str, Sequence[int]],
    cases: Sequence[Mapping[str, Any]],
    *,
    folder: Callable[[], Path] = bullmq_folder,
) -> Any:
    """Return versions, the offsets of zones at moments, and what becomes of each case: see cron.js. `folder` gives the
    packages."""
    done = subprocess.run(
        ["node", str(_PROGRAM)],
        input=json.dumps({"zones": zones, "cases": cases}),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        env={**os.environ, "NODE_PATH": str(folder())},
    )
    return json.loads(done.stdout)
