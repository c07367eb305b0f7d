"""Each planted fault is found: in an adapter by the client mode, in a script by the scripts mode."""

from collections.abc import Callable

import pytest

import bullmq_sync
from bullmq_conformance import scripts, search, vectors
from bullmq_conformance.program import Local
from bullmq_conformance.scripts import PROFILES
from bullmq_conformance.search import Arena
from bullmq_conformance.wire import Wire
from tests.conformance.conftest import local, url_of
from tests.conformance.faults import FAULTS, LUA_FAULTS, Fault, LuaFault, patched
from tests.support.servers import Server

pytestmark = pytest.mark.any_server
_OFTEN = 40


def _name(fault: Fault | LuaFault) -> str:
    return f"{fault[0]}: {fault.new}"[:60]


@pytest.mark.deep
@pytest.mark.parametrize("fault", FAULTS, ids=_name)
def test_a_fault_in_an_adapter_is_found(arena: Callable[..., Arena], fault: Fault) -> None:
    made = arena(Local(patched(fault)(bullmq_sync, PROFILES["5.62.0"], "threads").methods()))
    # The request comes more often than others: a run of usual length would take minutes for all faults.
    if fault.call in made.known:
        made.known[fault.call] = made.known[fault.call]._replace(weight=_OFTEN)
    found = search.first(made, seed=1, count=500, length=30)
    assert found is not None


def test_without_a_fault_nothing_is_found(arena: Callable[..., Arena]) -> None:
    assert search.first(arena(local("5.62.0")), seed=1, count=20, length=30) is None


@pytest.mark.deep
@pytest.mark.parametrize("fault", LUA_FAULTS, ids=_name)
def test_a_fault_in_a_script_is_found(server: Server, fault: LuaFault) -> None:
    text = PROFILES["5.62.0"].scripts[fault.command].source
    assert text.count(fault.old) >= 1
    wire = Wire.of_url(url_of(server))
    cases = list(scripts.run(wire, {fault.command: text.replace(fault.old, fault.new, 1)}, "5.62.0", partial=True))
    wire.close()
    assert len(cases) == len(vectors.own("5.62.0")[fault.command])
    assert not all(case.passed for case in cases)
