"""The server's own time: each script is measured, also by a tool that counts. Its figures are no test."""

import json
from pathlib import Path

import pytest

from bench import server_time

pytestmark = [pytest.mark.any_python, pytest.mark.any_server]

CALLS_ON = """#!/bin/sh
# A valgrind that counts nothing.
while [ "${1#--}" != "$1" ]; do shift; done
exec "$@"
"""


def test_scripts_of_a_profile_are_measured_beside_those_of_strict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "times.json"
    assert server_time.main(["--calls", "100", "--rounds", "1", "--profile", "fleet", "--json", str(file)]) == 0
    found = json.loads(file.read_text())
    assert {
        "addStandardJob",
        "moveToActive",
        "addMany, a flow of ten children",
        "fetchMany, 50, per job",
    } <= found.keys()
    assert all(each.keys() == {"strict", "fleet"} and min(each.values()) > 0 for each in found.values())
    assert [line.split("  ")[-1] for line in capsys.readouterr().out.splitlines()] == list(found)


def test_a_server_is_started_within_valgrind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "valgrind"
    tool.write_text(CALLS_ON)
    tool.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with server_time.counting(None) as (server, counts):
        assert server.version
        assert counts.is_dir()
