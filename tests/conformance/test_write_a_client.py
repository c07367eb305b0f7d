"""docs/write-a-client.md, followed to the letter with its client in shell and Lua."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest

from bullmq_conformance import report
from bullmq_conformance.scripts import write_scripts
from tests.conformance.conftest import compared, url_of
from tests.conformance.test_client import program
from tests.support import pages
from tests.support.servers import Server

PAGE = "write-a-client.md"
MINIMAL = pages.ROOT / "conformance" / "minimal"
_URL = "redis://127.0.0.1:6379/14"
_INSTALL = re.compile(r"^pip install '([\w-]+)\[(\w+)\]'\n", re.MULTILINE)


pytestmark = pytest.mark.any_server


@pytest.fixture(autouse=True)
def _needs_redis_cli() -> None:
    if shutil.which("redis-cli") is None and not os.environ.get("CI"):
        pytest.skip("redis-cli is not installed")


def test_the_page_can_be_followed(server: Server, tmp_path: Path) -> None:
    """Its blocks run one after the other in a folder that has what the page links to."""
    shutil.copytree(MINIMAL, tmp_path / "conformance" / "minimal")
    blocks = pages.snippets(PAGE, "sh")
    text = "".join(blocks)
    # What it installs is installed: this package, with an extra that exists.
    name, extra = _INSTALL.findall(text)[0]
    project = tomllib.loads((pages.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert name == project["name"] and extra in project["optional-dependencies"]
    assert text.count(_URL) == 2
    script = _INSTALL.sub("", text).replace(_URL, url_of(server))
    with subprocess.Popen(
        ["sh", "-eu", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate()
        finally:
            # With all that it started: nothing goes on writing into the database.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, output
    lines = output.splitlines()
    (printed,) = pages.snippets(PAGE, "text")
    assert lines[-1] == printed.strip()
    assert any(re.fullmatch(r"(\d+) of \1 cases as expected, 0 differ", line) for line in lines)


def test_the_minimal_client_passes_its_part(server: Server, tmp_path: Path) -> None:
    write_scripts(tmp_path, "5.62.0")
    client = program("sh", MINIMAL / "client.sh", tmp_path)
    found = compared(client, "5.62.0", url_of(server), seed=1, count=3, length=20)
    assert report.client_text(found).splitlines()[-1] == "0 differences"
    assert set(found.requests) == {"add", "take", "finish"}
    assert "flow" in found.left_out and "fail" in found.left_out


def test_a_fault_in_the_minimal_client_is_found(server: Server, tmp_path: Path) -> None:
    """Such as the one that the page warns of: nil in place of an empty text."""
    write_scripts(tmp_path, "5.62.0")
    faulty = tmp_path / "faulty"
    shutil.copytree(MINIMAL, faulty)
    text = (faulty / "client.lua").read_text()
    assert "maxMetricsSize = ''," in text
    (faulty / "client.lua").write_text(text.replace("maxMetricsSize = '',", ""))
    client = program("sh", faulty / "client.sh", tmp_path)
    found = compared(client, "5.62.0", url_of(server), seed=1, count=3, length=20, shrinking=2)
    assert any(each.signature.startswith("finish: ") for each in found.found)
