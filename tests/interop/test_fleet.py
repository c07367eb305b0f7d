"""Our library in the profile `fleet` on queues of Node clients and the Python port.

The checks of specs/06, section 10, by their numbers, and rows of section 5.3 by their letters.

Check 2 is in `test_bullmq_5_destroys.py`, check 21 in `tests/chaos/test_fleet.py`, for ten minutes `make chaos-fleet`.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from redis import Redis

from bullmq_protocol import (
    Deduplication,
    FlowAddError,
    FlowNode,
    JobOptions,
    KeepJobs,
    Limiter,
    RepeatOptions,
    UsageError,
    WorkerOptions,
)
from bullmq_protocol.scripts.profile import FLEET
from bullmq_protocol.worker.notices import JobCompleted
from bullmq_sync import Queue, Worker
from tests.support.blocking import Package, package_of
from tests.support.programs import ADAPTERS, PORT, AnswerError, Program, client, until, worker
from tests.support.servers import Server

pytestmark = pytest.mark.any_python

OLDS = ("node-5.62.0", "node-5.81.5")
NEWS = ("node-6.7.0", PORT)
NEW = NEWS[0]
HOUR_MS = 3_600_000


class Peers:
    """The other clients, all on the queue of a test."""

    def __init__(self, clients: dict[str, Program], queue: str) -> None:
        self._clients = clients
        self.queue = queue

    def call(self, side: str, name: str, **args: Any) -> Any:
        return self._clients[side].call(name, queue=self.queue, **args)

    def add(self, side: str, name: str = "", data: Any = None, **options: Any) -> str:
        opts = {**options, **({"jobId": name} if name else {})}
        (id,) = self.call(side, "add", jobs=[{"name": "n", "data": {} if data is None else data, "opts": opts}])
        return str(id)

    def flow(self, side: str, flow: dict[str, Any]) -> None:
        self._clients[side].call("flow", flow=flow)

    def states(self, side: str, *names: str) -> list[str]:
        return [self.call(side, "state", id=name) for name in names]


class Keys:
    """What the queue of a test has stored."""

    def __init__(self, raw: "Redis[bytes]", queue: str) -> None:
        self.redis: Any = raw
        self.base = f"bull:{queue}:"

    def ids(self, name: str) -> list[str]:
        """A list from the left, where new jobs come in."""
        return [each.decode() for each in self.redis.lrange(self.base + name, 0, -1)]

    @property
    def lists(self) -> tuple[list[str], list[str]]:
        return self.ids("wait"), self.ids("paused")

    @property
    def marker(self) -> list[str]:
        return [each.decode() for each in self.redis.zrange(f"{self.base}marker", 0, -1)]

    def hash(self, name: str) -> dict[str, str]:
        return {field.decode(): value.decode() for field, value in self.redis.hgetall(self.base + name).items()}

    def members(self, name: str) -> set[str]:
        kind = self.redis.type(self.base + name)
        found = self.redis.smembers(self.base + name) if kind == b"set" else self.redis.zrange(self.base + name, 0, -1)
        return {each.decode() for each in found}

    @property
    def events(self) -> list[dict[str, str]]:
        found = self.redis.xrange(f"{self.base}events")
        return [{field.decode(): value.decode() for field, value in fields.items()} for _, fields in found]

    @property
    def kinds(self) -> list[str]:
        return [fields["event"] for fields in self.events]


@pytest.fixture(scope="module")
def clients(home: Server) -> Iterator[dict[str, Program]]:
    with ExitStack() as stack:
        yield {side: stack.enter_context(client(side, home)) for side in (*OLDS, *NEWS)}


@pytest.fixture
def peers(clients: dict[str, Program], queue: str) -> Peers:
    return Peers(clients, queue)


@pytest.fixture
def keys(raw: "Redis[bytes]", queue: str) -> Keys:
    return Keys(raw, queue)


@pytest.fixture(scope="module", params=ADAPTERS)
def package(request: pytest.FixtureRequest) -> Iterator[Package]:
    """The classes of each of our adapters."""
    with package_of(request.param) as found:
        yield found


@pytest.fixture
def ours(home: Server, queue: str, package: Package) -> Iterator[Any]:
    with package.Queue(queue, home.url, scripts=FLEET) as made:
        yield made


@pytest.fixture
def hands(home: Server, queue: str, package: Package) -> Iterator[Any]:
    """A worker of ours that takes jobs one by one."""
    made = package.Worker(queue, connection=home.url, scripts=FLEET)
    yield made
    made.close()


def take(hands: Worker[Any]) -> Any:
    job = hands.get_next_job(block=False)
    assert job is not None
    return job


# --- pausing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("old", OLDS)
@pytest.mark.parametrize("new", NEWS)
def test_1_a_resume_of_ours_loses_nothing(peers: Peers, keys: Keys, ours: Queue[Any], old: str, new: str) -> None:
    for name in "ab":
        peers.add(new, name)
    peers.call(new, "pause")
    peers.add(old, "c")
    peers.add(new, "d")
    assert keys.lists == (["d", "b", "a"], ["c"])
    ours.resume()
    assert (keys.lists, keys.marker) == ((["d", "b", "a", "c"], []), ["0"])


@pytest.mark.parametrize("old", OLDS)
@pytest.mark.parametrize("new", NEWS)
def test_2a_ours_does_not_fill_the_second_list(peers: Peers, keys: Keys, ours: Queue[Any], old: str, new: str) -> None:
    """So that even a resume of BullMQ 5 loses nothing."""
    for name in "ab":
        peers.add(new, name)
    peers.call(new, "pause")
    ours.add("n", options=JobOptions(job_id="c"))
    peers.add(new, "d")
    peers.call(old, "resume")
    assert (keys.lists, keys.marker) == ((["d", "c", "b", "a"], []), [])


@pytest.mark.parametrize("old", OLDS)
def test_2b_beside_bullmq_5_alone_ours_does_as_that(peers: Peers, keys: Keys, ours: Queue[Any], old: str) -> None:
    peers.add(old, "a")
    peers.call(old, "pause")
    ours.add("n", options=JobOptions(job_id="b"))
    assert keys.lists == ([], ["b", "a"])
    peers.call(old, "resume")
    assert (keys.lists, keys.marker) == ((["b", "a"], []), ["0"])


def test_3_long_lists_are_moved_in_several_calls(keys: Keys, ours: Queue[Any]) -> None:
    keys.redis.rpush(f"{keys.base}paused", *(f"p{number}" for number in range(15_000)))
    keys.redis.rpush(f"{keys.base}wait", "w1", "w2")
    keys.redis.hset(f"{keys.base}meta", "paused", 1)
    ours.resume()
    assert keys.lists == (["w1", "w2", *(f"p{number}" for number in range(15_000))], [])
    assert keys.kinds == ["resumed"]


@pytest.mark.parametrize("old", OLDS)
def test_4_a_second_pause_of_ours_loses_nothing(peers: Peers, keys: Keys, ours: Queue[Any], old: str) -> None:
    for name in "ab":
        peers.add(old, name)
    peers.call(old, "pause")
    peers.add(NEW, "c")
    ours.pause()
    assert keys.lists == ([], ["c", "b", "a"])


@pytest.mark.parametrize("idle", [*OLDS, *NEWS])
def test_16_idle_workers_begin_at_once(home: Server, keys: Keys, ours: Queue[Any], idle: str) -> None:
    """Without the marker they would begin when their wait ends: in an hour."""
    ours.pause()
    with worker(idle, home, ours.name, drainDelay=3600) as program:
        for name in "abc":
            ours.add("n", {}, options=JobOptions(job_id=name))
        assert keys.lists == ([], ["c", "b", "a"])
        ours.resume()
        program.wait(lambda _: program.ids("completed") == ["a", "b", "c"], "the three jobs")


def test_17_a_paused_queue_is_not_healed(home: Server, package: Package, keys: Keys, ours: Queue[Any]) -> None:
    ours.add("n", options=JobOptions(job_id="a"))
    keys.redis.rpush(f"{keys.base}paused", "x1", "x2")
    keys.redis.hset(f"{keys.base}meta", "paused", 1)
    before = keys.lists, keys.kinds
    checks: list[bytes] = []
    with package.Worker(
        ours.name, package.nothing, home.url, scripts=FLEET, options=WorkerOptions(stalled_interval=50)
    ):
        # Two checks of stalled jobs: it has healed at its start, and with each.
        while len(set(checks)) < 2:
            checks += filter(None, [keys.redis.get(f"{keys.base}stalled-check")])
    assert (keys.lists, keys.kinds) == before


@pytest.mark.parametrize("old", OLDS)
def test_17a_what_a_resume_has_left_is_put_in_line(
    peers: Peers, home: Server, package: Package, keys: Keys, ours: Queue[Any], old: str
) -> None:
    """As the Python port leaves it, beyond 7,000 jobs: set aside in a queue that runs."""
    for name in ("x1", "x2"):
        peers.add(old, name)
    peers.call(old, "pause")
    keys.redis.hdel(f"{keys.base}meta", "paused")
    ours.add("n", options=JobOptions(job_id="a"))
    assert keys.lists == (["a"], ["x2", "x1"])
    before = keys.kinds
    # So that no job is taken before the lists are seen.
    keys.redis.hset(f"{keys.base}meta", "concurrency", 0)
    keys.redis.delete(f"{keys.base}marker")
    with package.Worker(ours.name, package.nothing, home.url, scripts=FLEET):
        until(lambda: keys.lists, (["a", "x2", "x1"], []))
    assert keys.kinds == before


@pytest.mark.parametrize("old", OLDS)
@pytest.mark.parametrize("new", NEWS)
def test_18_a_job_is_looked_for_in_both_lists(peers: Peers, keys: Keys, ours: Queue[Any], old: str, new: str) -> None:
    peers.add(new, "w")
    peers.call(old, "pause")
    peers.add(new, "x")
    assert keys.lists == (["x"], ["w"])
    for name in ("w", "x"):
        job = ours.get_job(name)
        assert job is not None
        job.change_priority(3)
    assert keys.lists == ([], [])
    assert keys.members("prioritized") == {"w", "x"}


def test_obliterate_empties_both_lists(peers: Peers, keys: Keys, ours: Queue[Any]) -> None:
    """Row F of section 5.3."""
    ours.add("n", options=JobOptions(job_id="a"))
    ours.pause()
    peers.add(NEW, "b")
    assert keys.lists == (["b"], ["a"])
    ours.obliterate(force=True)
    assert list(keys.redis.scan_iter(f"{keys.base}*", count=1000)) == []


def test_counts_and_lists_have_both(peers: Peers, keys: Keys, ours: Queue[Any]) -> None:
    """Section 8.2: waiting jobs are those of both lists."""
    ours.add("n", options=JobOptions(job_id="a"))
    ours.pause()
    peers.add(NEW, "b")
    assert keys.lists == (["b"], ["a"])
    assert {job.id for job in ours.get_jobs(["waiting"])} == {"a", "b"}
    assert ours.get_counts_per_priority([0]) == {0: 2}
    assert ours.count() == 2


@pytest.mark.parametrize("new", NEWS)
def test_b_a_pause_of_ours_after_a_peer_has_added(peers: Peers, keys: Keys, ours: Queue[Any], new: str) -> None:
    for name in "ab":
        ours.add("n", options=JobOptions(job_id=name))
    ours.pause()
    peers.add(new, "c")
    ours.pause()
    assert keys.lists == ([], ["c", "b", "a"])


@pytest.mark.parametrize("new", NEWS)
def test_c_a_resume_of_ours_after_a_peer_has_added(peers: Peers, keys: Keys, ours: Queue[Any], new: str) -> None:
    ours.add("n", options=JobOptions(job_id="a"))
    ours.pause()
    peers.add(new, "b")
    ours.resume()
    assert (keys.lists, keys.marker) == ((["b", "a"], []), ["0"])


@pytest.mark.parametrize("new", NEWS)
def test_d_a_resume_of_ours_wakes_those_who_wait(peers: Peers, keys: Keys, ours: Queue[Any], new: str) -> None:
    peers.add(new, "a")
    peers.call(new, "pause")
    ours.resume()
    assert (keys.lists, keys.marker) == ((["a"], []), ["0"])


@pytest.mark.parametrize("new", NEWS)
def test_e_a_waiting_job_of_a_peer_gets_its_priority(peers: Peers, keys: Keys, ours: Queue[Any], new: str) -> None:
    peers.add(new, "a")
    peers.call(new, "pause")
    job = ours.get_job("a")
    assert job is not None
    job.change_priority(2)
    assert (keys.lists, keys.members("prioritized")) == (([], []), {"a"})


def test_i_a_job_that_bullmq_6_adds_with_repeat_runs_once(
    peers: Peers, home: Server, package: Package, keys: Keys
) -> None:
    """A worker of BullMQ 5 begins a series of it that no list shows."""
    peers.add(NEW, "a", repeat={"every": 50})
    with package.Worker(peers.queue, package.nothing, home.url, scripts=FLEET):
        until(lambda: keys.members("completed"), {"a"})
    assert [fields["jobId"] for fields in keys.events if fields["event"] == "added"] == ["a"]


def test_r_our_worker_takes_what_a_resume_of_the_port_has_left(
    peers: Peers, home: Server, package: Package, keys: Keys, ours: Queue[Any]
) -> None:
    keys.redis.rpush(f"{keys.base}wait", *(f"p{number}" for number in range(9_000)))
    ours.pause()
    peers.add(NEW, "x")
    # So that no job is taken before the lists are seen.
    keys.redis.hset(f"{keys.base}meta", "concurrency", 0)
    peers.call(PORT, "resume")
    assert (len(keys.ids("wait")), len(keys.ids("paused"))) == (7_001, 2_000)
    with package.Worker(ours.name, package.nothing, home.url, scripts=FLEET):
        until(lambda: (len(keys.ids("wait")), len(keys.ids("paused"))), (9_001, 0))


# --- deduplication ----------------------------------------------------------------------------------------------------

KEEP = Deduplication("d", keep_last_if_active=True)


def test_5_the_last_of_many_is_kept(keys: Keys, ours: Queue[Any], hands: Worker[Any]) -> None:
    ours.add("n", {"n": 1}, options=JobOptions(deduplication=KEEP))
    job = take(hands)
    for number in (2, 3):
        assert ours.add("n", {"n": number}, options=JobOptions(deduplication=KEEP)).id == job.id
    hands.complete(job)
    assert keys.kinds[-7:] == ["debounced", "deduplicated"] * 2 + ["added", "waiting", "completed"]
    assert (keys.ids("wait"), keys.redis.get(f"{keys.base}id")) == (["3"], b"4")
    assert (keys.redis.exists(f"{keys.base}dn:d"), keys.hash("3")["data"]) == (0, '{"n":3}')


def test_6_a_kept_job_needs_no_lifetime(keys: Keys, ours: Queue[Any], hands: Worker[Any]) -> None:
    rule = Deduplication("d", ttl=60_000, extend=True, keep_last_if_active=True)
    ours.add("n", {"n": 1}, options=JobOptions(deduplication=rule))
    take(hands)
    keys.redis.pexpire(f"{keys.base}de:d", 50_000)
    for number in (2, 3):
        ours.add("n", {"n": number}, options=JobOptions(deduplication=rule))
    assert keys.redis.pttl(f"{keys.base}de:d") == -1
    assert keys.hash("dn:d")["data"] == '{"n":3}'


def test_7_a_stale_key_is_repaired(keys: Keys, ours: Queue[Any]) -> None:
    keys.redis.set(f"{keys.base}de:d", "gone")
    keys.redis.hset(f"{keys.base}dn:d", "name", "x")
    assert ours.add("n", options=JobOptions(deduplication=Deduplication("d"))).id == "1"
    assert (keys.redis.get(f"{keys.base}de:d"), keys.redis.exists(f"{keys.base}dn:d")) == (b"1", 0)
    assert keys.kinds == ["added", "waiting"]


def test_8_a_delayed_job_is_rescheduled(keys: Keys, ours: Queue[Any]) -> None:
    rule = Deduplication("d", reschedule=True)
    ours.add("n", options=JobOptions(delay=60_000, deduplication=rule, timestamp=1_700_000_000_000))
    options = JobOptions(delay=90_000, deduplication=rule, timestamp=1_700_000_000_005)
    assert ours.add("n", options=options).id == "1"
    assert keys.redis.zscore(f"{keys.base}delayed", "1") == (1_700_000_000_005 + 90_000) * 4096
    assert keys.hash("1")["delay"] == "90000"
    assert keys.kinds[-3:] == ["debounced", "deduplicated", "delayed"]


@pytest.mark.parametrize("new", NEWS)
def test_20_what_a_peer_kept_runs_after_our_job(
    peers: Peers, home: Server, keys: Keys, hands: Worker[Any], new: str
) -> None:
    rule = {"deduplication": {"id": "d", "keepLastIfActive": True}}
    first = peers.add(new, data={"n": 1}, **rule)
    job = take(hands)
    assert job.id == first
    for number in (2, 3):
        assert peers.add(new, data={"n": number, "value": number}, **rule) == first
    hands.complete(job)
    with worker(new, home, peers.queue) as program:
        program.wait(lambda _: program.count("completed") == 1, "the last payload")
    kept = program.ids("started")
    assert len(kept) == 1
    assert keys.hash(kept[0])["returnvalue"] == "3"
    assert keys.members("completed") == {first, *kept}


# --- flows ------------------------------------------------------------------------------------------------------------


def test_9_a_parent_waits_for_its_other_children(
    home: Server, package: Package, keys: Keys, ours: Queue[Any], hands: Worker[Any]
) -> None:
    ours.add("n", options=JobOptions(job_id="c1"))
    hands.complete(take(hands))
    with package.FlowProducer(home.url, scripts=FLEET) as flows:
        flows.add(family(ours.name, "p", "c1", "c2"))
    assert keys.members("waiting-children") == {"p"}
    assert keys.hash("p:processed") == {f"{keys.base}c1": "null"}
    assert keys.members("p:dependencies") == {f"{keys.base}c2"}


def test_10_a_child_of_a_living_parent_stays_there(
    home: Server, package: Package, keys: Keys, ours: Queue[Any]
) -> None:
    with package.FlowProducer(home.url, scripts=FLEET) as flows:
        flows.add(family(ours.name, "p1", "c2"))
        with pytest.raises(FlowAddError, match="c2"):
            flows.add(family(ours.name, "p2", "c2", "c3"))
    assert keys.members("waiting-children") == {"p1", "p2"}
    assert keys.members("p2:dependencies") == {f"{keys.base}c3"}
    assert "flowAttachmentFailed" not in keys.hash("p2")


def family(queue: str, parent: str, *children: str) -> FlowNode:
    def node(name: str, below: list[FlowNode]) -> FlowNode:
        return FlowNode("n", queue, options=JobOptions(job_id=name), children=below)

    return node(parent, [node(child, []) for child in children])


def test_11_an_ignored_child_is_retried(peers: Peers, keys: Keys, ours: Queue[Any], hands: Worker[Any]) -> None:
    opts = {"jobId": "c", "ignoreDependencyOnFailure": True}
    children = [
        {"name": "c", "queueName": ours.name, "opts": opts},
        {"name": "d", "queueName": ours.name, "opts": {"jobId": "d", "delay": 600_000}},
    ]
    peers.flow(NEW, {"name": "p", "queueName": ours.name, "opts": {"jobId": "p"}, "children": children})
    job = take(hands)
    hands.fail(job, RuntimeError("boom"))
    assert list(keys.hash("p:failed")) == [f"{keys.base}c"]
    job.retry()
    assert keys.ids("wait") == ["c"]
    assert f"{keys.base}c" in keys.members("p:dependencies")
    assert keys.events[-1] == {"event": "waiting", "jobId": "c", "prev": "failed"}


# --- schedulers -------------------------------------------------------------------------------------------------------


def test_12_after_a_gap_the_next_slot_has_the_offset(
    home: Server, package: Package, keys: Keys, ours: Queue[Any]
) -> None:
    """One hour, a millisecond before its end: as BullMQ 5.62 reckons, the slot would be an hour later."""
    every, offset = HOUR_MS, HOUR_MS - 1
    seconds, micros = keys.redis.time()
    now = seconds * 1000 + micros // 1000
    past = now - 10 * every
    slot = f"repeat:s:{past}"
    keys.redis.zadd(f"{keys.base}repeat", {"s": past})
    keys.redis.hset(f"{keys.base}repeat:s", mapping={"name": "n", "every": every, "offset": offset, "ic": 1})
    opts = f'{{"repeat":{{"every":{every},"offset":{offset},"count":1}},"attempts":0,"jobId":"{slot}"}}'
    fields = {"name": "n", "data": "{}", "opts": opts, "timestamp": past, "delay": 0, "priority": 0, "rjk": "s"}
    keys.redis.hset(keys.base + slot, mapping=fields)
    keys.redis.lpush(f"{keys.base}wait", slot)
    with package.Worker(ours.name, package.nothing, home.url, scripts=FLEET):
        until(lambda: keys.members("completed"), {slot})
        next_at = int(keys.redis.zscore(f"{keys.base}repeat", "s"))
    assert next_at % every == offset
    assert now < next_at <= now + every + 60_000


@pytest.mark.parametrize("new", NEWS)
def test_19_an_upsert_while_paused_takes_the_waiting_job_back(
    peers: Peers, keys: Keys, ours: Queue[Any], new: str
) -> None:
    template = {"name": "a", "data": {"v": 1}}
    peers.call(new, "upsert_scheduler", id="s", repeat={"every": HOUR_MS}, template=template)
    (waiting,) = keys.ids("wait")
    peers.call(new, "pause")
    ours.upsert_job_scheduler("s", RepeatOptions(every=HOUR_MS), "a", {"v": 2})
    assert [*keys.ids("wait"), *keys.ids("paused")] == [waiting]
    assert keys.hash(waiting)["data"] == '{"v":2}'


@pytest.mark.parametrize("side", [*OLDS, *NEWS])
def test_an_upsert_of_a_peer_while_6_pauses_leaves_two_jobs(peers: Peers, keys: Keys, side: str) -> None:
    """What docs/upgrading.md says: nobody but ours looks for the waiting job in the other list."""
    template = {"name": "a", "data": {}}
    peers.call(NEW, "upsert_scheduler", id="s", repeat={"every": HOUR_MS}, template=template)
    peers.call(NEW, "pause")
    peers.call(side, "upsert_scheduler", id="s", repeat={"every": HOUR_MS}, template=template)
    assert (len(keys.ids("wait")), len(keys.members("delayed"))) == (1, 1)


def test_the_port_ends_the_series_of_a_last_weekday(home: Server, peers: Peers, keys: Keys, ours: Queue[Any]) -> None:
    """Its croniter refuses `5L`, which Node and ours read: docs/upgrading.md warns of it."""
    ours.upsert_job_scheduler("s", RepeatOptions(pattern="0 0 * * 5L", tz="UTC"), "a", {})
    (waiting,) = keys.members("delayed")
    job = ours.get_job(waiting)
    assert job is not None
    job.promote()
    with worker(PORT, home, peers.queue) as program:
        program.wait(lambda _: program.ids("completed") == [waiting], "the last job of the series")
    assert (keys.members("delayed"), keys.lists, keys.members("repeat")) == (set(), ([], []), {"s"})


def test_h_a_pattern_on_which_a_peer_would_hang_is_refused(ours: Queue[Any]) -> None:
    """Row H of section 5.3."""
    with pytest.raises(UsageError, match="pattern"):
        ours.upsert_job_scheduler("s", RepeatOptions(pattern="*/2,*/3 * * * * *", tz="UTC"))
    assert ours.get_job_schedulers_count() == 0


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_13_a_job_of_a_removed_scheduler_fails_for_stalling(
    home: Server, package: Package, keys: Keys, ours: Queue[Any], hands: Worker[Any]
) -> None:
    ours.add("n", options=JobOptions(job_id="c"))
    take(hands)
    keys.redis.hset(f"{keys.base}c", mapping={"rjk": "s", "opts": '{"repeat":{"every":1}}', "stc": 5})
    keys.redis.delete(f"{keys.base}c:lock")
    options = WorkerOptions(stalled_interval=50)
    with package.Worker(ours.name, package.nothing, home.url, scripts=FLEET, options=options):
        until(lambda: keys.members("failed"), {"c"})
    assert keys.hash("c")["failedReason"] == "job stalled more than allowable limit"


def test_14_retention_by_age_has_a_limit(keys: Keys, ours: Queue[Any], hands: Worker[Any]) -> None:
    seconds, _ = keys.redis.time()
    for number in range(5):
        keys.redis.hset(f"{keys.base}e{number}", "name", "n")
        keys.redis.zadd(f"{keys.base}completed", {f"e{number}": seconds * 1000 - 100_000 + number})
    ours.add("n", options=JobOptions(job_id="c", remove_on_complete=KeepJobs(age=10, limit=2)))
    hands.complete(take(hands))
    assert keys.members("completed") == {"e0", "e1", "e2", "c"}
    assert [keys.redis.exists(f"{keys.base}e{number}") for number in range(5)] == [1, 1, 1, 0, 0]


def test_15_a_job_that_is_to_fail_takes_no_token(home: Server, package: Package, keys: Keys, ours: Queue[Any]) -> None:
    for name in ("c", "d"):
        ours.add("n", options=JobOptions(job_id=name))
    keys.redis.hset(f"{keys.base}c", "defa", "x")
    keys.redis.set(f"{keys.base}limiter", 1, px=600_000)
    options = WorkerOptions(limiter=Limiter(max=5, duration=600_000))
    with package.Worker(ours.name, package.nothing, home.url, scripts=FLEET, options=options) as working:
        working.on(JobCompleted, package.nothing)
        until(lambda: (keys.members("failed"), keys.members("completed")), ({"c"}, {"d"}))
    # That of d alone.
    assert keys.redis.get(f"{keys.base}limiter") == b"2"


@pytest.mark.parametrize("side", [NEW, "asyncio", "threads"])
def test_a_failure_of_the_last_start_ends_a_job(home: Server, peers: Peers, keys: Keys, side: str) -> None:
    """`maxStartedAttempts` as since 6.4.0."""
    peers.add(NEW, "c", {"fails": 9}, attempts=4)
    with worker(side, home, peers.queue, profile="fleet", maxStartedAttempts=2):
        until(lambda: keys.members("failed"), {"c"})
    stored = keys.hash("c")
    assert (stored["failedReason"], stored["atm"], stored["ats"]) == ("failure 2", "2", "2")
    assert "retries-exhausted" not in keys.kinds


def test_what_6_refuses_of_deduplicated_families_is_refused(home: Server, peers: Peers, keys: Keys) -> None:
    once = {"deduplication": {"id": "d"}}
    child = {"name": "c", "queueName": peers.queue}
    for tree, word in (
        ({"children": [{**child, "opts": once}]}, "parent"),
        ({"opts": once, "children": [child]}, "children"),
    ):
        flow = {"name": "p", "queueName": peers.queue, **tree}
        with pytest.raises(AnswerError, match=word):
            peers.flow(NEW, flow)
        with client("asyncio", home, profile="fleet") as ours, pytest.raises(AnswerError, match=word):
            ours.call("flow", flow=flow)
    assert keys.kinds == []
