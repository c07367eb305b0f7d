"""The golden vectors against our Lua, on every kind of server: start state, call, reply, end state, events."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bullmq_protocol.scripts._lua import SCRIPTS
from bullmq_protocol.scripts.profile import V5_81, V6_7, Profile
from lua import build
from tests.oracle.harness import COVERAGE, DUMP, Wire, error_class
from tests.support import servers, vectors

pytestmark = pytest.mark.any_python

DATABASE = 15


@pytest.fixture(scope="module", params=servers.kinds())
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    """Give a connection to a database of its own: every vector begins by emptying it."""
    with servers.start(request.param) as server:
        made = Wire(server.host, server.port)
        made.run([("SELECT", DATABASE)])
        yield made
        made.close()


def loaded(wire: Wire, text: str) -> str:
    sha: bytes = wire.run([("SCRIPT", "LOAD", text)])[0]
    return sha.decode()


def problems(wire: Wire, command: str, text: str, version: str = "5.62.0") -> list[str]:
    """Run all vectors of a command with a script; return what is not as recorded."""
    sha, dump = loaded(wire, text), loaded(wire, DUMP)
    found = []
    for vector in vectors.load(command, version):
        given, end, events = vectors.run(wire, sha, dump, vector)
        reply = vectors.reply(command, given, error_class(given) if isinstance(given, Exception) else "")
        found += [f"{vector['id']}: {each}" for each in vectors.differences(vector, reply, end, events)]
    return found


@pytest.mark.parametrize("command", vectors.scripts())
def test_our_script_does_what_was_recorded(wire: Wire, command: str) -> None:
    assert problems(wire, command, SCRIPTS[command].source) == []


@pytest.mark.parametrize(("profile", "version"), [(V5_81, "5.81.5"), (V6_7, "6.7.0")], ids=vectors.LATER)
def test_our_profiles_do_what_was_recorded(wire: Wire, profile: Profile, version: str) -> None:
    found = {
        command: problems(wire, command, profile.scripts[command].source, version)
        for command in vectors.of_version(version)
    }
    assert {command: each for command, each in found.items() if each} == {}


def test_the_vectors_reach_every_branch_of_our_scripts(wire: Wire) -> None:
    reached = set()
    for command in vectors.scripts():
        sha, dump = loaded(wire, build.instrumented(command, COVERAGE)), loaded(wire, DUMP)
        for vector in vectors.load(command):
            vectors.run(wire, sha, dump, vector)
            reached |= {mark.decode() for mark in wire.run([("HKEYS", COVERAGE)])[0]}
    assert {mark for command in build.commands() for mark in build.marks(command)} - reached == set()


def test_a_mistake_in_a_script_is_seen(wire: Wire) -> None:
    right = SCRIPTS["promote"].source
    wrong = right.replace("'prev', 'delayed'", "'prev', 'waiting'")
    assert right != wrong
    assert problems(wire, "promote", wrong) != []
