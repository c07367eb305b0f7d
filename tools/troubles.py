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
        BullMQError: "The base of every error that this library raises.",
        errors.TransportError: "The connection failed before a reply came; `maybe_applied` says whether the command may"
        " have run.",
        errors.JobSignal: "What a handler raises to decide how its job ends.",
        errors.ScriptError: "A script refused the call. A code without its own class comes from a newer BullMQ.",
        monque.MonqueError: "The base of every error that the Monque schedulers raise, except `UsageError`.",
    }
)
"""Errors that are caught rather than raised, with what they are."""

TROUBLES: Mapping[type[BullMQError], Trouble] = MappingProxyType(
    {
        errors.ConnectionLost: Trouble(
            _LOST,
            "No server listens at the address, a firewall blocks it, or the connection broke. A worker logs it "
            "and keeps trying.",
            "Start the server, or correct the address (`BULLMQ_URL`). If `maybe_applied` is True, an add may have "
            "happened: see [adding once](connection-loss.md#adding-once).",
        ),
        errors.TransportTimeout: Trouble(
            errors.TransportTimeout("no reply within the time limit", maybe_applied=True),
            "The server or the network took longer than `command_timeout_ms`. A long-running script blocks all other "
            "commands.",
            "Look for slow calls (`SLOWLOG`, `drain` of a large queue). For long operations, raise "
            "`ConnectionOptions(command_timeout_ms=...)`, or "
            "use the methods that work [page by page](api.md#long-operations).",
        ),
        errors.Closed: Trouble(
            errors.Closed(),
            "A queue, worker or connection was used after `aclose`, `close` or the end of its `async with`.",
            "Open it once for the whole program, not for each call, and close it at the end.",
        ),
        errors.AuthenticationFailed: Trouble(
            errors.AuthenticationFailed(_DENIED),
            "The user or the password is wrong, or the user may not run the first commands of a connection.",
            "Correct the URL. For secrets that change, pass `credentials=`, a function that is called at each connect.",
        ),
        ServerError: Trouble(
            ServerError("OOM command not allowed when used memory > 'maxmemory'."),
            "The server answered with an error. `code` is its first word.",
            "Look it up [by its code](connection-loss.md#what-the-server-may-answer-instead): `OOM`, `READONLY`, "
            "`LOADING`, `NOPERM` and others.",
        ),
        errors.ServerTooOld: Trouble(
            errors.ServerTooOld("the server has version 5.0.14, but 6.2 or later is needed"),
            "The scripts need commands that were added in Redis 6.2.",
            "Upgrade the server.",
        ),
        errors.UsageError: Trouble(
            errors.UsageError("delay", -1, "must be at least 0"),
            "An argument is wrong. Nothing was sent. The message has the field, the rule and the value.",
            "Correct the value. A program can read `error.field` and `error.rule`.",
        ),
        CronError: Trouble(
            CronError("61 * * * *", "minute", "Constraint error, got value 61 expected range 0-59"),
            "The cron pattern is invalid, or BullMQ 5 and 6 read it differently, which the profile `FLEET` refuses.",
            "Correct the pattern. [Profiles](profiles.md) says which patterns each profile accepts.",
        ),
        errors.PayloadError: Trouble(
            errors.PayloadError("invalid JSON: Expecting value: line 1 column 1 (char 0)"),
            "A client stored text that is not JSON.",
            "`job.record.fields` may show which client it was. A worker fails such a job and continues with the next.",
        ),
        errors.PayloadMismatch: Trouble(
            errors.PayloadMismatch("Expected `int`, got `str` - at `$.number`"),
            "Data or a result is valid JSON, but does not match the expected type.",
            "Correct the producer or the type. [Payloads](payloads.md) has the rules.",
        ),
        errors.UnexpectedReply: Trouble(
            errors.UnexpectedReply("an integer", b"abc"),
            "The server is not Redis, a proxy changed the reply, or another program wrote to the queue's keys.",
            "Check what listens at the address, then run `bullmq-doctor`.",
        ),
        errors.BulkAddError: Trouble(
            errors.BulkAddError(["1", ServerError("OOM command not allowed when used memory > 'maxmemory'.")]),
            "The server refused some jobs of a bulk. The others were added.",
            "`error.results` has a job or an error for each. Add the failed ones again.",
        ),
        errors.FlowAddError: Trouble(
            errors.FlowAddError(
                "flow[0].children[1]",
                ["bull:books:1", "bull:pages:2"],
                ["1", errors.ParentNotFound("addStandardJob", job_id="2", parent_key="bull:books:1")],
            ),
            "The server refused some nodes of a flow. The others were added, since Redis does not roll back "
            "transactions.",
            "`error.nodes` and `error.results` say which. Remove what was added, or add the missing children.",
        ),
        errors.NodeRefused: Trouble(
            errors.NodeRefused("job 'page' of bull:pages was deduplicated: job 7 stands for it", existing_id="7"),
            "A node of a flow was not added because its job exists already, so its parent would never get this child.",
            "Give the node another id, or remove its deduplication.",
        ),
        errors.JobFailedError: Trouble(
            errors.JobFailedError("7", "the card has expired"),
            "The job that you waited for has failed for good. The message is the reason of its failure.",
            "`bullmq-ctl job QUEUE ID` shows its stack traces.",
        ),
        errors.WaitTimeout: Trouble(
            errors.WaitTimeout("7", 5000),
            "The job did not finish within the time given to `wait_until_finished`. It may still finish later.",
            "Check that a worker is running (`bullmq-ctl workers QUEUE`) and that the queue is not paused. Otherwise "
            "wait longer, or do not wait: return the job's id.",
        ),
        errors.RetriedInPart: Trouble(
            errors.RetriedInPart("7", "bull:books:1"),
            "With the profile `STRICT`, the script does what BullMQ 5.62.0's does: it moves the job to wait and then "
            "fails.",
            "Nothing: the job runs. The profile `FLEET` avoids the error.",
        ),
        errors.UnrecoverableError: Trouble(
            errors.UnrecoverableError(),
            "A handler raised it without a message: the job fails for good.",
            "Give it a message that says why: it becomes the job's failed reason.",
        ),
        errors.PermanentError: Trouble(
            errors.PermanentError(),
            "A handler raised it without a message: the job fails for good.",
            "Give it a message that says why: it becomes the job's failed reason.",
        ),
        errors.TransientError: Trouble(
            errors.TransientError(),
            "A handler raised it without a message: the attempt failed, and the job is retried while attempts are "
            "left.",
            "Give it a message. `retry_after_ms` says when to try again.",
        ),
        errors.DelayedError: Trouble(
            errors.DelayedError(),
            "A handler has moved its job to delayed and tells the worker so. It is not a failure.",
            "If a job failed with it, the handler raised it without calling `job.move_to_delayed` first: see "
            "[steps](guides/steps.md).",
        ),
        errors.WaitingError: Trouble(
            errors.WaitingError(),
            "A handler has returned its job to the queue and tells the worker so. It is not a failure.",
            "If a job failed with it, the handler raised it without calling `job.move_to_wait` first: see "
            "[steps](guides/steps.md).",
        ),
        errors.WaitingChildrenError: Trouble(
            errors.WaitingChildrenError(),
            "A handler has made its job wait for its children and tells the worker so. It is not a failure.",
            "Raise it only if `job.move_to_waiting_children` returned True: see [steps](guides/steps.md).",
        ),
        errors.RateLimitError: Trouble(
            errors.RateLimitError(),
            "A handler returns its job to the queue because the queue is rate limited. No attempt is counted.",
            "Call `queue.rate_limit(ms)` first: otherwise the job is fetched again at once. See [rate "
            "limits](guides/rate-limits.md).",
        ),
        errors.JobNotFound: Trouble(
            errors.JobNotFound("moveToFinished", job_id="7"),
            "The job no longer exists: it was removed, by a call or by `remove_on_complete`, or the server lost its "
            "data.",
            "Keep finished jobs for as long as you need them: see [what to keep](guides/retention.md).",
        ),
        errors.LockMissing: Trouble(
            errors.LockMissing("moveToFinished", job_id="7"),
            "The lock has expired because the process hung for longer than `lock_duration`; or the job is not active.",
            "See [stalled jobs](guides/stalled.md): usually a handler blocks the event loop.",
        ),
        errors.LockMismatch: Trouble(
            errors.LockMismatch("moveToFinished", job_id="7", state="active"),
            "Another worker has the job now: the lock had expired, and the stalled check returned the job to the "
            "queue.",
            "See [stalled jobs](guides/stalled.md). The other worker's outcome counts; write [idempotent "
            "handlers](guides/idempotency.md).",
        ),
        errors.WrongState: Trouble(
            errors.WrongState("reprocessJob", job_id="7", state="failed"),
            "The job is not in the state that the call needs: `promote` needs a delayed job, `retry` a finished one.",
            "Check `job.get_state()` first, and expect that the state may still change before the call.",
        ),
        errors.PendingChildren: Trouble(
            errors.PendingChildren("moveToFinished", job_id="7"),
            "The handler returned while the job has children that are not finished.",
            "Let the handler call `job.move_to_waiting_children` and raise `WaitingChildrenError`: see "
            "[steps](guides/steps.md).",
        ),
        errors.ParentNotFound: Trouble(
            errors.ParentNotFound("addStandardJob", job_id="8", parent_key="bull:books:1"),
            "The parent does not exist, or no longer.",
            "Add the parent first, or add everything as a [flow](guides/flows.md). Keep completed parents to which "
            "children may be added.",
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
            "A child with the option `fail_parent_on_failure` has failed.",
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
            "[The relay](relay.md) lists the codes. A node whose lease has ended registers again when it reads.",
        ),
        QueueNotPaused: Trouble(
            QueueNotPaused("Cannot obliterate non-paused queue"),
            "A queue must be paused before it can be destroyed.",
            "Use `queue.obliterate()`, which pauses it.",
        ),
        QueueHasActiveJobs: Trouble(
            QueueHasActiveJobs("Cannot obliterate queue with active jobs"),
            "`obliterate` found active jobs.",
            "Stop the workers, or call `obliterate(force=True)`.",
        ),
        NoNextRun: Trouble(
            NoNextRun("Out of the timespan range"),
            "The cron pattern has no future date: it names the 30th of February, or `end_date` has passed.",
            "Correct the pattern or `end_date`.",
        ),
        UnknownBackoff: Trouble(
            UnknownBackoff("quadratic"),
            "The job's backoff has a custom type, and this worker has no strategy for it. The job fails.",
            "Give every worker of the queue a `backoff_strategy`, also those on Node: see "
            "[retries](guides/retries.md).",
        ),
        Unschedulable: Trouble(
            Unschedulable("job scheduler 'nightly': the job has no repeat options; it was delayed"),
            "A worker took a scheduler's job, but cannot compute the next run. It is reported as a `WorkerProblem`.",
            "Upsert the scheduler again. `bullmq-doctor` says what is wrong with it.",
        ),
        NotContinued: Trouble(
            NotContinued("'a:b:c:d:e' is no job scheduler, and BullMQ 6 continues no repeatable job; this one runs"),
            "A worker with the profile `V6_7` ran a repeatable job of the oldest kind; that profile does not continue "
            "its series.",
            "Replace it with a job scheduler: see [schedulers](guides/schedulers.md).",
        ),
        monque.CommandRefused: Trouble(
            monque.CommandRefused("E11000 duplicate key error", 11000),
            "MongoDB answered with an error.",
            "`number` is its code.",
        ),
        monque.MonqueConnectionError: Trouble(
            monque.MonqueConnectionError("Monque not initialized. Call initialize() first."),
            "A command failed, or the scheduler was used before its `async with`.",
            "Open the scheduler first. If a command failed, `__cause__` is the original error.",
        ),
        monque.InvalidCronError: Trouble(
            monque.InvalidCronError("61 * * * *", "value 61 out of range"),
            "The cron expression is invalid.",
            "Write five fields, or a name such as `@daily`.",
        ),
        monque.ShutdownTimeoutError: Trouble(
            monque.ShutdownTimeoutError(30_000, ["job"]),
            "Jobs were still running at the end of the shutdown timeout. It is reported in an event.",
            "The jobs run again when their lease has ended. Allow more time, or make jobs shorter.",
        ),
        monque.WorkerRegistrationError: Trouble(
            monque.WorkerRegistrationError("mail"),
            "This name already has a handler.",
            "Pass `replace=True`, or register each name once.",
        ),
        monque.JobStateError: Trouble(
            monque.JobStateError("65f0", "processing", "cancel"),
            "The job's state does not allow the operation.",
            "Check `current_status`; a running job can be neither cancelled nor rescheduled.",
        ),
        monque.InvalidCursorError: Trouble(
            monque.InvalidCursorError("x", "Invalid cursor payload"),
            "The cursor token of a listing is invalid, or belongs to another sort order.",
            "Start again with the first page.",
        ),
        monque.AggregationTimeoutError: Trouble(
            monque.AggregationTimeoutError(),
            "The server needed more than 30 seconds to count.",
            "Count with a filter, or add an index.",
        ),
        monque.PayloadTooLargeError: Trouble(
            monque.PayloadTooLargeError(20_000_000, 16_000_000),
            "The data is larger than `max_payload_size`.",
            "Store the data elsewhere and put its id into the job.",
        ),
        monque.InvalidJobIdentifierError: Trouble(
            monque.InvalidJobIdentifierError("name", "", "Job name cannot be empty or whitespace only."),
            "A name or a unique key is empty, too long, or has characters that Monque refuses.",
            "Choose another.",
        ),
    }
)
"""Every other error, by its class, in the order of the page."""
