"""Several commands in one script call, as they say themselves: see `Command.merge`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from msgspec.structs import replace

from bullmq_protocol.command import Batch, Command
from bullmq_protocol.common.reply import Reply, as_text
from bullmq_protocol.errors import ServerError, UsageError


def fitting(commands: Iterable[Command[Any]]) -> int:
    """Return how many of the first of these commands of one kind and queue go into one call: at least one, if there is
    one.

    Source: specs/08-batches.md#bounds
    """
    commands = iter(commands)
    first = next(commands, None)
    if first is None:
        return 0
    if first.merge is None:
        return 1
    into, size, count = first.merge.into, first.merge.size, 1
    for command in islice(commands, into.most - 1):
        if command.merge is None:
            break
        size += command.merge.size
        if size > into.most_bytes:
            break
        count += 1
    return count


def cut(commands: Sequence[Command[Any]]) -> Iterator[Sequence[Command[Any]]]:
    """Cut commands of one kind and queue, in their order, into groups of one call each.

    Source: specs/08-batches.md#bounds
    """
    at = 0
    while at < len(commands):
        count = fitting(islice(commands, at, None))
        yield commands[at : at + count]
        at += count


def merged(commands: Sequence[Command[Any]]) -> Command[list[Reply | ServerError]]:
    """Return the call that does what these commands of one kind and queue do; it replies with one raw reply for each.

    Raises `UsageError` for a command that goes alone.
    """
    merge, script = commands[0].merge, commands[0].script
    if merge is None:
        raise UsageError("commands", commands[0].name, "must be commands that go together with others")
    call = merge.into.build(merge.queue, commands)
    return call if script is None or script.together is None else replace(call, script=script.together)


def calls_of(parts: Sequence[Sequence[Command[Any]]], *, one_script: bool = False) -> list[Command[Any]]:
    """Return the call that each part goes in.

    `one_script`: a command without others goes in the call for several too, so that all run the same script, as a
    transaction without sources wants it.
    """
    least = 1 if one_script else 2
    return [part[0] if len(part) < least or part[0].merge is None else merged(part) for part in parts]


def results_of(parts: Sequence[Sequence[Command[Any]]], replies: Sequence[Any]) -> list[Any]:
    """Return what became of each command, of the replies to the calls of the parts."""
    results: list[Any] = []
    for part, reply in zip(parts, replies, strict=True):
        if isinstance(reply, list):
            shares: list[Any] = reply  # pyright: ignore[reportUnknownVariableType]
            results += Batch(tuple(part)).decode(shares)
        else:
            results += [reply] * len(part)
    return results


def as_shares(reply: Reply, count: int) -> list[Reply | ServerError]:
    """Return one raw reply per command that went into a call; of a reply that is no such list, itself for each to
    refuse."""
    if isinstance(reply, list) and len(reply) == count:
        return [each if type(each) is bytes else as_share(each) for each in reply]
    return [reply] * count


def as_share(reply: Reply) -> Reply | ServerError:
    """Return the reply of one command; the one that failed on the server has a list of the error's text."""
    if isinstance(reply, list) and len(reply) == 1:
        return ServerError(as_text(reply[0]))
    return reply
