"""The group of all commands: options that each has, errors, exit codes."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click
from redis.exceptions import AuthenticationError, RedisError

from bullmq_cli.ctl.asking import Declined
from bullmq_cli.ctl.session import PROFILES, NotThere, Session
from bullmq_cli.ctl.show import flush
from bullmq_cli.text import visible
from bullmq_protocol import VERSION
from bullmq_protocol.errors import (
    AuthenticationFailed,
    BullMQError,
    ServerTooOld,
    TransportError,
    UsageError,
    WaitTimeout,
    without_login,
)

DONE: Final = 0
REFUSED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
NOT_THERE: Final = 4
TIMED_OUT: Final = 5
INTERRUPTED: Final = 130
CLOSED_PIPE: Final = 141

_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_NAME: Final = "bullmq-ctl"

Command = Callable[..., int | None]


def fail(code: int, text: str) -> NoReturn:
    """End with an exit code, and say why, without a login and without what steers a terminal."""
    with contextlib.suppress(BrokenPipeError):
        click.echo(f"{_NAME}: {visible(without_login(text), lines=True)}", err=True)
    sys.exit(code)


class Ctl(click.Group):
    """Turns errors into exit codes."""

    def main(self, args: Any = None, prog_name: Any = None, *_: Any, standalone_mode: bool = True, **more: Any) -> Any:
        """Run, and end the process."""
        _write_what_cannot_be_shown_in_ascii()
        try:
            code = super().main(args, prog_name, standalone_mode=False, **more)
            # What is still in the buffer may meet a closed pipe.
            flush()
        except click.UsageError as error:
            if error.ctx is not None:
                click.echo(visible(without_login(error.ctx.get_usage()), lines=True), err=True)
            fail(USAGE, error.format_message())
        except click.ClickException as error:
            fail(USAGE, error.format_message())
        except (click.Abort, KeyboardInterrupt):
            fail(INTERRUPTED, "interrupted")
        except BrokenPipeError:
            _leave_pipe()
        if not standalone_mode:
            return code
        sys.exit(code if isinstance(code, int) else DONE)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            code = super().invoke(ctx)
            flush()
        except BrokenPipeError:
            _leave_pipe()
        except Declined:
            fail(REFUSED, "nothing was done")
        except NotThere as error:
            fail(NOT_THERE, str(error))
        except UsageError as error:
            fail(USAGE, str(error))
        except WaitTimeout as error:
            fail(TIMED_OUT, str(error))
        except (TransportError, AuthenticationFailed, ServerTooOld) as error:
            fail(UNREACHABLE, f"the server cannot be used: {error}")
        except BullMQError as error:
            fail(REFUSED, str(error))
        except AuthenticationError as error:
            fail(UNREACHABLE, f"the server refuses the login: {error}")
        except (RedisError, UnicodeError) as error:
            # A name of a host that is none is a UnicodeError.
            fail(UNREACHABLE, f"the server cannot be used: {error}")
        except OSError as error:
            # A full disk, say.
            fail(REFUSED, str(error))
        return code


def _leave_pipe() -> NoReturn:
    """End because nobody reads any more; what is in the buffers is nobody's."""
    with contextlib.suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)
    sys.exit(CLOSED_PIPE)


def _write_what_cannot_be_shown_in_ascii() -> None:
    """Where the locale has no UTF-8, other letters are written out instead of ending the program."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def shared(function: Command) -> Command:
    """Give a command the options that all have, and call it with a `Session`. It returns the exit code, None for 0."""

    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @click.option("--url", help="The server, if it is not that of bullmq-ctl itself.", show_default=False)
    @click.option("--prefix", help="What the keys begin with, with its braces if it has any.")
    @click.option("--profile", type=click.Choice(tuple(PROFILES)), help="Whose scripts.")
    @click.pass_context
    @functools.wraps(function)
    def run(context: click.Context, /, **given: Any) -> int | None:
        ours = {name: given.pop(name) for name in ("url", "prefix", "profile")}
        above: dict[str, Any] = context.obj or {}
        ours = {name: above.get(name) if value is None else value for name, value in ours.items()}
        with Session(**ours, as_json=given.pop("as_json")) as session:
            return function(session, **given)

    return run


def destroys(function: Command) -> Command:
    """Give a command the options of what cannot be undone."""
    looks = click.option("--dry-run", is_flag=True, help="Change nothing; say what would be done.")
    return click.option("--yes", "-y", is_flag=True, help="Do not ask.")(looks(function))


if TYPE_CHECKING:
    _Type = click.ParamType[int]
else:
    # Older versions of click, which are allowed, do not name the type of the value.
    _Type = click.ParamType


class Span(_Type):
    """A span of time in milliseconds: `30s`, `5m`, `2h`, `1d`, `250ms`; a number alone is in seconds."""

    name = "time"
    _units: Final = {"ms": 1, "s": 1000, "": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it."""
        text = str(value).strip().lower()
        number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
        try:
            ms = float(number) * self._units[text[len(number) :].strip()]
            timedelta(milliseconds=ms)
            if not ms >= 0:
                raise ValueError
        except (KeyError, ValueError, OverflowError):
            self.fail(f"{text!r} is no span of time, such as 30s, 5m, 2h or 1d", param, ctx)
        return round(ms)


SPAN: Final = Span()


@click.group(name=_NAME, cls=Ctl, context_settings=_SETTINGS, no_args_is_help=True)
@click.option("--url", envvar="BULLMQ_URL", show_envvar=True, help="The server. [default: redis://127.0.0.1:6379]")
@click.option("--prefix", envvar="BULLMQ_PREFIX", show_envvar=True, help="What all keys begin with. [default: bull]")
@click.option(
    "--profile", envvar="BULLMQ_PROFILE", show_envvar=True, type=click.Choice(tuple(PROFILES)), help="Whose scripts."
)
@click.version_option(VERSION)
@click.pass_context
def ctl(context: click.Context, /, **options: Any) -> None:
    """Look at BullMQ's queues, and administer them.

    \b
    bullmq-ctl queues                     which there are, and how many jobs each has
    bullmq-ctl top                        the same, live
    bullmq-ctl jobs mail --state failed   why jobs failed
    bullmq-ctl retry mail --all           and once more

    The server is that of --url or BULLMQ_URL: redis://, rediss:// (TLS), unix:///path,
    redis+sentinel://host:port,host:port/service, redis+cluster://host:port,host:port. A password is best kept in
    BULLMQ_URL: others see the command line. The options of bullmq-ctl may stand before or after the command.

    Exit code: 0 done, 1 refused or in part (wait: the job failed), 2 wrong usage, 3 the server cannot be reached or
    refuses the login, 4 there is no such queue, job or scheduler, 5 the time is over, 130 interrupted.
    """
    context.obj = options
