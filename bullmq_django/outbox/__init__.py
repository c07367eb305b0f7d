"""Jobs that follow a transaction of Django's ORM: an application, `bullmq_django.outbox` in `INSTALLED_APPS`.

`models.OutboxRow.objects.add(queue.entry(...))` stores an entry, `manage.py bullmqrelay` relays them. docs/outbox.md.
"""
