"""The rules by which `tools/mutants/lua.py` plants faults, and its list of those that change nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tools.mutants import lua

pytestmark = pytest.mark.any_python

TEXT = """--- include call

-- a comment: if x then
local function take(id, most)
  if id and most > 1 then
    call('DEL', id)
    call('XADD', id, '*', 'event',
      'a')
    return most + 1
  end
  size = not id
  return most
end
"""

PLANTED = {
    ("comparison", "if id and most > 1 then", "if id and most >= 1 then"),
    ("logic", "if id and most > 1 then", "if id or most > 1 then"),
    ("operand", "if id and most > 1 then", "if id  then"),
    ("operand", "if id and most > 1 then", "if  most > 1 then"),
    ("condition", "if id and most > 1 then", "if not (id and most > 1) then"),
    ("condition", "if id and most > 1 then", "if true then"),
    ("condition", "if id and most > 1 then", "if false then"),
    ("constant", "if id and most > 1 then", "if id and most > (2) then"),
    ("constant", "if id and most > 1 then", "if id and most > (0) then"),
    ("dropped", "call('DEL', id)", ""),
    ("dropped", "call('XADD', id, '*', 'event', 'a')", ""),
    (
        "order",
        "call('DEL', id) call('XADD', id, '*', 'event', 'a')",
        "call('XADD', id, '*', 'event', 'a') call('DEL', id)",
    ),
    ("arithmetic", "return most + 1", "return most - 1"),
    ("constant", "return most + 1", "return most + (2)"),
    ("constant", "return most + 1", "return most + (0)"),
    ("dropped", "return most + 1", ""),
    ("logic", "size = not id", "size =  id"),
    ("dropped", "size = not id", ""),
    ("dropped", "return most", ""),
}


def test_each_rule_plants_its_faults() -> None:
    found = list(lua.of_file("a.lua", TEXT))
    assert {(each.rule, each.line, each.becomes) for each in found} == PLANTED
    assert all(each.text != TEXT for each in found)


@pytest.mark.parametrize("number", [0, 5, 9])
def test_a_fault_changes_its_own_line_alone(number: int) -> None:
    fault = list(lua.of_file("a.lua", TEXT))[number]
    before, after = TEXT.splitlines(), fault.text.splitlines()
    changed = [at for at, (one, other) in enumerate(zip(before, after, strict=True), 1) if one != other]
    assert changed == [fault.number]


def test_every_script_is_read() -> None:
    found = lua.mutants()
    packed = {
        path for name in (*lua.build.commands(), *lua.build.own()) for path in lua.build.files_of(name, lua.build.ROOT)
    }
    files = {str(path.relative_to(lua.build.ROOT)) for path in packed}
    records = {f"includes/{name}.lua" for name in ("added_jobs", "adding_settings", "ended_jobs", "job_head")}
    arguments = {f"steps/{name}.lua" for name in ("end_event", "job_fields")}
    of_a_step = {"includes/release_unless_pending.lua"}
    bare = {"getMetrics.lua", "includes/call.lua", *records, *arguments, *of_a_step}
    assert files - {each.file for each in found} == bare
    assert len(found) > 5000


def test_a_script_of_ours_that_no_case_calls_is_named(tmp_path: Path) -> None:
    root = tmp_path / "lua"
    shutil.copytree(lua.build.ROOT, root)
    several = [lua.Test(frozenset({name}), lambda *_: None, False, "") for name in lua.build.own()]
    assert lua.uncalled(several, root) == []
    (root / "ours" / "newOne.lua").write_text("--- keys: wait\n--- args:\nreturn 1\n")
    assert lua.uncalled(several, root) == ["ours/newOne.lua"]


@pytest.mark.slow
def test_the_faults_of_a_profile_are_not_in_strict(tmp_path: Path) -> None:
    root = tmp_path / "lua"
    shutil.copytree(lua.build.ROOT, root)
    found = [each for each in lua.mutants(root, "6.7") if each.file == "changePriority.lua"]
    strict, blocks = lua.build.packaged("changePriority", root), lua.profiles.switches_of("6.7").chosen
    own = lua.build.packaged("changePriority", root, blocks)
    assert len(found) > 3
    changed = set()
    for fault in found:
        (root / fault.file).write_text(fault.text, encoding="utf-8")
        assert lua.build.packaged("changePriority", root) == strict
        changed.add(lua.build.packaged("changePriority", root, blocks))
    assert own not in changed


def test_a_listed_fault_is_found_by_its_text() -> None:
    fault = next(each for each in lua.of_file("a.lua", TEXT) if each.rule == "arithmetic")
    entry = {"file": "a.lua", "line": "return most + 1"}
    assert lua.listed(fault, [entry]) == [0]
    assert lua.listed(fault, [{**entry, "rule": "constant"}, {**entry, "becomes": "return most - 1"}]) == [1]
    assert lua.listed(fault, [{**entry, "file": "b.lua"}]) == []


def test_the_list_names_faults_and_reasons() -> None:
    entries = lua.tomllib.loads(Path(lua.EQUIVALENT).read_text(encoding="utf-8")).get("equivalent", [])
    found = lua.mutants()
    assert all(entry.keys() - {"rule", "becomes"} == {"file", "line", "why"} for entry in entries)
    used = {number for fault in found for number in lua.listed(fault, entries)}
    assert [entry for number, entry in enumerate(entries) if number not in used] == []
