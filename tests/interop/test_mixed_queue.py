"""Node and we add to one queue and work on it together; what is left equals what two Nodes leave."""

import time
from collections import Counter
from typing import NamedTuple

import pytest
from redis import Redis

from tests.interop import state
from tests.interop.jobs import Job, attempts, mixed_jobs, succeeds, with_base
from tests.support.programs import ADAPTERS, Program, all_of, client, worker
from tests.support.servers import Server

pytestmark = pytest.mark.any_python

JOBS = mixed_jobs(2_000)
CONCURRENCY = 10
CHUNK = 50
LONG_S, COMPARED_EVERY_S = 22, 10
MOST_LONG_JOBS = 20_000
MOST_UNDER_WAY = 400


class Run(NamedTuple):
    """What one run left."""

    after_adding: state.State
    at_the_end: state.State


@pytest.fixture(scope="module")
def all_node(home: Server, node: Program, raw: "Redis[bytes]") -> Run:
    """The same jobs, added and worked off by Node alone."""
    with client("node", home) as second:
        return run(home, raw, "iq-mixed-node", (node, second), ("node", "node"))


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_mixed_queue_ends_as_one_of_node_alone(
    adapter: str, home: Server, node: Program, raw: "Redis[bytes]", all_node: Run
) -> None:
    with client(adapter, home) as ours:
        mixed = run(home, raw, f"iq-mixed-{adapter}", (node, ours), ("node", adapter))
    assert state.differences(mixed.after_adding, all_node.after_adding) == []
    assert state.differences(mixed.at_the_end, all_node.at_the_end, races=("order", "wake")) == []


def test_a_queue_of_ours_alone_ends_as_one_of_node_alone(home: Server, raw: "Redis[bytes]", all_node: Run) -> None:
    with client("trio", home) as first, client("threads", home) as second:
        ours = run(home, raw, "iq-mixed-ours", (first, second), ("asyncio", "threads"))
    assert state.differences(ours.after_adding, all_node.after_adding) == []
    assert state.differences(ours.at_the_end, all_node.at_the_end, races=("order", "wake")) == []


@pytest.mark.deep
def test_a_long_run_is_compared_with_node_alone_every_10_s(home: Server, node: Program, raw: "Redis[bytes]") -> None:
    """Two queues get the same jobs at the same time; every 10 s both are let run empty, and must hold the same."""
    base = int(time.time() * 1000)
    jobs = with_base(mixed_jobs(MOST_LONG_JOBS), base)
    queues = ("iq-long-node", "iq-long-mixed")
    with client("node", home) as second, client("asyncio", home) as ours:
        clients = {queues[0]: (node, second), queues[1]: (node, ours)}
        for queue, both in clients.items():
            for each in both:
                each.call("open", queue=queue)
        workers = {
            queue: [worker(side, home, queue, concurrency=CONCURRENCY) for side in sides]
            for queue, sides in zip(queues, (("node", "node"), ("node", *ADAPTERS)), strict=True)
        }
        with all_of(*(each for both in workers.values() for each in both)):
            added = 0
            for _ in range(LONG_S // COMPARED_EVERY_S):
                limit = time.monotonic() + COMPARED_EVERY_S
                while time.monotonic() < limit:
                    chunk, turn = jobs[added : added + CHUNK], added // CHUNK
                    assert chunk, "the run needs more jobs than there are"
                    for queue in queues:
                        clients[queue][turn % 2].call("add" if turn % 4 < 2 else "add_bulk", queue=queue, jobs=chunk)
                    added += len(chunk)
                    until_finished(workers, added - MOST_UNDER_WAY)
                until_finished(workers, added)
                states = [state.read(raw, [queue], base_ms=base) for queue in queues]
                assert state.differences(states[1], states[0], races=("order", "wake")) == [], f"after {added} jobs"
                for queue in queues:
                    check_counts(queue, clients[queue], jobs[:added])
        for queue in queues:
            check_ledgers(jobs[:added], workers[queue], share=20)


def until_finished(workers: dict[str, list[Program]], count: int) -> None:
    """Wait until the workers of each queue have finished this many jobs."""
    for each in workers.values():
        each[0].wait(lambda _, each=each: sum(finished(one) for one in each) >= count, f"{count} finished jobs")


def run(home: Server, raw: "Redis[bytes]", queue: str, clients: tuple[Program, Program], sides: tuple[str, str]) -> Run:
    """Add one half one after the other, then the other half at once while two workers work; check throughout."""
    base = int(time.time() * 1000)
    jobs = with_base(JOBS, base)
    half = len(jobs) // 2
    for each in clients:
        each.call("open", queue=queue)
    for start in range(0, half, CHUNK):
        # In turns, single and bulk, so that order and counters are the same in every run.
        turn = start // CHUNK
        how = "add" if turn % 4 < 2 else "add_bulk"
        clients[turn % 2].call(how, queue=queue, jobs=jobs[start : start + CHUNK])
    after_adding = state.read(raw, [queue], base_ms=base)

    gone = retention(jobs)
    workers = [worker(side, home, queue, concurrency=CONCURRENCY) for side in sides]
    with all_of(*workers):
        pending = [
            clients[index].begin("add_bulk", queue=queue, jobs=jobs[half + index :: 2]) for index in range(len(clients))
        ]
        snapshots = 0
        limit = time.monotonic() + 60
        while sum(finished(each) for each in workers) < len(jobs):
            assert time.monotonic() < limit, [each.events[-3:] for each in workers]
            assert state.snapshot(raw, queue, gone).problems(2 * CONCURRENCY) == []
            snapshots += 1
        ids = [answer() for answer in pending]
    assert snapshots > 0
    assert [sorted(each) for each in ids] == [sorted(j["opts"]["jobId"] for j in jobs[half + i :: 2]) for i in (0, 1)]
    check_ledgers(jobs, workers)
    check_counts(queue, clients, jobs)
    return Run(after_adding, state.read(raw, [queue], base_ms=base))


def finished(program: Program) -> int:
    return program.count("completed") + sum(line["final"] for line in program.of("failed"))


def retention(jobs: list[Job]) -> "state.Callable[[str, str], bool]":
    keys = {"completed": "removeOnComplete", "failed": "removeOnFail"}
    gone = {(job["opts"]["jobId"], event) for job in jobs for event, key in keys.items() if job["opts"].get(key)}
    return lambda job_id, event: (job_id, event) in gone


def check_ledgers(jobs: list[Job], workers: list[Program], *, share: int = 10) -> None:
    """Each job was finished once, in as many attempts as its data says; each worker did one `share`-th at least."""
    completed = Counter(job_id for each in workers for job_id in each.ids("completed"))
    failed = Counter(line["id"] for each in workers for line in each.of("failed") if line["final"])
    started = Counter(job_id for each in workers for job_id in each.ids("started"))
    assert completed == Counter(job["opts"]["jobId"] for job in jobs if succeeds(job))
    assert failed == Counter(job["opts"]["jobId"] for job in jobs if not succeeds(job))
    assert started == Counter({job["opts"]["jobId"]: attempts(job) for job in jobs})
    assert [line for each in workers for line in each.events if line["event"] in ("error", "stalled")] == []
    assert min(finished(each) for each in workers) >= len(jobs) // share


def check_counts(queue: str, clients: tuple[Program, Program], jobs: list[Job]) -> None:
    """Both clients count what there must be."""
    expected = dict.fromkeys(
        ("active", "completed", "delayed", "failed", "paused", "prioritized", "waiting", "waiting-children"), 0
    )
    expected["completed"] = sum(succeeds(job) and not job["opts"].get("removeOnComplete") for job in jobs)
    expected["failed"] = sum(not succeeds(job) and not job["opts"].get("removeOnFail") for job in jobs)
    assert [each.call("counts", queue=queue) for each in clients] == [expected, expected]
