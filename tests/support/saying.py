"""What holds for each error that is made and each line that is logged, whatever a test looks at."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from typing import Any

import pytest

from bullmq_protocol.errors import ServerError, TransportError, UnexpectedReply, UsageError
from tests.support.refusals import parts

LOGGERS = ("bullmq_anyio", "bullmq_sync")

_MISSING = ("must be given", "is needed", "no process function is defined")
"""How rules begin that ask for what is not there."""


class Signalled(Exception):
    """Raised by a test's handler of a signal, at any moment: no fault of what it falls into."""


def check_errors(patch: pytest.MonkeyPatch, wrong: list[str]) -> None:
    """Note, and raise, what is wrong with an error that is made.

    A refusal says which field, what value and what rule, wherever it is raised: tests look at one of them.

    So does an unexpected reply: what was expected, and what came. An error of a connection says what happened, and
    whether the command may have run; one of the server is text.
    """

    def checking(kind: type[Exception], check: Callable[..., None]) -> None:
        usual: Any = kind.__init__

        @functools.wraps(usual)
        def checked(self: Exception, *args: Any, **named: Any) -> None:
            try:
                check(*args, **named)
            except Signalled:
                raise
            except BaseException:
                wrong.append(f"{type(self).__name__}{args!r}")
                raise
            usual(self, *args, **named)

        patch.setattr(kind, "__init__", checked)

    checking(UsageError, _check_refusal)
    checking(UnexpectedReply, _check_reply)
    checking(ServerError, _check_text)
    checking(TransportError, _check_loss)


def _check_refusal(field: str, value: object, rule: str) -> None:
    _check_words(field)
    _check_words(rule)
    if value is None and not rule.startswith(_MISSING):
        assert _was_given_none(), "the refusal does not show the value"


def _check_reply(expected: str, reply: object) -> None:
    _check_words(expected)
    if reply is None:
        assert _was_given_none(), "the error does not show the reply"


def _check_words(message: str) -> None:
    assert isinstance(message, str) and message


def _check_text(message: str) -> None:
    # A server may say nothing.
    assert isinstance(message, str)


def _check_loss(message: str, *, maybe_applied: bool) -> None:
    _check_words(message)
    assert type(maybe_applied) is bool


def _was_given_none() -> bool:
    """Tell whether what makes an error has been given a None: this, a check and `checked` stand above it."""
    given = sys._getframe(3).f_locals.values()
    return any(part is None for each in given for part in parts(each))


class Lines(logging.Handler):
    """Notes what is wrong with a line: an argument missing, or None for one, or the traceback of nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        args = record.args if isinstance(record.args, tuple) else (record.args,) if record.args else ()
        try:
            record.getMessage()
        except Signalled:
            raise
        except Exception as error:
            self.wrong.append(f"{record.msg!r} with {args!r}: {error}")
            return
        if any(each is None for each in args):
            self.wrong.append(f"{record.msg!r} says None: {args!r}")
        if record.getMessage().startswith("worker ") and not {"worker_id", "queue"} <= record.__dict__.keys():
            self.wrong.append(f"{record.msg!r} does not name its worker and queue in its fields")
        if record.exc_info is not None and record.exc_info[1] is None:
            self.wrong.append(f"{record.msg!r} has the traceback of nothing")
