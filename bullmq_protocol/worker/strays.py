"""Jobs that a worker holds without knowing it: reading the reply that brought them failed.

Source: specs/05-worker-runtime.md#sec-3
"""

from __future__ import annotations

from typing import Any, cast

from bullmq_protocol.command import Batch, Command, Operation, Repeat
from bullmq_protocol.commands.finishing import move_job_from_active_to_wait
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.reply import as_texts
from bullmq_protocol.errors import ScriptError

_PAGE = 500


def give_back_strays(keys: QueueKeys, worker_id: str) -> Operation[list[str]]:
    """Release each active job whose lock is a token of this worker; return their ids. For a worker that has failed and
    has settled all jobs it knows of. A refused release means that the job is settled already.

    Steps:   one LRANGE of all active ids, a batch of GET for 500 of them at a time, one release for each job found
    Atomic:  no
    Raises:  TransportError, ServerError
    Source:  specs/05-worker-runtime.md#sec-3
    """
    read = Command("LRANGE", (keys.active,), (0, -1), as_texts, repeat=Repeat.SAFE)
    active = read.decode((yield read))
    given: list[str] = []
    for first in range(0, len(active), _PAGE):
        page = active[first : first + _PAGE]
        locks = yield Batch(tuple(_lock_of(keys, each) for each in page))
        for job_id, lock in zip(page, cast("list[Any]", locks), strict=True):
            if not isinstance(lock, bytes) or not lock.startswith(f"{worker_id}:".encode()):
                continue
            gives = move_job_from_active_to_wait(keys, job_id, token=lock.decode())
            try:
                gives.decode((yield gives))
            except ScriptError:
                # It has been settled since.
                continue
            given.append(job_id)
    return given


def _lock_of(keys: QueueKeys, job_id: str) -> Command[Any]:
    return Command("GET", (keys.lock(job_id),), (), lambda reply: reply, repeat=Repeat.SAFE)
