"""`manage.py bullmqrelay`: relay the entries of `bullmq_django.outbox`."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, InterfaceError

from bullmq_django.backend import BullMQBackend
from bullmq_django.framework import task_backends
from bullmq_django.options import Options
from bullmq_django.outbox.relay import OutboxRelay
from bullmq_outbox.serving import add_options, options_of, said_by_database, serve
from bullmq_protocol import BullMQError
from bullmq_protocol.model.options import DEFAULT_LIMITS
from bullmq_protocol.scripts.profile import DEFAULT


class Command(BaseCommand):
    """Relay the entries of the outbox until a signal ends it."""

    help = "Relay the entries of bullmq_django.outbox to Redis until SIGTERM or SIGINT."
    # They may ask the server, and a relay waits for one that is not there yet.
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the database, the backend, and what `bullmq-relay` has."""
        parser.add_argument("--database", default="default", help="The name in DATABASES. [default: default]")
        parser.add_argument(
            "--backend", help="The name in TASKS whose connection is used. [default: default, if it is BullMQ's]"
        )
        parser.add_argument("--redis", help="Where Redis is. [default: that of the backend, else BULLMQ_URL]")
        add_options(parser)

    def handle(self, *args: object, **options: Any) -> None:
        """Run the relay."""
        own = _options_of(options["backend"])
        try:
            relay = OutboxRelay(
                options["database"],
                options["redis"] or (own.connection if own is not None else None),
                options=options_of(options),
                limits=own.limits if own is not None else DEFAULT_LIMITS,
                scripts=own.scripts if own is not None else DEFAULT,
            )
            count = serve(relay, once=options["once"])
        except (BullMQError, ImproperlyConfigured) as error:
            raise CommandError(str(error)) from None
        except (DatabaseError, InterfaceError) as error:
            raise CommandError(said_by_database(error, "manage.py migrate makes it")) from None
        if options["once"]:
            self.stdout.write(f"{count} sent")


def _options_of(name: str | None) -> Options | None:
    found = task_backends[name or "default"] if (name or "default") in task_backends.settings else None
    if isinstance(found, BullMQBackend):
        return found.bullmq_options
    if name is not None:
        raise CommandError(f"TASKS has no backend {name!r} of BullMQ's")
    return None
