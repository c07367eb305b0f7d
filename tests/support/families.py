"""Parents with children, added by the core's commands, and jobs brought into a state by a worker that works by hand."""

from typing import Any

from bullmq_protocol import JobOptions, NewJob, ParentRef, prepare
from bullmq_protocol.commands.adding import add_job


async def add_parent(queue: Any, job_id: str, now_ms: int) -> Any:
    """Add a job that waits for its children."""
    new = NewJob("parent", {}, JobOptions(job_id=job_id))
    await queue.call(add_job(queue.keys, prepare(queue.keys, new, now_ms=now_ms, has_children=True)))
    return await queue.get_job(job_id)


async def add_child(queue: Any, parent_id: str, job_id: str, **options: Any) -> Any:
    """Add a job whose end its parent, of the same queue, waits for."""
    parent = ParentRef(parent_id, queue.keys.qualified)
    return await queue.add("child", {}, JobOptions(job_id=job_id, parent=parent, **options))


async def complete(worker: Any, count: int = 1, value: Any = None) -> list[str]:
    """Complete the next jobs; return their ids."""
    done = []
    for _ in range(count):
        job = await worker.get_next_job()
        await worker.complete(job, value)
        done.append(job.id)
    return done


async def fail(worker: Any, count: int = 1) -> list[str]:
    """Let the next jobs fail; return their ids."""
    done = []
    for _ in range(count):
        job = await worker.get_next_job()
        await worker.fail(job, RuntimeError("boom"))
        done.append(job.id)
    return done
