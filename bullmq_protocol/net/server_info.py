"""What a connection learns from `INFO` before its first command: version, eviction policy, cluster."""

from __future__ import annotations

import re

import msgspec

from bullmq_protocol.errors import ServerTooOld

MINIMUM_VERSION = (6, 2, 0)
INFO_SECTIONS = ("server", "memory", "cluster", "replication")


class ServerInfo(msgspec.Struct, frozen=True):
    """The fields of `INFO` that decide whether and how a queue can live there.

    Source: specs/05-worker-runtime.md#sec-1-3
    """

    version_text: str = ""
    maxmemory_policy: str = ""
    cluster: bool = False
    role: str = ""
    """`master` or `slave`; empty if the server did not say."""

    @property
    def version(self) -> tuple[int, int, int]:
        """The version as three numbers (`6.2.6-rc1` is 6.2.6, `6.0` is 6.0.0)."""
        figures = [int(figure) for figure in re.findall(r"[0-9]{1,9}", self.version_text.partition("-")[0])[:3]]
        major, minor, patch = (*figures, 0, 0, 0)[:3]
        return major, minor, patch

    def require_supported(self) -> None:
        """Raise `ServerTooOld` for a server below the minimum version. An unknown version passes."""
        if self.version_text and self.version < MINIMUM_VERSION:
            minimum = ".".join(map(str, MINIMUM_VERSION[:2]))
            raise ServerTooOld(f"the server has version {self.version_text}, but {minimum} or later is needed")

    @property
    def eviction_warning(self) -> str | None:
        """What to log when the server may evict keys, else None."""
        if self.maxmemory_policy in ("", "noeviction"):
            return None
        return (
            f"the server's maxmemory-policy is {self.maxmemory_policy!r}: it may evict keys of a queue, which loses "
            "jobs; set it to 'noeviction'"
        )


def read_server_info(text: str) -> ServerInfo:
    """Read the text of one or several `INFO` sections; missing fields stay empty."""
    rows = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return ServerInfo(
        version_text=rows.get("redis_version", ""),
        maxmemory_policy=rows.get("maxmemory_policy", ""),
        cluster=rows.get("cluster_enabled") == "1",
        role=rows.get("role", ""),
    )
