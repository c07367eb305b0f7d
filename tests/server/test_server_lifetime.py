"""The servers that all other tests rely on: start, kill, restart on the same port and folder, TLS, clear refusals."""

import os

import pytest
import redis

from tests.support import servers

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("BULLMQ_TEST_REDIS_URL")), reason="an external server is not ours to start"
)


@pytest.mark.parametrize("kind", servers.kinds())
def test_server_comes_back_on_its_port_with_what_it_kept(kind: str) -> None:
    with servers.start(kind, config=("--appendonly", "yes", "--appendfsync", "always")) as server:
        with redis.Redis.from_url(server.url) as client:
            assert client.info("server")["redis_version" if "redis" in kind else "valkey_version"].startswith(
                ".".join(str(figure) for figure in server.version)
            )
            client.set("kept", "yes")
        before = (server.port, server.pid)
        server.kill()
        with redis.Redis.from_url(server.url) as client, pytest.raises(redis.ConnectionError):
            client.ping()
        server.restart()
        with redis.Redis.from_url(server.url) as client:
            assert client.get("kept") == b"yes"
        assert server.port == before[0]
        assert server.pid != before[1]
        folder = server.folder
    assert not folder.exists()


@pytest.mark.parametrize("kind", servers.kinds())
def test_what_a_kill_tore_is_gone(kind: str) -> None:
    script = "redis.call('SET', 'a', 1) redis.call('SET', 'b', 1)"
    with servers.start(kind, config=("--appendonly", "yes", "--appendfsync", "always")) as server:
        with redis.Redis.from_url(server.url) as client:
            client.set("first", "1")
            client.eval(script, 0)
            client.eval(script.replace("1", "2"), 0)
        server.kill()
        (file,) = [*server.folder.glob("appendonlydir/*.incr.aof"), *server.folder.glob("appendonly.aof")]
        os.truncate(file, file.stat().st_size - 3)
        # Redis alone would apply the torn script at its second start, with the answered write behind it.
        for expected in (None, b"1"):
            server.restart()
            with redis.Redis.from_url(server.url) as client:
                assert client.mget("first", "a", "b", "answered") == [b"1", b"1", b"1", expected]
                client.set("answered", "1")
            server.kill()
        server.restart()


def test_two_servers_of_a_kind_share_nothing() -> None:
    with servers.start() as one, servers.start(one.kind) as two:
        assert one.port != two.port
        with redis.Redis.from_url(one.url) as first, redis.Redis.from_url(two.url) as second:
            first.set("here", "1")
            assert second.exists("here") == 0


def test_server_with_tls_and_password() -> None:
    with servers.start(tls=True, config=("--requirepass", "secret")) as server:
        assert server.ca_file is not None
        with redis.Redis.from_url(server.url, password="secret", ssl_ca_certs=str(server.ca_file)) as client:
            assert client.ping()


def test_unix_socket_of_a_server() -> None:
    with servers.start() as server, redis.Redis(unix_socket_path=str(server.socket_path)) as client:
        assert client.ping()


def test_wrong_configuration_is_reported_with_the_log() -> None:
    with pytest.raises(servers.NoServer, match="nonsense"):
        servers.start(config=("--nonsense", "1"))


def test_unknown_kind_is_refused() -> None:
    with pytest.raises(servers.NoServer, match=r"redis-1\.0 cannot be started here"):
        servers.start("redis-1.0")
