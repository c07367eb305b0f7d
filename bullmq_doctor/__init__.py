"""Look a server and its queues over for what makes BullMQ lose jobs or stand still: `bullmq-doctor URL [queue...]`.

`look` reads facts (never writes), `examine` is the pure function that turns them into findings. Needs
`pip install 'bullmq-protocol[doctor]'`. Every finding and its fix: docs/doctor.md.
"""

from importlib.util import find_spec

if _missing := [name for name in ("redis", "click", "rich") if find_spec(name) is None]:
    raise ModuleNotFoundError(
        f"bullmq_doctor needs redis-py, click and rich ({_missing[0]} is missing): "
        "pip install 'bullmq-protocol[doctor]'",
        name=_missing[0],
    )

from bullmq_doctor.examine import Finding, Severity, examine
from bullmq_doctor.facts import Facts, QueueFacts, ServerFacts, Unreachable, look

__all__ = ["Facts", "Finding", "QueueFacts", "ServerFacts", "Severity", "Unreachable", "examine", "look"]
