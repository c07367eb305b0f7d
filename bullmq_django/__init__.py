"""Django's tasks on BullMQ's queues: a backend for `TASKS`, and `manage.py bullmqworker`, which runs them.

Needs `pip install 'bullmq-protocol[django]'`: Django 6 with its own tasks, or an older one with the package
`django-tasks`. How to set it up: docs/django.md.
"""

from importlib.util import find_spec

if find_spec("django") is None:
    raise ModuleNotFoundError(
        "bullmq_django needs Django (django is missing): pip install 'bullmq-protocol[django]'", name="django"
    )

from bullmq_django.backend import BullMQBackend

__all__ = ["BullMQBackend"]
