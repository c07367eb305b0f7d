"""Many threads on one queue, with one worker, one reader of events and one connection after another."""

from __future__ import annotations

import contextlib
import faulthandler
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bullmq_protocol import BullMQError, JobOptions, NewJob, WorkerOptions
from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.errors import Closed, JobNotFound, TransportError, WaitTimeout
from bullmq_protocol.worker.notices import JobCompleted
from bullmq_sync import Connection, Job, Queue, QueueEvents, Worker

_HANGS_S = 90
"""After this long without an end all stacks are printed, and the process ends with an error."""
_SWITCH_S = 1e-6


@dataclass
class Report:
    """What was done, and what is wrong."""

    counts: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])

    @property
    def good(self) -> bool:
        return not self.faults

    def text(self) -> str:
        lines = [", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))]
        return "\n".join([*lines, *(f"FAULT: {fault}" for fault in self.faults), "good" if self.good else "not good"])


class Stress:
    """One run. Every random choice is drawn from the seed, by a generator of each thread."""

    def __init__(self, url: str, seed: int, duration: float, *, callers: int = 64) -> None:
        self._url = url
        self._seed = seed
        self._duration = duration
        self._callers = callers
        self._name = f"stress-{seed}"
        self._report = Report()
        self._lock = threading.Lock()
        # guarded by _lock
        self._added: set[str] = set()
        self._handled: Counter[str] = Counter()
        self._events: QueueEvents | None = None
        self._over = threading.Event()

    def run(self) -> Report:
        """Add, work, wait and strike for the duration; then work off what is left and compare."""
        before = sys.getswitchinterval()
        faulthandler.dump_traceback_later(self._duration + _HANGS_S, exit=True)
        sys.setswitchinterval(_SWITCH_S)
        try:
            self._run()
        finally:
            sys.setswitchinterval(before)
            faulthandler.cancel_dump_traceback_later()
        return self._report

    def _run(self) -> None:
        known = set(threading.enumerate())
        transport = Connection(self._url)
        queue = Queue[Any](self._name, transport)
        ends = [self._aside("events", self._keep_events)]
        ends += [self._aside(f"worker {number}", self._keep_worker, number) for number in range(2)]
        ends.append(self._aside("killer", self._kill))
        callers = [self._aside(f"caller {number}", self._call, number, queue) for number in range(self._callers)]
        time.sleep(self._duration)
        self._over.set()
        for thread in (*callers, *ends):
            thread.join()
        self._work_off(queue)
        self._compare(queue)
        queue.obliterate(force=True)
        queue.close()
        transport.close()
        end = time.monotonic() + 20
        while set(threading.enumerate()) - known and time.monotonic() < end:
            time.sleep(0.01)
        left = set(threading.enumerate()) - known
        if left:
            self._fault(f"threads are left: {sorted(each.name for each in left)}")

    def _aside(self, name: str, work: Callable[..., None], *args: Any) -> threading.Thread:
        def run() -> None:
            try:
                work(random.Random(f"{self._seed} {name}"), *args)
            except BaseException as error:
                self._fault(f"{name} died: {error!r}")
                raise

        thread = threading.Thread(target=run, name=name)
        thread.start()
        return thread

    def _fault(self, text: str) -> None:
        with self._lock:
            self._report.faults.append(text)

    def _count(self, what: str) -> None:
        with self._lock:
            self._report.counts[what] += 1

    # --- who works ----------------------------------------------------------------------------------------------------

    def _process(self, job: Job[Any]) -> Any:
        with self._lock:
            self._handled[job.id] += 1
        match job.name:
            case "fails":
                raise ValueError("planted")
            case "waits":
                job.cancelled.wait(0.002)
            case "tells":
                job.update_progress(1)
            case _:
                pass
        return job.id

    def _keep_worker(self, dice: random.Random, number: int) -> None:
        """One worker after another, each closed at some moment: gently, by force, from a handler, or by an exit."""
        while not self._over.is_set():
            options = WorkerOptions(
                concurrency=dice.choice([1, 4, 16, 64]),
                shutdown_timeout=dice.choice([0, 50, 5000]),
                stalled_interval=1000,
                # How long the last worker waits for jobs whose worker was closed by force.
                lock_duration=5000,
            )
            worker = Worker[Any](self._name, self._process, self._url, options=options)
            worker.on(JobCompleted, lambda notice: self._count("completed"))
            with worker:
                end = time.monotonic() + dice.uniform(0.05, 1.5)
                while time.monotonic() < end:
                    match dice.randrange(4):
                        case 0:
                            worker.pause(wait=False)
                            worker.resume()
                        case 1:
                            worker.concurrency = dice.choice([1, 8, 64])
                        case 2:
                            worker.snapshot()
                        case _:
                            self._over.wait(0.02)
                if dice.random() < 0.5:
                    worker.close(force=dice.random() < 0.5)
            self._count("workers")

    def _keep_events(self, dice: random.Random) -> None:
        while not self._over.is_set():
            with QueueEvents(self._name, self._url, max_reconnect_delay=50) as events:
                with self._lock:
                    self._events = events
                self._over.wait(dice.uniform(0.3, 3))
            self._count("readers")

    def _kill(self, dice: random.Random) -> None:
        """Cut connections of any kind."""
        with Queue[Any](f"{self._name}-killer", self._url) as queue:
            while not self._over.wait(dice.uniform(0.5, 2)):
                rows: str = queue.call(Command("CLIENT", (), ("LIST",), _text, repeat=Repeat.SAFE))
                ids = [row.split()[0].removeprefix("id=") for row in rows.splitlines()]
                for each in dice.sample(ids, min(3, len(ids))):
                    with contextlib.suppress(BullMQError):
                        queue.call(Command("CLIENT", (), ("KILL", "ID", each), _text, repeat=Repeat.SAFE))
                self._count("kills")

    # --- who calls ----------------------------------------------------------------------------------------------------

    def _call(self, dice: random.Random, number: int, queue: Queue[Any]) -> None:
        made = 0
        while not self._over.is_set():
            made += 1
            job_id = f"j{number}-{made}"
            options = JobOptions(job_id=job_id, attempts=dice.choice([1, 2]))
            name = dice.choice(["plain", "plain", "fails", "waits", "tells"])
            try:
                match dice.randrange(6):
                    case 0:
                        queue.add_bulk([NewJob(name, number, options)])
                        self._note(job_id)
                    case 1:
                        job = queue.add(name, number, options=options)
                        self._note(job_id)
                        self._wait_for(job)
                    case 2:
                        queue.get_job_counts()
                    case 3:
                        queue.get_job(job_id)
                    case 4:
                        # A connection that another thread closes under the call.
                        self._close_under_call(dice)
                    case _:
                        queue.add(name, number, options=options)
                        self._note(job_id)
            except TransportError:
                # Killed; whether it was added is not known.
                self._count("lost calls")

    def _note(self, job_id: str) -> None:
        with self._lock:
            self._added.add(job_id)

    def _wait_for(self, job: Job[Any]) -> None:
        with self._lock:
            events = self._events
        if events is None:
            return
        try:
            job.wait_until_finished(events, 500)
            self._count("results")
        except (Closed, WaitTimeout):
            self._count("waits given up")
        except JobNotFound:
            self._fault(f"job {job.id} was not found")
        except BullMQError as error:
            self._count(type(error).__name__)

    def _close_under_call(self, dice: random.Random) -> None:
        with Queue[Any](f"{self._name}-aside", self._url) as aside:
            timer = threading.Timer(dice.uniform(0, 0.003), aside.close)
            timer.start()
            try:
                aside.get_job_counts()
            except Closed:
                self._count("closed calls")
            finally:
                timer.join()

    # --- the end ------------------------------------------------------------------------------------------------------

    def _work_off(self, queue: Queue[Any]) -> None:
        """Let nobody disturb the last worker."""
        options = WorkerOptions(concurrency=16, stalled_interval=1000, lock_duration=5000)
        with Worker[Any](self._name, self._process, self._url, options=options):
            end = time.monotonic() + 60
            while True:
                counts = queue.get_job_counts("wait", "active", "delayed", "prioritized")
                if not any(counts.values()):
                    return
                if time.monotonic() > end:
                    self._fault(f"not worked off: {counts}")
                    return
                time.sleep(0.05)

    def _compare(self, queue: Queue[Any]) -> None:
        ended = {job.id: job for job in (*queue.get_completed(0, -1), *queue.get_failed(0, -1))}
        missing = sorted(self._added - ended.keys())
        if missing:
            self._fault(f"{len(missing)} acknowledged adds are gone: {missing[:5]}")
        unhandled = [job_id for job_id in ended if not self._handled[job_id]]
        if unhandled:
            self._fault(f"{len(unhandled)} jobs ended without a handler: {unhandled[:5]}")
        wrong = [job.id for job in queue.get_completed(0, -1) if job.returnvalue != job.id]
        if wrong:
            self._fault(f"{len(wrong)} jobs have another's result: {wrong[:5]}")
        self._report.counts["added"] = len(self._added)
        self._report.counts["ended"] = len(ended)


def _text(reply: Any) -> str:
    return reply.decode(errors="replace") if isinstance(reply, bytes) else str(reply)
