"""The application, for `INSTALLED_APPS`."""

from django.apps import AppConfig


class OutboxConfig(AppConfig):
    """`bullmq_django.outbox` in `INSTALLED_APPS`."""

    name = "bullmq_django.outbox"
    label = "bullmq_outbox"
    verbose_name = "BullMQ outbox"
    default_auto_field = "django.db.models.BigAutoField"
