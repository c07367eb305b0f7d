"""`manage.py bullmqworker`: `bullmq-worker` for the queues of a backend, with its options."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import Any

import click
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from bullmq_cli.command import main
from bullmq_cli.entry import Signals
from bullmq_django.workers import BACKEND, QUEUES

_TARGET = "bullmq_django.workers:made"
_LEFT_OUT = ("url", "loop", "version")
"""What `TASKS` says, what concerns event loops alone, and what Django has itself."""
_OF_LOGGING = ("log_level", "log_format", "log_config", "no_logging")


class Command(BaseCommand):
    """Run the workers of a backend until a signal ends them."""

    help = "Run the tasks of a BullMQBackend until SIGTERM or SIGINT. Exit codes are those of bullmq-worker."
    # They may ask the server, and a worker waits for one that is not there yet.
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the backend, the queues and what `bullmq-worker` has."""
        parser.add_argument("--backend", default="default", help="The name in TASKS. [default: default]")
        parser.add_argument(
            "--queue", action="append", default=[], dest="queues", help="A queue; may be repeated. [default: QUEUES]"
        )
        for option in _options():
            names = [name for name in option.opts if name.startswith("--")]
            if option.is_flag and not isinstance(option.flag_value, str):
                parser.add_argument(*names, action="store_true", dest=option.name, help=_text(option))
            elif option.name == "reload":
                parser.add_argument(*names, nargs="?", const=".", dest=option.name, metavar="DIR", help=_text(option))
            else:
                metavar = option.make_metavar(click.Context(main))
                parser.add_argument(*names, dest=option.name, metavar=metavar, help=_text(option))

    def handle(self, *args: object, **options: Any) -> None:
        """Run `bullmq-worker`; it ends the process with its exit code."""
        os.environ[BACKEND] = options["backend"]
        os.environ[QUEUES] = ",".join(options["queues"])
        signals = Signals()
        try:
            signals.take_over()
        except ValueError:
            raise CommandError("bullmqworker must be called on the main thread, which alone gets signals") from None
        main([_TARGET, *_arguments(options)], prog_name="manage.py bullmqworker", obj=signals)


def _options() -> Iterator[click.Option]:
    for option in main.params:
        if isinstance(option, click.Option) and option.name not in _LEFT_OUT:
            yield option


def _text(option: click.Option) -> str:
    default = f" [default: {option.default}]" if option.show_default else ""
    return f"{option.help or ''}{default}".strip().replace("%", "%%")


def _arguments(options: dict[str, Any]) -> Iterator[str]:
    """Yield the arguments of `bullmq-worker`. Records go where `LOGGING` says, if the project has any."""
    for option in _options():
        value = options.get(option.name or "")
        if value is True:
            yield option.opts[0]
        elif value is not None and value is not False:
            yield f"{option.opts[0]}={value}"
    asked = any(options.get(name) for name in _OF_LOGGING)
    if settings.LOGGING and not asked and not any(f"BULLMQ_{name}".upper() in os.environ for name in _OF_LOGGING):
        yield "--no-logging"
