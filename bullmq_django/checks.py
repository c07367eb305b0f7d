"""What `bullmq-doctor` finds, as Django's system checks: `manage.py check --deploy --tag bullmq`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

from django.core import checks

from bullmq_django.backend import BullMQBackend
from bullmq_django.framework import task_backends
from bullmq_doctor import Finding, Severity, Unreachable, examine, look
from bullmq_protocol import KeyLayout, QueueKeys, UsageError

TAG = "bullmq"
_LOCAL = "redis://127.0.0.1:6379"
_LEVELS = MappingProxyType({Severity.NOTE: checks.Info, Severity.WARNING: checks.Warning, Severity.ERROR: checks.Error})


def check_servers(app_configs: object = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Look the servers and the queues of all backends over.

    Args:
        app_configs: What Django gives to checks; ignored, None by default.
        **kwargs: The same.

    Returns:
        One message for each finding of the doctor, with `bullmq.` and the finding's name as its id.

    Examples:
        >>> check_servers()
        [<Warning: level=30, msg="server: keeps nothing on disk...", hint=..., obj="TASKS['default']", id=...>]
    """
    messages: list[checks.CheckMessage] = []
    for alias in task_backends:
        backend = task_backends[alias]
        if isinstance(backend, BullMQBackend):
            messages += _of(alias, backend)
    return messages


def _of(alias: str, backend: BullMQBackend) -> Iterator[checks.CheckMessage]:
    place = f"TASKS[{alias!r}]"
    options = backend.bullmq_options
    url = options.connection or os.environ.get("BULLMQ_URL") or _LOCAL
    if not isinstance(url, str):
        problem = "is not looked over: its connection is given as an object, not as a URL"
        yield checks.Info(problem, hint="run bullmq-doctor with the server's URL", obj=place, id="bullmq.not-examined")
        return
    try:
        facts = look(url, _names(backend), prefix=options.prefix)
    except (Unreachable, UsageError) as error:
        yield checks.Error(str(error), obj=place, id="bullmq.unreachable")
        return
    for finding in examine(facts):
        yield _message(finding, place)


def _names(backend: BullMQBackend) -> list[str]:
    """Return the queues' names as they stand in the keys."""
    options = backend.bullmq_options
    layout: KeyLayout = options.layout
    return [QueueKeys.of(name, prefix=options.prefix, layout=layout).name for name in sorted(backend.queues)]


def _message(finding: Finding, place: str) -> checks.CheckMessage:
    kind = _LEVELS[finding.severity]
    problem = f"{finding.where}: {finding.problem}"
    return kind(problem, hint=finding.fix, obj=place, id=f"bullmq.{finding.check}")
