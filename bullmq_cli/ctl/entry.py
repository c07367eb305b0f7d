"""`bullmq-ctl` from its first line on."""

from __future__ import annotations

from importlib.util import find_spec

if _missing := [name for name in ("click", "rich", "redis", "hiredis") if find_spec(name) is None]:
    raise ModuleNotFoundError(
        f"bullmq-ctl needs click, rich, redis-py and hiredis ({_missing[0]} is missing): "
        "pip install 'bullmq-protocol[cli]'",
        name=_missing[0],
    )

from bullmq_cli.ctl import about_jobs, about_queues, about_workers, exporter, top
from bullmq_cli.ctl.program import ctl

COMMANDS = (about_queues, about_jobs, about_workers, top, exporter)
"""The modules whose import gives the program its commands."""


def main() -> None:
    """Run the command `bullmq-ctl`."""
    ctl.main()


if __name__ == "__main__":
    main()
