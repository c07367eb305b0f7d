"""Threads take the outcomes that are ready to the server in one call."""

import os
import threading
from typing import Any
from uuid import uuid4

from bullmq_protocol import NewJob
from bullmq_protocol.commands.batches import MOST_OUTCOME_BYTES
from bullmq_protocol.worker.notices import JobCompleted
from bullmq_protocol.worker.options import WorkerOptions
from bullmq_sync import Job, Queue, Worker
from bullmq_sync.net.connection import Connection
from tests.support.servers import Server


class _Counting(Connection):
    """Notes the names of the commands that are not on dedicated connections."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.names: list[str] = []

    def perform(self, step: Any, /) -> Any:
        self.names.append(getattr(step, "name", "batch"))
        if self.names[-1] == "finishMany":
            assert sum(len(each) for each in step.args[3:]) <= MOST_OUTCOME_BYTES
        return super().perform(step)


def _work_off(server: Server, count: int, handler: Any, concurrency: int, data: Any = 1) -> list[str]:
    """Process that many jobs; return the names of the commands that were sent."""
    connection = _Counting(server.url)
    ended: set[str] = set()
    over = threading.Event()

    def note(notice: JobCompleted) -> None:
        ended.add(notice.job.id)
        if len(ended) == count:
            over.set()

    with Queue[Any](f"deliveries-{uuid4().hex[:12]}", connection) as queue:
        queue.add_bulk([NewJob("job", data) for _ in range(count)])
        worker = Worker[Any](queue.name, handler, connection, options=WorkerOptions(concurrency=concurrency))
        worker.on(JobCompleted, note)
        with worker:
            assert over.wait(60)
        counts = queue.get_job_counts()
        assert (counts["active"], counts["waiting"], len(ended)) == (0, 0, count)
        queue.obliterate(force=True)
    connection.close()
    return connection.names


def _nothing(job: Job[Any]) -> None:
    pass


def test_outcomes_that_are_ready_together_go_in_one_call(server: Server) -> None:
    names = _work_off(server, 400, _nothing, 50)
    assert names.count("finishMany") >= 8
    assert names.count("finishMany") + names.count("moveToFinished") < 300


def test_one_job_at_a_time_takes_single_calls(server: Server) -> None:
    names = _work_off(server, 20, _nothing, 1)
    assert (names.count("moveToFinished"), names.count("finishMany")) == (20, 0)


def test_handlers_that_wait_run_together(server: Server) -> None:
    meeting = threading.Barrier(8, timeout=60)

    def meet(job: Job[Any]) -> None:
        meeting.wait()

    assert _work_off(server, 32, meet, 8).count("moveStalledJobsToWait") == 1


def test_large_results_go_in_several_calls(server: Server) -> None:
    together = threading.Barrier(20, timeout=60)

    def write(job: Job[Any]) -> str:
        together.wait()
        return job.id + "x" * (MOST_OUTCOME_BYTES // 4)

    names = _work_off(server, 20, write, 20)
    assert names.count("moveToFinished") + names.count("finishMany") >= 6


def test_large_jobs_come_in_several_answers(server: Server) -> None:
    sizes: list[int] = []

    def measure(job: Job[Any]) -> None:
        sizes.append(len(job.data))

    _work_off(server, 30, measure, 20, data="x" * 200_000)
    assert sizes == [200_000] * 30


def test_a_close_in_the_child_of_a_fork_is_the_parents_business_no_more(server: Server) -> None:
    began, go_on = threading.Barrier(3, timeout=60), threading.Event()
    runs: list[str] = []

    def process(job: Job[Any]) -> None:
        runs.append(job.id)
        began.wait()
        go_on.wait(60)

    with Queue[Any](f"fork-{uuid4().hex[:12]}", server.url) as queue:
        queue.add_bulk([NewJob("job"), NewJob("job")])
        with Worker[Any](queue.name, process, server.url, options=WorkerOptions(concurrency=2)) as worker:
            began.wait()
            child = os.fork()
            if child == 0:
                worker.close(force=True)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            go_on.set()
        assert queue.get_job_counts("completed", "wait", "active") == {
            "completed": 2,
            "wait": 0,
            "active": 0,
            "paused": 0,
        }
        assert sorted(runs) == ["1", "2"]
        queue.obliterate(force=True)
