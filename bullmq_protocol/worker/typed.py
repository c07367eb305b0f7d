"""The actions of a BullMQ worker, and what its dispatcher needs to know of its commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from bullmq_protocol.command import Command
from bullmq_protocol.commands.batches import MOST_JOBS
from bullmq_protocol.common.reply import Reply
from bullmq_protocol.errors import ServerError
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.net.merge import fitting, merged
from bullmq_protocol.worker.actions import Call, CancelJob, CancelWait, Notify, RunJob, Stopped, Wait
from bullmq_protocol.worker.notices import Notice

CommandCall: TypeAlias = Call[Command[Any]]
CommandWait: TypeAlias = Wait[Command[Any]]
JobRun: TypeAlias = RunJob[JobRecord]
WorkerAction: TypeAlias = CommandCall | CommandWait | CancelWait | JobRun | CancelJob | Notify[Notice] | Stopped


class _Merging:
    """How outcomes go to the server together: see `Command.merge`."""

    @property
    def most(self) -> int:
        return MOST_JOBS

    def fitting(self, commands: Iterable[Command[Any]]) -> int:
        return fitting(commands)

    def merged(self, commands: Sequence[Command[Any]]) -> Command[list[Reply | ServerError]]:
        return merged(commands)


MERGING: Final = _Merging()
