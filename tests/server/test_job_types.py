"""Jobs that are added by a `JobType`."""

from typing import Any

import msgspec
import pytest

from bullmq_protocol import JobOptions, JobType, NewJob, RepeatOptions, UsageError
from tests.support.adapters import Adapter
from tests.support.servers import Server

pytestmark = pytest.mark.any_python


class Welcome(msgspec.Struct):
    to: str


class Farewell(msgspec.Struct):
    last: bool


WELCOME = JobType("welcome", Welcome, options=JobOptions(attempts=3, delay=60_000))
FAREWELL = JobType("farewell", Farewell, options=WELCOME.options)
SAME_NAME = JobType("welcome", Farewell, options=WELCOME.options)
GREETED = JobType("greeted", Welcome, result=Farewell, options=JobOptions(attempts=3))
HOURLY = RepeatOptions(every=3_600_000)


async def test_a_type_brings_name_payload_and_options(adapter: Adapter, server: Server, name: str) -> None:
    async with adapter.Queue(name, server.url, default_job_options=JobOptions(attempts=9, lifo=True)) as queue:
        for _ in range(2):
            job = await queue.add(WELCOME, Welcome("ada"), None)
            assert (job.name, job.data, job.opts.attempts, job.opts.lifo) == ("welcome", Welcome("ada"), 3, True)
            assert await queue.get_job_state(job.id) == "delayed"
        now = await queue.add(WELCOME, Welcome("ada"), JobOptions(delay=0, attempts=5, job_id="mine"))
        assert (now.id, now.opts.attempts, await queue.get_job_state("mine")) == ("mine", 5, "waiting")
        assert (await queue.get_job("mine")).data == {"to": "ada"}
        await queue.obliterate()


async def test_each_type_checks_its_own_payload(adapter: Adapter, server: Server, name: str) -> None:
    async with adapter.Queue(name, server.url, data_type=int) as queue:
        for _ in range(2):
            assert (await queue.add(FAREWELL, Farewell(True))).data == Farewell(True)
            assert (await queue.add(SAME_NAME, Farewell(True))).data == Farewell(True)
            assert (await queue.add(WELCOME, Welcome("ada"))).data == Welcome("ada")
            assert (await queue.add("welcome", 3)).data == 3
            for kind, data in ((FAREWELL, Welcome("ada")), (SAME_NAME, Welcome("ada")), (WELCOME, Farewell(True))):
                with pytest.raises(UsageError, match="data"):
                    await queue.add(kind, data)
        assert await queue.count() == 8
        await queue.obliterate()


@pytest.mark.parametrize("way", ["bulk", "atomic", "transaction"])
async def test_several_jobs_may_have_types(adapter: Adapter, server: Server, name: str, way: str) -> None:
    async def added(*jobs: NewJob) -> Any:
        if way == "transaction":
            return (await queue.commit(queue.adding(jobs)))[0]
        return await queue.add_bulk(jobs, atomic=way == "atomic")

    async with adapter.Queue(name, server.url, data_type=int, default_job_options=JobOptions(attempts=9)) as queue:
        welcome, number, farewell = await added(
            NewJob(WELCOME, Welcome("ada")),
            NewJob("number", 3),
            NewJob(FAREWELL, Farewell(True), JobOptions(delay=0, attempts=5)),
        )
        assert (welcome.name, welcome.data, welcome.opts.attempts) == ("welcome", Welcome("ada"), 3)
        assert (number.name, number.data, number.opts.attempts) == ("number", 3, 9)
        assert (farewell.name, farewell.data, farewell.opts.attempts) == ("farewell", Farewell(True), 5)
        states = [await queue.get_job_state(job.id) for job in (welcome, number, farewell)]
        assert states == ["delayed", "waiting", "waiting"]
        with pytest.raises(UsageError, match=r"^jobs\[1\]: data: "):
            await added(NewJob(WELCOME, Welcome("ada")), NewJob(WELCOME, Farewell(True)))  # type: ignore[call-overload]  # pyright: ignore
        wrong: Any = {"delay": 1}
        with pytest.raises(UsageError, match=r"^jobs\[0\]: options: must be a JobOptions"):
            await added(NewJob(WELCOME, Welcome("ada"), wrong))
        with pytest.raises(UsageError, match=r"^options: must be a JobOptions"):
            await queue.add(WELCOME, Welcome("ada"), wrong)
        assert await queue.count() == 3
        await queue.obliterate()


@pytest.mark.parametrize("way", ["upsert", "transaction"])
async def test_the_jobs_of_a_scheduler_may_have_a_type(adapter: Adapter, server: Server, name: str, way: str) -> None:
    async def upserted(*arguments: Any) -> Any:
        if way == "upsert":
            return await queue.upsert_job_scheduler("hourly", HOURLY, *arguments)
        return (await queue.commit(queue.adding_job_scheduler("hourly", HOURLY, *arguments)))[0]

    async with adapter.Queue(name, server.url, data_type=int) as queue:
        job = await upserted(GREETED, Welcome("ada"))
        assert (job.name, job.data, job.opts.attempts) == ("greeted", Welcome("ada"), 3)
        scheduler = await queue.get_job_scheduler("hourly")
        assert (scheduler.name, scheduler.template_data) == ("greeted", '{"to":"ada"}')
        job = await upserted(GREETED, Welcome("grace"), JobOptions(attempts=5))
        assert (job.data, job.opts.attempts) == (Welcome("grace"), 5)
        with pytest.raises(UsageError, match=r"^data: "):
            await upserted(GREETED, Farewell(True))
        with pytest.raises(UsageError, match=r"^delay: has no place"):
            await upserted(WELCOME, Welcome("ada"))
        await queue.obliterate()


async def test_results_are_those_of_the_types(adapter: Adapter, server: Server, name: str) -> None:
    async def process(job: Any) -> Any:
        return {"last": job.data["to"] == "ada"}

    async with (
        adapter.Queue(name, server.url) as queue,
        adapter.QueueEvents(name, server.url) as events,
        adapter.Worker(name, process, server.url),
    ):
        greeted, other = await queue.add_bulk([NewJob(GREETED, Welcome("ada")), NewJob("other", {"to": "grace"})])
        scheduled = await queue.upsert_job_scheduler("hourly", HOURLY, GREETED, Welcome("ada"))
        assert await greeted.wait_until_finished(events, 30_000) == Farewell(True)
        assert await other.wait_until_finished(events, 30_000) == {"last": False}
        assert await scheduled.wait_until_finished(events, 30_000) == Farewell(True)
    async with adapter.Queue(name, server.url) as queue:
        await queue.obliterate(force=True)
