"""The table of orders."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """The first."""

    initial = True
    dependencies: ClassVar = []
    operations: ClassVar = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("address", models.CharField(max_length=200)),
                ("state", models.CharField(default="new", max_length=20)),
            ],
        ),
    ]
