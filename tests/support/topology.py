"""Sentinel sets and clusters for tests, as processes on this machine: three sentinels with their data nodes, six nodes.

Made by commands alone, with short time limits, so that a failover takes one to three seconds. The programs are those of
`servers`, but never from Docker, whose addresses mean something else to the members.
"""

import functools
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import hiredis

from bullmq_protocol.common.keys import key_slot
from tests.support import servers
from tests.support.servers import Server, Source, free_port

SERVICE = "jobs"
SLOTS = 16_384
_LIMIT_S = 90.0
"""Sentinels that were not given the processor for two seconds do nothing for thirty (their TILT mode)."""
_FORM_S = 30.0
_ASK_AGAIN_S = 3.0
_NODE_TIMEOUT_MS = 1000
_DOWN_AFTER_MS = 1500
_REPLICATION = ("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")


class Refused(Exception):
    """An error reply."""


@functools.cache
def sources() -> dict[str, Source]:
    """Map the kinds whose programs run on this machine itself to their sources."""
    found = {
        kind: servers.choose_source(kind, docker=lambda: False, path=servers.programs_on_path) for kind in servers.KINDS
    }
    return {kind: source for kind, source in found.items() if source is not None}


def kinds() -> tuple[str, ...]:
    """Return the ends of the kinds that can be had, of those that `BULLMQ_TEST_SERVERS` asks for."""
    asked = [kind.strip() for kind in os.environ.get("BULLMQ_TEST_SERVERS", "").split(",") if kind.strip()]
    able = [kind for kind in servers.KINDS if kind in sources() and (not asked or kind in asked)]
    return servers.ends_of(able)


def tls_kind() -> str:
    """Return the kind whose members can have TLS: those from wheels know none. Raises `NoTls`."""
    able = [kind for kind, source in sources().items() if source.name == "path"]
    if not able:
        raise servers.NoTls("TLS: no redis-server is on PATH, and programs from wheels know no TLS")
    return able[0]


def say(server: Server, *command: Any, password: str | None = None) -> Any:
    """Send one command over a connection of its own and return the reply, texts as `str`. Raises `Refused`."""
    commands = [("AUTH", password), command] if password else [command]
    reader = hiredis.Reader(encoding="utf-8", errors="surrogateescape", replyError=Refused, notEnoughData=...)
    reply: Any = None
    with server.connect(10) as sock:
        for each in commands:
            sock.sendall(hiredis.pack_command(tuple(map(str, each))))
            while (reply := reader.gets()) is ...:
                data = sock.recv(1 << 16)
                if not data:
                    raise ConnectionError(f"{server} closed the connection")
                reader.feed(data)
            if isinstance(reply, Refused):
                raise reply
    return reply


def until(found: Callable[[], Any], what: str, *, limit_s: float = _LIMIT_S) -> Any:
    """Ask again until the answer is true, and return it; a refusal or a lost connection means "not yet"."""
    limit = time.monotonic() + limit_s
    last: object = None
    while True:
        try:
            if answer := found():
                return answer
        except (Refused, OSError) as error:
            last = error
        if time.monotonic() > limit:
            raise TimeoutError(f"not within {limit_s} s: {what} ({last})")
        time.sleep(0.02)


def _asked(begin: Callable[[], Any], promoted: Callable[[], Server | None]) -> Server:
    """Ask for a failover until there has been one, and return the new master.

    A failover that was begun may be given up: masters do not vote twice for one shard within two node time-outs, and a
    sentinel drops it when the replica is slow to turn. Nobody takes it up again then. A refusal means that it is under
    way, has been, or is not possible yet.
    """
    limit = time.monotonic() + _LIMIT_S
    while True:
        try:
            begin()
        except (Refused, OSError) as error:
            refusal: object = error
        else:
            refusal = None
        try:
            server: Server = until(
                promoted, f"a promotion, asked for and answered with {refusal}", limit_s=_ASK_AGAIN_S
            )
        except TimeoutError:
            if time.monotonic() > limit:
                raise
        else:
            return server


class _Set:
    """Processes that belong together."""

    def __init__(self, tls: bool) -> None:
        self._stack = ExitStack()
        self.ca_file: Path | None = None
        if tls:
            folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="certificates-"))
            self.ca_file = servers.certificates(Path(folder))

    def stop(self) -> None:
        """End all processes and remove their folders."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Sentinel(Server):
    """One sentinel on a given port, with the lines of its configuration."""

    def __init__(self, kind: str, source: Source, port: int, lines: Sequence[str], ca_file: Path | None) -> None:
        self._given, self._lines = port, lines
        super().__init__(kind, source, (), ca_file)

    def _arguments(self) -> list[str]:
        self.port, self.socket_path = self._given, None
        path = self.folder / "sentinel.conf"
        # It writes what it learns into the file, and reads it when it starts again.
        if not path.exists():
            ports = (
                ["port 0", f"tls-port {self.port}", "tls-replication yes"] if self.ca_file else [f"port {self.port}"]
            )
            tls = [f"{option} {value}" for option, value in self.tls_options().items()]
            head = [*ports, *tls, "bind 127.0.0.1", "protected-mode no", f"dir {self.folder}"]
            path.write_text("\n".join([*head, *self._lines]) + "\n")
        return [str(path), "--sentinel"]


class SentinelSet(_Set):
    """Three sentinels over a master and its replicas, for the service `SERVICE`.

    With two replicas or more the sentinel that leads a planned failover announces the new master only when all of them
    follow it. `password` is that of the data nodes, `sentinel_password` that of the sentinels. With `tls` all of them
    have it, and nothing else; `ca_file` is to be trusted then.
    """

    def __init__(
        self,
        kind: str,
        *,
        replicas: int = 1,
        password: str | None = None,
        sentinel_password: str | None = None,
        tls: bool = False,
    ) -> None:
        super().__init__(tls)
        self.kind = kind
        self._replicas = replicas
        self.password = password
        self.sentinel_password = sentinel_password
        self.nodes: list[Server] = []
        self.sentinels: list[Sentinel] = []
        try:
            self._begin(sources()[kind])
        except BaseException:
            self.stop()
            raise

    def _begin(self, source: Source) -> None:
        login = ("--requirepass", self.password, "--masterauth", self.password) if self.password else ()
        encrypted = ("--tls-replication", "yes") if self.ca_file else ()
        for _ in range(self._replicas + 1):
            server = Server(self.kind, source, (*login, *encrypted, *_REPLICATION), self.ca_file)
            self.nodes.append(self._stack.enter_context(server))
        master, *replicas = self.nodes
        for replica in replicas:
            self._say(replica, "REPLICAOF", master.host, master.port)
            self._await_replica(replica)
        ports = [free_port() for _ in range(3)]
        ids = [f"{number:040x}" for number in range(1, 4)]
        for mine, own_port in enumerate(ports):
            # What they would tell each other in some seconds they know from the start.
            lines = [
                f"sentinel myid {ids[mine]}",
                f"sentinel monitor {SERVICE} {master.host} {master.port} 2",
                f"sentinel down-after-milliseconds {SERVICE} {_DOWN_AFTER_MS}",
                f"sentinel failover-timeout {SERVICE} 2000",
                *(f"sentinel known-replica {SERVICE} {replica.host} {replica.port}" for replica in replicas),
            ]
            for other, port in enumerate(ports):
                if other != mine:
                    lines.append(f"sentinel known-sentinel {SERVICE} 127.0.0.1 {port} {ids[other]}")
            if self.password:
                lines.append(f"sentinel auth-pass {SERVICE} {self.password}")
            if self.sentinel_password:
                lines += [f"requirepass {self.sentinel_password}", f"sentinel sentinel-pass {self.sentinel_password}"]
            self.sentinels.append(self._stack.enter_context(Sentinel(self.kind, source, own_port, lines, self.ca_file)))
        self.await_ready()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of every sentinel."""
        return [(each.host, each.port) for each in self.sentinels]

    @property
    def hosts(self) -> str:
        """The sentinels as they stand in a URL: `127.0.0.1:7001,127.0.0.1:7002,...`."""
        return ",".join(f"{host}:{port}" for host, port in self.addresses)

    def master(self) -> Server:
        """Return the master that all running sentinels name and that says so itself. Waits for one."""

        server: Server = until(self._agreed, "the sentinels agree on a master")
        return server

    def replica(self) -> Server:
        """Return a data node that is not the master."""
        return self.replicas()[0]

    def replicas(self) -> list[Server]:
        """Return the data nodes that are not the master."""
        master = self.master()
        return [node for node in self.nodes if node is not master]

    def failover(self) -> Server:
        """Let the sentinels promote a replica, as planned; return the new master once all name it."""
        old = self.master()
        self.await_ready()
        begin = functools.partial(self._ask, self.sentinels[0], "SENTINEL", "FAILOVER", SERVICE)
        return _asked(begin, functools.partial(self._promoted, old))

    def kill_master(self) -> Server:
        """End the master with SIGKILL and return it; the sentinels then promote the replica."""
        self.await_ready()
        master = self.master()
        master.kill()
        return master

    def await_promotion(self, old: Server) -> Server:
        """Wait until all sentinels name another master than `old`, and return it."""
        server: Server = until(functools.partial(self._promoted, old), "a promotion")
        return server

    def restore(self) -> None:
        """Start what is down, make a replica of what is not the master, wait until a failover is possible again."""
        for each in (*self.sentinels, *self.nodes):
            if not each.alive:
                each.restart()
        self.await_ready()

    def await_ready(self) -> None:
        """Wait until every sentinel knows the others and the replicas in good order."""
        until(self._all_follow, "the data nodes follow the master that the sentinels name")
        for sentinel in self.sentinels:
            until(functools.partial(self._is_ready, sentinel), "the sentinels know each other and the replica")

    def _all_follow(self) -> bool:
        """Tell whether all other nodes follow the master. Asked anew each time: a failover may have been under way."""
        master = self._agreed()
        if master is None:
            return False
        found = True
        for node in self.nodes:
            if node is not master:
                role = self._say(node, "ROLE")
                if role[0] == "master" or role[2] != master.port:
                    self._say(node, "REPLICAOF", master.host, master.port)
                    found = False
                else:
                    found = found and role[3] == "connected"
        return found

    def _is_ready(self, sentinel: Sentinel) -> bool:
        (state,) = map(_as_dict, self._ask(sentinel, "SENTINEL", "MASTERS"))
        replicas = map(_as_dict, self._ask(sentinel, "SENTINEL", "SLAVES", SERVICE))
        # INFO of the replica comes every ten seconds, so its own view of the link may be old news.
        fit = [each for each in replicas if each["flags"] == "slave" and each["runid"]]
        return len(fit) >= self._replicas and state["flags"] == "master" and state["num-other-sentinels"] == "2"

    def _agreed(self) -> Server | None:
        ports = {self._named_port(each) for each in self.sentinels if each.alive}
        found = [node for node in self.nodes if ports == {node.port} and node.alive]
        return found[0] if found and self._say(found[0], "ROLE")[0] == "master" else None

    def _promoted(self, old: Server) -> Server | None:
        found = self._agreed()
        return found if found is not old else None

    def _named_port(self, sentinel: Sentinel) -> int:
        answer = self._ask(sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return int(answer[1]) if answer else 0

    def _ask(self, sentinel: Sentinel, *command: Any) -> Any:
        return say(sentinel, *command, password=self.sentinel_password)

    def _say(self, server: Server, *command: Any) -> Any:
        return say(server, *command, password=self.password)

    def _await_replica(self, server: Server) -> None:
        until(lambda: self._say(server, "ROLE")[3:4] == ["connected"], f"{server} follows its master")


class ClusterSet(_Set):
    """Six nodes: three masters with a third of the slots and a replica each. The oldest kind takes every command.

    With `tls` all of them have it, and nothing else; `ca_file` is to be trusted then.
    """

    def __init__(self, kind: str, *, password: str | None = None, tls: bool = False) -> None:
        super().__init__(tls)
        self.kind = kind
        self.password = password
        self.nodes: list[Server] = []
        self.ids: dict[Server, str] = {}
        try:
            self._form(sources()[kind])
        except BaseException:
            self.stop()
            raise

    def _form(self, source: Source) -> None:
        """Form it from new nodes, up to three times: on a busy machine the first may not have agreed for good."""
        for last in (False, False, True):
            with ExitStack() as nodes:
                try:
                    self._begin(source, nodes)
                except TimeoutError as error:
                    if last:
                        views = [self._say(each, "CLUSTER", "NODES") for each in self.nodes]
                        raise TimeoutError("\n".join((str(error), *views))) from None
                    self.nodes, self.ids = [], {}
                    continue
                self._stack.push(nodes.pop_all())
                return

    def _begin(self, source: Source, nodes: ExitStack) -> None:
        config = ["--cluster-enabled", "yes", "--cluster-node-timeout", str(_NODE_TIMEOUT_MS), *_REPLICATION]
        config += ["--cluster-replica-validity-factor", "0", "--cluster-migration-barrier", "9"]
        if self.password:
            config += ["--requirepass", self.password, "--masterauth", self.password]
        if self.ca_file:
            config += ["--tls-cluster", "yes", "--tls-replication", "yes"]
        for _ in range(6):
            server = Server(self.kind, source, tuple(config), self.ca_file)
            self.nodes.append(nodes.enter_context(server))
            self.ids[server] = self._say(server, "CLUSTER", "MYID")
        masters, replicas = self.nodes[:3], self.nodes[3:]
        for number, server in enumerate(self.nodes):
            self._say(server, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for number, server in enumerate(masters):
            slots = range(SLOTS * number // 3, SLOTS * (number + 1) // 3)
            self._say(server, "CLUSTER", "ADDSLOTS", *slots)
        for server in self.nodes:
            for other in self.nodes:
                if other is not server:
                    self._say(server, "CLUSTER", "MEET", other.host, other.port)
        for server in self.nodes:
            until(lambda server=server: len(self.members(server)) == 6, "all nodes know each other", limit_s=_FORM_S)
        for master, server in zip(masters, replicas, strict=True):
            until(
                lambda server=server, master=master: self._say(server, "CLUSTER", "REPLICATE", self.ids[master]),
                "a node becomes a replica",
                limit_s=_FORM_S,
            )
        self.await_ready(limit_s=_FORM_S)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of every node."""
        return [(each.host, each.port) for each in self.nodes]

    @property
    def hosts(self) -> str:
        """The nodes as they stand in a URL."""
        return ",".join(f"{host}:{port}" for host, port in self.addresses)

    def members(self, server: Server) -> dict[str, list[str]]:
        """Return the words of `CLUSTER NODES` by node id, as this node sees them, without those in handshake."""
        rows = [line.split(" ") for line in self._say(server, "CLUSTER", "NODES").splitlines()]
        return {row[0]: row for row in rows if "handshake" not in row[2] and "noaddr" not in row[2]}

    def master(self, slot: int | str) -> Server:
        """Return the node that owns a slot, or the slot of a key, by the word of all that run."""
        number = self._number(slot)
        server: Server = until(
            functools.partial(self._agreed, number), f"the nodes agree on the owner of slot {number}"
        )
        return server

    def replica(self, slot: int | str) -> Server:
        """Return the replica of the node that owns a slot."""
        master = self.ids[self.master(slot)]

        def known() -> Server | None:
            seen = self.members(next(each for each in self.nodes if each.alive))
            found = [node for node in self.nodes if node.alive and seen[self.ids[node]][3] == master]
            return found[0] if found else None

        server: Server = until(known, "the master has a replica")
        return server

    def other_master(self, slot: int | str) -> Server:
        """Return a master that does not own the slot."""
        owner = self.master(slot)
        return next(each for each in self.masters() if each is not owner)

    def masters(self) -> list[Server]:
        """Return the owners of the slots."""
        return list(dict.fromkeys(self.master(SLOTS * number // 3) for number in range(3)))

    def promote(self, slot: int | str) -> Server:
        """Let the replica of the slot's owner take over, as planned; return it once all nodes say so."""
        old, replica = self.master(slot), self.replica(slot)
        until(lambda: self._say(replica, "ROLE")[3] == "connected", "the replica follows its master")
        begin = functools.partial(self._say, replica, "CLUSTER", "FAILOVER")
        return _asked(begin, functools.partial(self._promoted, slot, old))

    def kill_master(self, slot: int | str) -> Server:
        """End the owner of the slot with SIGKILL and return it; the cluster then promotes its replica."""
        replica = self.replica(slot)
        until(lambda: self._say(replica, "ROLE")[3] == "connected", "the replica follows its master")
        master = self.master(slot)
        master.kill()
        return master

    def await_promotion(self, slot: int | str, old: Server) -> Server:
        """Wait until another node than `old` owns the slot, and return it."""
        server: Server = until(functools.partial(self._promoted, slot, old), "a promotion")
        return server

    def begin_migration(self, slot: int | str, target: Server) -> None:
        """Mark the slot: commands for keys that are not there any more get ASK, for both kinds at once TRYAGAIN."""
        number, owner = self._number(slot), self.master(slot)
        self._say(target, "CLUSTER", "SETSLOT", number, "IMPORTING", self.ids[owner])
        self._say(owner, "CLUSTER", "SETSLOT", number, "MIGRATING", self.ids[target])

    def move_keys(self, slot: int | str, target: Server, *, most: int = 1 << 30) -> int:
        """Move up to `most` keys of a marked slot, and return how many were moved."""
        number, owner = self._number(slot), self.master(slot)
        moved = 0
        login = ("AUTH", self.password) if self.password else ()
        while moved < most:
            keys = self._say(owner, "CLUSTER", "GETKEYSINSLOT", number, min(100, most - moved))
            if not keys:
                break
            self._say(owner, "MIGRATE", target.host, target.port, "", 0, 10_000, *login, "KEYS", *keys)
            moved += len(keys)
        return moved

    def end_migration(self, slot: int | str, target: Server) -> None:
        """Give the marked slot to the target, whose keys have all been moved."""
        number, owner = self._number(slot), self.master(slot)
        for server in (target, owner, *(each for each in self.masters() if each not in (target, owner))):
            self._say(server, "CLUSTER", "SETSLOT", number, "NODE", self.ids[target])
        until(lambda: self.master(number) is target, "the slot has moved")

    def migrate(self, slot: int | str, target: Server) -> None:
        """Move a slot with its keys to another master."""
        self.begin_migration(slot, target)
        while self.move_keys(slot, target):
            pass
        self.end_migration(slot, target)

    def restore(self) -> None:
        """Start what is down, and wait until the cluster is whole again."""
        for node in self.nodes:
            if not node.alive:
                node.restart()
        self.await_ready()

    def await_ready(self, *, limit_s: float = _LIMIT_S) -> None:
        """Wait until every node says that the cluster is in order and every master has its replica."""
        for server in self.nodes:
            what = f"{server} says that the cluster is in order"
            until(functools.partial(self._is_ready, server), what, limit_s=limit_s)

    def _is_ready(self, server: Server) -> bool:
        state = self._say(server, "CLUSTER", "INFO")
        seen = self.members(server).values()
        followed = [row[3] for row in seen if row[3] != "-"]
        role = self._say(server, "ROLE")
        whole = "cluster_state:ok" in state and f"cluster_slots_ok:{SLOTS}" in state and len(seen) == 6
        sound = all("fail" not in row[2] for row in seen) and len(set(followed)) == 3
        return whole and sound and (role[0] == "master" or role[3] == "connected")

    def _agreed(self, slot: int | str) -> Server | None:
        number = self._number(slot)
        ports = {self._owner_port(each, number) for each in self.nodes if each.alive}
        found = [node for node in self.nodes if ports == {node.port} and node.alive]
        return found[0] if found and self._say(found[0], "ROLE")[0] == "master" else None

    def _promoted(self, slot: int | str, old: Server) -> Server | None:
        found = self._agreed(slot)
        return found if found is not old else None

    def _number(self, slot: int | str) -> int:
        return key_slot(slot) if isinstance(slot, str) else slot

    def _owner_port(self, server: Server, slot: int) -> int:
        ranges = self._say(server, "CLUSTER", "SLOTS")
        return next((owner[1] for first, last, owner, *_ in ranges if first <= slot <= last), 0)

    def _say(self, server: Server, *command: Any) -> Any:
        return say(server, *command, password=self.password)


def _as_dict(row: Sequence[str]) -> dict[str, str]:
    return dict(zip(row[::2], row[1::2], strict=True))
