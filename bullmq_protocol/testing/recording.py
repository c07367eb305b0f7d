"""Transports that record what a program does and answer at once: no server, for tests of what adds jobs.

They answer what adds jobs, flows and schedulers, and what a job in a handler does. They keep no state of a queue: ids
are counted, a second job of the same id gives way to the first, deduplication is not modelled. For all else give them
answers, or use a server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

import msgspec

from bullmq_protocol.command import Batch, Command
from bullmq_protocol.common.codec import json_text, parse_json
from bullmq_protocol.common.reply import Reply
from bullmq_protocol.errors import Closed
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.testing.jobs import QueuedJob, queued_job

Answer: TypeAlias = Reply | Callable[[Command[Any]], Any]
"""A raw reply, or a function of the command that returns one."""

_STATES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "addStandardJob": "waiting",
        "addDelayedJob": "delayed",
        "addPrioritizedJob": "prioritized",
        "addParentJob": "waiting-children",
    }
)
_KINDS: Final = ("waiting", "delayed", "prioritized", "waiting-children")
"""The states by the codes of addMany (specs/08-batches.md#add-many)."""
_RELEASE: Final = "4"
"""The code in it that lets a parent go."""
_NO_ANSWER: Final = object()


class Unanswered(AssertionError):
    """A command came to which a recording transport has no answer."""


class Recorded:
    """What a program did, each in its order.

    `added` are the jobs that it added, those of flows and schedulers too. `progress`, `logs` and `data` are what the
    handler of a job reported, logged and replaced the payload by. `moves` says where it moved the job: `delayed`,
    `waiting` or `waiting-children`. `steps` holds every command and batch.
    """

    def __init__(self) -> None:
        self.added: list[QueuedJob] = []
        self.progress: list[Any] = []
        self.logs: list[str] = []
        self.data: list[Any] = []
        self.moves: list[str] = []
        self.steps: list[Command[Any] | Batch] = []


class Recorder:
    """Records steps and answers them. `answers` go before its own."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.recorded = Recorded()
        self.closed = False
        self._answers = dict(answers)
        self._ids: dict[str, int] = {}
        self._known: dict[tuple[str, str], str] = {}
        """The parents' keys of the jobs that were added, by queue and id; "" without one."""

    def perform(self, step: Command[Any] | Batch) -> Any:
        """Return the raw reply of a command, the list of them of a batch. Raises `Unanswered`."""
        if self.closed:
            raise Closed
        self.recorded.steps.append(step)
        return [self._reply(each) for each in step.commands] if isinstance(step, Batch) else self._reply(step)

    def _reply(self, command: Command[Any]) -> Any:
        answer = self._answers.get(command.name, _NO_ANSWER)
        if answer is not _NO_ANSWER:
            return answer(command) if callable(answer) else answer
        args, recorded = command.args, self.recorded
        match command.name:
            case "addStandardJob" | "addDelayedJob" | "addPrioritizedJob" | "addParentJob":
                return self._add(_STATES[command.name], args)[0]
            case "addMany":
                return [self._add_one(args[place : place + 4]) for place in range(0, len(args), 4)]
            case "addJobScheduler":
                return self._schedule(args)
            case "updateProgress":
                recorded.progress.append(parse_json(str(args[1])))
                return 0
            case "updateData":
                recorded.data.append(parse_json(str(args[0])))
                return 0
            case "addLog":
                recorded.logs.append(str(args[1]))
                return len(recorded.logs)
            case "moveToDelayed":
                recorded.moves.append("delayed")
                return 0
            case "moveJobFromActiveToWait":
                recorded.moves.append("waiting")
                return 0
            case "moveToWaitingChildren":
                recorded.moves.append("waiting-children")
                return 0
            case "extendLock":
                return 1
            case "HMSET":
                return b"OK"
            case "EXISTS":
                return int(_place(command.keys[0]) in self._known)
            case "HGET" if args == ("parentKey",):
                return self._known.get(_place(command.keys[0]), "").encode() or None
            case "GET":
                return None
            case name:
                raise Unanswered(
                    f"a recording transport has no answer to {name!r}: give it one, answers={{{name!r}: ...}}, "
                    "or use a server"
                )

    def _add_one(self, part: tuple[Any, ...]) -> Reply:
        if part[0] == _RELEASE:
            return None
        job_id, added = self._add(_KINDS[int(part[0])], part[1:])
        return job_id if added else [job_id, 0]

    def _add(self, state: str, args: tuple[Any, ...]) -> tuple[bytes, bool]:
        head, options = _unpacked(args[0]), _unpacked(args[2])
        base, job_id, name, timestamp, parent_key = head[:5]
        queue = str(base)[:-1].rpartition(":")[2]
        if not job_id:
            self._ids[base] = self._ids.get(base, 0) + 1
            job_id = str(self._ids[base])
        place = (str(base), str(job_id))
        added = place not in self._known
        # An existing job takes the parent that it has not.
        self._known[place] = self._known.get(place) or parent_key or ""
        if added:
            self._note(queue, state, str(job_id), str(name), str(args[1]), options, timestamp)
        return str(job_id).encode(), added

    def _note(
        self, queue: str, state: str, job_id: str, name: str, data: str, options: Mapping[str, Any], timestamp: Any
    ) -> None:
        fields = {
            "name": name,
            "data": data,
            "opts": json_text(options),
            "timestamp": str(timestamp),
            "delay": str(options.get("delay", 0)),
            "priority": str(options.get("priority", 0)),
        }
        record = JobRecord(job_id, {field: text.encode("utf-8", "surrogateescape") for field, text in fields.items()})
        self.recorded.added.append(queued_job(record, queue, state))

    def _schedule(self, args: tuple[Any, ...]) -> Reply:
        next_at, packed, scheduler_id, data, _, options, now, base, _ = args
        rule = _unpacked(packed)
        every = rule.get("every")
        due = int(next_at) if next_at != "" else int(now) - int(now) % int(every) + int(every)
        job_id, delay = f"repeat:{scheduler_id}:{due}", max(due - int(now), 0)
        queue, made = str(base)[:-1].rpartition(":")[2], {**_unpacked(options), "delay": delay}
        self._note(queue, "delayed" if delay else "waiting", job_id, str(rule["name"]), str(data), made, now)
        return [job_id.encode(), delay]


def _place(key: str) -> tuple[str, str]:
    base, _, job_id = key.rpartition(":")
    return f"{base}:", job_id


def _unpacked(packed: Any) -> Any:
    return msgspec.msgpack.decode(cast("bytes", packed))


class RecordingTransport:
    """A blocking transport that records and answers.

    Args:
        answers: Raw replies by the names of commands, or functions of the command that return one, which go before its
            own: `{"getStateV2": b"waiting"}`. None by default.

    Raises:
        Unanswered: From `perform`: it has no answer to a command.

    Examples:
        >>> transport = RecordingTransport()
        >>> transport.recorded.added
        []
    """

    def __init__(self, answers: Mapping[str, Answer] = MappingProxyType({})) -> None:
        self._recorder = Recorder(answers)

    @property
    def recorded(self) -> Recorded:
        """What was done."""
        return self._recorder.recorded

    def perform(self, step: Command[Any] | Batch, /) -> Any:
        return self._recorder.perform(step)

    def dedicated(self, *, client_name: str | None = None) -> RecordingTransport:
        return self

    def interrupt(self) -> None:
        """Do nothing: it never blocks."""

    def close(self) -> None:
        self._recorder.closed = True


class AsyncRecordingTransport:
    """The asynchronous twin of `RecordingTransport`. It never waits, so it runs on any event loop.

    Args:
        answers: As there; none by default.

    Raises:
        Unanswered: As there.

    Examples:
        >>> transport = AsyncRecordingTransport()
        >>> transport.recorded.added
        []
    """

    def __init__(self, answers: Mapping[str, Answer] = MappingProxyType({})) -> None:
        self._recorder = Recorder(answers)

    @property
    def recorded(self) -> Recorded:
        """What was done."""
        return self._recorder.recorded

    async def perform(self, step: Command[Any] | Batch, /) -> Any:
        return self._recorder.perform(step)

    def dedicated(self, *, client_name: str | None = None) -> AsyncRecordingTransport:
        return self

    async def aclose(self) -> None:
        self._recorder.closed = True
