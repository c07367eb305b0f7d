"""What a run of planted faults keeps for the next (`tools/mutants/kept.py`), and what that one does again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tools.mutants import lua
from tools.mutants.kept import Kept, digest

pytestmark = pytest.mark.any_python

FAULT = next(lua.of_file("a.lua", "if a then\n  call('DEL', 'b')\nend\n"))


def test_a_run_that_was_cut_off_goes_on_where_it_stopped(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "mutants" / "lua.jsonl")
    kept.keep("one", "killed", by="t1")
    kept.keep("two", "survived", asked={"t1", "t2"})
    kept.keep("three", "broken")
    kept.keep("four", "survived", asked={"t1", "t2"})
    with (tmp_path / "mutants" / "lua.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"fault": "five", "outco')
    again = Kept(tmp_path / "mutants" / "lua.jsonl")
    again.keep("six", "same")
    for each in (again, Kept(tmp_path / "mutants" / "lua.jsonl")):
        outcomes = [each.of(fault, {"t1", "t2"}).outcome for fault in ("one", "two", "three", "four", "five", "six")]
        assert outcomes == ["killed", "survived", "broken", "survived", None, "same"]
        assert each.of("one", {"t1", "t2"}).by == "t1"


def test_what_was_noticed_is_tested_again_when_its_test_is_gone(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "lua.jsonl")
    kept.keep("one", "killed", by="t1")
    assert kept.of("one", {"t1", "t3"}).outcome == "killed"
    assert kept.of("one", {"t2"}) == (None, frozenset(), "")


def test_what_survived_is_tested_by_what_is_new(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "lua.jsonl")
    kept.keep("one", "survived", asked={"t1", "t2"})
    assert kept.of("one", {"t1"}).outcome == "survived"
    assert kept.of("one", {"t1", "t2", "t3"}) == (None, {"t1", "t2"}, "")
    kept.keep("one", "killed", by="t3")
    assert kept.of("one", {"t1", "t2", "t3"}).by == "t3"


def test_a_fresh_run_forgets(tmp_path: Path) -> None:
    Kept(tmp_path / "lua.jsonl").keep("one", "broken")
    assert Kept(tmp_path / "lua.jsonl", fresh=True).of("one", ()).outcome is None
    assert Kept(tmp_path / "lua.jsonl").of("one", ()).outcome is None


def test_a_changed_file_repeats_its_own_faults() -> None:
    assert FAULT.digest == next(lua.of_file("a.lua", FAULT.right)).digest
    elsewhere = replace(FAULT, text=f"{FAULT.text}--\n", right=f"{FAULT.right}--\n")
    assert len({FAULT.digest, elsewhere.digest, replace(FAULT, file="b.lua").digest}) == 3


@pytest.mark.deep
@pytest.mark.slow
def test_tests_are_known_by_what_they_do_and_how_they_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    # A few of each kind.
    monkeypatch.setattr(lua, "STATES", 60)
    monkeypatch.setattr(lua, "BATCHES", 30)
    found = lua.tests()
    digests = {test.digest for test in found}
    assert len(digests) == len(found)
    assert {test.digest for test in lua.tests()} == digests
    monkeypatch.setattr(lua, "same", lua.loosely)
    assert digests.isdisjoint(test.digest for test in lua.tests())


class _Runner(lua.Runner):
    """No server: it notes which tests were asked about a fault."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def load(self, text: str) -> str:
        return lua.hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _asking(name: str, notices: bool) -> lua.Test:
    def run(runner: lua.Runner, names: lua.Names) -> lua.Seen:
        assert isinstance(runner, _Runner)
        if names["releaseLock"] != RIGHT:
            runner.asked.append(name)
        return (("releaseLock", notices and names["releaseLock"] != RIGHT, ("state", []), 1),)

    return lua.Test(frozenset({"releaseLock"}), run, counted=False, digest=digest(name))


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.parametrize(("noticing", "outcome"), [(False, "survived"), (True, "killed")])
def test_what_changes_beside_the_scripts_is_not_the_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noticing: bool, outcome: str
) -> None:
    fault = next(each for each in lua.mutants() if each.file == "releaseLock.lua")
    order = "ab"

    def run(runner: lua.Runner, names: lua.Names) -> lua.Seen:
        return (("releaseLock", [*order, noticing and names["releaseLock"] != RIGHT], ("state", []), 1),)

    monkeypatch.setattr(
        lua, "tests", lambda _profile: [lua.Test(frozenset({"releaseLock"}), run, counted=False, digest=digest("one"))]
    )
    ground = lua.Field(_Runner(), Kept(tmp_path / "lua.jsonl"))
    try:
        order = "ba"
        assert ground.plant(fault) == outcome
    finally:
        ground.close()


RIGHT = lua.hashlib.sha1(lua.build.packaged("releaseLock").encode(), usedforsecurity=False).hexdigest()


@pytest.mark.deep
@pytest.mark.slow
def test_the_tests_are_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = next(each for each in lua.mutants() if each.file == "releaseLock.lua")
    known = [_asking("first", notices=False)]
    monkeypatch.setattr(lua, "tests", lambda _profile: list(known))

    def plant() -> tuple[str, list[str]]:
        runner = _Runner()
        ground = lua.Field(runner, Kept(tmp_path / "lua.jsonl"))
        try:
            return ground.plant(fault), runner.asked
        finally:
            ground.close()

    assert plant() == ("survived", ["first"])
    assert plant() == ("survived", [])
    known.append(_asking("second", notices=True))
    assert plant() == ("killed", ["second"])
    assert plant() == ("killed", [])
    known.pop()
    assert plant() == ("survived", ["first"])
