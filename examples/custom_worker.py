"""A custom worker on the core alone, one job at a time in one thread, over redis-py as it comes.

`python -m examples.custom_worker redis://localhost`. The machine of the core decides everything: what to fetch, what
becomes of a failure, when to look for stalled jobs. What is left to write is this loop: carry out actions, hand back
what came of them.
"""

import re
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable
from typing import Any

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from bullmq_protocol import Command, Instant, JobRecord, NewJob, QueueKeys, WorkerMachine, WorkerOptions, prepare
from bullmq_protocol.commands.adding import add_job
from bullmq_protocol.common.codec import json_text
from bullmq_protocol.errors import ServerError
from bullmq_protocol.model.failure import failure_of
from bullmq_protocol.worker.actions import Action, Call, Notify, RunJob, Stopped, Wait
from bullmq_protocol.worker.events import CallFailed, CloseRequested, JobRaised, JobReturned, Replied, Tick
from bullmq_protocol.worker.notices import Drained, JobCompleted, JobFailed

# redis-py cuts the code off these errors; by it the machine tells what passes from what does not.
CODES: dict[type[Exception], str] = {
    exceptions.AuthenticationError: "NOAUTH",
    exceptions.BusyLoadingError: "LOADING",
    exceptions.ClusterDownError: "CLUSTERDOWN",
    exceptions.MasterDownError: "MASTERDOWN",
    exceptions.NoPermissionError: "NOPERM",
    exceptions.OutOfMemoryError: "OOM",
    exceptions.ReadOnlyError: "READONLY",
    exceptions.TryAgainError: "TRYAGAIN",
}

CODE = re.compile("[A-Z]+ ")

Handler = Callable[[JobRecord], Any]


def clock() -> Instant:
    return Instant(wall=time.time_ns() // 1_000_000, mono=time.monotonic_ns() // 1_000_000)


def send(client: "redis.Redis[bytes]", command: Command[Any]) -> Any:
    """Return the raw reply. Scripts go by their SHA, and whole when the server does not know them yet."""
    try:
        return client.execute_command(*command.wire())
    except redis.exceptions.NoScriptError:
        return client.execute_command(*command.wire(full_source=True))


class SimpleWorker:
    """Works until the queue is empty."""

    def __init__(self, keys: QueueKeys, handler: Handler, client: "redis.Redis[bytes]") -> None:
        settings, _ = WorkerOptions(drain_delay=0.1).checked()
        self._machine = WorkerMachine(keys, settings, str(uuid.uuid4()))
        self._handler = handler
        self._client = client
        self._todo: deque[Action] = deque()

    def run(self) -> None:
        self._todo.extend(self._machine.start(clock()))
        while True:
            if not self._todo:
                # A report that is to be tried again, or a server that is not there: the machine says when.
                deadline = self._machine.deadline()
                if deadline is not None:
                    time.sleep(max(0, deadline - clock().mono) / 1000)
                self._todo.extend(self._machine.handle(Tick(), clock()))
                continue
            action = self._todo.popleft()
            if isinstance(action, Stopped):
                return
            self._do(action)
            deadline = self._machine.deadline()
            if deadline is not None and deadline <= clock().mono:
                self._todo.extend(self._machine.handle(Tick(), clock()))

    def _do(self, action: Action) -> None:
        match action:
            case Call(ticket, command) | Wait(ticket, command):
                self._happened(self._perform(ticket, command))
            case RunJob(run, job):
                self._happened(self._work(run, job))
            case Notify(Drained()):
                self._happened(CloseRequested())
            case Notify(JobCompleted(job, value)):
                print(f"{job.name} {job.id}: {value}")
            case Notify(JobFailed(job, reason)):
                print(f"{job.name} {job.id} failed: {reason}")
            case _:
                pass

    def _happened(self, event: Any) -> None:
        self._todo.extend(self._machine.handle(event, clock()))

    def _perform(self, ticket: int, command: Command[Any]) -> Replied | CallFailed:
        try:
            return Replied(ticket, send(self._client, command))
        except redis.RedisError as error:
            code = CODES.get(type(error))
            if code is None and not isinstance(error, redis.ResponseError):
                # No answer: it may have run.
                return CallFailed(ticket, str(error), lost=True, maybe_applied=True)
            text = f"{code or 'ERR'} {error}"
            # Other codes are left as they are, but for ERR itself.
            return CallFailed.of(ticket, ServerError(str(error) if code is None and CODE.match(str(error)) else text))

    def _work(self, run: int, job: JobRecord) -> JobReturned | JobRaised:
        try:
            return JobReturned(run, json_text(self._handler(job)))
        except Exception as error:
            return JobRaised(run, failure_of(error), roll=0.5)


def shout(job: JobRecord) -> str:
    text: str = job.data["text"]
    return text.upper()


def main(url: str) -> None:
    keys = QueueKeys.of("shouts")
    # redis-py would automatically repeat a command that may have run.
    with redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0)) as client:
        for text in ("hello", "größe", None):
            job = prepare(keys, NewJob("shout", {"text": text}), now_ms=clock().wall)
            command = add_job(keys, job)
            print(f"added {command.decode(send(client, command))}")
        SimpleWorker(keys, shout, client).run()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "redis://localhost")
