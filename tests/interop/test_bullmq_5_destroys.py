"""What only a client of BullMQ 5 can destroy beside BullMQ 6 or its Python port, and what it cannot.

`docs/upgrading.md` says it to operators. Source: specs/06-later-versions.md#sec-4-1-4, #sec-5-3
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from redis import Redis

from bullmq_doctor import examine, look
from tests.support.programs import PORT, Program, client, worker
from tests.support.servers import Server

pytestmark = pytest.mark.any_python

OLD = ("node-5.62.0", "node-5.81.5")
NEW = ("node-6.7.0", PORT)
PAIRS = [(old, new) for old in OLD for new in NEW]


class Shared:
    """A queue as its keys are, and clients that use it."""

    def __init__(self, clients: dict[str, Program], raw: "Redis[bytes]", queue: str) -> None:
        self._clients = clients
        self._raw: Any = raw
        self._queue = queue
        self.base = f"bull:{queue}:"

    @property
    def name(self) -> str:
        return self._queue

    def worker(self, side: str, home: Server) -> Program:
        return worker(side, home, self._queue)

    def add(self, side: str, *names: str) -> None:
        jobs = [{"name": "n", "data": {}, "opts": {"jobId": name}} for name in names]
        assert self.call(side, "add", jobs=jobs) == list(names)

    def call(self, side: str, name: str, **args: Any) -> Any:
        return self._clients[side].call(name, queue=self._queue, **args)

    def ids(self, name: str) -> list[str]:
        """From the left, where new jobs come in."""
        return [each.decode() for each in self._raw.lrange(self.base + name, 0, -1)]

    @property
    def lists(self) -> tuple[list[str], list[str]]:
        return self.ids("wait"), self.ids("paused")

    @property
    def marker(self) -> list[str]:
        return [each.decode() for each in self._raw.zrange(f"{self.base}marker", 0, -1)]

    def hashes(self, *names: str) -> list[bool]:
        return [self._raw.exists(self.base + name) == 1 for name in names]

    def states(self, *names: str, side: str = "node-6.7.0") -> list[str]:
        return [self.call(side, "state", id=name) for name in names]


@pytest.fixture(scope="module")
def clients(home: Server) -> Iterator[dict[str, Program]]:
    with ExitStack() as stack:
        yield {side: stack.enter_context(client(side, home)) for side in (*OLD, *NEW)}


@pytest.fixture
def shared(clients: dict[str, Program], raw: "Redis[bytes]", queue: str) -> Shared:
    return Shared(clients, raw, queue)


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_a_resume_destroys_what_waits(shared: Shared, old: str, new: str) -> None:
    """Check 2 of section 10: BullMQ 6 left a and b in `wait`, BullMQ 5 set c aside."""
    shared.add(new, "a", "b")
    shared.call(new, "pause")
    shared.add(old, "c")
    shared.add(new, "d")
    assert shared.lists == (["d", "b", "a"], ["c"])
    shared.call(old, "resume")
    assert shared.lists == (["c"], [])
    assert shared.states("a", "b", "c", "d") == ["unknown", "unknown", "waiting", "unknown"]
    # What is gone from the lists keeps its hash, which nobody finds any more.
    assert shared.hashes("a", "b", "d") == [True] * 3


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_a_second_pause_destroys_what_was_set_aside(shared: Shared, old: str, new: str) -> None:
    shared.add(old, "a", "b")
    shared.call(old, "pause")
    shared.add(new, "c")
    assert shared.lists == (["c"], ["b", "a"])
    shared.call(old, "pause")
    assert shared.lists == ([], ["c"])
    assert shared.states("a", "b", "c") == ["unknown", "unknown", "waiting"]
    assert shared.hashes("a", "b") == [True] * 2


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_an_obliterate_leaves_hashes_behind(shared: Shared, old: str, new: str) -> None:
    shared.add(old, "a", "b")
    shared.call(old, "pause")
    shared.add(new, "c")
    shared.call(old, "obliterate", force=True)
    assert shared.lists == ([], [])
    assert shared.hashes("a", "b", "c") == [True, True, False]


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_one_filled_list_is_safe(shared: Shared, old: str, new: str) -> None:
    """Nothing is lost; but where BullMQ 6 paused nothing wakes an idle worker."""
    shared.add(new, "a", "b")
    shared.call(new, "pause")
    shared.call(old, "resume")
    assert (shared.lists, shared.marker) == ((["b", "a"], []), [])
    shared.call(old, "pause")
    shared.add(old, "c")
    assert shared.lists == ([], ["c", "b", "a"])
    shared.call(old, "resume")
    assert (shared.lists, shared.marker) == ((["c", "b", "a"], []), ["0"])


@pytest.mark.parametrize("old", OLD)
@pytest.mark.parametrize("new", NEW)
def test_a_resume_by_bullmq_6_loses_nothing(shared: Shared, old: str, new: str) -> None:
    shared.add(old, "a", "b")
    shared.call(old, "pause")
    shared.add(new, "c")
    shared.call(new, "pause")
    shared.call(new, "resume")
    assert (shared.lists, shared.marker) == ((["c", "b", "a"], []), ["0"])


@pytest.mark.parametrize("old", OLD)
def test_a_worker_begins_a_series_that_nobody_can_end(shared: Shared, home: Server, old: str) -> None:
    """BullMQ 6 ignores the option `repeat`, and stores it."""
    jobs = [{"name": "n", "data": {}, "opts": {"jobId": "a", "repeat": {"every": 50}}}]
    shared.call("node-6.7.0", "add", jobs=jobs)
    with shared.worker(old, home) as program:
        program.wait(lambda _: program.count("completed") >= 3, "the series")
    assert program.ids("completed")[0] == "a"
    assert all(name.startswith("repeat::") for name in program.ids("completed")[1:])
    assert shared.call(old, "schedulers") == []
    found = {each.check: each for each in examine(look(home.url, [shared.name])) if each.where != "server"}
    assert "repeat::" in found["unlisted-repeats"].problem
