"""How many commands a scheduler sends: one for each claim, one for each report, one heartbeat for all its jobs."""

from typing import Any

import anyio
import pytest

from monque_protocol import events
from monque_protocol.document import Job
from tests.monque.conftest import Monques
from tests.support.seen import LIMIT_S, Seen

pytestmark = pytest.mark.anyio
JOBS = 40


async def test_one_command_claims_a_job_and_one_reports_it(monque: Monques) -> None:
    # Not so long that a claim that the server refuses for once would end the test.
    async with monque(poll_interval=10_000) as scheduler:
        for number in range(JOBS):
            await scheduler.enqueue("mail", number)
        seen = Seen(scheduler, events.JobCompleted)

        async def handle(job: Job[Any]) -> None:
            return None

        scheduler.worker("mail", handle, concurrency=8)
        monque.sent.clear()
        await scheduler.start()
        await seen.wait(events.JobCompleted, JOBS)
    claims = [sent for sent in monque.sent if sent.name == "findAndModify" and "sort" in sent.command]
    found = [sent for sent in claims if sent.reply["value"] is not None]
    reports = [sent for sent in monque.sent if sent.name == "findAndModify" and "sort" not in sent.command]
    assert (len(found), len(reports)) == (JOBS, JOBS)
    # Those that found nothing: at most one for each slot at the end, and some for polls on a slow machine.
    assert 1 <= len(claims) - len(found) <= 16
    assert {sent.name for sent in monque.sent} == {"findAndModify"}


async def test_an_idle_scheduler_sends_one_claim_for_each_name_and_poll(monque: Monques) -> None:
    async with monque(poll_interval=50) as scheduler:
        for name in ("mail", "report"):
            scheduler.worker(name, lambda job: None, concurrency=20)
        monque.sent.clear()
        await scheduler.start()
        with anyio.fail_after(LIMIT_S):
            while len(monque.sent) < 6:
                await anyio.sleep(0.01)
    assert {sent.command["query"]["name"] for sent in monque.sent} == {"mail", "report"}
    assert monque.listener.most_claims == 1


async def test_one_heartbeat_is_for_all_jobs(monque: Monques) -> None:
    go_on = anyio.Event()
    async with monque.running(heartbeat_interval=50) as scheduler:
        seen = Seen(scheduler, events.JobStarted, events.JobCompleted)

        async def handle(job: Job[Any]) -> None:
            await go_on.wait()

        scheduler.worker("mail", handle, concurrency=12)
        for number in range(12):
            await scheduler.enqueue("mail", number)
        await seen.wait(events.JobStarted, 12)
        monque.sent.clear()
        with anyio.fail_after(LIMIT_S):
            # The first one may have been under way before all of them ran.
            while len(monque.sent) < 4:
                await anyio.sleep(0.01)
        beats = list(monque.sent)[1:4]
        go_on.set()
        await seen.wait(events.JobCompleted, 12)
    assert [(sent.name, sent.command["updates"][0]["multi"], sent.reply["n"]) for sent in beats] == [
        ("update", True, 12)
    ] * 3
    # Each is of a time of its own.
    assert len({sent.command["updates"][0]["u"]["$set"]["lastHeartbeat"] for sent in beats}) == 3
