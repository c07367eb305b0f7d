"""What a connection does about replies: the repeat rule, scripts that the server lost, batches, time limits.

`answer` and `answers` are courses, as `topology.follow` is: they yield what to send, are resumed with the replies or an
error, and return what the caller gets.

Source: specs/05-worker-runtime.md#sec-1
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeAlias

import msgspec

from bullmq_protocol.command import Batch, Command, Repeat
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import ServerError, TransportError, TransportTimeout, UsageError
from bullmq_protocol.net.topology import explained

BLOCK_MARGIN_MS: Millis = 2000
"""How long to wait for the reply to a blocking command after the command's own limit."""


class Ask(msgspec.Struct, frozen=True):
    """Commands to send in one go. Bring back their replies in order, errors as `ServerError`.

    `afresh`: with the source of each script, as if none had been sent before. `atomic`: between MULTI and EXEC, whose
    replies are the first and the last.
    """

    commands: Sequence[Command[Any]]
    afresh: bool = False
    atomic: bool = False


Course: TypeAlias = Generator[Ask, list[Any], Any]


def may_repeat(step: Command[Any] | Batch, error: TransportError) -> bool:
    """Tell whether a step is sent once more: it did not run, or is SAFE and its connection broke.

    A time limit that is used up is not begun anew.
    """
    if not error.maybe_applied:
        return True
    return step.repeat is Repeat.SAFE and not isinstance(error, TransportTimeout)


def limit_of(command: Command[Any], limit_ms: Millis | None, *, dedicated: bool) -> Millis | None:
    """Return how long a reply is waited for. `limit_ms` is the limit of commands that do not block; None is none.

    Raises `UsageError` for a blocking command on a connection that is not dedicated.
    """
    if command.block_ms is None:
        return limit_ms
    if not dedicated:
        raise UsageError("command", command.name, "blocks its connection: perform it on one made by dedicated()")
    return command.block_ms + BLOCK_MARGIN_MS if command.block_ms else None


def is_lost_script(command: Command[Any], reply: Any) -> bool:
    """Tell whether the server has lost a command's script: it did not run, so sending it again is no repetition."""
    return command.script is not None and isinstance(reply, ServerError) and reply.code == "NOSCRIPT"


def answer(command: Command[Any], error: ServerError) -> Course:
    """Handle the error reply to a single command: send a script again that the server has lost, raise any other
    error."""
    if not is_lost_script(command, error):
        raise explained(error)
    (reply,) = yield Ask((command,), afresh=True)
    if isinstance(reply, ServerError):
        raise reply
    return reply


def answers(batch: Batch) -> Course:
    """Perform a batch; return a list, with errors as `ServerError`."""
    commands = batch.commands
    if not commands:
        return []
    if batch.atomic:
        # A script that is missing fails alone, in the middle of the rest. If it is the only one, nothing was done.
        alone = _has_one_script(commands)
        replies = outcomes((yield Ask(commands, afresh=not alone, atomic=True)))
        if alone and any(map(is_lost_script, commands, replies)):
            replies = outcomes((yield Ask(commands, afresh=True, atomic=True)))
        return replies
    replies = yield Ask(commands)
    again = [number for number, reply in enumerate(replies) if is_lost_script(commands[number], reply)]
    if again:
        try:
            late = yield Ask([commands[number] for number in again], afresh=True)
        except TransportError as error:
            # The other commands of the batch did run.
            raise type(error)(error.reason, maybe_applied=True) from error
        for number, reply in zip(again, late, strict=True):
            replies[number] = reply
    return replies


def _has_one_script(commands: Sequence[Command[Any]]) -> bool:
    """Tell whether a transaction runs one script alone, and beside it only what may run twice."""
    scripts = {None if each.script is None else each.script.sha1 for each in commands}
    return len(scripts - {None}) == 1 and all(each.script or each.repeat is Repeat.SAFE for each in commands)


def outcomes(replies: Sequence[Any]) -> list[Any]:
    """Return what each command of a transaction has as its reply, from those to MULTI, the commands and EXEC.

    If nothing ran, each has its own refusal, or that of the whole.
    """
    begun, *queued, outcome = replies
    if isinstance(begun, ServerError):
        return queued
    if isinstance(outcome, ServerError):
        return [each if isinstance(each, ServerError) else outcome for each in queued]
    return list(outcome)
