"""The servers that all other tests rely on: start, kill, restart on the same port and folder, TLS, clear refusals."""

import os
import signal
from typing import Any

import pytest
import redis

from bullmq_protocol.testing import server as kit
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


def _ended_by(server: servers.Server) -> int:
    """Return what its program ended with: a signal is negative."""
    runner: Any = server._runner
    return int(runner._process.returncode)


def test_a_process_is_killed_by_sigkill_and_stopped_in_good_order_even_when_it_stands_still() -> None:
    with servers.start() as server:
        # Ctrl-C in the terminal is for the tests alone.
        assert os.getsid(server.pid) == server.pid != os.getsid(0)
        server.kill()
        assert _ended_by(server) == -signal.SIGKILL
        server.restart()
        os.kill(server.pid, signal.SIGSTOP)
        server.stop()
        assert _ended_by(server) == 0


def test_a_port_that_another_server_has_taken_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with servers.start() as first:
        ports = iter([first.port, first.port])
        free = kit.free_port
        monkeypatch.setattr(kit, "free_port", lambda: next(ports, None) or free())
        with servers.start() as second:
            assert second.port != first.port
            assert kit.ask(second.url, "CONFIG", "GET", "port")[1] == b"%d" % second.port


def test_a_server_that_ran_already_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with servers.start(config=("--requirepass", "secret")) as own:
        url = own.url.replace("://", "://:secret@")
        external = kit.Server.external(url)
        assert (external.kind, external.version, external.is_external) == (own.kind, own.version, True)
        assert external.alive and external.pid == 0 and "secret" not in repr(external)
        for call in (external.kill, external.restart):
            with pytest.raises(kit.NoServer, match="not ours to kill or restart"):
                call()
        with external:
            pass
        assert own.alive
        with pytest.raises(kit.NoServer, match=r"redis-1\.0 was asked for, but the server at .* is") as caught:
            kit.Server.external(url, "redis-1.0")
        assert "secret" not in str(caught.value)
        monkeypatch.setenv("BULLMQ_TEST_REDIS_URL", url)
        assert kit.start().url == url
        with pytest.raises(kit.NoServer, match="cannot be started with options of a test"):
            kit.start(config=("--appendonly", "yes"))


def test_a_user_with_a_password_may_ask() -> None:
    with servers.start(config=("--user", "ada", "on", ">lovelace", "~*", "&*", "+@all")) as server:
        place = server.url.partition("://")[2]
        assert kit.ask(f"redis://ada:lovelace@{place}", "ACL", "WHOAMI") == b"ada"
        with pytest.raises(kit.Refused, match="WRONGPASS"):
            kit.ask(f"redis://ada:wrong@{place}", "PING")


def test_all_keys_of_a_prefix_are_removed_and_no_others() -> None:
    with servers.start() as server, redis.Redis.from_url(server.url) as client:
        count = 5_000
        own = {f"{'{p[1]*}' if number % 2 else 'p[1]*'}:mail:{number}": 1 for number in range(count)}
        others = {"p1:mail:id": 1, "p[1]*more:mail:id": 1, "p11x:mail:id": 1, "q:p[1]*:mail": 1}
        client.mset(own | others)
        assert kit.remove_keys(server.url, "p[1]*") == count
        assert {key.decode() for key in client.scan_iter()} == set(others)


def test_a_server_of_another_database_is_asked_there() -> None:
    with servers.start() as server:
        kit.ask(f"{server.url}/3", "SET", "a", 1)
        assert [kit.ask(f"{server.url}/{number}", "DBSIZE") for number in (0, 3)] == [0, 1]
        assert kit.ask(server.url, "GET", "a") is None
        unix = f"unix://{server.socket_path}"
        assert kit.ask(unix, "PING") == b"PONG"
