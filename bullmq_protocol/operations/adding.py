"""Add jobs within a transaction of the caller's: what to send, and how to read the replies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from bullmq_protocol.command import Arg, Batch, Command, Operation, Script, Step
from bullmq_protocol.common.keys import key_slot
from bullmq_protocol.errors import ServerError, UsageError

T = TypeVar("T")

_CODES: Final = MappingProxyType(
    {
        "AskError": "ASK",
        "BusyLoadingError": "LOADING",
        "ClusterCrossSlotError": "CROSSSLOT",
        "ClusterDownError": "CLUSTERDOWN",
        "MasterDownError": "MASTERDOWN",
        "MovedError": "MOVED",
        "NoPermissionError": "NOPERM",
        "NoScriptError": "NOSCRIPT",
        "OutOfMemoryError": "OOM",
        "ReadOnlyError": "READONLY",
        "TryAgainError": "TRYAGAIN",
    }
)
"""Clients cut the first word off these error replies."""


class Adding(Generic[T]):
    """Jobs that are checked and ready to be added, within a transaction of the caller's.

    `Queue.adding`, `Queue.adding_job_scheduler` and `FlowProducer.adding` make one. It is a value and does no I/O: send
    what `wires` returns between MULTI and EXEC, in this order and on one connection, and hand the replies to `results`;
    or let `into_pipeline` do the first half for a client's pipeline. A transaction that did not run, because a watched
    key changed or the connection could not be made, may be sent again with the same value. One that may have run must
    not, unless each job has an id of its own.

    Attributes:
        commands: The commands, in their order.
        keys: All keys that they name, and the parents of the jobs. On a Redis Cluster they must be in one slot.
        scripts: The scripts that they run, each once: what to load for `wires(loaded=True)`.

    Source: specs/08-batches.md#in-a-transaction
    """

    def __init__(
        self,
        make: Callable[[], Operation[T]],
        scripted: Callable[[Command[Any]], Command[Any]],
        *,
        parents: Iterable[str] = (),
        before: Sequence[Command[Any]] = (),
    ) -> None:
        self._make = make
        self._before = len(before)
        step = next(make())
        self.commands: tuple[Command[Any], ...] = (*before, *map(scripted, _commands(step)))
        self._is_batch = isinstance(step, Batch)
        self.keys: tuple[str, ...] = tuple(
            dict.fromkeys((*(key for each in self.commands for key in each.keys), *parents))
        )
        found = [each.script for each in self.commands if each.script is not None]
        self.scripts: tuple[Script, ...] = tuple({each.sha1: each for each in found}.values())

    def __len__(self) -> int:
        return len(self.commands)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, {len(self)} commands>"

    def wires(self, *, loaded: bool = False) -> list[tuple[Arg, ...]]:
        """Return the commands as they go on the wire, each a tuple of its name and arguments.

        Args:
            loaded: True names all scripts by their SHA-1: they must have been loaded (SCRIPT LOAD of each of
                `scripts`). A server that has lost one answers NOSCRIPT, and runs the rest of the transaction all the
                same. False, the default: the first command with a script brings its text, so nothing can be missing.
        """
        known = {each.sha1 for each in self.scripts} if loaded else set[str]()
        wires: list[tuple[Arg, ...]] = []
        for command in self.commands:
            sha1 = None if command.script is None else command.script.sha1
            wires.append(command.wire(full_source=sha1 is not None and sha1 not in known))
            if sha1 is not None:
                known.add(sha1)
        return wires

    def results(self, replies: Sequence[Any]) -> T:
        """Return what was added, from the replies to the commands: those of EXEC, or their part of them.

        Args:
            replies: One reply for each command, in their order, as any client returns them: bytes or text, and
                exceptions in place of error replies.

        Raises:
            UsageError: There are more replies than commands, or fewer.
            BullMQError: What `Queue.add_bulk`, `FlowProducer.add` and `Queue.upsert_job_scheduler` raise; NOSCRIPT and
                other refusals of the server are `ServerError`.
        """
        if not isinstance(replies, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("replies", replies, "must be a list: a transaction that did not run has no replies")
        if len(replies) != len(self.commands):
            raise UsageError("replies", len(replies), f"must be one for each of the {len(self.commands)} commands")
        own = [_ours(each) for each in replies[self._before :]]
        operation = self._make()
        next(operation)
        try:
            if self._is_batch:
                operation.send(own)
            elif isinstance(own[0], ServerError):
                operation.throw(own[0])
            else:
                operation.send(own[0])
        except StopIteration as stop:
            value: T = stop.value
            return value
        raise AssertionError("the operation takes more than one step")

    def require_one_slot(self) -> None:
        """Refuse what a Redis Cluster cannot run in one transaction. Raises `UsageError`."""
        require_one_slot((self,))

    def into_pipeline(self, pipeline: Any, *, loaded: bool = False) -> Queued[T]:
        """Queue the commands on a pipeline of redis-py, of its asyncio client or of coredis; nothing is sent.

        Args:
            pipeline: A pipeline that runs as a transaction, as `client.pipeline()` does by default. After `watch` of
                redis-py call its `multi()` first.
            loaded: As in `wires`.

        Returns:
            What reads the results, when the pipeline has been executed.

        Raises:
            UsageError: It is no such pipeline, it would run the commands at once or without a transaction, or it
                belongs to a cluster that has the keys in several slots. Nothing is queued then.
        """
        queue, place = _queue_of(pipeline)
        if _is_of_cluster(pipeline):
            self.require_one_slot()
        for wire in self.wires(loaded=loaded):
            queue(wire)
        return Queued(self, place)


class Queued(Generic[T]):
    """The commands of an `Adding` in a pipeline, from a place on."""

    def __init__(self, adding: Adding[T], place: int) -> None:
        self._adding = adding
        self._place = place

    def results(self, replies: Sequence[Any]) -> T:
        """Return what was added, from what executing the pipeline returned.

        Args:
            replies: All replies of the pipeline, for whatever it held.

        Raises:
            UsageError: There are fewer replies than commands.
            BullMQError: As `Adding.results`.
        """
        return self._adding.results(replies[self._place : self._place + len(self._adding)])


def require_one_slot(addings: Sequence[Adding[Any]]) -> None:
    """Refuse what a Redis Cluster cannot run in one transaction. Raises `UsageError`."""
    slots: dict[int, str] = {}
    for adding in addings:
        for key in adding.keys:
            slots.setdefault(key_slot(key), key)
    if len(slots) > 1:
        first, second, *_ = sorted(slots.values())
        raise UsageError(
            "keys",
            [first, second],
            "a Redis Cluster runs a transaction in one slot: give all queues the same hash tag, best by the same "
            'prefix and layout=KeyLayout.TAGGED_PREFIX (Node: prefix "{bull}")',
        )


def add_in_one(addings: Sequence[Adding[Any]]) -> Operation[list[Any]]:
    """Add all of them in one transaction; return what each returns.

    Steps:   one round trip; none for nothing to add
    Atomic:  yes, but the server does not undo its changes from before it refused a command
    Raises:  the first error that one of them raises
    Source:  specs/08-batches.md#in-a-transaction
    """
    commands = tuple(command for each in addings for command in each.commands)
    if not commands:
        return []
    replies = yield Batch(commands, atomic=True)
    results: list[Any] = []
    place = 0
    for each in addings:
        results.append(each.results(replies[place : place + len(each)]))
        place += len(each)
    return results


def _commands(step: Step) -> tuple[Command[Any], ...]:
    assert not isinstance(step, Batch) or step.commands
    if isinstance(step, Batch):
        return step.commands
    assert isinstance(step, Command)
    return (step,)


def _ours(reply: Any) -> Any:
    if isinstance(reply, ServerError) or not isinstance(reply, BaseException):
        return reply
    text, code = str(reply), _CODES.get(type(reply).__name__)
    return ServerError(text if code is None or text.startswith(code) else f"{code} {text}")


def _queue_of(pipeline: Any) -> tuple[Callable[[tuple[Arg, ...]], object], int]:
    """Return what queues one command on a pipeline, and how many it holds, or raise `UsageError`."""
    kind: type[object] = type(pipeline)  # pyright: ignore[reportUnknownVariableType]
    create, execute = getattr(pipeline, "create_request", None), getattr(pipeline, "execute_command", None)
    # Those of redis-py's cluster clients keep all in an object of their own.
    strategy = getattr(pipeline, "_execution_strategy", None)
    held = getattr(pipeline, "command_stack", None) if strategy is None else pipeline
    if held is None or not callable(execute):
        raise UsageError("pipeline", kind, "must be a pipeline of redis-py or coredis")
    if callable(create) and _is_of_cluster(pipeline):
        raise UsageError(
            "pipeline", kind, "cannot be one of coredis in a cluster, which finds no keys in these commands"
        )
    # Named otherwise in each client.
    if strategy is None:
        state: Mapping[str, object] = getattr(pipeline, "__dict__", {})
        watching, begun = state.get("watching"), state.get("explicit_transaction")
        runs_as_one = any(state.get(name) for name in ("transaction", "is_transaction", "_transaction"))
    else:
        watching = getattr(strategy, "_watching", False)
        begun = getattr(strategy, "_explicit_transaction", False)
        runs_as_one = type(strategy).__name__ == "TransactionStrategy"
    if watching and not begun:
        raise UsageError("pipeline", kind, "watches keys and runs each command at once: call its multi() first")
    if not runs_as_one and not begun:
        raise UsageError("pipeline", kind, "must run as a transaction: client.pipeline(transaction=True)")
    if callable(create):
        return lambda wire: create(str(wire[0]).encode(), *wire[1:], callback=_as_it_came), len(held)
    return lambda wire: execute(*wire), len(held)


def _is_of_cluster(pipeline: object) -> bool:
    return "Cluster" in type(pipeline).__name__


def _as_it_came(reply: Any, **_: Any) -> Any:
    return reply
