"""Read and edit one job."""

from __future__ import annotations

import msgspec

from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.commands._shared import JobCode
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.reply import Reply, as_fields, as_int, as_list, as_optional_text, as_text
from bullmq_protocol.common.units import check_whole
from bullmq_protocol.errors import JobNotFound, UnexpectedReply
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.scripts._lua import (
    ADD_LOG,
    GET_STATE,
    GET_STATE_V2,
    IS_FINISHED,
    REMOVE_JOB,
    SAVE_STACKTRACE,
    UPDATE_DATA,
    UPDATE_PROGRESS,
)


class JobRead(msgspec.Struct, frozen=True):
    """Decode HGETALL of a job: None when there is no such job."""

    job_id: str

    def __call__(self, reply: Reply) -> JobRecord | None:
        fields = as_fields(reply)
        return JobRecord.from_fields(self.job_id, fields) if fields else None


def get_job(keys: QueueKeys, job_id: str) -> Command[JobRecord | None]:
    """Read a job's hash.

    Keys:    job
    Reply:   fields and values -> JobRecord, or None when there is no such job
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(fields)
    Source:  specs/01-data-model-and-adding.md#sec-3-9
    """
    return Command("HGETALL", (keys.job(job_id),), (), JobRead(job_id), repeat=Repeat.SAFE)


def get_state(keys: QueueKeys, job_id: str) -> Command[str]:
    """Return the state of a job: `completed`, `failed`, `delayed`, `prioritized`, `active`, `waiting`,
    `waiting-children` or `unknown`.

    Keys:    completed, failed, delayed, active, wait, paused, waiting-children, prioritized
    Args:    id
    Reply:   the state -> str
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(active + wait + paused), searched by the server
    Source:  specs/03-transitions-admin-getters.md#get-state
    """
    return Command("getStateV2", _state_keys(keys), (job_id,), as_text, script=GET_STATE_V2, repeat=Repeat.SAFE)


def get_state_v1(keys: QueueKeys, job_id: str) -> Command[str]:
    """Return the state of a job as `get_state`, without LPOS: what clients send to servers below 6.0.6.

    Keys:    completed, failed, delayed, active, wait, paused, waiting-children, prioritized
    Args:    id
    Reply:   the state -> str
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(active + wait + paused)
    Source:  specs/03-transitions-admin-getters.md#get-state
    """
    return Command("getState", _state_keys(keys), (job_id,), as_text, script=GET_STATE, repeat=Repeat.SAFE)


class FinishedState(msgspec.Struct, frozen=True):
    """Whether a job is finished. `status` is `completed`, `failed` or `pending`; `value` the JSON of the return value,
    or the failure's text, as stored."""

    status: str
    value: str | None = None


class FinishedStateReply(msgspec.Struct, frozen=True):
    """Decode isFinished with its value."""

    job_id: str

    def __call__(self, reply: Reply) -> FinishedState:
        parts = as_list(reply)
        if not parts:
            raise UnexpectedReply("a status and a value", reply)
        status = as_int(parts[0])
        value = as_optional_text(parts[1]) if len(parts) > 1 else None
        match status:
            case 0:
                return FinishedState("pending")
            case 1:
                return FinishedState("completed", value)
            case 2:
                return FinishedState("failed", value)
            case -1:
                raise JobNotFound("isFinished", job_id=self.job_id)
            case _:
                raise UnexpectedReply("a status from -1 to 2", reply)


def is_finished(keys: QueueKeys, job_id: str) -> Command[FinishedState]:
    """Tell whether a job is finished, with its result.

    Keys:    completed, failed, job
    Args:    id, 1 for the result
    Reply:   [status, value] -> FinishedState
    Raises:  JobNotFound
    Repeat:  safe
    Cost:    O(1)
    Source:  specs/03-transitions-admin-getters.md#is-finished
    """
    return Command(
        "isFinished",
        (keys.completed, keys.failed, keys.job(job_id)),
        (job_id, "1"),
        FinishedStateReply(job_id),
        script=IS_FINISHED,
        repeat=Repeat.SAFE,
    )


def update_progress(keys: QueueKeys, job_id: str, progress_json: str) -> Command[int]:
    """Store a job's progress and publish it.

    Keys:    job, events, meta
    Args:    id, progress JSON
    Reply:   0 -> int
    Raises:  JobNotFound
    Repeat:  unsafe: a second run writes a second event
    Cost:    O(1)
    Source:  specs/03-transitions-admin-getters.md#update-progress
    """
    return Command(
        "updateProgress",
        (keys.job(job_id), keys.events, keys.meta),
        (job_id, progress_json),
        JobCode("updateProgress", job_id),
        script=UPDATE_PROGRESS,
    )


def update_data(keys: QueueKeys, job_id: str, data_json: str) -> Command[int]:
    """Replace a job's data.

    Keys:    job
    Args:    data JSON
    Reply:   0 -> int
    Raises:  JobNotFound
    Repeat:  safe
    Cost:    O(1)
    Source:  specs/03-transitions-admin-getters.md#update-data
    """
    return Command(
        "updateData",
        (keys.job(job_id),),
        (data_json,),
        JobCode("updateData", job_id),
        script=UPDATE_DATA,
        repeat=Repeat.SAFE,
    )


def add_log(keys: QueueKeys, job_id: str, row: str, *, keep_logs: int | None = None) -> Command[int]:
    """Append a row to a job's log, keeping the newest `keep_logs` rows (None or 0: all).

    Keys:    job, job logs
    Args:    id, row, rows to keep or empty
    Reply:   number of rows -> int
    Raises:  UsageError, JobNotFound
    Repeat:  unsafe
    Cost:    O(1) plus trimmed rows
    Source:  specs/03-transitions-admin-getters.md#add-log
    """
    if keep_logs is not None:
        check_whole("keep_logs", keep_logs, least=0)
    return Command(
        "addLog",
        (keys.job(job_id), keys.logs(job_id)),
        (job_id, row, keep_logs or ""),
        JobCode("addLog", job_id),
        script=ADD_LOG,
    )


def save_stacktrace(keys: QueueKeys, job_id: str, stacktrace_json: str, failed_reason: str) -> Command[int]:
    """Store a job's stack traces and failure text. No BullMQ client of this version sends this.

    Keys:    job
    Args:    stack traces (JSON array), failed reason
    Reply:   0 -> int
    Raises:  JobNotFound
    Repeat:  safe
    Cost:    O(1)
    Source:  specs/03-transitions-admin-getters.md#save-stacktrace
    """
    return Command(
        "saveStacktrace",
        (keys.job(job_id),),
        (stacktrace_json, failed_reason),
        JobCode("saveStacktrace", job_id),
        script=SAVE_STACKTRACE,
        repeat=Repeat.SAFE,
    )


def remove_job(keys: QueueKeys, job_id: str, *, remove_children: bool = True) -> Command[int]:
    """Remove a job that is not locked, with its data and, by default, its children.

    Keys:    job, repeat
    Args:    id, 1 for the children too, base prefix
    Reply:   1 removed (or not there), 0 locked -> int
    Raises:  JobBelongsToScheduler
    Repeat:  safe
    Cost:    O(size of the tree + lists searched)
    Source:  specs/03-transitions-admin-getters.md#remove-job
    """
    return Command(
        "removeJob",
        (keys.job(job_id), keys.repeat),
        (job_id, "1" if remove_children else "0", keys.base),
        JobCode("removeJob", job_id),
        script=REMOVE_JOB,
        repeat=Repeat.SAFE,
    )


def _state_keys(keys: QueueKeys) -> tuple[str, ...]:
    return (
        keys.completed,
        keys.failed,
        keys.delayed,
        keys.active,
        keys.wait,
        keys.paused,
        keys.waiting_children,
        keys.prioritized,
    )
