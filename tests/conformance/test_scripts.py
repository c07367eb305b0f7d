"""The scripts mode: our own scripts are as the vectors say, and what is said of those that are not."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from bullmq_conformance import report, scripts, vectors
from bullmq_conformance.__main__ import main
from bullmq_conformance.wire import Wire
from bullmq_protocol.errors import UsageError
from tests.conformance.conftest import url_of
from tests.support.servers import Server


def run(server: Server, folder: Path, version: str, *options: str) -> tuple[int, str]:
    command = ["scripts", str(folder), "--version", version, "--redis", url_of(server), *options]
    done = CliRunner().invoke(main, command)
    return done.exit_code, done.output


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two small scripts of ours, of which one is as it should be."""
    made = tmp_path / "lua"
    scripts.write_scripts(made, "5.62.0")
    for file in made.iterdir():
        if file.stem not in ("promote", "pause"):
            file.unlink()
    wrong = made / "promote.lua"
    wrong.write_text(wrong.read_text().replace("'prev', 'delayed'", "'prev', 'waiting'"))
    wrong.rename(made / "promote-9.lua")
    return made


@pytest.mark.parametrize("version", vectors.VERSIONS)
def test_our_scripts_of_a_version_are_as_expected(server: Server, tmp_path: Path, version: str) -> None:
    assert CliRunner().invoke(main, ["lua", str(tmp_path), "--version", version]).exit_code == 0
    code, text = run(server, tmp_path, version)
    count = sum(1 for _ in vectors.of_version(version))
    assert (code, text.splitlines()[-1]) == (0, f"{count} of {count} cases as expected, 0 differ")


@pytest.mark.any_server
def test_a_later_version_is_compared_with_its_vectors_and_those_that_still_hold() -> None:
    names = [name for _, name, _ in vectors.of_version("6.7.0")]
    assert len(names) == len(set(names))
    by_version = {version: sum(name.startswith(f"{version}/") for name in names) for version in vectors.VERSIONS}
    assert by_version["6.7.0"] == sum(map(len, vectors.own("6.7.0").values()))
    assert by_version["5.62.0"] > 500
    assert by_version["5.81.5"] > 50


@pytest.mark.any_server
def test_a_difference_is_told_with_both_values(server: Server, folder: Path, tmp_path: Path) -> None:
    files = (tmp_path / "out.json", tmp_path / "out.html")
    code, text = run(server, folder, "5.62.0", "--partial", "--json", str(files[0]), "--html", str(files[1]))
    assert code == 1
    assert re.search(r"promote, 5\.62\.0/promote-\d+ \(03#4\.3\): ", text)
    assert '"prev", "waiting"' in text and '"prev", "delayed"' in text
    found = json.loads(files[0].read_text())
    failed = [case for case in found["cases"] if case["differences"]]
    assert failed and {case["command"] for case in failed} == {"promote"}
    assert {case["command"] for case in found["cases"]} == {"promote", "pause"}
    page = files[1].read_text()
    assert page.count("<details") == len(found["cases"])
    assert not re.search(r"(src|href)=|@import|url\(", page)


@pytest.mark.any_server
def test_a_script_that_is_missing_or_does_not_compile_is_a_difference(server: Server, folder: Path) -> None:
    (folder / "drain.lua").write_text("this is no Lua")
    code, text = run(server, folder, "5.62.0")
    assert code == 1
    assert "there is no script" in text and "does not compile" in text


@pytest.mark.any_server
def test_wrong_usage_is_exit_code_2(server: Server, folder: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run(server, empty, "5.62.0")[0] == 2
    assert run(server, folder, "5.63.0")[0] == 2
    (folder / "a b.lua").write_text("")
    with pytest.raises(UsageError, match="must be named"):
        scripts.folder_scripts(folder)


@pytest.mark.any_server
def test_a_database_with_keys_is_refused(server: Server, folder: Path) -> None:
    wire = Wire.of_url(url_of(server))
    wire.run([("SET", "somebody", "else")])
    try:
        code, text = run(server, folder, "5.62.0", "--partial")
        assert code == 2
        assert "is not empty: it has 1 keys" in text
        assert wire.run([("GET", "somebody")]) == [b"else"]
    finally:
        wire.run([("DEL", "somebody")])
        wire.close()


@pytest.mark.any_server
def test_a_page_escapes_what_it_shows() -> None:
    case = scripts.Case("5.62.0/x-1", "x", "<b>", "01", [scripts.Difference("reply", "<i>", None)])
    page = report.scripts_html(scripts.Report("<folder>", "5.62.0", [case]))
    assert "<b>" not in page and "&lt;i&gt;" in page and "&lt;folder&gt;" in page
