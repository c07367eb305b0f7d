"""Node's BullMQ over ioredis and all our adapters in the same cluster, and behind the same sentinels."""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import bullmq_sync
from bullmq_protocol import KeyLayout
from tests.support import topology
from tests.support.node import bullmq_folder
from tests.support.programs import Program, until
from tests.support.topology import SERVICE, ClusterSet, SentinelSet

_PROGRAM = Path(__file__).parent / "node" / "several.js"


@contextmanager
def node(**config: Any) -> Iterator[Program]:
    command = ["node", str(_PROGRAM), json.dumps(config)]
    program = Program(command, environment={"NODE_PATH": str(bullmq_folder())}, ends_late=True)
    try:
        program.wait(lambda events: any(line["event"] == "ready" for line in events), "Node gets ready")
        yield program
    finally:
        program.close()


@pytest.mark.any_python
@pytest.mark.parametrize("kind", ["cluster", "sentinels"])
def test_each_side_works_on_what_the_other_added(kind: str) -> None:
    """Before and after a failover."""
    newest = topology.kinds()[-1]
    ours, theirs = (f"{side}-{uuid.uuid4().hex[:8]}" for side in ("ours", "theirs"))
    config: dict[str, Any] = {"prefix": "{bull}", "added": ours, "worked": theirs}
    tagged: dict[str, Any] = {"layout": KeyLayout.TAGGED_PREFIX}
    several: ClusterSet | SentinelSet
    with ClusterSet(newest) if kind == "cluster" else SentinelSet(newest) as several:
        places = [{"host": host, "port": port} for host, port in several.addresses]
        if isinstance(several, ClusterSet):
            config |= {"cluster": places}
            url = f"redis+cluster://{several.hosts}"
        else:
            config |= {"sentinels": places, "service": SERVICE}
            url = f"redis+sentinel://{several.hosts}/{SERVICE}"
        with (
            node(**config) as program,
            bullmq_sync.Queue(theirs, url, **tagged) as queue,
            bullmq_sync.Worker(ours, lambda job: {"by": "python", "got": job.data}, url, **tagged),
        ):
            for number in range(2):
                job = queue.add("from python", {"number": number})
                assert job.id is not None
                wanted = {"by": "node", "got": {"number": number}}
                until(lambda job_id=job.id: _value(queue, job_id), wanted)
                id_there = program.call("add", data={"number": number})
                wanted = {"state": "completed", "value": {"by": "python", "got": {"number": number}}}
                until(lambda id_there=id_there: program.call("read", id=id_there), wanted)
                if number == 0:
                    _fail_over(several, queue.keys.slot)


def _fail_over(several: ClusterSet | SentinelSet, slot: int) -> None:
    if isinstance(several, ClusterSet):
        several.promote(slot)
    else:
        # After a planned one ioredis stays with the old master until the sentinels end that, eight seconds later.
        several.await_promotion(several.kill_master())


def _value(queue: Any, job_id: str) -> Any:
    job = queue.get_job(job_id)
    return job.returnvalue if job is not None and job.finished_on else None
