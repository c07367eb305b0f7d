"""Servers out of Docker, tried on a stand-in for an engine: none of our machines has one."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import servers
from tests.support.fake_engine import RYUK, FakeEngine, silent_engine

_ROOT = Path(__file__).parents[2]
_IMAGES = {
    "redis-6.2": ("redis:6.2", "redis-server"),
    "redis-7.0": ("redis:7.0", "redis-server"),
    "valkey-9": ("valkey/valkey:9.0", "valkey-server"),
}
# A life of a server: killed in the middle of it, restarted, and gone at the end.
_PROGRAM = """
import json, sys
import redis
from tests.support import servers

kind = sys.argv[1]
assert servers.docker_answers()
with servers.start(kind, config=("--appendonly", "yes", "--appendfsync", "always")) as server:
    first = server.pid
    with redis.Redis(host=server.host, port=server.port) as client:
        client.set("kept", "yes")
        server.kill()
        dead = not server.alive
        server.restart()
        kept = client.get("kept").decode()
        again = server.pid
        server.stop()
        stopped = not server.alive
reported = {"source": servers.sources()[kind], "version": server.version, "dead": dead, "kept": kept}
print(json.dumps({**reported, "stopped": stopped, "new": first != again and again > 0}))
"""


def _environment(url: str, home: Path) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("BULLMQ_", "TESTCONTAINERS_"))}
    # In a container testcontainers would look for published ports at the gateway.
    here = {"TESTCONTAINERS_HOST_OVERRIDE": "localhost", "TESTCONTAINERS_CONNECTION_MODE": "docker_host"}
    return {**own, **here, "DOCKER_HOST": url, "HOME": str(home)}


def _run(program: str, *arguments: str, url: str, home: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=_ROOT,
        env=_environment(url, home),
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _program_of(kind: str) -> servers.Source:
    source = servers.choose_source(kind, docker=lambda: False, path=servers.programs_on_path)
    assert source is not None
    return source


@pytest.mark.parametrize("kind", [kind for kind in servers.KINDS if kind in servers.sources()])
def test_a_server_out_of_docker(kind: str, tmp_path: Path) -> None:
    image, program = _IMAGES[kind]
    with FakeEngine(tmp_path, {program: _program_of(kind).origin}) as engine:
        reported: dict[str, Any] = json.loads(_run(_PROGRAM, kind, url=engine.url, home=tmp_path))
        assert reported["source"] == ["docker", image]
        assert servers.kind_of(kind.partition("-")[0], tuple(reported["version"])) == kind
        assert (reported["dead"], reported["kept"], reported["new"], reported["stopped"]) == (True, "yes", True, True)
        assert engine.unknown == []
        ryuk, held = sorted(engine.made, key=lambda each: not each.image.startswith(RYUK))
        assert engine.pulled == [ryuk.image, image]
        # What our process leaves behind if it is killed, ryuk removes: it knows the label.
        label, _, session = ryuk.reported.decode().strip().removeprefix("label=").partition("=")
        assert session and held.wanted["Labels"][label] == session
        assert list(engine.containers) == [] and held.pid == 0


def test_an_engine_that_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeEngine(tmp_path, {}) as engine:
        monkeypatch.setenv("DOCKER_HOST", engine.url)
        assert servers.docker_answers.__wrapped__() is True


@pytest.mark.alone
def test_an_engine_that_is_silent_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with silent_engine(tmp_path) as url:
        monkeypatch.setenv("DOCKER_HOST", url)
        began = time.monotonic()
        assert servers.docker_answers.__wrapped__() is False
        assert 1.5 < time.monotonic() - began < 6


def test_no_engine_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'nobody.sock'}")
    assert servers.docker_answers.__wrapped__() is False
