"""Profiles at work: BullMQ's own scripts, found in an installed package, beside ours on one queue; a switch of ours."""

import hashlib
import json
from pathlib import Path
from typing import Any

import anyio
import pytest

import bullmq_anyio
import bullmq_sync
from bullmq_protocol import Backoff, JobOptions, NewJob, UsageError
from bullmq_protocol.command import Command
from bullmq_protocol.commands.queues import QueueSummary
from bullmq_protocol.common.reply import as_int
from bullmq_protocol.common.switches import Switches
from bullmq_protocol.scripts._lua import SCRIPTS
from bullmq_protocol.scripts.profile import STRICT, switched
from tests.server.conftest import originals
from tests.support.adapters import Adapter
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
async def test_workers_with_both_sources_share_a_queue(adapter: Adapter, server: Server, name: str) -> None:
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
    async with adapter.Queue(name, server.url, scripts=originals()) as queue:
        await queue.add_bulk(jobs)
        async with (
            adapter.Worker(name, process, server.url, scripts=originals()),
            adapter.Worker(name, process, server.url, scripts=STRICT),
        ):
            with anyio.fail_after(30):
                while await queue.get_completed_count() < len(jobs):
                    await anyio.sleep(0.01)
        assert await queue.get_summary() == QueueSummary(waiting=0, active=0, delayed=0, completed=200, failed=0)
        assert sorted([job.returnvalue async for job in queue.iter_jobs("completed")]) == list(range(200))
        await queue.obliterate()


async def test_a_worker_checks_for_stalled_jobs_by_the_switch_of_its_profile(
    adapter: Adapter, server: Server, name: str
) -> None:
    """A job over the limit whose options repeat it, and whose scheduler is gone: with `strict` it would run again."""
    live = switched("live", Switches(stalled_exemption="live-scheduler"))
    ran: list[str] = []

    async def process(job: Any) -> None:
        ran.append(job.id)

    async with adapter.Queue(name, server.url, scripts=live) as queue:
        fields = {"name": "n", "data": "{}", "opts": '{"repeat":{"every":1000}}', "rjk": "gone", "stc": "1"}
        for command, key, args in (
            ("HSET", queue.keys.job("1"), [part for pair in fields.items() for part in pair]),
            ("RPUSH", queue.keys.active, ["1"]),
            ("SADD", queue.keys.stalled, ["1"]),
        ):
            await queue.call(Command(command, (key,), tuple(args), as_int))
        async with adapter.Worker(name, process, server.url, scripts=live):
            with anyio.fail_after(30):
                while not await queue.get_failed_count():
                    await anyio.sleep(0.01)
        job = await queue.get_job("1")
        assert job is not None and job.failed_reason == "job stalled more than allowable limit"
        assert ran == []
        await queue.obliterate()
