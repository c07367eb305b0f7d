"""The queue at the end against the ledger."""

import itertools
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.chaos.conductor import Promotion, Struck
from tests.chaos.ledger import Entry
from tests.chaos.load import ATTEMPTS, LEAN, QUEUES
from tests.chaos.schedule import END, ON_SERVER
from tests.chaos.state import Event, State

STALL_LIMIT = "job stalled more than allowable limit"
WAIT_LIMIT_S = 7.0
"""After this long a blocking wait on a half-open connection fails (drain delay and margin); a call does after 3 s."""
_FINISHES = ("completed", "failed")
_SLACK_MS = 1000
_LATE_MS = 200
_SHOWN = 10

Mark = tuple[str, str]
"""Queue and mark: one add."""
Job = tuple[str, str, str]
"""Queue, id and mark. An add that was repeated made two; after a promotion an id is given again."""


def standstills(entries: Iterable[Entry]) -> list[Struck]:
    """Give the moments when a process got no CPU, in the shape of faults; where the proxies stood still, all did."""
    return [
        Struck("late", "server" if entry.slot == "server-conductor" else entry.slot, entry.at - late, entry.at)
        for entry in entries
        if entry.word == "late"
        for late in (int(entry.fields[0]),)
    ]


class Restart(NamedTuple):
    """A job whose lock was lost: who held it, if that is known, and whether a fault explains it."""

    job: Job
    at: int
    holder: str
    explained: bool


class Findings(NamedTuple):
    """What the comparison brought. Everything in `problems` makes the run fail."""

    jobs: int
    lost: list[Mark]
    twice: list[Job]
    restarts: list[Restart]
    stall_failed: list[Job]
    problems: list[str]
    notes: list[str]


class Auditor:
    """One comparison."""

    def __init__(
        self, entries: list[Entry], state: dict[str, State], struck: list[Struck], promotions: list[Promotion]
    ) -> None:
        self._entries = entries
        self._state = state
        self._late = standstills(entries)
        self._struck = struck + self._late
        self._promotions = promotions
        self._problems: list[str] = []
        self._notes: list[str] = []
        self._by_word: dict[str, list[Entry]] = defaultdict(list)
        for entry in entries:
            self._by_word[entry.word].append(entry)
        self._starts = {(_job(entry), int(entry.fields[3])): entry for entry in self._by_word["start"]}
        self._events: dict[Job, list[Event]] = defaultdict(list)
        for queue, found in state.items():
            for event in found.events:
                if event.id:
                    self._events[queue, event.id, event.mark].append(event)

    def findings(self) -> Findings:
        acked = self._adds()
        lost = self._lost(acked)
        twice = self._twice()
        restarts = self._restarts()
        failed = self._stall_failed(restarts)
        self._states()
        self._unnoted()
        longest = max((each.end - each.begin for each in self._late), default=0)
        self._notes.append(f"{len(self._late)} times a process stood still, at most {longest / 1000:.1f} s")
        jobs = sum(event.kind == "added" for events in self._events.values() for event in events)
        return Findings(jobs, lost, twice, restarts, failed, self._problems, self._notes)

    # --- adds ---------------------------------------------------------------------------------------------------------

    def _adds(self) -> dict[Mark, Entry]:
        """Return the acknowledged adds; every job must have been added once, and by somebody who tried."""
        tried = {_mark(entry) for entry in self._by_word["try"]}
        refused = {_mark(entry) for entry in self._by_word["not"]}
        added = Counter(
            (queue, mark)
            for (queue, _, mark), events in self._events.items()
            for event in events
            if event.kind == "added"
        )
        self._tell("has a job, but nobody added it", set(added) - tried)
        # Node's client repeats an add whose answer was lost, and tells of the second alone.
        odd = set(added) & refused
        nodes = {mark for mark in odd if "-node-" in mark[1]}
        self._tell("is there, though its add was refused", odd - nodes)
        if nodes:
            self._notes.append(f"Node's client reported {len(nodes)} refused adds that are there: {_some(nodes)}")
        again = {mark for mark, count in added.items() if count > 1}
        nodes = {mark for mark in again if "-node-" in mark[1]}
        self._tell("was added twice", again - nodes)
        if nodes:
            self._notes.append(f"Node's client repeated {len(nodes)} adds on its own: {_some(nodes)}")
        return {_mark(entry): entry for entry in self._by_word["ack"]}

    def _lost(self, acked: dict[Mark, Entry]) -> list[Mark]:
        there = {(queue, mark) for queue, found in self._state.items() for mark in found.marks()}
        gone = set(acked) - there
        lacked: set[Mark] = set()
        for promotion in self._promotions:
            before = {mark for mark, entry in acked.items() if entry.at < promotion.at}
            held = {(queue, mark) for queue, found in promotion.state.items() for mark in found.marks()}
            lacked |= before - held
        if self._promotions:
            self._notes.append(f"the promoted replicas lacked {len(lacked)} acknowledged adds; {len(gone)} are gone")
            self._tell("was lacked by a promoted replica and is there all the same", lacked - gone)
            return sorted(gone - lacked)
        finished = {(entry.fields[0], entry.fields[2]) for entry in self._accepted()}
        self._tell("was finished, says the ledger, but its event is gone", gone & finished)
        return sorted(gone - finished)

    # --- finishes -----------------------------------------------------------------------------------------------------

    def _twice(self) -> list[Job]:
        by_stream = Counter(job for job, events in self._events.items() for event in events if event.kind in _FINISHES)
        by_ledger = Counter(map(_job, self._accepted()))
        twice = {job for job, count in by_stream.items() if count > 1}
        twice |= {job for job, count in by_ledger.items() if count > 1 and not self._undone(job)}
        if not self._promotions:
            self._tell("was finished by the ledger, but not by the stream", set(by_ledger) - set(by_stream))
        return sorted(twice)

    def _accepted(self) -> Iterator[Entry]:
        yield from self._by_word["done"]
        yield from (entry for entry in self._by_word["failed"] if entry.fields[3] == "1")

    def _undone(self, job: Job) -> bool:
        """Tell whether all finishes but the last were unknown to a replica that was promoted after them."""
        moments = sorted(entry.at for entry in self._accepted() if _job(entry) == job)
        return all(
            any(at < promotion.at <= later and not _finished(promotion, job) for promotion in self._promotions)
            for at, later in itertools.pairwise(moments)
        )

    def _unnoted(self) -> None:
        """A finish that its worker did not note was cut off from its answer by a fault."""
        noted = set(map(_job, self._accepted()))
        missing = 0
        for job, events in self._events.items():
            ends = [event for event in events if event.kind in _FINISHES]
            if not ends or job in noted:
                continue
            missing += 1
            start = self._starts.get((job, sum(event.kind == "active" for event in events)))
            if not self._explained(start, start.at if start else ends[-1].at, ends[-1].at + _SLACK_MS):
                self._problems.append(f"{job} was finished, and no fault explains why nobody was told")
        self._notes.append(f"{missing} finishes whose answer did not reach their worker")

    # --- lost locks ---------------------------------------------------------------------------------------------------

    def _restarts(self) -> list[Restart]:
        found: list[Restart] = []
        for job, events in self._events.items():
            starts, active = 0, 0
            for event in events:
                if event.kind == "active":
                    starts, active = starts + 1, event.at
                elif event.kind == "stalled":
                    start = self._starts.get((job, starts))
                    # Without a start its answer was lost: at the moment of the fetch, then.
                    until = event.at if start is not None else active + _SLACK_MS
                    explained = self._explained(start, active, until)
                    found.append(Restart(job, event.at, start.process if start else "nobody", explained))
        for restart in found:
            if not restart.explained:
                self._problems.append(f"{restart.job} lost its lock at {restart.at}, held by {restart.holder}: why?")
        seen = Counter((_job(entry), entry.fields[3]) for entry in self._by_word["start"])
        if not self._promotions:
            self._tell("began twice with one fetch", {key for key, count in seen.items() if count > 1})
        return found

    def _explained(self, start: Entry | None, since: int, until: int) -> bool:
        """Tell whether a fault met the holder (any worker, if it is unknown) or the server between these moments."""
        return any(
            fault.begin <= until and fault.end >= since - _SLACK_MS
            for fault in self._struck
            if fault.kind not in (END, "script-flush")
            and (
                fault.slot == "server"
                or (fault.slot == start.slot if start is not None else fault.slot.startswith("worker"))
            )
        )

    def _stall_failed(self, restarts: list[Restart]) -> list[Job]:
        counts = Counter(restart.job for restart in restarts if restart.explained)
        failed = [
            job
            for job, events in self._events.items()
            if any(event.kind == "failed" and event.reason == STALL_LIMIT for event in events)
        ]
        self._tell("failed by the stall limit without two lost locks", {job for job in failed if counts[job] < 2})
        return failed

    # --- what is stored -----------------------------------------------------------------------------------------------

    def _states(self) -> None:
        for queue, found in self._state.items():
            self._problems += found.strange
            self._problems += [f"a lock was left behind: {queue} {lock}" for lock in found.locks]
            for job_id, job in found.jobs.items():
                where = "+".join(job.states)
                fine = where in ("completed", "failed") and not (queue == LEAN and where == "completed")
                if not fine:
                    self._problems.append(f"{queue} {job_id} ({job.mark}) is {where or 'in no state'}")
                elif job.reason == STALL_LIMIT:
                    continue
                elif where == "failed":
                    if (job.fails, job.attempts, job.reason) != (ATTEMPTS, ATTEMPTS, "as told"):
                        self._problems.append(f"{queue} {job_id} failed after {job.attempts} attempts: {job.reason}")
                elif job.attempts != job.fails + 1:
                    self._problems.append(f"{queue} {job_id} was completed by report {job.attempts} of {job.fails + 1}")

    def _tell(self, what: str, marks: Iterable[object]) -> None:
        found = sorted(marks, key=str)
        if found:
            self._problems.append(f"{len(found)} times: a job {what}: {_some(found)}")


def _mark(entry: Entry) -> Mark:
    return entry.fields[0], entry.fields[1]


def _job(entry: Entry) -> Job:
    return entry.fields[0], entry.fields[1], entry.fields[2]


def _finished(promotion: Promotion, job: Job) -> bool:
    queue, job_id, mark = job
    events = promotion.state[queue].events
    return any(event.kind in _FINISHES and (event.id, event.mark) == (job_id, mark) for event in events)


def _some(marks: Iterable[object]) -> str:
    found = sorted(map(str, marks))
    return ", ".join(found[:_SHOWN]) + (" ..." if len(found) > _SHOWN else "")


# --- how soon workers work again --------------------------------------------------------------------------------------


class Recovery(NamedTuple):
    """From the end of a fault until a worker had begun a job of each queue."""

    kind: str
    adapter: str
    seconds: float
    allowed: float


def recoveries(
    entries: list[Entry], struck: list[Struck], adapters: Sequence[str], *, patience_s: float
) -> Iterator[Recovery]:
    """Measure every recovery that no other fault disturbed."""
    begun: dict[tuple[str, str], list[int]] = defaultdict(list)
    for entry in entries:
        if entry.word == "start":
            begun[entry.slot, entry.fields[0]].append(entry.at)
    late = standstills(entries)
    for fault in struck:
        for adapter in adapters:
            slot = f"worker-{adapter}"
            if fault.slot not in (slot, "server"):
                continue
            nexts = [_next(begun[slot, queue], fault.end) for queue in QUEUES]
            if None in nexts:
                continue
            until = max(each for each in nexts if each is not None)
            # A stopped process notes its own stop: that is the fault itself.
            apart = [each for each in late if each.begin > fault.begin + _LATE_MS]
            others = (other for other in struck + apart if other is not fault and other.slot in (slot, "server"))
            if any(other.begin <= until and other.end >= fault.end for other in others):
                continue
            yield Recovery(fault.kind, adapter, (until - fault.end) / 1000, _allowed(fault, patience_s))


def _next(moments: list[int], after: int) -> int | None:
    index = bisect_right(moments, after)
    return moments[index] if index < len(moments) else None


def _allowed(fault: Struck, patience_s: float) -> float:
    away = (fault.end - fault.begin) / 1000 if fault.slot == "server" else 0.0
    if fault.kind == "half-open":
        return patience_s + WAIT_LIMIT_S
    if fault.kind == "kill":
        # A process has to start first.
        return 3 * patience_s
    # The delays double, so the last one is about as long as the outage; and there is jitter.
    return max(patience_s, 1.2 * away + 1) if away > 5 else patience_s


# --- the report -------------------------------------------------------------------------------------------------------


def fault_table(struck: list[Struck], measured: list[Recovery], adapters: Sequence[str]) -> Iterator[str]:
    """Give a line per kind: how often, whom, and the slowest recovery of each adapter."""
    yield "fault".ljust(17) + "".join(
        each.rjust(9) for each in ("times", *adapters, "server", *(f"~{name}" for name in adapters))
    )
    for kind in dict.fromkeys(sorted((each.kind for each in struck), key=lambda kind: (kind in ON_SERVER, kind))):
        mine = [each for each in struck if each.kind == kind]
        cells = [len(mine)] if kind != END else [0]
        cells += [sum(each.slot.endswith(f"-{adapter}") for each in mine) for adapter in adapters]
        cells.append(sum(each.slot == "server" for each in mine))
        slowest = [
            max((each.seconds for each in measured if (each.kind, each.adapter) == (kind, adapter)), default=None)
            for adapter in adapters
        ]
        yield (
            kind.ljust(17)
            + "".join(str(cell).rjust(9) for cell in cells)
            + "".join(("-" if each is None else f"{each:.2f} s").rjust(9) for each in slowest)
        )


def adapter_table(entries: list[Entry], measured: list[Recovery], adapters: Sequence[str]) -> Iterator[str]:
    """Give a line per adapter: what it added, began and finished."""
    words = ("ack", "unsure", "not", "start", "done", "failed", "refused")
    counts = Counter((entry.slot.rpartition("-")[2], entry.word) for entry in entries)
    yield "adapter".ljust(10) + "".join(word.rjust(9) for word in words) + "  slowest".rjust(11)
    for adapter in adapters:
        slowest = max((each.seconds for each in measured if each.adapter == adapter), default=0)
        yield adapter.ljust(10) + "".join(str(counts[adapter, word]).rjust(9) for word in words) + f"{slowest:9.2f} s"


def too_slow(measured: Iterable[Recovery]) -> Iterator[str]:
    """Name the recoveries of our adapters that took longer than they may."""
    for each in measured:
        if each.adapter != "node" and each.seconds > each.allowed:
            yield f"{each.adapter} took {each.seconds:.2f} s after {each.kind}, allowed were {each.allowed:.1f} s"


def write_problems(folder: Path, problems: list[str]) -> None:
    (folder / "problems").write_text("".join(f"{line}\n" for line in problems))
