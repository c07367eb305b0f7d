"""Jobs that are added by a `JobType`."""

import msgspec
import pytest

from bullmq_protocol import JobOptions, JobType, UsageError
from tests.support.adapters import Adapter
from tests.support.servers import Server

pytestmark = pytest.mark.any_server


class Welcome(msgspec.Struct):
    to: str


class Farewell(msgspec.Struct):
    last: bool


WELCOME = JobType("welcome", Welcome, options=JobOptions(attempts=3, delay=60_000))
FAREWELL = JobType("farewell", Farewell, options=WELCOME.options)
SAME_NAME = JobType("welcome", Farewell, options=WELCOME.options)


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
