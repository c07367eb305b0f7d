"""The table of the outbox, and on PostgreSQL the trigger that notifies relays."""

from typing import Any, ClassVar

from django.db import migrations, models

from bullmq_outbox.statements import statements_of

_STATES = [("waiting", "Waiting"), ("sent", "Sent"), ("refused", "Refused")]


def notify(apps: Any, schema_editor: Any) -> None:
    """Make the trigger on PostgreSQL."""
    if schema_editor.connection.vendor == "postgresql":
        for statement in statements_of("postgresql").notify:
            schema_editor.execute(statement)


def notify_no_longer(apps: Any, schema_editor: Any) -> None:
    """Drop it."""
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("DROP FUNCTION IF EXISTS bullmq_outbox_notify CASCADE")


class Migration(migrations.Migration):
    """The first."""

    initial = True
    dependencies: ClassVar = []
    operations: ClassVar = [
        migrations.CreateModel(
            name="OutboxRow",
            fields=[
                ("seq", models.BigAutoField(primary_key=True, serialize=False)),
                ("entry", models.TextField(help_text="The job, as OutboxEntry.from_json reads it.")),
                ("order_key", models.CharField(blank=True, max_length=255, null=True)),
                (
                    "state",
                    models.CharField(choices=_STATES, db_default="waiting", default="waiting", max_length=10),
                ),
                ("attempts", models.IntegerField(db_default=0, default=0, help_text="How often it was refused.")),
                (
                    "due_at",
                    models.BigIntegerField(
                        db_default=0, default=0, help_text="When it may be taken, in ms since the epoch."
                    ),
                ),
                ("error", models.TextField(blank=True, help_text="Why it was refused.", null=True)),
                (
                    "settled_at",
                    models.BigIntegerField(blank=True, help_text="When it was sent or given up, in ms.", null=True),
                ),
            ],
            options={
                "db_table": "bullmq_outbox",
                "verbose_name": "outbox entry",
                "verbose_name_plural": "outbox entries",
                "indexes": [
                    models.Index(
                        condition=models.Q(("state", "waiting")), fields=["seq"], name="bullmq_outbox_waiting"
                    ),
                    models.Index(
                        condition=models.Q(("order_key__isnull", False), ("state", "waiting")),
                        fields=["order_key", "due_at"],
                        name="bullmq_outbox_ordered",
                    ),
                    models.Index(
                        condition=models.Q(("state", "sent")), fields=["settled_at"], name="bullmq_outbox_sent"
                    ),
                ],
            },
        ),
        migrations.RunPython(notify, notify_no_longer),
    ]
