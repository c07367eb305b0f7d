"""Our scripts of the relay do what those of BullMQ 6.7.0 do."""

from collections.abc import Iterator
from typing import Any

import pytest

from lua import build
from tests.oracle import relay
from tests.support import relay_vectors, servers
from tests.support.servers import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with servers.start(relay.KIND) as server:
        yield server


@pytest.fixture(scope="module")
def bench(server: Server) -> Iterator[relay.Bench]:
    bench = relay.Bench(server.host, server.port, relay.ours())
    yield bench
    bench.close()


def test_directed_cases(bench: relay.Bench) -> None:
    assert [found for name, steps in relay.CASES.items() if (found := bench.play(name, steps))] == []


def test_random_sequences(bench: relay.Bench) -> None:
    assert [found for number in range(60) if (found := bench.random(f"test/{number}"))] == []


def test_the_cases_reach_every_branch(server: Server) -> None:
    bench = relay.Bench(server.host, server.port, relay.counting())
    reached: set[str] = set()
    for name, steps in relay.CASES.items():
        assert bench.play(name, steps) is None
        reached |= bench.reached()
    bench.close()
    assert relay.marks() - reached == set()


@pytest.mark.deep
@pytest.mark.parametrize("name", build.apart("relay"))
def test_a_fault_is_noticed(server: Server, name: str) -> None:
    """The last value that a script returns is another one."""
    head, _, last = relay.ours()[name].rpartition("return ")
    bench = relay.Bench(server.host, server.port, {**relay.ours(), name: f"{head}return {{ {last.strip()}, 7 }}\n"})
    assert any(bench.play(case, steps) for case, steps in relay.CASES.items())
    bench.close()


def test_a_fault_in_what_is_written_is_noticed(server: Server) -> None:
    text = relay.ours()["relayHeartbeat"]
    assert "'hb', now" in text
    bench = relay.Bench(
        server.host, server.port, {**relay.ours(), "relayHeartbeat": text.replace("'hb', now", "'hb', 7")}
    )
    found = bench.play("a heartbeat", relay.CASES["a heartbeat"])
    bench.close()
    assert found is not None and set(found.theirs) == {f"{relay.B}:n1:node".encode()}


def test_the_vectors_are_what_the_scripts_do() -> None:
    cases = relay_vectors.load()
    steps = {case["title"]: [_asked(step) for step in case["steps"]] for case in cases}
    assert steps == relay.asked()
    done = relay.recorded()
    assert [case["title"] for case, each in zip(cases, done, strict=True) if relay_vectors.differs(case, each)] == []


def _asked(step: dict[str, Any]) -> dict[str, Any]:
    return {name: step[name] for name in step if name not in ("reply", "changed")}
