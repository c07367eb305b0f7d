"""The application, for `INSTALLED_APPS`: the command, and the checks of servers."""

from django.apps import AppConfig
from django.core import checks

from bullmq_django.checks import TAG, check_servers


class BullMQConfig(AppConfig):
    """`bullmq_django` in `INSTALLED_APPS`."""

    name = "bullmq_django"
    label = "bullmq"
    verbose_name = "BullMQ"

    def ready(self) -> None:
        """Register the checks, for `manage.py check --deploy`: they ask the server."""
        checks.register(check_servers, TAG, deploy=True)
