"""Servers of our own tests: those of the test kit (`bullmq_protocol.testing.server`), in several versions and with TLS.

`BULLMQ_TEST_SERVERS` (comma list of kinds) narrows the choice, `BULLMQ_TEST_END` takes one end of it.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import trustme

from bullmq_protocol.testing.server import (
    KINDS,
    NoServer,
    Server,
    Source,
    age,
    choose_source,
    closed_port,
    docker_answers,
    external_url,
    external_version,
    free_port,
    kind_of,
    programs_on_path,
    sources,
)
from bullmq_protocol.testing.server import start as start_server

__all__ = [
    "KINDS",
    "NoServer",
    "NoTls",
    "Server",
    "Source",
    "certificates",
    "choose_source",
    "chosen",
    "closed_port",
    "docker_answers",
    "ends",
    "ends_of",
    "free_port",
    "kind_of",
    "kinds",
    "programs_on_path",
    "sources",
    "start",
]

# Beside everything else that the tests bring along.
os.environ.setdefault("BULLMQ_TEST_CACHE", str(Path(__file__).parents[2] / ".cache" / "servers"))


class NoTls(NoServer):
    """No server here knows TLS: tests that need one are skipped by name, and fail in CI."""


def kinds() -> tuple[str, ...]:
    """Return the kinds asked for by `BULLMQ_TEST_SERVERS`, by default all that can start, oldest first."""
    external = external_url()
    if external is not None:
        return (external_version(external)[0],)
    asked = [kind.strip() for kind in os.environ.get("BULLMQ_TEST_SERVERS", "").split(",") if kind.strip()]
    return tuple(sorted(asked or sources(), key=age))


def chosen() -> tuple[str, ...]:
    """Return what tests run on if nothing else is said: those asked for by name, else the oldest and the newest."""
    return kinds() if os.environ.get("BULLMQ_TEST_SERVERS") else ends()


def ends() -> tuple[str, ...]:
    """Return the oldest and the newest of `kinds()`; one of them where `BULLMQ_TEST_END` says `oldest` or `newest`."""
    return ends_of(kinds())


def ends_of(found: Sequence[str]) -> tuple[str, ...]:
    """Return the first and the last of these, or that one of them which `BULLMQ_TEST_END` asks for."""
    asked = os.environ.get("BULLMQ_TEST_END", "")
    wanted = {"": (*found[:1], *found[-1:]), "oldest": found[:1], "newest": found[-1:]}[asked]
    return tuple(dict.fromkeys(wanted))


def start(kind: str | None = None, *, config: Sequence[str] = (), tls: bool = False) -> Server:
    """Start a server and wait until it answers.

    `config` holds further arguments of the server program: `("--requirepass", "secret")`. Without a kind it is
    the one on PATH or in Docker, where there is one, since the programs from wheels know no TLS.
    """
    if external_url() is not None:
        if tls:
            raise NoServer("the server of BULLMQ_TEST_REDIS_URL cannot be started with options of a test")
        return start_server(kind, config=config)
    known = sources()
    if kind is None:
        able = [each for each in kinds() if each in known]
        if not able:
            raise NoServer(f"no server can be started here; asked for: {', '.join(kinds()) or 'any'}")
        kind = min(able, key=lambda each: (known[each].name == "wheel", age(each)))
    if not tls or kind not in known:
        return start_server(kind, config=config)
    if known[kind].name == "wheel":
        raise NoTls(f"TLS: {kind} comes from a wheel, whose program knows no TLS; install redis-server")
    return Server(kind, known[kind], tuple(config), certificates)


def certificates(folder: Path) -> Path:
    """Make a key and a certificate for this machine in the folder; return that of the authority, to be trusted."""
    authority = trustme.CA()
    leaf = authority.issue_cert("localhost", "127.0.0.1")
    leaf.private_key_pem.write_to_path(str(folder / "server.key"))
    for index, blob in enumerate(leaf.cert_chain_pems):
        blob.write_to_path(str(folder / "server.pem"), append=index > 0)
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    return folder / "ca.pem"
