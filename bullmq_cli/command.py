"""The options of `bullmq-worker`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

if find_spec("click") is None:
    raise ModuleNotFoundError(
        "bullmq_cli needs click (click is missing): pip install 'bullmq-protocol[cli]'", name="click"
    )

import click

from bullmq_cli.entry import Signals
from bullmq_cli.logs import FORMATS, LEVELS, LogConfigError, set_up, set_up_by_file
from bullmq_cli.processes import CHILD, Parent
from bullmq_cli.serve import LOOPS, Work, serve
from bullmq_protocol import VERSION, UsageError, parse_address

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

C = TypeVar("C", bound=Callable[..., Any])


def _option(name: str, **more: Any) -> Callable[[C], C]:
    """Return an option that may stand in the environment, too, and says so where its value is wrong."""
    variable = f"BULLMQ_{name.removeprefix('--').upper().replace('-', '_')}"
    return click.option(name, envvar=variable, show_envvar=True, **more)


@click.command(name="bullmq-worker", context_settings=_SETTINGS)
@click.argument("target", envvar="BULLMQ_TARGET", required=False)
@_option("--url", help="The server of queues and workers that name none. [default: redis://127.0.0.1:6379]")
@_option("--burst", is_flag=True, help="End when no job is held, waiting or due.")
@_option("--max-jobs", type=click.IntRange(1), help="End when a worker has processed this many jobs.")
@_option("--concurrency", type=click.IntRange(1), help="Jobs at a time for each worker, in place of its own.")
@_option("--processes", type=click.IntRange(1), default=1, show_default=True, help="Processes, each with all.")
@_option(
    "--reload", is_flag=False, flag_value=".", help="Restart when a Python file in DIR [.] changes.", metavar="[DIR]"
)
@_option("--loop", type=click.Choice(LOOPS), help="Of workers of bullmq_anyio. [default: asyncio]")
@_option("--log-level", type=click.Choice(LEVELS, case_sensitive=False), default="info", show_default=True)
@_option("--log-format", type=click.Choice(FORMATS), default="text", show_default=True)
@_option("--log-config", type=click.Path(path_type=Path), help="A file for logging.config: JSON, TOML or ini.")
@_option("--no-logging", is_flag=True, help="Leave logging as it is.")
@_option("--health-host", default="0.0.0.0", show_default=True)
@_option("--health-port", type=click.IntRange(0, 65_535), help="Serve /live, /ready and /metrics; 0: any port.")
@_option("--health-file", type=click.Path(path_type=Path), help="Write this file each second while all is well.")
@_option(
    "--health-patience",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    help="Seconds until what is wrong counts.",
)
@click.version_option(VERSION)
@click.pass_obj
def main(
    signals: Signals,
    /,
    target: str | None,
    url: str | None,
    processes: int,
    reload: str | None,
    log_level: str,
    log_format: str,
    log_config: Path | None,
    no_logging: bool,
    health_patience: float,
    **options: Any,
) -> None:
    """Run the workers that TARGET names, module:object: one, several, or a function without arguments that returns
    them.

    Every option may stand in the environment, as BULLMQ_URL or BULLMQ_LOG_LEVEL.

    Signals: SIGTERM and SIGINT end in good order, a second one cuts running jobs short, SIGHUP starts anew.

    Exit code: 0 ended in good order, 1 a worker failed, 2 wrong usage or no such workers, 3 the server cannot be
    reached or refuses the login, 130 cut short.
    """
    if target is None and reload is not None and ":" in reload:
        # `--reload app:worker`: the folder may be left out.
        target, reload = reload, "."
    if not target:
        raise click.UsageError("Missing argument 'TARGET': module:object, such as app.jobs:worker")
    if reload is not None:
        _check_reload(reload)
    if url is not None:
        try:
            parse_address(url)
        except UsageError as error:
            raise click.UsageError(str(error)) from None
        os.environ["BULLMQ_URL"] = url
    if log_config is not None:
        try:
            set_up_by_file(log_config)
        except LogConfigError as error:
            raise click.UsageError(str(error)) from None
    elif not no_logging:
        set_up(log_level, log_format)
    number, _, lifeline = os.environ.get(CHILD, "").partition(":")
    if not number and (processes > 1 or reload is not None):
        sys.exit(Parent(processes, None if reload is None else Path(reload)).run())
    work = Work(
        target=target,
        patience_ms=round(health_patience * 1000),
        child=int(number) if number else None,
        lifeline=int(lifeline) if lifeline else None,
        **options,
    )
    sys.exit(serve(work, signals))


def _check_reload(folder: str) -> None:
    if find_spec("watchfiles") is None:
        raise click.UsageError("--reload needs watchfiles: pip install 'bullmq-protocol[cli]'")
    if not Path(folder).is_dir():
        raise click.UsageError(f"--reload {folder}: there is no such folder (BULLMQ_RELOAD names one, too: '.')")
