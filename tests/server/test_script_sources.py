"""BullMQ's own scripts as a source: found in an installed package, run beside ours on one queue."""

import hashlib
import json
from pathlib import Path
from typing import Any

import anyio
import pytest

import bullmq_anyio
import bullmq_sync
from bullmq_protocol import Backoff, JobOptions, NewJob, UsageError
from bullmq_protocol.commands.queues import QueueSummary
from bullmq_protocol.scripts._lua import SCRIPTS
from bullmq_protocol.scripts.source import OWN
from tests.server.conftest import originals
from tests.support.colours import Colour
from tests.support.node import bullmq_folder
from tests.support.servers import Server

RECORD = Path(__file__).parents[1] / "oracle" / "scripts.sha256.json"


@pytest.mark.node
@pytest.mark.parametrize("package", [bullmq_anyio, bullmq_sync])
def test_scripts_of_the_package_are_those_recorded(package: Any) -> None:
    recorded = json.loads(RECORD.read_text())
    for folder in (bullmq_folder(), str(bullmq_folder() / "bullmq")):
        source = package.bullmq_scripts(folder)
        assert (source.label, len(source.digest)) == ("bullmq 5.62.0", 64)
        assert source.scripts.keys() == SCRIPTS.keys()
        for name, script in source.scripts.items():
            assert hashlib.sha256(script.source.encode()).hexdigest() == recorded[name]["sha256"], name
            assert script.sha1 == hashlib.sha1(script.source.encode()).hexdigest()


@pytest.mark.parametrize("package", [bullmq_anyio, bullmq_sync])
def test_a_folder_without_the_package_is_refused(package: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must hold the npm package bullmq"):
        package.bullmq_scripts(tmp_path)
    (tmp_path / "package.json").write_text('{"name": "bullmq", "version": "5.61.0"}')
    with pytest.raises(UsageError, match="must be bullmq 5"):
        package.bullmq_scripts(tmp_path)
    (tmp_path / "package.json").write_text('{"name": "bullmq", "version": "5.62.0"}')
    with pytest.raises(UsageError, match="must hold addDelayedJob"):
        package.bullmq_scripts(tmp_path)


@pytest.mark.node
async def test_workers_with_both_sources_share_a_queue(colour: Colour, server: Server, name: str) -> None:
    async def process(job: Any) -> int:
        await job.update_progress(50)
        await job.log("row")
        if job.data["n"] % 10 == 0 and job.attempts_made == 0:
            raise RuntimeError("boom")
        return int(job.data["n"])

    jobs = [
        NewJob(
            "n",
            {"n": number},
            JobOptions(
                attempts=2, backoff=Backoff("fixed", 5), delay=number % 3 * 5, priority=number % 2 if number % 3 else 0
            ),
        )
        for number in range(200)
    ]
    async with colour.Queue(name, server.url, scripts=originals()) as queue:
        await queue.add_bulk(jobs)
        async with (
            colour.Worker(name, process, server.url, scripts=originals()),
            colour.Worker(name, process, server.url, scripts=OWN),
        ):
            with anyio.fail_after(30):
                while await queue.get_completed_count() < len(jobs):
                    await anyio.sleep(0.01)
        assert await queue.get_summary() == QueueSummary(waiting=0, active=0, delayed=0, completed=200, failed=0)
        assert sorted([job.returnvalue async for job in queue.iter_jobs("completed")]) == list(range(200))
        await queue.obliterate()
