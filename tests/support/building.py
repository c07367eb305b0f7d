"""Our builders called with the `inputs` of a vector, which are plain JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bullmq_protocol.command import Command
from bullmq_protocol.commands import (
    adding,
    cleaning,
    fetching,
    finishing,
    getters,
    jobs,
    locks,
    moving,
    queues,
    schedulers,
)
from bullmq_protocol.commands._shared import Limiter
from bullmq_protocol.common.codec import pack
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.model.job import NewJob, prepare
from bullmq_protocol.model.options import stored_options_from

SHORT = {
    "deduplication": "de",
    "failParentOnFailure": "fpof",
    "continueParentOnFailure": "cpof",
    "ignoreDependencyOnFailure": "idof",
    "removeDependencyOnFailure": "rdof",
    "keepLogs": "kl",
}
"""BullMQ's names of job options that are stored under another name; `telemetry` holds two."""

Builder = Callable[..., Command[Any]]


def build(name: str, inputs: Mapping[str, Any]) -> Command[Any]:
    """Build a command from the inputs of a vector."""
    rest = {key: value for key, value in inputs.items() if key not in ("prefix", "queue")}
    return BUILDERS[name](QueueKeys.of(inputs["queue"], prefix=inputs["prefix"]), **rest)


def _limiter(given: Mapping[str, int] | None) -> Limiter | None:
    return None if given is None else Limiter(**given)


def _add(
    keys: QueueKeys,
    *,
    name: str,
    data: Any,
    options: Mapping[str, Any],
    now: int,
    generated_id: str | None = None,
    repeat_job_key: str | None = None,
    has_children: bool = False,
) -> Command[Any]:
    stored = {SHORT.get(key, key): value for key, value in options.items() if key != "telemetry"}
    telemetry = options.get("telemetry", {})
    stored |= {short: telemetry[key] for key, short in (("metadata", "tm"), ("omitContext", "omc")) if key in telemetry}
    given = stored_options_from(stored)
    if repeat_job_key is not None:
        given = type(given)(**{**_set(given), "repeat_job_key": repeat_job_key})
    job = prepare(keys, NewJob(name, data, given), now_ms=now, generated_id=generated_id, has_children=has_children)
    return adding.add_job(keys, job)


def _set(options: Any) -> dict[str, Any]:
    return {field: getattr(options, field) for field in options.__struct_fields__}


def _move_to_active(keys: QueueKeys, *, limiter: Any = None, **inputs: Any) -> Command[Any]:
    return fetching.move_to_active(keys, limiter=_limiter(limiter), **inputs)


def _move_to_finished(keys: QueueKeys, *, options: Any, **inputs: Any) -> Command[Any]:
    limiter = _limiter(options.get("limiter"))
    return finishing.move_to_finished(
        keys, options=finishing.FinishOptions(**{**options, "limiter": limiter}), **inputs
    )


def _pause(keys: QueueKeys, *, paused: bool) -> Command[Any]:
    return queues.pause(keys) if paused else queues.resume(keys)


def _is_job_in_list(keys: QueueKeys, *, list: str, job_id: str) -> Command[Any]:
    return getters.is_job_in_list(keys.base + list, job_id)


def _paginate(keys: QueueKeys, *, job_id: str, kind: str, **inputs: Any) -> Command[Any]:
    return getters.paginate(f"{keys.job(job_id)}:{kind}", **inputs)


def _add_scheduler(keys: QueueKeys, *, schedule: Any, template: Any, options: Any, **inputs: Any) -> Command[Any]:
    return schedulers.add_job_scheduler(
        keys,
        schedule=schedulers.Schedule(**schedule),
        packed_template=pack(template),
        packed_options=pack(options),
        **inputs,
    )


def _update_scheduler(keys: QueueKeys, *, options: Any, **inputs: Any) -> Command[Any]:
    return schedulers.update_job_scheduler(keys, packed_options=pack(options), **inputs)


def _add_repeatable(keys: QueueKeys, *, key: Any, schedule: Any, next_at: int) -> Command[Any]:
    return schedulers.add_repeatable_job(
        keys, schedulers.RepeatableKey(**key), schedulers.Schedule(**schedule), next_at=next_at
    )


def _remove_repeatable(keys: QueueKeys, *, key: Any = None, member: str = "") -> Command[Any]:
    if key is not None:
        return schedulers.remove_repeatable(keys, schedulers.RepeatableKey(**key))
    return schedulers.remove_repeatable_by_key(keys, member)


BUILDERS: Mapping[str, Builder] = {
    "addStandardJob": _add,
    "addDelayedJob": _add,
    "addPrioritizedJob": _add,
    "addParentJob": _add,
    "moveToActive": _move_to_active,
    "moveToFinished": _move_to_finished,
    "moveStalledJobsToWait": locks.move_stalled_jobs_to_wait,
    "extendLock": locks.extend_lock,
    "extendLocks": locks.extend_locks,
    "releaseLock": locks.release_lock,
    "getRateLimitTtl": queues.get_rate_limit_ttl,
    "isMaxed": queues.is_maxed,
    "moveToDelayed": finishing.move_to_delayed,
    "moveToWaitingChildren": moving.move_to_waiting_children,
    "moveJobFromActiveToWait": finishing.move_job_from_active_to_wait,
    "retryJob": finishing.retry_job,
    "changeDelay": moving.change_delay,
    "changePriority": moving.change_priority,
    "promote": moving.promote,
    "reprocessJob": moving.reprocess_job,
    "moveJobsToWait": moving.move_jobs_to_wait,
    "updateData": jobs.update_data,
    "updateProgress": jobs.update_progress,
    "addLog": jobs.add_log,
    "saveStacktrace": jobs.save_stacktrace,
    "pause": _pause,
    "drain": cleaning.drain,
    "cleanJobsInSet": cleaning.clean_jobs_in_set,
    "obliterate": queues.obliterate_page,
    "removeJob": jobs.remove_job,
    "removeUnprocessedChildren": cleaning.remove_unprocessed_children,
    "removeChildDependency": cleaning.remove_child_dependency,
    "getCounts": queues.get_counts,
    "getCountsPerPriority": getters.get_counts_per_priority,
    "getRanges": getters.get_ranges,
    "getState": jobs.get_state_v1,
    "getStateV2": jobs.get_state,
    "isFinished": jobs.is_finished,
    "isJobInList": _is_job_in_list,
    "getMetrics": getters.get_metrics,
    "getDependencyCounts": getters.get_dependency_counts,
    "paginate": _paginate,
    "addJobScheduler": _add_scheduler,
    "updateJobScheduler": _update_scheduler,
    "removeJobScheduler": schedulers.remove_job_scheduler,
    "getJobScheduler": schedulers.get_job_scheduler,
    "addRepeatableJob": _add_repeatable,
    "updateRepeatableJobMillis": schedulers.update_repeatable_job_millis,
    "removeRepeatable": _remove_repeatable,
}
"""The builder of every script."""
