"""Recording transports and fake jobs: what adds jobs, and handlers alone, without a server."""

from typing import Any

import anyio
import pytest

import bullmq_anyio
import bullmq_anyio.testing
import bullmq_sync
import bullmq_sync.testing
from bullmq_protocol import (
    Backoff,
    Deduplication,
    DelayedError,
    FlowNode,
    JobOptions,
    JobRecord,
    JobType,
    NewJob,
    ParentRef,
    QueueKeys,
    RateLimitError,
    RepeatOptions,
    UsageError,
    WaitingChildrenError,
    WaitingError,
)
from bullmq_protocol.command import Command
from bullmq_protocol.errors import Closed
from bullmq_protocol.scripts.profile import STRICT
from bullmq_protocol.testing.clock import SimulatedClock
from bullmq_protocol.testing.recording import AsyncRecordingTransport, Recorded, RecordingTransport, Unanswered

CLOCK = SimulatedClock(wall=1_700_000_000_500)


def _queue(transport: RecordingTransport, **options: Any) -> bullmq_sync.Queue[Any]:
    return bullmq_sync.Queue("mail", transport, clock=CLOCK, **options)


# --- producers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", [{}, {"scripts": STRICT}], ids=["fleet", "strict"])
def test_jobs_are_recorded_as_plain_values(profile: Any) -> None:
    transport = RecordingTransport()
    queue = _queue(transport, **profile)
    options = [
        JobOptions(),
        JobOptions(delay=5),
        JobOptions(priority=3),
        JobOptions(attempts=2, backoff=Backoff("fixed", 7)),
    ]
    jobs = [queue.add("welcome", {"n": n}, each) for n, each in enumerate(options)]
    jobs += queue.add_bulk([NewJob("bulk", [n], each) for n, each in enumerate(options)])
    added = transport.recorded.added
    assert [each.id for each in added] == [job.id for job in jobs] == [*"12345678"]
    assert [each.state for each in added] == ["waiting", "delayed", "prioritized", "waiting"] * 2
    assert [each.data for each in added] == [{"n": n} for n in range(4)] + [[n] for n in range(4)]
    assert {each.queue for each in added} == {"mail"}
    assert (added[1].delay, added[2].priority) == (5, 3)
    assert added[3].options == JobOptions(attempts=2, backoff=Backoff("fixed", 7))
    assert all(job.added for job in jobs)


@pytest.mark.parametrize("profile", [{}, {"scripts": STRICT}], ids=["fleet", "strict"])
def test_a_second_job_of_the_same_id_gives_way(profile: Any) -> None:
    transport = RecordingTransport()
    queue = _queue(transport, **profile)
    options = JobOptions(job_id="order-1")
    assert [queue.add("welcome", 1, options).added, queue.add("welcome", 2, options).added] == [True, False]
    assert [job.added for job in queue.add_bulk([NewJob("a", 3, options), NewJob("b", 4, JobOptions(job_id="x"))])] == [
        False,
        True,
    ]
    assert [each.data for each in transport.recorded.added] == [1, 4]


@pytest.mark.parametrize("profile", [{}, {"scripts": STRICT}], ids=["fleet", "strict"])
def test_a_flow_is_recorded_node_by_node(profile: Any) -> None:
    transport = RecordingTransport()
    with bullmq_sync.FlowProducer(transport, clock=CLOCK, **profile) as flows:
        pages = [FlowNode("page", "prints", n, JobOptions(job_id=f"page-{n}")) for n in (1, 2)]
        flow = flows.add(FlowNode("book", "mail", children=pages))
    added = transport.recorded.added
    assert [(each.queue, each.name, each.state) for each in added] == [
        ("mail", "book", "waiting-children"),
        ("prints", "page", "waiting"),
        ("prints", "page", "waiting"),
    ]
    assert [child.job.id for child in flow.children] == ["page-1", "page-2"]
    assert added[1].options.parent == ParentRef(flow.job.id, "bull:mail")


def test_a_deduplicated_job_of_a_flow_producer_is_recorded() -> None:
    transport = RecordingTransport()
    given = JobOptions(deduplication=Deduplication("d"))
    with bullmq_sync.FlowProducer(transport, clock=CLOCK) as flows:
        assert flows.add(FlowNode("page", "mail", options=given)).job.added
    assert [each.options.deduplication for each in transport.recorded.added] == [Deduplication("d")]


@pytest.mark.parametrize("profile", [{}, {"scripts": STRICT}], ids=["fleet", "strict"])
def test_a_node_of_a_flow_gives_way_to_a_job_of_the_same_id(profile: Any) -> None:
    transport = RecordingTransport()
    _queue(transport, **profile).add("page", 1, JobOptions(job_id="page-1"))
    with bullmq_sync.FlowProducer(transport, clock=CLOCK, **profile) as flows:
        pages = [FlowNode("page", "mail", n, JobOptions(job_id=f"page-{n}")) for n in (1, 2)]
        flow = flows.add(FlowNode("book", "books", children=pages))
    assert [child.job.added for child in flow.children] == [False, True]
    assert [each.id for each in transport.recorded.added if each.name == "page"] == ["page-1", "page-2"]


def test_a_job_scheduler_is_recorded_by_its_next_job() -> None:
    transport = RecordingTransport()
    queue = _queue(transport)
    queue.upsert_job_scheduler("minutely", RepeatOptions(every=60_000), "beat", {"n": 1})
    queue.upsert_job_scheduler("daily", RepeatOptions(pattern="0 0 * * *", tz="utc"), "report")
    minutely, daily = transport.recorded.added
    assert (minutely.name, minutely.data, minutely.state) == ("beat", {"n": 1}, "delayed")
    assert minutely.id == "repeat:minutely:1700000040000"
    assert (daily.id, daily.delay) == ("repeat:daily:1700006400000", 6_399_500)


def test_what_has_no_answer_says_how_to_get_one() -> None:
    queue = _queue(RecordingTransport())
    with pytest.raises(Unanswered, match="no answer to 'HEXISTS'"):
        queue.is_paused()
    answers = {"HEXISTS": 1, "getStateV2": lambda command: command.args[0].encode()}
    queue = _queue(RecordingTransport(answers))
    assert queue.is_paused() is True
    assert queue.add("welcome").get_state() == "1"


def test_a_closed_transport_is_closed() -> None:
    transport = RecordingTransport()
    assert transport.dedicated(client_name="x") is transport
    transport.interrupt()
    transport.close()
    with pytest.raises(Closed):
        _queue(transport).add("welcome")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_asynchronous_twin_records_the_same(backend: str) -> None:
    transport = AsyncRecordingTransport()

    async def main() -> None:
        queue = bullmq_anyio.Queue[Any]("mail", transport.dedicated(), clock=CLOCK)
        await queue.add("welcome", {"to": "ada"}, JobOptions(delay=5))
        await transport.aclose()
        with pytest.raises(Closed):
            await queue.add("welcome")

    anyio.run(main, backend=backend)
    (added,) = transport.recorded.added
    assert (added.name, added.data, added.state) == ("welcome", {"to": "ada"}, "delayed")


# --- handlers ---------------------------------------------------------------------------------------------------------


def _recorded(recorded: Recorded) -> dict[str, Any]:
    return {name: value for name, value in vars(recorded).items() if name != "steps" and value}


def test_a_handler_runs_alone_on_a_job() -> None:
    def resize(job: bullmq_sync.Job[Any]) -> Any:
        job.update_progress(50)
        job.update_data({**job.data, "seen": True})
        assert job.log("resized") == 1
        assert job.extend_lock(1_000)
        current = bullmq_sync.current_job()
        return [
            job.data,
            job.attempts_made,
            job.attempts_started,
            job.name,
            job.id,
            job.token,
            job.state,
            current is job,
        ]

    job = bullmq_sync.testing.fake_job(
        {"width": 3},
        name="resize",
        job_id="a",
        attempts_made=2,
        state="pools",
        clock=CLOCK,
        options=JobOptions(attempts=5),
    )
    run = bullmq_sync.testing.run_handler(resize, job)
    assert run.result == [{"width": 3, "seen": True}, 2, 3, "resize", "a", "fake", "pools", True]
    assert (run.status, run.error) == ("completed", None)
    assert _recorded(job.recorded) == {"progress": [50], "data": [{"width": 3, "seen": True}], "logs": ["resized"]}
    assert (job.timestamp, job.processed_on, job.opts.attempts) == (1_700_000_000_500, 1_700_000_000_500, 5)
    assert bullmq_sync.current_job() is None


class Boom(Exception):
    pass


@pytest.mark.parametrize(
    ("move", "error", "status", "moves"),
    [
        (lambda job: job.move_to_delayed(job.timestamp + 10), DelayedError(), "delayed", ["delayed"]),
        (lambda job: job.move_to_wait(), WaitingError(), "waiting", ["waiting"]),
        (
            lambda job: job.move_to_waiting_children(),
            WaitingChildrenError(),
            "waiting-children",
            ["waiting-children"],
        ),
        (lambda job: None, RateLimitError(), "rate-limited", []),
        (lambda job: None, Boom("bang"), "failed", []),
    ],
)
@pytest.mark.parametrize("backend", ["asyncio", "trio", "threads"])
def test_signals_and_failures_are_values(backend: str, move: Any, error: Any, status: str, moves: list[str]) -> None:
    if backend == "threads":

        def blocking(job: Any) -> None:
            move(job)
            raise error

        job: Any = bullmq_sync.testing.fake_job()
        run: Any = bullmq_sync.testing.run_handler(blocking, job)
    else:

        async def asynchronous(job: Any) -> None:
            moving = move(job)
            if moving is not None:
                await moving
            raise error

        async def main() -> Any:
            return await bullmq_anyio.testing.run_handler(asynchronous, job)

        job = bullmq_anyio.testing.fake_job()
        run = anyio.run(main, backend=backend)
    assert (run.status, run.error, run.result) == (status, error, None)
    assert job.recorded.moves == moves
    assert job.data == {}


def test_payloads_and_results_are_checked_as_by_a_worker() -> None:
    fake, run = bullmq_sync.testing.fake_job, bullmq_sync.testing.run_handler
    with pytest.raises(UsageError, match="data"):
        fake({"width": "wide"}, data_type=dict[str, int])
    with pytest.raises(UsageError, match="attempts_made"):
        fake(attempts_made=-1)
    typed = run(lambda job: job.data["width"], fake({"width": 3}, data_type=dict[str, int]))
    assert (typed.status, typed.result) == ("completed", 3)
    wrong = run(lambda job: object(), fake())
    assert (wrong.status, type(wrong.error)) == ("failed", UsageError)
    assert run(lambda job: job.get_state(), fake(answers={"getStateV2": b"active"})).result == "active"
    with pytest.raises(Unanswered, match="no answer to 'getStateV2'"):
        run(lambda job: job.get_state(), fake())


def test_a_router_handles_a_fake_job() -> None:
    router = bullmq_sync.Router()
    kind = JobType("welcome", dict[str, str], result=str)

    @router(kind)
    def welcome(job: bullmq_sync.Job[dict[str, str]]) -> str:
        return f"hello {job.data['to']}"

    run = bullmq_sync.testing.run_handler(router, bullmq_sync.testing.fake_job({"to": "ada"}, name="welcome"))
    assert run.result == "hello ada"
    unknown = bullmq_sync.testing.run_handler(router, bullmq_sync.testing.fake_job(name="other"))
    assert unknown.status == "failed"


def test_a_result_is_what_will_be_read() -> None:
    run = bullmq_sync.testing.run_handler(lambda job: ("a", {"b": (1,)}), bullmq_sync.testing.fake_job())
    assert run.result == ["a", {"b": [1]}]


def test_the_payload_of_any_job_is_checked() -> None:
    record = JobRecord("1", {"name": b"resize", "data": b'{"width":"wide"}'})
    job = bullmq_sync.Job[Any](record, QueueKeys.of("mail"), RecordingTransport(), dict[str, int])
    run = bullmq_sync.testing.run_handler(lambda job: "done", job)
    assert run.status == "failed" and "the data of the job does not fit" in str(run.error)


def test_a_fake_job_has_the_clock_that_it_is_given() -> None:
    clock = SimulatedClock(wall=1_700_000_000_500)
    job = bullmq_sync.testing.fake_job(clock=clock)
    clock.advance(hours=1)
    job.move_to_delayed(clock.wall + 10)
    [move] = job.recorded.steps
    assert isinstance(move, Command) and str(clock.wall) in map(str, move.args)


def test_each_queue_counts_its_own_ids() -> None:
    transport = RecordingTransport()
    queues = [_queue(transport), bullmq_sync.Queue[Any]("prints", transport, clock=CLOCK)]
    assert [queue.add("n").id for queue in (*queues, *queues)] == ["1", "1", "2", "2"]
