"""For each error an example of it, why it comes, and what to do: `tools/error_table.py` makes a page of it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from bullmq_protocol import errors
from bullmq_protocol.commands.queues import QueueHasActiveJobs, QueueNotPaused
from bullmq_protocol.errors import BullMQError, ServerError
from bullmq_protocol.model.backoff import UnknownBackoff
from bullmq_protocol.model.cron import CronError, NoNextRun
from bullmq_protocol.worker.advance import NotContinued, Unschedulable
from monque_protocol import errors as monque


class Trouble(NamedTuple):
    """What a reader finds by a message."""

    example: BullMQError
    why: str
    do: str


_LOST = errors.ConnectionLost("cannot connect to 127.0.0.1:6379: [Errno 111] Connection refused", maybe_applied=False)
_DENIED = "WRONGPASS invalid username-password pair or user is disabled. (user 'worker' at 127.0.0.1:6379)"

ROOTS: Mapping[type[BullMQError], str] = MappingProxyType(
    {
        BullMQError: "Everything that this library raises. `except BullMQError` catches all of it.",
        errors.TransportError: "The connection failed before a reply came; `maybe_applied` says whether the command may"
        " have run.",
        errors.JobSignal: "What a handler raises to decide how its job ends.",
        errors.ScriptError: "A script refused the call. A code without a class of its own comes from a newer BullMQ.",
        monque.MonqueError: "Everything that the schedulers for Monque raise besides `UsageError`.",
    }
)
"""Errors that are caught rather than raised, with what they are."""

TROUBLES: Mapping[type[BullMQError], Trouble] = MappingProxyType(
    {
        errors.ConnectionLost: Trouble(
            _LOST,
            "No server listens at the address, a firewall is in between, or the connection broke. A worker logs it "
            "and goes on trying.",
            "Start the server, or name the right one (`BULLMQ_URL`). With `maybe_applied` an add may have happened: "
            "[add once](connection-loss.md#adding-once).",
        ),
        errors.TransportTimeout: Trouble(
            errors.TransportTimeout("no reply within the time limit", maybe_applied=True),
            "The server, or the network, took longer than `command_timeout_ms`. A script that runs long holds up all "
            "others.",
            "Look for slow calls (`SLOWLOG`, `drain` of a large queue). Raise "
            "`ConnectionOptions(command_timeout_ms=...)` for long operations, or "
            "use those that go [in pages](api.md#long-operations).",
        ),
        errors.Closed: Trouble(
            errors.Closed(),
            "A queue, worker or connection was used after `aclose`, `close` or the end of its `async with`.",
            "Keep it open for as long as it is used: one for the whole program, not one for each call.",
        ),
        errors.AuthenticationFailed: Trouble(
            errors.AuthenticationFailed(_DENIED),
            "User or password are wrong, or the user may not run the first commands of a connection.",
            "Correct the URL. For secrets that change, give `credentials=`: it is asked at each connect.",
        ),
        ServerError: Trouble(
            ServerError("OOM command not allowed when used memory > 'maxmemory'."),
            "The server answered with an error. `code` is its first word.",
            "Look it up [by its code](connection-loss.md#what-the-server-may-answer-instead): `OOM`, `READONLY`, "
            "`LOADING`, `NOPERM` and others.",
        ),
        errors.ServerTooOld: Trouble(
            errors.ServerTooOld("the server has version 5.0.14, but 6.2 or later is needed"),
            "The scripts need commands that came with Redis 6.2.",
            "Upgrade the server.",
        ),
        errors.UsageError: Trouble(
            errors.UsageError("delay", -1, "must be at least 0"),
            "An argument is wrong. Nothing was sent. The message has the field, the rule and the value.",
            "Correct the value. `error.field` and `error.rule` are for programs.",
        ),
        CronError: Trouble(
            CronError("61 * * * *", "minute", "Constraint error, got value 61 expected range 0-59"),
            "The cron pattern cannot be read, or BullMQ 5 and 6 read it differently, which the profile `FLEET` "
            "refuses.",
            "Correct the pattern. [Profiles](profiles.md) says which patterns each of them takes.",
        ),
        errors.PayloadError: Trouble(
            errors.PayloadError("invalid JSON: Expecting value: line 1 column 1 (char 0)"),
            "A client stored text that is not JSON.",
            "Find the client by `job.record.fields`. A worker fails such a job; nothing else stops.",
        ),
        errors.PayloadMismatch: Trouble(
            errors.PayloadMismatch("Expected `int`, got `str` - at `$.number`"),
            "Data or a result is JSON, but not of the type that was asked for.",
            "Correct the producer, or the type. [Payloads](payloads.md) has the rules.",
        ),
        errors.UnexpectedReply: Trouble(
            errors.UnexpectedReply("an integer", b"abc"),
            "What answered is no Redis, a proxy changed the reply, or another program wrote to the queue's keys.",
            "Look at what the address leads to, then run `bullmq-doctor`.",
        ),
        errors.BulkAddError: Trouble(
            errors.BulkAddError(["1", ServerError("OOM command not allowed when used memory > 'maxmemory'.")]),
            "The server refused some jobs of a bulk. The others were added.",
            "`error.results` has the job or the error for each. Add those again that failed.",
        ),
        errors.FlowAddError: Trouble(
            errors.FlowAddError(
                "flow[0].children[1]",
                ["bull:books:1", "bull:pages:2"],
                ["1", errors.ParentNotFound("addStandardJob", job_id="2", parent_key="bull:books:1")],
            ),
            "The server refused some nodes of a flow. The others were added; a transaction of Redis undoes nothing.",
            "`error.nodes` and `error.results` say which. Remove what was added, or add the missing children.",
        ),
        errors.NodeRefused: Trouble(
            errors.NodeRefused("job 'page' of bull:pages was deduplicated: job 7 stands for it", existing_id="7"),
            "A node of a flow gave way to an existing job, so its parent would never get this child.",
            "Give the node another id, or take the deduplication off it.",
        ),
        errors.JobFailedError: Trouble(
            errors.JobFailedError("7", "the card has expired"),
            "A job that you waited for has failed for good. The message is its failure.",
            "`bullmq-ctl job QUEUE ID` shows its stack traces.",
        ),
        errors.WaitTimeout: Trouble(
            errors.WaitTimeout("7", 5000),
            "The job did not finish in the time of `wait_until_finished`. It may do so later.",
            "Is a worker running (`bullmq-ctl workers QUEUE`), and is the queue paused? Otherwise wait longer, or do "
            "not wait: answer with the job's id.",
        ),
        errors.RetriedInPart: Trouble(
            errors.RetriedInPart("7", "bull:books:1"),
            "With the profile `STRICT`, BullMQ 5.62.0's script moves such a job to wait and then stops.",
            "The job runs. Use the profile `FLEET`, whose script does not stop.",
        ),
        errors.UnrecoverableError: Trouble(
            errors.UnrecoverableError(),
            "A handler raised it without a text: the job fails for good.",
            "Give it a text that says why: it becomes the job's failure.",
        ),
        errors.PermanentError: Trouble(
            errors.PermanentError(),
            "A handler raised it without a text: the job fails for good.",
            "Give it a text that says why: it becomes the job's failure.",
        ),
        errors.TransientError: Trouble(
            errors.TransientError(),
            "A handler raised it without a text: the attempt failed, and is retried while attempts are left.",
            "Give it a text. `retry_after_ms` says when to try again.",
        ),
        errors.DelayedError: Trouble(
            errors.DelayedError(),
            "A handler has moved its job to delayed, and says so. It is no failure.",
            "As a job's failure it means that the handler raised it without having called `job.move_to_delayed`: see "
            "[steps](guides/steps.md).",
        ),
        errors.WaitingError: Trouble(
            errors.WaitingError(),
            "A handler has given its job back, and says so. It is no failure.",
            "As a job's failure it means that the handler raised it without having called `job.move_to_wait`: see "
            "[steps](guides/steps.md).",
        ),
        errors.WaitingChildrenError: Trouble(
            errors.WaitingChildrenError(),
            "A handler has parked its job until its children are finished, and says so. It is no failure.",
            "Raise it only where `job.move_to_waiting_children` returned True: see [steps](guides/steps.md).",
        ),
        errors.RateLimitError: Trouble(
            errors.RateLimitError(),
            "A handler gives its job back, because the queue is rate limited. No attempt is counted.",
            "Call `queue.rate_limit(ms)` before: without it the job is fetched again at once. See [rate "
            "limits](guides/rate-limits.md).",
        ),
        errors.JobNotFound: Trouble(
            errors.JobNotFound("moveToFinished", job_id="7"),
            "The job does not exist any more: it was removed, `remove_on_complete` took it, or the server lost its "
            "data.",
            "Keep finished jobs for as long as they are asked for: see [what to keep](guides/retention.md).",
        ),
        errors.LockMissing: Trouble(
            errors.LockMissing("moveToFinished", job_id="7"),
            "The lock has expired, because the process stood still for longer than `lock_duration`; or the job is "
            "not active.",
            "See [stalled jobs](guides/stalled.md): usually a handler blocks the event loop.",
        ),
        errors.LockMismatch: Trouble(
            errors.LockMismatch("moveToFinished", job_id="7", state="active"),
            "Another worker has the job by now: the lock had expired, and the stalled check gave the job to it.",
            "As above. The outcome of the other worker counts; write [idempotent handlers](guides/idempotency.md).",
        ),
        errors.WrongState: Trouble(
            errors.WrongState("reprocessJob", job_id="7", state="failed"),
            "The job is in another state than the call needs: `promote` wants a delayed job, `retry` a failed one.",
            "Ask `job.get_state()` first, and expect that it changes between the two.",
        ),
        errors.PendingChildren: Trouble(
            errors.PendingChildren("moveToFinished", job_id="7"),
            "The job was to be finished while it has children that are not.",
            "Let the handler call `job.move_to_waiting_children` and raise `WaitingChildrenError`: see "
            "[steps](guides/steps.md).",
        ),
        errors.ParentNotFound: Trouble(
            errors.ParentNotFound("addStandardJob", job_id="8", parent_key="bull:books:1"),
            "The parent does not exist any more.",
            "Add the parent first, or the whole as a [flow](guides/flows.md). Keep completed parents that may get "
            "children.",
        ),
        errors.ParentNotReplaceable: Trouble(
            errors.ParentNotReplaceable("addStandardJob", job_id="8", parent_key="bull:books:1"),
            "A job with this id exists already and belongs to another parent.",
            "Give the child another id.",
        ),
        errors.JobBelongsToScheduler: Trouble(
            errors.JobBelongsToScheduler("removeJob", job_id="repeat:nightly:1700000000000"),
            "The job is the next one of a job scheduler.",
            "Remove the scheduler: `queue.remove_job_scheduler(id)`.",
        ),
        errors.ChildFailed: Trouble(
            errors.ChildFailed("moveToFinished", job_id="7"),
            "A child has failed whose option `fail_parent_on_failure` fails its parent.",
            "Retry the child, or choose another [failure policy](guides/flows.md).",
        ),
        errors.SchedulerIdTaken: Trouble(
            errors.SchedulerIdTaken("addJobScheduler"),
            "A job has the id that the scheduler's next job would get.",
            "Remove that job, or give the scheduler another id.",
        ),
        errors.SchedulerSlotsTaken: Trouble(
            errors.SchedulerSlotsTaken("addJobScheduler"),
            "There are jobs of the scheduler at its next time and at the one after it.",
            "Remove the scheduler and create it again. `bullmq-ctl schedulers QUEUE` lists them.",
        ),
        errors.RelayRefused: Trouble(
            errors.RelayRefused("subscribe", -3),
            "A script of the relay refused the call. `code` says why.",
            "[The relay](relay.md) has the codes. A node whose lease is over registers again when it reads.",
        ),
        QueueNotPaused: Trouble(
            QueueNotPaused("Cannot obliterate non-paused queue"),
            "A queue must be paused before it is destroyed.",
            "Use `queue.obliterate()`, which pauses it.",
        ),
        QueueHasActiveJobs: Trouble(
            QueueHasActiveJobs("Cannot obliterate queue with active jobs"),
            "`obliterate` found jobs that run.",
            "Stop the workers, or say `obliterate(force=True)`.",
        ),
        NoNextRun: Trouble(
            NoNextRun("Out of the timespan range"),
            "The cron pattern is never due again: the 30th of February, or an end that is past.",
            "Correct the pattern or `end_date`.",
        ),
        UnknownBackoff: Trouble(
            UnknownBackoff("quadratic"),
            "The job's backoff has a type of its own, and this worker has no strategy for it. The job fails.",
            "Give every worker of the queue, on Node too, a `backoff_strategy`: see [retries](guides/retries.md).",
        ),
        Unschedulable: Trouble(
            Unschedulable("job scheduler 'nightly': the job has no repeat options; it was delayed"),
            "A scheduler's job was taken, and its next run cannot be computed. It comes as a `WorkerProblem`.",
            "Upsert the scheduler again. `bullmq-doctor` names what hurts it.",
        ),
        NotContinued: Trouble(
            NotContinued("'a:b:c:d:e' is no job scheduler, and BullMQ 6 continues no repeatable job; this one runs"),
            "A repeatable job of the oldest generation was run in the profile `V6_7`, which does not continue its "
            "series.",
            "Make a job scheduler of it: see [schedulers](guides/schedulers.md).",
        ),
        monque.CommandRefused: Trouble(
            monque.CommandRefused("E11000 duplicate key error", 11000),
            "MongoDB answered with an error.",
            "`number` is its code.",
        ),
        monque.MonqueConnectionError: Trouble(
            monque.MonqueConnectionError("Monque not initialized. Call initialize() first."),
            "A command failed, or the scheduler was used before its `async with`.",
            "Open the scheduler first. `__cause__` is the error behind a command that failed.",
        ),
        monque.InvalidCronError: Trouble(
            monque.InvalidCronError("61 * * * *", "value 61 out of range"),
            "The cron expression cannot be read.",
            "Write five fields, or a name such as `@daily`.",
        ),
        monque.ShutdownTimeoutError: Trouble(
            monque.ShutdownTimeoutError(30_000, ["job"]),
            "Jobs still ran when the time for the shutdown was over. It comes in an event.",
            "They are found again by their lease. Give more time, or shorter jobs.",
        ),
        monque.WorkerRegistrationError: Trouble(
            monque.WorkerRegistrationError("mail"),
            "A name has a handler already.",
            "Pass `replace=True`, or register each name once.",
        ),
        monque.JobStateError: Trouble(
            monque.JobStateError("65f0", "processing", "cancel"),
            "The job is in a state that does not allow it.",
            "Look at `current_status`; a job that runs can be neither cancelled nor rescheduled.",
        ),
        monque.InvalidCursorError: Trouble(
            monque.InvalidCursorError("x", "Invalid cursor payload"),
            "The token of a listing is none, or belongs to another sort.",
            "Begin with the first page.",
        ),
        monque.AggregationTimeoutError: Trouble(
            monque.AggregationTimeoutError(),
            "The server took more than 30 seconds to count.",
            "Count with a filter, or add an index.",
        ),
        monque.PayloadTooLargeError: Trouble(
            monque.PayloadTooLargeError(20_000_000, 16_000_000),
            "The data is larger than `max_payload_size`.",
            "Store it elsewhere and put its id into the job.",
        ),
        monque.InvalidJobIdentifierError: Trouble(
            monque.InvalidJobIdentifierError("name", "", "Job name cannot be empty or whitespace only."),
            "A name or a unique key is empty, too long, or has characters that Monque refuses.",
            "Choose another one.",
        ),
    }
)
"""Every other error, by its class, in the order of the page."""
