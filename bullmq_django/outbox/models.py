"""The table of the outbox."""

# Django's fields say nothing of their types without its plugin.
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from django.db import models

from bullmq_outbox.tables import LONGEST_KEY, checked_entries, checked_key
from bullmq_protocol import OutboxEntry


class OutboxManager(models.Manager[Any]):
    """`OutboxRow.objects`."""

    def add(self, entry: OutboxEntry | Iterable[OutboxEntry], *, key: str | None = None) -> list[OutboxRow]:
        """Store entries: in the transaction, if one is open (`transaction.atomic`).

        Args:
            entry: What `Queue.entry` returned, one or several.
            key: What the entries are in order by: a later one of the same key is added after them. None, the default:
                they are in order with no others.

        Returns:
            The rows.

        Raises:
            UsageError: An argument is wrong.

        Examples:
            >>> with transaction.atomic():
            ...     order = Order.objects.create(address="ada@example.org")
            ...     OutboxRow.objects.add(queue.entry("confirm", {"order": order.pk}), key=f"order:{order.pk}")
        """
        order_key = checked_key(key)
        rows = [OutboxRow(entry=each.to_json(), order_key=order_key) for each in checked_entries(entry)]
        return self.bulk_create(rows)


class OutboxRow(models.Model):
    """An entry of the outbox, and how far it has come."""

    class State(models.TextChoices):
        """What becomes of an entry. Those that were sent are deleted, or kept in state `sent` for a time."""

        WAITING = "waiting"
        SENT = "sent"
        REFUSED = "refused"

    seq: Any = models.BigAutoField(primary_key=True)
    entry: Any = models.TextField(help_text="The job, as OutboxEntry.from_json reads it.")
    order_key: Any = models.CharField(max_length=LONGEST_KEY, null=True, blank=True)
    state: Any = models.CharField(max_length=10, choices=State.choices, default=State.WAITING, db_default=State.WAITING)
    attempts: Any = models.IntegerField(default=0, db_default=0, help_text="How often it was refused.")
    due_at: Any = models.BigIntegerField(
        default=0, db_default=0, help_text="When it may be taken, in ms since the epoch."
    )
    error: Any = models.TextField(null=True, blank=True, help_text="Why it was refused.")
    settled_at: Any = models.BigIntegerField(null=True, blank=True, help_text="When it was sent or given up, in ms.")

    objects = OutboxManager()

    class Meta:
        """The table that relays of every kind know."""

        db_table = "bullmq_outbox"
        verbose_name = "outbox entry"
        verbose_name_plural = "outbox entries"
        indexes: ClassVar = [
            models.Index(fields=["seq"], name="bullmq_outbox_waiting", condition=models.Q(state="waiting")),
            models.Index(
                fields=["order_key", "due_at"],
                name="bullmq_outbox_ordered",
                condition=models.Q(state="waiting", order_key__isnull=False),
            ),
            models.Index(fields=["settled_at"], name="bullmq_outbox_sent", condition=models.Q(state="sent")),
        ]

    def __str__(self) -> str:
        # The payload may be secret.
        return f"{self.seq} ({self.state})"
