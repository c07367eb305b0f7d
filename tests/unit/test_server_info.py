"""What a connection reads from INFO."""

import pytest

from bullmq_protocol.errors import ServerTooOld
from bullmq_protocol.net.server_info import ServerInfo, read_server_info


def test_reads_the_fields() -> None:
    text = (
        "# Server\r\nredis_version:7.2.4\r\nvalkey_version:9.0.1\r\n# Memory\r\nmaxmemory_policy:allkeys-lru\r\n"
        "# Cluster\r\ncluster_enabled:1\r\n"
    )
    assert read_server_info(text) == ServerInfo("7.2.4", "allkeys-lru", True)
    assert read_server_info("") == ServerInfo()
    assert read_server_info("role:slave\r\ncluster_enabled:0\r\nredis_version:a:b") == ServerInfo(
        version_text="a:b", role="slave"
    )


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("6.2.6-rc1", (6, 2, 6)),
        ("6.0", (6, 0, 0)),
        ("7", (7, 0, 0)),
        ("255.255.255", (255, 255, 255)),
        ("", (0, 0, 0)),
        ("7.0.1-rc2-x3", (7, 0, 1)),
    ],
)
def test_version(text: str, version: tuple[int, int, int]) -> None:
    assert ServerInfo(version_text=text).version == version


@pytest.mark.parametrize("text", ["6.0.20", "5.0.14", "2.8"])
def test_too_old(text: str) -> None:
    with pytest.raises(ServerTooOld, match=text):
        ServerInfo(version_text=text).require_supported()


@pytest.mark.parametrize("text", ["6.2.0", "7.0.15", "10.0.0", ""])
def test_new_enough(text: str) -> None:
    assert ServerInfo(version_text=text).require_supported() is None  # type: ignore[func-returns-value]


def test_eviction_warning() -> None:
    assert ServerInfo(maxmemory_policy="noeviction").eviction_warning is None
    assert ServerInfo().eviction_warning is None
    assert "'volatile-lru'" in str(ServerInfo(maxmemory_policy="volatile-lru").eviction_warning)


def test_the_least_version_is_named_as_it_is_spoken_of() -> None:
    with pytest.raises(ServerTooOld, match=r"6\.2 or later"):
        ServerInfo(version_text="6.0.20").require_supported()
