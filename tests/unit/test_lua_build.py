"""The build of the Lua scripts, on small folders of its own and on the real one."""

import hashlib
import re
from pathlib import Path

import pytest

from bullmq_protocol.scripts._lua import OUR_SCRIPTS, SCRIPTS
from lua import build

HEAD = "--- keys: wait, meta\n--- args: id\n"


def write(root: Path, **files: str) -> Path:
    """Write files into a folder; an upper-case first letter makes an include."""
    (root / "includes").mkdir(exist_ok=True)
    for name, text in files.items():
        path = root / "includes" / f"{name.lower()}.lua" if name[0].isupper() else root / f"{name}.lua"
        path.write_text(text, encoding="utf-8")
    return root


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
        ({"command": HEAD + "return ARGV[2]\n"}, r"command: ARGV\[2\] is used, 1 are declared"),
        ({"command": "--- keys: one\nreturn 1\n"}, "command: the head must declare keys and args"),
        (
            {"command": HEAD + "--- include deep\nreturn 1\n", "Deep": "local deep = KEYS[12]\n"},
            r"command: KEYS\[12\] is used, 2 are declared",
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


def test_names_of_files_are_unique() -> None:
    includes = [path.stem for path in (build.ROOT / "includes").glob("*.lua")]
    assert not set(includes) & set(build.commands())


def test_every_include_is_used() -> None:
    files = list(build.ROOT.rglob("*.lua"))
    used = {
        name for path in files for name in re.findall(r"^--- (?:include|lazy) (\w+)", path.read_text(), re.MULTILINE)
    }
    assert {path.stem for path in files if path.parent.name == "includes"} == used


@pytest.mark.parametrize("name", [*build.commands(), *build.own()])
def test_what_a_command_uses_is_packed_before_it(name: str) -> None:
    definition = re.compile(r"^local (?:function )?(\w+)", re.MULTILINE)
    includes = [path.read_text() for path in (build.ROOT / "includes").glob("*.lua")]
    shared = {found for text in includes for found in definition.findall(text)}
    defined: set[str] = set()
    for line in build.packaged(name).splitlines():
        defined.update(definition.findall(line))
        used = re.findall(r"\b(\w+)\(|\b([A-Z]+_[A-Z]+)\b", line)
        assert {call or constant for call, constant in used} & shared <= defined, line


@pytest.mark.parametrize("name", [*build.commands(), *build.own()])
def test_the_module_holds_the_script(name: str) -> None:
    script = {**SCRIPTS, **OUR_SCRIPTS}[name]
    assert (script.name, script.source) == (name, build.packaged(name))
    assert script.sha1 == hashlib.sha1(script.source.encode()).hexdigest()
    assert script.keys == build.key_count(name)


def test_the_module_holds_exactly_the_commands() -> None:
    assert tuple(SCRIPTS) == build.commands()
    assert tuple(OUR_SCRIPTS) == build.own()
