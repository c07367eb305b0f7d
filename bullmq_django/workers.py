"""The workers of a backend, for `manage.py bullmqworker` and for `bullmq-worker bullmq_django.workers:made`."""

from __future__ import annotations

import os
from typing import Any

import django
from django.core.exceptions import ImproperlyConfigured

from bullmq_django.backend import BullMQBackend
from bullmq_django.framework import task_backends
from bullmq_django.running import Runner
from bullmq_sync import Worker

BACKEND = "BULLMQ_DJANGO_BACKEND"
"""The variable that names the backend: `default` by default."""
QUEUES = "BULLMQ_DJANGO_QUEUES"
"""The variable that names the queues, with commas between them: all of the backend's by default."""


def made() -> list[Worker[Any]]:
    """Return the workers that the environment asks for, one for each queue.

    Raises:
        ImproperlyConfigured: There is no such backend or queue.

    Examples:
        >>> [worker.name for worker in made()]
        ['default', 'mail']
    """
    django.setup()
    wanted = [name.strip() for name in os.environ.get(QUEUES, "").split(",") if name.strip()]
    return workers_of(os.environ.get(BACKEND) or "default", wanted)


def workers_of(alias: str, queues: list[str]) -> list[Worker[Any]]:
    """Return the workers of a backend.

    Args:
        alias: Its name in `TASKS`.
        queues: The names of queues; none: all of the backend's.

    Raises:
        ImproperlyConfigured: There is no such backend or queue.

    Examples:
        >>> [worker.name for worker in workers_of("default", ["mail"])]
        ['mail']
    """
    known_backends = sorted(task_backends.settings)
    if alias not in known_backends:
        raise ImproperlyConfigured(f"TASKS has no backend {alias!r}: there are {', '.join(known_backends)}")
    backend = task_backends[alias]
    if not isinstance(backend, BullMQBackend):
        raise ImproperlyConfigured(f"TASKS[{alias!r}] is no BullMQBackend, but a {type(backend).__name__}")
    known = sorted(backend.queues)
    unknown = [name for name in queues if known and name not in known]
    if unknown:
        raise ImproperlyConfigured(f"TASKS[{alias!r}] has no queue {unknown[0]!r}: there are {', '.join(known)}")
    chosen = queues or known
    if not chosen:
        raise ImproperlyConfigured(f"TASKS[{alias!r}] has any queue (QUEUES is empty): name those to work on")
    return [Runner(backend, name).worker() for name in chosen]
