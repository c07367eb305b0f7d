"""Who runs the programs and the servers, and strikes them."""

import heapq
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from bullmq_protocol.testing.conformance import Fault as Spoil
from tests.chaos import load
from tests.chaos.ledger import Ledger, Reader, now
from tests.chaos.schedule import ABRUPT, END, Fault
from tests.chaos.state import State, connect, events_so_far, read_state, unfinished
from tests.support import servers
from tests.support.cut_proxy import CutProxy
from tests.support.node import bullmq_folder
from tests.support.servers import Server

ROLES = ("worker", "producer")

_ROOT = Path(__file__).parents[2]
# What program.js needs to know of load.py.
_SHARED = ("CONCURRENCY", "LANES", "ROOM", "PERIOD_S", "SPARSE_S", "REST_S", "ATTEMPTS", "RETRY_MS", "MAX_LEN_EVENTS")
_SPOILS = {
    "cut-before": Spoil.CUT_BEFORE,
    "cut-after": Spoil.CUT_AFTER,
    "cut-mid-reply": Spoil.CUT_MID_REPLY,
    "half-open": Spoil.SWALLOW,
}
_PATIENCE_S = 30.0
_BEARABLE = 5
"""This many problems, and no program is started again."""
_QUIET_S = 0.5
"""Between the death of a master and its successor's first client, so that all have noted its answers."""
_CONFIG = ("--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync", "yes")
_CONFIG += ("--repl-diskless-sync-delay", "0", "--repl-backlog-size", "64mb")


class Struck(NamedTuple):
    """A fault that took place, from its beginning to the moment when what it struck could work again."""

    kind: str
    slot: str
    begin: int
    end: int
    detail: str = ""


class Promotion(NamedTuple):
    """The state of a replica at the moment it became the master."""

    at: int
    state: dict[str, State]


class Stuck(Exception):
    """Something did not come in time."""


class _Slot:
    """A program's place: its proxy, and the process that is there now."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.role, _, self.adapter = name.partition("-")
        self.proxy: CutProxy | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.number = 0
        self.up = False
        self.reader: Reader | None = None
        self.begun: dict[str, int] = {}
        """The last start per queue."""

    def look(self) -> None:
        for entry in self.reader.new() if self.reader is not None else ():
            if entry.word == "start":
                self.begun[entry.fields[0]] = entry.at


class Conductor:
    """One run. `struck`, `promotions`, `problems` and `notes` say what happened."""

    def __init__(
        self,
        folder: Path,
        *,
        seed: int,
        adapters: Sequence[str],
        lock_ms: int,
        stalled_ms: int,
        kind: str | None,
        settle_s: float,
        abrupt: bool,
    ) -> None:
        self.struck: list[Struck] = []
        self.promotions: list[Promotion] = []
        self.problems: list[str] = []
        self.notes: list[str] = []
        self._folder = folder
        self._given = {"seed": str(seed), "lock_ms": lock_ms, "stalled_ms": stalled_ms}
        self._kind = kind if kind is not None else _server_kind()
        self._settle_s = settle_s
        self._abrupt = abrupt
        self._slots = {f"{role}-{adapter}": _Slot(f"{role}-{adapter}") for role in ROLES for adapter in adapters}
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._nodes: list[Server] = []
        self._link: CutProxy | None = None

    @property
    def kind(self) -> str:
        return self._kind

    @property
    def slots(self) -> list[str]:
        return list(self._slots)

    # --- begin and end ------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _open(self) -> None:
        # The proxies stand still with this process.
        Ledger(str(self._folder / "server-conductor-1.ledger")).watch()
        for _ in range(2):
            self._nodes.append(servers.start(self._kind, config=_CONFIG))
        if self._abrupt:
            self._link = CutProxy(self._master.host, self._master.port)
        self._attach()
        for slot in self._slots.values():
            slot.proxy = CutProxy(self._master.host, self._master.port)
            self._spawn(slot)
        self._await(lambda: all(self._begun(slot, 0) for slot in self._workers()), "all workers begin")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for slot in self._slots.values():
            process = slot.process
            if process is not None:
                if process.poll() is None:
                    os.kill(process.pid, signal.SIGCONT)
                _end(process)
            if slot.proxy is not None:
                slot.proxy.close()
        if self._link is not None:
            self._link.close()
        for node in self._nodes:
            node.__exit__(None, None, None)

    def drain(self) -> None:
        """End the faults and the producers; return when nothing is left to be done."""
        self._run_until(lambda: not self._later, _PATIENCE_S)
        since = now()
        self._settle(list(self._workers()), since)
        self.struck.append(Struck(END, "server", since, since))
        for slot in self._slots.values():
            if slot.role == "producer":
                self._finish(slot)
        with connect(self._master.port) as client:
            seen, quiet = -1, time.monotonic()
            while unfinished(client):
                if (found := events_so_far(client)) != seen:
                    seen, quiet = found, time.monotonic()
                if time.monotonic() > quiet + 2 * _PATIENCE_S:
                    self.problems.append(f"{unfinished(client)} jobs are left, and nothing happens any more")
                    return
                self._supervise()
                time.sleep(0.05)

    def dismiss(self) -> dict[str, State]:
        """End the workers; return what is stored then."""
        for slot in self._workers():
            self._finish(slot)
        with connect(self._master.port) as client:
            mine = str(client.client_id())

            def left() -> list[str]:
                return [str(each) for each in client.client_list(_type="normal") if each["id"] != mine]

            if not self._run_until(lambda: not left(), _PATIENCE_S):
                self.problems += [f"a connection is left: {each}" for each in left()]
            return read_state(client)

    # --- faults -------------------------------------------------------------------------------------------------------

    def strike(self, fault: Fault) -> None:
        """Carry out one fault; its late part (a process goes on, or comes again) happens in a later call."""
        self._run_until(lambda: False, fault.pause)
        slot = self._slots.get(fault.slot)
        begin = now()
        if slot is not None and not slot.up:
            # Struck before, and not yet back.
            self._run_until(lambda: slot.up, _PATIENCE_S)
            begin = now()
        if slot is None:
            self._strike_server(fault, begin)
        elif fault.kind == "kill":
            self._kill(slot, fault, begin)
        elif fault.kind == "stop":
            self._stop(slot, fault, begin)
        elif fault.kind == "client-kill":
            self._kill_connections(slot, fault, begin)
        else:
            self._cut(slot, fault, begin)

    def _strike_server(self, fault: Fault, begin: int) -> None:
        detail = ""
        if fault.kind == "script-flush":
            with connect(self._master.port) as client:
                client.script_flush()
        elif fault.kind == "restart":
            detail = f"away for {fault.seconds:.1f} s after {'SIGTERM' if fault.gently else 'SIGKILL'}"
            master = self._master
            if fault.gently:
                master.stop()
            else:
                master.kill()
            self._run_until(lambda: False, fault.seconds)
            master.restart()
        elif fault.kind == ABRUPT:
            detail = f"the replica was cut off {fault.seconds:.2f} s before"
            self._kill_master(fault.seconds)
        else:
            begin = self._fail_over(fault.seconds)
        end = now()
        self._record(Struck(fault.kind, "server", begin, end, detail))
        if fault.settled:
            self._settle(list(self._workers()), end)
        if fault.kind == ABRUPT:
            self._revive()

    def _kill(self, slot: _Slot, fault: Fault, begin: int) -> None:
        assert slot.process is not None
        slot.up = False
        _end(slot.process)

        def again() -> None:
            self._spawn(slot)
            self._record(Struck(fault.kind, slot.name, begin, now(), f"back after {fault.seconds:.1f} s"))

        self._at(fault.seconds, again)

    def _stop(self, slot: _Slot, fault: Fault, begin: int) -> None:
        assert slot.process is not None
        slot.up = False
        process = slot.process
        process.send_signal(signal.SIGSTOP)

        def go_on() -> None:
            process.send_signal(signal.SIGCONT)
            slot.up = True
            self._record(Struck(fault.kind, slot.name, begin, now(), f"stood still for {fault.seconds:.1f} s"))

        self._at(fault.seconds, go_on)

    def _kill_connections(self, slot: _Slot, fault: Fault, begin: int) -> None:
        assert slot.proxy is not None
        with connect(self._master.port) as client:
            ports = slot.proxy.upstream_ports()
            killed = sum(client.client_kill_filter(addr=f"127.0.0.1:{port}") for port in ports)
        end = now()
        self._record(Struck(fault.kind, slot.name, begin, end, f"{killed} connections"))
        if fault.settled and slot.role == "worker":
            self._settle([slot], end)

    def _cut(self, slot: _Slot, fault: Fault, begin: int) -> None:
        proxy = slot.proxy
        assert proxy is not None
        marker, times = fault.marker, fault.times
        proxy.arm(_SPOILS[fault.kind], marker, times)
        if not self._run_until(lambda: proxy.struck >= times, 1):
            # This marker does not come: strike the next write, whatever it is.
            marker, times = "*", 1
            proxy.arm(_SPOILS[fault.kind], marker, times)
            if not self._run_until(lambda: proxy.struck >= times, _PATIENCE_S):
                self.problems.append(f"{slot.name} wrote nothing for {_PATIENCE_S:.0f} s")
        end = now()
        self._record(Struck(fault.kind, slot.name, begin, end, f"{times} writes with {marker}"))
        if fault.settled and slot.role == "worker":
            self._settle([slot], end)

    # --- servers ------------------------------------------------------------------------------------------------------

    @property
    def _master(self) -> Server:
        return self._nodes[0]

    @property
    def _replica(self) -> Server:
        return self._nodes[1]

    def _attach(self) -> None:
        """Make the second node the replica of the first, in `abrupt` runs through a proxy."""
        port = self._master.port
        if self._link is not None:
            self._link.retarget(self._master.host, port)
            self._link.arm(Spoil.NONE)
            port = self._link.port
        with connect(self._replica.port) as client:
            client.replicaof("127.0.0.1", port)

    def _await_replica(self) -> None:
        """Wait until the replica has everything, as far as that can be while work goes on."""
        with connect(self._master.port) as master:

            def in_step() -> bool:
                found = master.info("replication")
                slave = found.get("slave0")
                near = slave is not None and found["master_repl_offset"] - slave["offset"] < 1_000_000
                return near and slave["state"] == "online"

            self._await(in_step, "the replica is in step")

    def _fail_over(self, stale_s: float) -> int:
        """Let the nodes change places; connections to the old master stay open for a while."""
        self._await_replica()
        begin = now()
        with connect(self._master.port) as old, connect(self._replica.port) as new:
            old.execute_command("FAILOVER", "TO", self._replica.host, self._replica.port, "TIMEOUT", 10_000)
            self._await(lambda: new.info("replication")["role"] == "master", "the replica is promoted")
        self._nodes.reverse()
        self._lead()
        self._run_until(lambda: False, stale_s)
        for slot in self._slots.values():
            assert slot.proxy is not None
            slot.proxy.drop_all()
        return begin

    def _kill_master(self, cut_off_s: float) -> None:
        """Cut the replica off, kill the master, promote the replica and note what it holds before any client comes."""
        self._await_replica()
        assert self._link is not None
        self._link.arm(Spoil.REFUSE)
        self._run_until(lambda: False, cut_off_s)
        self._master.kill()
        with connect(self._replica.port) as client:
            client.replicaof("NO", "ONE")
            time.sleep(_QUIET_S)
            self.promotions.append(Promotion(now(), read_state(client)))
        self._nodes.reverse()
        self._lead()

    def _revive(self) -> None:
        """Let the killed master come again as a replica."""
        self._replica.restart()
        self._attach()

    def _lead(self) -> None:
        for slot in self._slots.values():
            assert slot.proxy is not None
            slot.proxy.retarget(self._master.host, self._master.port)

    # --- programs -----------------------------------------------------------------------------------------------------

    def _workers(self) -> list[_Slot]:
        return [slot for slot in self._slots.values() if slot.role == "worker"]

    def _spawn(self, slot: _Slot) -> None:
        assert slot.proxy is not None
        slot.number += 1
        name = f"{slot.name}-{slot.number}"
        ledger = self._folder / f"{name}.ledger"
        config: dict[str, Any] = {
            **self._given,
            "role": slot.role,
            "adapter": slot.adapter,
            "name": name,
            "ledger": str(ledger),
            "url": slot.proxy.url,
            "host": slot.proxy.host,
            "port": slot.proxy.port,
        }
        environment = dict(os.environ)
        if slot.adapter == "node":
            config["load"] = {name.lower(): getattr(load, name) for name in _SHARED}
            command = ["node", str(Path(__file__).parent / "program.js"), json.dumps(config)]
            environment["NODE_PATH"] = str(bullmq_folder())
        else:
            command = [sys.executable, "-m", "tests.chaos.program", json.dumps(config)]
        with (self._folder / f"{name}.out").open("wb") as output:
            slot.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, stderr=output, cwd=_ROOT, env=environment
            )
        slot.reader = Reader(ledger)
        slot.up = True

    def _finish(self, slot: _Slot) -> None:
        """Let a program end in good order."""
        process = slot.process
        assert process is not None and process.stdin is not None
        slot.up = False
        process.stdin.close()
        try:
            code = process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.problems.append(f"{slot.name} does not end")
            return
        if code != 0:
            self.problems.append(f"{slot.name} ended with {code}: {self._folder / f'{slot.name}-{slot.number}.out'}")

    def _supervise(self) -> None:
        for slot in self._slots.values():
            process = slot.process
            if slot.up and process is not None and process.poll() is not None:
                slot.up = False
                _end(process)
                name = f"{slot.name}-{slot.number}"
                last = (self._folder / f"{name}.out").read_text().splitlines()[-1:]
                self.problems.append(f"{name} ended on its own with {process.returncode}: {last}")
                if len(self.problems) > _BEARABLE:
                    raise Stuck(f"the programs end by themselves: {self.problems}")
                self._at(1, lambda slot=slot: self._spawn(slot))

    # --- time ---------------------------------------------------------------------------------------------------------

    def _record(self, struck: Struck) -> None:
        self.struck.append(struck)
        with (self._folder / "faults").open("a") as file:
            file.write(" ".join(map(str, struck)) + "\n")

    def _at(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._order), action))

    def _run_until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Carry out what is due, until `done` or for this long; tell whether it is done."""
        limit = time.monotonic() + seconds
        while True:
            while self._later and self._later[0][0] <= time.monotonic():
                heapq.heappop(self._later)[2]()
            self._supervise()
            if done():
                return True
            if time.monotonic() >= limit:
                return False
            time.sleep(0.01)

    def _await(self, done: Callable[[], bool], what: str) -> None:
        if not self._run_until(done, _PATIENCE_S):
            raise Stuck(f"{what}: not within {_PATIENCE_S:.0f} s")

    def _begun(self, slot: _Slot, since: int) -> bool:
        slot.look()
        return all(slot.begun.get(queue, -1) > since for queue in load.QUEUES)

    def _settle(self, slots: list[_Slot], since: int) -> None:
        """Wait until these workers have begun a job of each queue since then; who is struck meanwhile is left out."""
        left = [slot for slot in slots if slot.up]

        def settled() -> bool:
            left[:] = [slot for slot in left if slot.up and not self._begun(slot, since)]
            return not left

        if not self._run_until(settled, self._settle_s):
            for slot in left:
                # Node's own client waits up to 20 s between two attempts.
                reported = self.notes if slot.adapter == "node" else self.problems
                reported.append(
                    f"{slot.name}-{slot.number} is stuck: began nothing for {self._settle_s:.0f} s after {since}"
                )


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _server_kind() -> str:
    """Choose a server that runs as a process here: it is killed, and replicates to its neighbour."""
    able = [kind for kind in servers.kinds() if kind in servers.sources() and servers.sources()[kind].name != "docker"]
    if not able:
        raise servers.NoServer("chaos needs a server program, on PATH or from a wheel")
    return min(able, key=lambda kind: servers.sources()[kind].name == "wheel")
