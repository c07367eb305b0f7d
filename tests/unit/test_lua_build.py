"""The build of the Lua scripts, on small folders of its own and on the real one."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bullmq_protocol.common.switches import FLEET_SWITCHES, STRICT_SWITCHES, V5_81_SWITCHES, V6_7_SWITCHES, Switches
from bullmq_protocol.scripts._lua import OUR_SCRIPTS, SCRIPTS
from bullmq_protocol.scripts._lua_later import LATER_SCRIPTS
from bullmq_protocol.scripts._lua_relay import RELAY_SCRIPTS
from lua import build

pytestmark = pytest.mark.any_python

ROOT = Path(__file__).parents[2]
HEAD = "--- keys: wait, meta\n--- args: id\n"
DEEP = "local count = 0\n"
USER = "--- include deep\nlocal function use()\n  count = count + 1\nend\n"
PROSE = re.compile(r"^ *--(?!- paste |-   ).*", re.MULTILINE)
"""Comments and directives, but those that paste: what they hand over is code."""


def write(root: Path, **files: str) -> Path:
    """Write files into a folder; an upper-case first letter makes an include, upper case throughout a step."""
    for folder in ("includes", "steps"):
        (root / folder).mkdir(exist_ok=True)
    for name, text in files.items():
        folder = root / "steps" if name.isupper() else root / "includes" if name[0].isupper() else root
        (folder / f"{name.lower() if folder != root else name}.lua").write_text(text, encoding="utf-8")
    return root


@pytest.mark.slow  # `make lint` looks, too
def test_the_packaged_form_is_not_stale() -> None:
    assert build.main(["--check"]) == 0


def test_a_stale_packaged_form_is_found_and_written_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write(tmp_path, command=HEAD + "return 1\n")
    target = tmp_path / "_lua.py"
    assert build.main(["--check"], root, target) == 1
    assert build.main([], root, target) == 0
    assert build.main(["--check"], root, target) == 0
    write(tmp_path, command=HEAD + "return 2\n")
    assert build.main(["--check"], root, target) == 1
    assert capsys.readouterr().err.count("_lua.py is stale") == 2
    (tmp_path / "_lua_switched.py").write_text("")
    assert build.main([], root, target) == 0
    (tmp_path / "_lua_switched.py").write_text("")
    assert build.main(["--check"], root, target) == 1
    assert "_lua_switched.py is stale" in capsys.readouterr().err


def test_later_commands_have_a_file_of_their_own(tmp_path: Path) -> None:
    """What BullMQ 5.62.0 does not have is in no mapping of `_lua.py`, and takes part in switches."""
    root = write(tmp_path, command=HEAD + "return 1\n")
    before = build.generate(root)
    (root / "later").mkdir()
    assert build.main([], root, target := tmp_path / "_lua.py") == 0
    assert not (tmp_path / "_lua_later.py").exists()
    (root / "later" / "newer.lua").write_text(
        "--- keys: key\n--- args:\n--- when waiting_layout v6\nreturn 2\n--- end\n"
    )
    assert (build.commands(root), build.apart("later", root)) == (("command",), ("newer",))
    assert build.every(root) == ("command", "newer")
    assert build.main(["--check"], root, target) == 1
    assert build.main([], root, target) == 0
    assert target.read_text() == before
    found: dict[str, Any] = {}
    exec((tmp_path / "_lua_later.py").read_text(), found)
    assert found["LATER_SCRIPTS"]["newer"] is found["NEWER"]
    assert (found["NEWER"].keys, found["NEWER"].source) == (1, "")
    exec((tmp_path / "_lua_switched.py").read_text(), found)
    assert list(found["COMMANDS"]) == ["newer"]


def test_a_changed_comment_does_not_make_it_stale(tmp_path: Path) -> None:
    root = write(tmp_path, command=HEAD + "-- one\nreturn 1\n")
    before = build.generate(root)
    write(tmp_path, command=HEAD + "-- another\n\n--@mark\nreturn 1\n")
    assert build.generate(root) == before


def test_a_wrong_argument_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert build.main(["--fix"]) == 2
    assert "Usage" in capsys.readouterr().err


def test_a_broken_folder_fails_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write(tmp_path, command="return 1\n")
    assert build.main([], root, tmp_path / "_lua.py") == 1
    assert "command: the head must declare keys and args" in capsys.readouterr().err
    assert not (tmp_path / "_lua.py").exists()


def test_includes_come_once_and_before_their_users(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        Leaf="local leaf = 1\n",
        Left="--- include leaf\nlocal left = leaf\n",
        Right="--- include leaf\nlocal right = leaf\n",
        Unused="local unused = 1\n",
        command=HEAD + "--- include right\n--- include left\nreturn left + right\n",
    )
    assert build.packaged("command", root).splitlines() == [
        "local leaf = 1",
        "local right = leaf",
        "local left = leaf",
        "return left + right",
    ]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"command": HEAD + "--- include nowhere\n"}, r"there is no includes/nowhere\.lua"),
        ({"command": HEAD + "--- inclde leaf\n"}, r"command\.lua:3: no directive: --- inclde leaf"),
        (
            {"command": HEAD + "--- include one\n", "One": "--- include two\n", "Two": "--- include one\n"},
            "includes in a circle: command -> one -> two -> one",
        ),
        ({"command": HEAD + "--@same\nlocal a = 1\n--@same\n"}, r"command\.lua:5: the mark same is there already"),
        ({"command": HEAD + "--@two words\n"}, r"command\.lua:3: a mark is letters, digits and hyphens"),
        ({"command": HEAD + "return 1 -- one\n"}, r"command\.lua:3: -- is not supported in a code line"),
        ({"command": HEAD + "return '--'\n"}, r"command\.lua:3: -- is not supported in a code line"),
        ({"command": HEAD + "return [[one]]\n"}, r"command\.lua:3: \[\[ is not supported in a code line"),
        ({"command": HEAD + "return KEYS[3]\n"}, r"command: KEYS\[3\] is used, 2 are declared"),
        (
            {"command": HEAD + "--- when two\n--- else\n--- elsewhen one\n--- end\n"},
            r"command\.lua:5: --- elsewhen one where no block is open, or after its else",
        ),
        ({"command": HEAD + "--- else\n"}, r"command\.lua:3: --- else where no block is open, or after its else"),
        ({"command": HEAD + "--- end\n"}, r"command\.lua:3: --- end where no block is open, or after its else"),
        ({"command": HEAD + "--- when two\n--- when one\n--- end\n"}, r"command\.lua:3: the block has no end"),
        ({"command": HEAD + "--- when one two\n--- end\n"}, r"command\.lua:3: one is no switch"),
        ({"command": HEAD + "--- when Two\n"}, r"command\.lua:3: no directive: --- when Two"),
        ({"command": HEAD + "return ARGV[2]\n"}, r"command: ARGV\[2\] is used, 1 are declared"),
        ({"command": "--- keys: one\nreturn 1\n"}, "command: the head must declare keys and args"),
        (
            {"command": HEAD + "--- include deep\nreturn 1\n", "Deep": "local deep = KEYS[12]\n"},
            r"command: KEYS\[12\] is used, 2 are declared",
        ),
        ({"command": HEAD + "return KEYS.pc\n"}, r"command\.lua:3: KEYS\.pc is not declared"),
        ({"command": HEAD + "return ARGV.wait\n"}, r"command\.lua:3: ARGV\.wait is not declared"),
        ({"command": "--- keys: two words\n--- args:\n"}, r"command\.lua:1: 'two words' can be no name of KEYS here"),
        ({"command": "--- keys: repeat\n--- args:\n"}, r"command\.lua:1: 'repeat' can be no name of KEYS here"),
        ({"command": "--- keys: a\n--- args: b, b\n"}, r"command\.lua:2: 'b' can be no name of ARGV here"),
        ({"command": "--- keys: a\n--- args: b ..., c\n"}, r"command\.lua:2: 'c' can be no name of ARGV here"),
        (
            {"command": HEAD + "--- include deep\nreturn 1\n", "Deep": "local deep = KEYS.wait\n"},
            r"deep\.lua:1: KEYS\.wait is not among what the include needs",
        ),
        (
            {"command": HEAD + "--- include deep\nreturn 1\n", "Deep": "--- needs: KEYS.wait, ARGV.now\n"},
            r"command: deep needs ARGV\.now, which the head does not declare",
        ),
        (
            {"command": HEAD + "--- lazy deep: deep\nreturn 1\n", "Deep": "--- needs: KEYS.pc\nlocal deep = 1\n"},
            r"command: deep needs KEYS\.pc, which the head does not declare",
        ),
        (
            {"command": HEAD + "--- record row: id id\n"},
            r"command\.lua:3: the record row is there already, or a field twice",
        ),
        (
            {"command": HEAD + "--- record row: id size\n"},
            r"command\.lua:3: the record row is there already, or a field twice",
        ),
        (
            {"command": HEAD + "--- include deep\n--- record row: id\n", "Deep": "--- record row: id\n"},
            r"command\.lua:4: the record row is there already, or a field twice",
        ),
        ({"command": HEAD + "--- record row: id\nreturn row.of\n"}, r"command\.lua:4: the record row has no field of"),
        ({"command": HEAD + "--- paste gone()\n"}, r"there is no steps/gone\.lua"),
        ({"command": HEAD + "--- paste ADD\n"}, r"command\.lua:3: no directive: --- paste ADD"),
        (
            {"command": HEAD + "--- paste add(\n", "ADD": "--- step:\n"},
            r"command\.lua:3: no directive: --- paste add\(",
        ),
        (
            {"command": HEAD + "--- paste add()\n", "ADD": "return 1\n"},
            r"add\.lua: a step says once what its parameters are",
        ),
        (
            {"command": HEAD + "--- paste add(b)\n", "ADD": "--- step: a\nreturn 1\n"},
            r"command\.lua:3: the parameters of add are a",
        ),
        (
            {"command": HEAD + "--- paste add()\n", "ADD": "--- step: a\nreturn a\n"},
            r"command\.lua:3: the parameters of add are a",
        ),
        (
            {"command": HEAD + "--- paste add(a = b + 1)\n", "ADD": "--- step: a\nreturn a * 2\n"},
            r"command\.lua:3: a is there already, or needs brackets: b \+ 1",
        ),
        (
            {"command": HEAD + "--- paste add(a, a = b)\n", "ADD": "--- step: a\nreturn a * 2\n"},
            r"command\.lua:3: a is there already, or needs brackets: b",
        ),
        (
            {"command": HEAD + "--- paste add(a)\n", "ADD": "--- step: a\n--- include deep\n", "Deep": ""},
            r"add\.lua:2: no directive: --- include deep",
        ),
        (
            {"command": HEAD + "--- paste add(a)\n", "ADD": "--- step: a\nreturn a .. KEYS.wait\n"},
            r"add\.lua:2: KEYS\.wait is not among what the include needs",
        ),
        (
            {"command": HEAD + "--- paste add(a)\n", "ADD": "--- step: a\n--- needs: KEYS.pc\nreturn a\n"},
            r"command: add needs KEYS\.pc, which the head does not declare",
        ),
        (
            {"command": HEAD + "--- paste add(a)\n", "ADD": "--- step: a\n--- paste add(a)\n"},
            r"add\.lua:2: add is pasted into itself",
        ),
        (
            {"command": HEAD + "--- include deep\n", "Deep": "--- step: a\nreturn a\n"},
            r"deep\.lua:1: a step is no include",
        ),
        (
            {"command": HEAD + "--- include deep\n", "Deep": "--- flags: batch\n"},
            r"deep\.lua:1: a command declares keys and args, an include needs them",
        ),
        ({"command": HEAD + "  --- unless batch\nreturn 1\n"}, r"command\.lua:3: the block has no end"),
        (
            {
                "command": HEAD + "--- lazy user: use\n--- lazy other: use\nload_user()\n",
                "User": USER,
                "Other": USER,
                "Deep": DEEP,
            },
            "command: deep keeps count, and is made twice",
        ),
        (
            {"command": HEAD + "--- lazy user: use\nfor _ = 1, 2 do\n  load_user()\nend\n", "User": USER, "Deep": DEEP},
            "command: deep keeps count, and user may be loaded again",
        ),
        (
            {
                "command": HEAD + "--- include other\n",
                "Other": "--- lazy user: use\nload_user()\n",
                "User": USER,
                "Deep": DEEP,
            },
            "command: deep keeps count, and user may be loaded again",
        ),
        (
            {"command": HEAD + "--- include deep\nreturn 1\n", "Deep": "--- keys: wait\n"},
            r"deep\.lua:1: a command declares keys and args, an include needs them",
        ),
    ],
)
def test_a_broken_rule_is_named(tmp_path: Path, files: dict[str, str], message: str) -> None:
    root = write(tmp_path, **files)
    with pytest.raises(build.BuildError, match=f"^{message}$"):
        build.generate(root)


def test_keys_are_counted_over_all_lines_of_the_head(tmp_path: Path) -> None:
    root = write(tmp_path, command="--- keys: a, b\n--- keys: c\n--- args: names ...\nreturn KEYS[3] .. ARGV[9]\n")
    assert build.key_count("command", root) == 3


def test_the_packaged_form_is_the_code_without_the_rest(tmp_path: Path) -> None:
    code = "local text = 'a - b'\nif text then\n  return text\nend\n"
    marked = "-- why\nlocal text = 'a - b'\n\n--@always\nif text then\n  --@text\n  -- because\n  return text\nend\n"
    root = write(tmp_path, command=HEAD + marked)
    assert build.packaged("command", root) == code


def test_marks_count_where_they_stand(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        Leaf="--@entry\nlocal leaf = 1\n",
        command=HEAD + "--- include leaf\nif leaf then\n  --@yes\n  return 1\nend\n",
    )
    assert build.marks("command", root) == ("leaf:entry", "command:yes")
    assert build.instrumented("command", "~cov", root).splitlines() == [
        "redis.call('HINCRBY', '~cov', 'leaf:entry', 1)",
        "local leaf = 1",
        "if leaf then",
        "redis.call('HINCRBY', '~cov', 'command:yes', 1)",
        "  return 1",
        "end",
    ]


def test_a_coverage_key_that_is_no_plain_key_is_refused() -> None:
    with pytest.raises(build.BuildError, match="no plain key"):
        build.instrumented("pause", "it's")


def test_a_lazy_include_is_made_where_it_is_called(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        Base="local base = 1\n",
        Rest="--@rest\nlocal rest = base\n",
        Late="--- include base\n--- include rest\n--- include after\nlocal function late()\n  return rest\nend\n",
        After="local after = 2\n",
        Early="--- include base\n--- lazy late: late\nlocal early = load_late()\n",
        command=HEAD + "--- include early\n--- include after\nreturn early() + after\n",
    )
    assert build.packaged("command", root).splitlines() == [
        "local base = 1",
        "local function load_late()",
        "local rest = base",
        "local after = 2",
        "local function late()",
        "  return rest",
        "end",
        "return late",
        "end",
        "local early = load_late()",
        "local after = 2",
        "return early() + after",
    ]
    assert build.marks("command", root) == ("rest:rest",)


BLOCKS = """--- keys: wait
--- when waiting_layout adaptive v6
--- keys: meta
--- end
--- args: id
--- include leaf
--- when waiting_layout v6
--@left
return left(KEYS.meta)
--- elsewhen reschedule
  --- unless waiting_layout v5
both()
  --- else
--@right
right()
  --- end
--- else
return KEYS.wait
--- end
"""


def chosen(**changed: Any) -> frozenset[str]:
    return Switches(**changed).chosen


def test_a_block_is_there_for_its_values_alone(tmp_path: Path) -> None:
    leaf = "--- when waiting_layout v6\nlocal left = tostring\n--- end\n"
    root = write(tmp_path, command=BLOCKS, plain=HEAD + "return 1\n", Leaf=leaf)
    v6, adaptive = chosen(waiting_layout="v6"), chosen(waiting_layout="adaptive", reschedule=True)
    right = chosen(reschedule=True)
    assert build.packaged("command", root) == "return KEYS[1]\n"
    assert build.packaged("command", root, v6) == "local left = tostring\nreturn left(KEYS[2])\n"
    assert build.packaged("command", root, adaptive) == "both()\n"
    assert build.packaged("command", root, right) == "right()\n"
    assert build.packaged("command", root, chosen(text_ids=True)) == build.packaged("command", root)
    assert [build.key_count("command", root, each) for each in (build.STRICT, v6, adaptive, right)] == [1, 2, 2, 1]
    assert [build.marks("command", root, each) for each in (build.STRICT, v6, right)] == [
        *((), ("command:left",), ("command:right",)),
    ]
    assert "HINCRBY" in build.instrumented("command", "~cov", root, v6)
    assert build.switches("command", root) == {"waiting_layout", "reschedule"}
    assert build.switches("plain", root) == frozenset()
    assert "KEYS[2]" not in build.generate(root)


def test_one_of_several_conditions_is_enough(tmp_path: Path) -> None:
    text = "--- when reschedule or waiting_layout adaptive v6 or batch\none()\n--- end\n"
    text += "--- unless reschedule or waiting_layout adaptive\nnone()\n--- end\n"
    root = write(tmp_path, command=HEAD + text, several=HEAD + "--- flags: batch\n" + text)
    packed = [build.packaged("command", root, each) for each in (build.STRICT, chosen(reschedule=True))]
    assert packed == ["none()\n", "one()\n"]
    assert build.packaged("command", root, chosen(waiting_layout="v6")) == "one()\nnone()\n"
    assert build.packaged("several", root) == "one()\nnone()\n"
    assert build.switches("command", root) == {"reschedule", "waiting_layout"}


def test_a_switch_is_on_or_has_a_value(tmp_path: Path) -> None:
    text = "--- when age_retention_limit\nlimit()\n--- end\n--- unless debounced_event\nnone()\n--- end\nreturn\n"
    root = write(tmp_path, command=HEAD + text)
    assert build.packaged("command", root) == "return\n"
    assert build.packaged("command", root, chosen(age_retention_limit=1000, debounced_event=False)).splitlines() == [
        *("limit()", "none()", "return"),
    ]


def test_the_module_of_switches_has_the_blocks(tmp_path: Path) -> None:
    step = "--- step: id\n--- when counted\ncount(id)\n--- elsewhen reschedule\nmove(id)\n--- else\nnone(id)\n--- end\n"
    leaf = (
        "--- needs: KEYS.meta\n-- why\n--- record row: a b\n--- when reschedule\n--- include more\n--- end\n"
        "--- when batch\n--@why\nleaf(KEYS.meta, row.b)\n--- end\n"
    )
    command = (
        "--- keys: wait, meta (a hash)\n--- flags: batch\n--- args: id (why), rest ...\n--- include leaf\n"
        "--- lazy lone: lone\n"
        "if one then\n  --- paste count(id = ARGV.id) with counted\n  --- paste count(id = one)\nend\n"
    )
    root = write(tmp_path, command=command, plain=HEAD + "return 1\n", Leaf=leaf, Lone="lone()\n", More="", COUNT=step)
    found: dict[str, Any] = {}
    exec(build.generate_switched(root), found)
    assert {name: text.splitlines() for name, text in found["COMMANDS"].items()} == {
        "command": [
            *(
                "--- keys: wait meta",
                "--- flags: batch",
                "--- args: id rest",
                "--- include leaf",
                "--- lazy lone: lone",
            ),
            *("if one then", "  count(ARGV.id)", "--- when reschedule", "  move(one)"),
            *("--- else", "  none(one)", "--- end", "end"),
        ],
    }
    assert found["INCLUDES"] == {
        "leaf": "--- when reschedule\n--- include more\n--- end\n--- when batch\nleaf(KEYS.meta, row[2])\n--- end\n",
        "lone": "lone()\n",
        "more": "",
    }


def test_what_is_known_of_a_kept_block_is_left_out(tmp_path: Path) -> None:
    step = (
        "--- step:\n--- when reschedule\none()\n--- elsewhen known\n--- unless known\nnone()\n--- elsewhen text_ids\n"
        "two()\n--- end\n--- elsewhen batch\nnone()\n--- end\n--- when other\nnone()\n--- elsewhen batch\nthree()\n"
        "--- end\n"
    )
    head = HEAD + "--- flags: batch\n"
    root = write(tmp_path, command=head + "--- paste both() with known\n", BOTH=step)
    found: dict[str, Any] = {}
    exec(build.generate_switched(root), found)
    assert found["COMMANDS"]["command"].splitlines()[3:] == [
        *("--- when reschedule", "one()", "--- else", "--- when text_ids", "two()", "--- end", "--- end"),
        *("--- when batch", "three()", "--- end"),
    ]


def test_a_step_is_pasted_with_values_for_its_parameters(tmp_path: Path) -> None:
    step = (
        "--- step: job, id, events, count\n--- needs: KEYS.meta\n-- why\n--@always\n"
        "call('XADD', events, 'id', id, job .. ':lock', row.job, KEYS.meta)\n"
        "--- when counted\ncount = count + 1\n--- else\n--@uncounted\nnone()\n--- end\n"
    )
    command = (
        "--- record heads: id token\nlocal function begin(row, id)\n  --- paste start(job = (base .. id), id,\n"
        "  ---   events = KEYS.wait, count = counts['a, b'][1]) with counted\nend\n"
        "if one(\n  --- paste both(heads[at].id)\n) then\n"
        "  --- paste start(job, id = heads[at].id, events)\nend\n"
    )
    both = "--- step: id\nid == 'id' and\n  --- paste last(other = id)\n"
    command = command.replace("both(heads[at].id)", "both(id = heads[at].id)")
    root = write(tmp_path, START=step, BOTH=both, LAST="--- step: other\n--@last\nother\n", command=HEAD + command)
    assert build.packaged("command", root).splitlines() == [
        "local function begin(row, id)",
        "  call('XADD', KEYS[1], 'id', id, (base .. id) .. ':lock', row.job, KEYS[2])",
        "  counts['a, b'][1] = counts['a, b'][1] + 1",
        "end",
        "if one(",
        "  heads[at - 1] == 'id' and",
        "    heads[at - 1]",
        ") then",
        "  call('XADD', events, 'id', heads[at - 1], job .. ':lock', row.job, KEYS[2])",
        "  none()",
        "end",
    ]
    assert build.marks("command", root) == (
        *("command:start-always", "command:both-last-last", "command:start-always", "command:start-uncounted"),
    )
    assert {path.stem for path in build.files_of("command", root)} == {"command", "start", "both", "last"}


def test_a_flag_of_the_command_takes_blocks_in_all_that_is_packed(tmp_path: Path) -> None:
    text = "--- include deep\nlocal function go()\n  --- when batch\n  one()\n  --- else\n  two()\n  --- end\nend\n"
    root = write(
        tmp_path,
        Deep="--- when batch\n--- include more\n--- end\n--- unless batch\nlocal one\n--- else\nlocal both\n--- end\n",
        More="local more\n",
        alone=HEAD + text,
        several=HEAD + "--- flags: batch, other\n" + text,
    )
    assert build.packaged("alone", root).splitlines() == ["local one", "local function go()", "  two()", "end"]
    several = ["local more", "local both", "local function go()", "  one()", "end"]
    assert build.packaged("several", root).splitlines() == several
    assert build.switches("several", root) == frozenset()


def test_an_include_with_a_state_is_made_once(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        Deep=DEEP,
        User=USER,
        early=HEAD + "--- include deep\n--- lazy user: use\nfor _ = 1, 2 do\n  load_user()\nend\n",
        once=HEAD + "--- lazy user: use\nif one then\n  load_user()\nend\n",
    )
    assert build.packaged("early", root).count("local count") == 1
    assert build.packaged("once", root).count("local count") == 1


def test_each_flag_that_is_asked_for_is_set_somewhere() -> None:
    texts = [path.read_text() for path in build.ROOT.rglob("*.lua")]
    bounds = (build.BOUND.fullmatch(line.strip()) for text in texts for line in text.splitlines())
    asked = {name for match in bounds if match for name, *_ in build.asked(match[2] or "")} - build.NAMES
    listed = [found for text in texts for found in re.findall(r"(?:--- flags:|\) with) (.*)", text)]
    assert asked == {flag for found in listed for flag in found.split(", ")}


def test_lines_are_short() -> None:
    long = [path.name for path in build.ROOT.rglob("*.lua") if max(map(len, path.read_text().splitlines())) > 120]
    assert long == []


def test_a_block_may_not_use_what_its_head_does_not_declare(tmp_path: Path) -> None:
    root = write(tmp_path, command=HEAD + "--- when waiting_layout v6\nreturn KEYS[3]\n--- end\n")
    with pytest.raises(build.BuildError, match=r"command: KEYS\[3\] is used, 2 are declared"):
        build.generate_switched(root)


def test_names_of_the_head_become_positions(tmp_path: Path) -> None:
    head = "--- keys: wait (list, or set), meta\n--- keys: pc\n--- args: id, now\n--- args: states (any, all) ...\n"
    root = write(
        tmp_path,
        Deep="--- needs: KEYS.pc, ARGV.now\nlocal deep = { KEYS.pc, ARGV.now }\n",
        command=head + "--- include deep\nreturn { KEYS.wait, ARGV.id, MYKEYS.id, ARGV.states, ARGV[9] }\n",
        other="--- keys: pc\n--- args: now\n--- include deep\nreturn KEYS.pc\n",
    )
    assert build.packaged("command", root).splitlines() == [
        "local deep = { KEYS[3], ARGV[2] }",
        "return { KEYS[1], ARGV[1], MYKEYS.id, ARGV[3], ARGV[9] }",
    ]
    assert build.packaged("other", root).splitlines() == ["local deep = { KEYS[1], ARGV[1] }", "return KEYS[1]"]
    assert build.key_count("command", root) == 3


def test_fields_of_records_become_numbers(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        Rows="--- record rows: id token now\n--- record sent of ARGV: kind data\n",
        Deep="--- include rows\nlocal function second(rows)\n  return rows.token\nend\n",
        command=HEAD
        + "--- include deep\nfor at = 3, #rows, rows.size do\n"
        + "  call(rows[at].id, rows[at].token, rows[at].now, rows.now, rows.err, other.rows.id)\n"
        + "  call(sent[at].kind, sent[at].data, sent.data, other.id, rows[at + 1].id)\nend\n",
    )
    assert build.packaged("command", root).splitlines() == [
        "local function second(rows)",
        "  return rows[2]",
        "end",
        "for at = 3, #rows, 3 do",
        "  call(rows[at - 2], rows[at - 1], rows[at], rows[3], rows.err, other.rows.id)",
        "  call(ARGV[at - 1], ARGV[at], ARGV[2], other.id, rows[at + 1].id)",
        "end",
    ]


def test_records_are_known_where_their_fields_are_used() -> None:
    records = re.compile(r"^--- record (\w+)(?: of ARGV)?: (.*)$", re.MULTILINE)
    texts = {path.stem: path.read_text() for path in build.ROOT.rglob("*.lua")}
    declared = [found for text in texts.values() for found in records.findall(text)]
    fields = {
        table: {name for other, names in declared if other == table for name in names.split()} for table, _ in declared
    }

    def known(stem: str) -> set[str]:
        own = {table for table, _ in records.findall(texts[stem])}
        return own.union(*map(known, re.findall(r"^--- include (\w+)", texts[stem], re.MULTILINE)))

    def used(stem: str) -> set[str]:
        """Return what a file, or a step that it pastes, uses; a parameter is what is handed over."""
        code = PROSE.sub("", texts[stem])
        found = {table for table, _, field in build.FIELD.findall(code) if field in fields.get(table, ())}
        found = found.union(*map(used, re.findall(r"^ *--- paste (\w+)", texts[stem], re.MULTILINE)))
        step = build.STEP.match(texts[stem])
        return found - set(step[1].replace(",", "").split()) if step else found

    for path in build.ROOT.rglob("*.lua"):
        assert path.parent.name == "steps" or used(path.stem) <= known(path.stem), path.name


def test_no_position_is_written_manually() -> None:
    texts = {path.name: path.read_text() for path in build.ROOT.rglob("*.lua")}
    assert [name for name, text in texts.items() if re.search(r"\b(KEYS|ARGV)\[\d", text)] == []


def test_what_is_needed_is_used() -> None:
    for path in build.ROOT.rglob("*.lua"):
        directives = re.findall(r"^--- needs: (.*)", text := path.read_text(), re.MULTILINE)
        needed = [name for line in directives for name in line.split(", ")]
        used = re.findall(r"\b(?:KEYS|ARGV)\.\w+", PROSE.sub("", text))
        assert not needed or sorted(needed) == sorted(set(used)), path.name


def test_names_of_files_are_unique() -> None:
    includes = [path.stem for path in (build.ROOT / "includes").glob("*.lua")]
    assert not set(includes) & set(build.every())
    assert len(build.every()) == len(set(build.every()))


def test_every_include_is_used() -> None:
    files = list(build.ROOT.rglob("*.lua"))
    used = {
        name
        for path in files
        for name in re.findall(r"^ *--- (?:include|lazy|paste) (\w+)", path.read_text(), re.MULTILINE)
    }
    assert {path.stem for path in files if path.parent.name in ("includes", "steps")} == used


@pytest.mark.parametrize(
    "switches",
    [STRICT_SWITCHES, FLEET_SWITCHES, V6_7_SWITCHES, V5_81_SWITCHES],
    ids=["strict", "fleet", "6.7", "5.81"],
)
def test_what_a_command_uses_is_packed_before_it(switches: Switches) -> None:
    definition = re.compile(r"^local (?:function )?(\w+)", re.MULTILINE)
    includes = [path.read_text() for path in (build.ROOT / "includes").glob("*.lua")]
    shared = {found for text in includes for found in definition.findall(text)}
    with build.reading():
        for name in build.every():
            defined: set[str] = set()
            for line in build.packaged(name, chosen=switches.chosen).splitlines():
                defined.update(definition.findall(line))
                used = re.findall(r"\b(\w+)\(|\b([A-Z]+_[A-Z]+)\b", line)
                assert {call or constant for call, constant in used} & shared <= defined, line


def test_what_was_read_is_forgotten_at_the_end(tmp_path: Path) -> None:
    root = write(tmp_path, command=HEAD + "return 1\n")
    with build.reading():
        assert build.packaged("command", root) == "return 1\n"
        write(tmp_path, command=HEAD + "return 2\n")
        with build.reading():
            assert build.packaged("command", root) == "return 1\n"
        assert build.packaged("command", root) == "return 1\n"
    assert build.packaged("command", root) == "return 2\n"


@pytest.mark.parametrize("name", build.every())
def test_the_module_holds_the_script(name: str) -> None:
    script = {**SCRIPTS, **OUR_SCRIPTS, **LATER_SCRIPTS, **RELAY_SCRIPTS}[name]
    assert (script.name, script.source) == (name, build.packaged(name))
    assert script.sha1 == hashlib.sha1(script.source.encode()).hexdigest()
    assert script.keys == build.key_count(name)


def test_the_module_holds_exactly_the_commands() -> None:
    assert tuple(SCRIPTS) == build.commands()
    assert tuple(OUR_SCRIPTS) == build.own()
    assert tuple(LATER_SCRIPTS) == build.apart("later")
    assert tuple(RELAY_SCRIPTS) == build.apart("relay")


def test_scripts_are_built_for_a_command_that_names_one_not_built_yet(tmp_path: Path) -> None:
    """The package cannot be imported then."""
    package, lua = tmp_path / "bullmq_protocol", tmp_path / "lua"
    shutil.copytree(ROOT / "lua", lua, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "bullmq_protocol", package, ignore=shutil.ignore_patterns("__pycache__"))
    (lua / "ours" / "newOne.lua").write_text(
        "--- keys: wait\n--- args: id\n--- include call\n\nreturn call('LLEN', KEYS.wait)\n"
    )
    with (package / "commands" / "queues.py").open("a") as file:
        file.write("from bullmq_protocol.scripts._lua import NEW_ONE  # noqa\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, str(lua / "build.py")], check=True, env=environment)
    assert "NEW_ONE" in (package / "scripts" / "_lua.py").read_text(encoding="utf-8")
    subprocess.run([sys.executable, str(lua / "build.py"), "--check"], check=True, env=environment)
