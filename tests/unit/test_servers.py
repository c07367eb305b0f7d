"""Where a server comes from; the servers themselves are tried by every test in tests/server."""

import pytest

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
