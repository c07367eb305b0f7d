"""The error tree, and the exception of each script error code.

`BullMQError` is the root. Below it: what the caller did wrong (`UsageError`), what the server said (`ServerError`,
`UnexpectedReply`, `ScriptError`), what happened to the connection (`TransportError`), and the signals a processor
raises (`JobSignal`). Any reply to any command decodes or raises `BullMQError`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

# Redis 6.2 and all servers for permissions: the error of a command inside a script is wrapped.
_MET_BY_SCRIPT = re.compile(r"^(?:ERR )?Error running script.*?: -?([A-Z]{2,}) ", re.DOTALL)
_FORBIDDEN_TO_SCRIPT = re.compile(r"The user executing the script can't |ACL failure in script")


class BullMQError(Exception):
    """Root of everything this library raises. Errors can be copied and pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (type(self), self.args, dict(self.__dict__))


def _remake(kind: type[BullMQError], args: tuple[object, ...], state: dict[str, object]) -> BullMQError:
    """Return an equal error without running its constructor, whose arguments are not those of the message."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


_TOKEN = re.compile(r"\S+")
_IN_SCHEME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-")
_NOT_IN_USER = frozenset(":/@'\"([{")
_AFTER_SCHEME = re.compile(r"/{1,2}(?:\[[0-9a-f:.%]*\]?)?", re.IGNORECASE)
_NO_PORT = re.compile(
    r"""@|password=|:(?!(?:port|[0-9]{1,5})(?:[/?#,;:.'"\])}>\s]|$))""",
    re.IGNORECASE,
)
_HIDDEN = "[a URL with a login]"
_MASK = "***@"
"""What a login was replaced by already."""


def looks_like_login(text: str) -> bool:
    """Tell whether a text looks like a URL with a user or a password in it, also one without scheme or host."""
    return _login_in(text) is not None


def without_login(text: str) -> str:
    """Return a text as it may be shown: from what looks like a URL with a login on, nothing is left of it."""
    start = _login_in(text)
    return text if start is None else f"{text[:start]}{_HIDDEN}"


def _login_in(text: str) -> int | None:
    """Return where the first login begins. No step looks at a character more than a few times: texts may be long."""
    for token in _TOKEN.finditer(text.replace(_MASK, "*" * len(_MASK))):
        starts = [start for start in (_url_in(token[0]), _pair_in(token[0])) if start is not None]
        if starts:
            return token.start() + min(starts)
    return None


def _url_in(token: str) -> int | None:
    """Find `scheme://` with an `@`, a password, or something after a colon that is no port."""
    colon = token.find(":/")
    while colon >= 0:
        start = colon
        while start > 0 and token[start - 1] in _IN_SCHEME:
            start -= 1
        while start < colon and not token[start].isalpha():
            start += 1
        if start < colon:
            after = _AFTER_SCHEME.match(token, colon + 1)
            # What comes later is part of this rest, too.
            return start if _NO_PORT.search(token, colon + 1 if after is None else after.end()) else None
        colon = token.find(":/", colon + 1)
    return None


def _pair_in(token: str) -> int | None:
    """Find `user:password@host`."""
    begin = 0
    at = token.find("@")
    while at >= 0:
        colon = token.find(":", begin, at - 1) if at > 0 else -1
        if colon >= 0 and token[at + 1 : at + 2] not in ("", "@"):
            while colon > begin and token[colon - 1] not in _NOT_IN_USER:
                colon -= 1
            return colon
        begin = at + 1
        at = token.find("@", begin)
    return None


def shown(value: object, most: int = 120) -> str:
    """Return a value's repr, cut to a length, without the login of a URL; its type where it has none, or is nested too
    deeply for one."""
    try:
        text = repr(without_login(value)) if isinstance(value, str) else without_login(repr(value))
    except Exception:
        return f"a {type(value).__name__}"
    return text if len(text) <= most else f"{text[: most - 3]}..."


class UsageError(BullMQError, ValueError):
    """A bad value from the caller, found before anything was sent.

    `field`, `value` and `rule` say which, what and why; the message holds all three. A value that looks like a URL with
    a login is replaced by a text that says so.
    """

    def __init__(self, field: str, value: object, rule: str) -> None:
        self.field = without_login(field)
        self.rule = without_login(rule)
        self.value = _HIDDEN if _holds_login(value) else value
        super().__init__(f"{self.field}: {self.rule} (got {shown(self.value)})")


def _holds_login(value: object) -> bool:
    try:
        return looks_like_login(value if isinstance(value, str) else repr(value))
    except Exception:
        return False


class UnexpectedReply(BullMQError):
    """The server answered with a shape that the specification does not allow."""

    def __init__(self, expected: str, reply: object) -> None:
        super().__init__(f"expected {expected}, got {shown(reply, 200)}")
        self.expected = expected
        self.reply = reply


class ServerError(BullMQError):
    """An error reply of the server. `code` is its first word (`ERR`, `WRONGTYPE`, `OOM`, ...), or that of the error
    which a script met."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        code, _, _ = message.partition(" ")
        self.code = code if code.isupper() else "ERR"
        if self.code == "ERR":
            if (met := _MET_BY_SCRIPT.search(message)) is not None:
                self.code = met[1]
            elif _FORBIDDEN_TO_SCRIPT.search(message) is not None:
                self.code = "NOPERM"

    @property
    def message(self) -> str:
        return str(self)


class RetriedInPart(ServerError):
    """A failed child whose failure its parent ignores was put to wait again, and will run; but the script of BullMQ
    5.62.0 stopped there (WRONGTYPE): no event tells of it, and the parent counts the failure as ignored still.

    Source: specs/03-transitions-admin-getters.md#reprocess-job
    """

    def __init__(self, job_id: str, parent_key: str) -> None:
        super().__init__(
            f"WRONGTYPE job {job_id} waits again, but the retry stopped before its end, as in BullMQ 5.62.0: its "
            f"parent {parent_key} ignores failures of children; no event tells of it, "
            "and the parent counts the failure still"
        )
        self.job_id = job_id
        self.parent_key = parent_key


class PayloadError(BullMQError, msgspec.DecodeError):
    """Text that is not JSON where data, a result or progress belongs."""


class PayloadMismatch(PayloadError, msgspec.ValidationError):
    """JSON that does not fit the type asked for."""


class ServerTooOld(BullMQError):
    """The server is older than the minimum that the scripts need."""


class TransportError(BullMQError):
    """The connection failed before a reply came.

    `maybe_applied` is True when the command may have run on the server: its bytes were handed to the operating system
    and no reply came. False means it certainly did not run.
    """

    def __init__(self, message: str, *, maybe_applied: bool) -> None:
        note = "; the command may have run on the server" if maybe_applied else ""
        super().__init__(f"{message}{note}")
        self.reason = message
        self.maybe_applied = maybe_applied


class ConnectionLost(TransportError):
    """No connection could be made, or it broke."""


class TransportTimeout(TransportError):
    """No reply came within the time limit of the call; the connection was dropped."""


class Closed(TransportError):
    """The client was closed by its owner."""

    def __init__(self, message: str = "the client is closed", *, maybe_applied: bool = False) -> None:
        super().__init__(message, maybe_applied=maybe_applied)


class AuthenticationFailed(ServerError):
    """The server refused user and password (WRONGPASS, NOAUTH, NOPERM on connect)."""


class BulkAddError(BullMQError):
    """Some jobs of a bulk were refused. `results` says per job what happened: the added job, or the error."""

    def __init__(self, results: Sequence[object]) -> None:
        errors = [result for result in results if isinstance(result, BullMQError)]
        super().__init__(f"{len(errors)} of {len(results)} jobs were not added; the first error: {errors[0]}")
        self.results = list(results)


class FlowAddError(BullMQError):
    """Some nodes of a flow were refused, and the transaction does not undo the others.

    Per node, level by level: `nodes` names it, with its job's id; `results` is that id, or the error.
    """

    def __init__(self, place: str, nodes: Sequence[str], results: Sequence[str | BullMQError]) -> None:
        refused = [(node, each) for node, each in zip(nodes, results, strict=True) if isinstance(each, BullMQError)]
        node, first = refused[0]
        super().__init__(f"{len(refused)} of {len(results)} nodes were refused; the first, {place} ({node}): {first}")
        self.nodes = list(nodes)
        self.results = list(results)


class NodeRefused(BullMQError):
    """A node of a flow gave way to an existing job, so that its place in the flow stays empty.

    `existing_id` is the job that stands for it.
    """

    def __init__(self, message: str, *, existing_id: str) -> None:
        super().__init__(message)
        self.existing_id = existing_id


class JobFailedError(BullMQError):
    """A job that was waited for has failed for good. `reason` is its failure's text."""

    def __init__(self, job_id: str, reason: str) -> None:
        super().__init__(reason or f"job {job_id} failed without a reason")
        self.job_id = job_id
        self.reason = reason


class WaitTimeout(BullMQError, TimeoutError):
    """A job that was waited for did not finish in time. It may do so later."""

    def __init__(self, job_id: str, timeout_ms: int) -> None:
        super().__init__(f"job {job_id} did not finish within {timeout_ms} ms")
        self.job_id = job_id
        self.timeout_ms = timeout_ms


# --- signals of a processor
# --------------------------------------------------------------------------------------------


class JobSignal(BullMQError):
    """What a processor raises to say how its job ends. The default message is BullMQ's own.

    Source: specs/05-worker-runtime.md#sec-8-2
    """

    default_message = ""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(self.default_message if message is None else message)


class UnrecoverableError(JobSignal):
    """Fail the job for good, whatever attempts are left."""

    default_message = "bullmq:unrecoverable"


class DelayedError(JobSignal):
    """The processor has moved the job to delayed itself."""

    default_message = "bullmq:movedToDelayed"


class WaitingError(JobSignal):
    """The processor has moved the job to wait itself."""

    default_message = "bullmq:movedToWait"


class WaitingChildrenError(JobSignal):
    """The processor has moved the job to waiting-children itself."""

    default_message = "bullmq:movedToWaitingChildren"


class RateLimitError(JobSignal):
    """Give the job back: the queue is rate limited. Recognised by its message, as BullMQ does."""

    default_message = "bullmq:rateLimitExceeded"


class TransientError(JobSignal):
    """Say that the failure is worth a retry, whatever the error's type says.

    `retry_after_ms`, when given, replaces the computed backoff delay.
    """

    default_message = "transient error"

    def __init__(self, message: str | None = None, *, retry_after_ms: int | None = None) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class PermanentError(JobSignal):
    """Say that a retry is pointless: the job fails for good."""

    default_message = "permanent error"


# --- script error codes
# ------------------------------------------------------------------------------------------------


class ScriptError(BullMQError):
    """A negative reply of a script. `code` is that number.

    Source: specs/03-transitions-admin-getters.md#sec-1-7
    """

    code: int = 0
    template = "Unknown code {code} error for {job_id}. {command}"

    def __init__(
        self,
        command: str,
        *,
        job_id: str = "undefined",
        parent_key: str = "undefined",
        state: str = "undefined",
        code: int | None = None,
    ) -> None:
        if code is not None:
            self.code = code
        super().__init__(
            self.template.format(code=self.code, command=command, job_id=job_id, parent_key=parent_key, state=state)
        )
        self.command = command
        self.job_id = job_id


class JobNotFound(ScriptError):
    """-1: the job's hash does not exist."""

    code = -1
    template = "Missing key for job {job_id}. {command}"


class LockMissing(ScriptError):
    """-2: the job has no lock (it expired, or the job was never active)."""

    code = -2
    template = "Missing lock for job {job_id}. {command}"


class WrongState(ScriptError):
    """-3: the job is not in the state the command needs."""

    code = -3
    template = "Job {job_id} is not in the {state} state. {command}"


class PendingChildren(ScriptError):
    """-4: the job has children that are not finished."""

    code = -4
    template = "Job {job_id} has pending dependencies. {command}"


class ParentNotFound(ScriptError):
    """-5: the parent's hash does not exist."""

    code = -5
    template = "Missing key for parent job {parent_key}. {command}"


class LockMismatch(ScriptError):
    """-6: the lock is held with another token."""

    code = -6
    template = "Lock mismatch for job {job_id}. Cmd {command} from {state}"


class ParentNotReplaceable(ScriptError):
    """-7: the existing job belongs to another parent that still exists."""

    code = -7
    template = "The parent job {parent_key} cannot be replaced. {command}"


class JobBelongsToScheduler(ScriptError):
    """-8: the job is the current iteration of a job scheduler."""

    code = -8
    template = "Job {job_id} belongs to a job scheduler and cannot be removed directly. {command}"


class ChildFailed(ScriptError, UnrecoverableError):
    """-9: a child that fails its parent has failed."""

    code = -9
    template = "Cannot complete job {job_id} because it has at least one failed child. {command}"


class SchedulerIdTaken(ScriptError):
    """-10: a job with the id of the scheduler's iteration exists."""

    code = -10
    template = "Cannot create job scheduler iteration - job ID already exists. {command}"


class SchedulerSlotsTaken(ScriptError):
    """-11: the scheduler's slot and the one after it hold jobs."""

    code = -11
    template = "Cannot create job scheduler iteration - current and next time slots already have jobs. {command}"


SCRIPT_ERRORS: Mapping[int, type[ScriptError]] = MappingProxyType(
    {
        kind.code: kind
        for kind in (
            JobNotFound,
            LockMissing,
            WrongState,
            PendingChildren,
            ParentNotFound,
            LockMismatch,
            ParentNotReplaceable,
            JobBelongsToScheduler,
            ChildFailed,
            SchedulerIdTaken,
            SchedulerSlotsTaken,
        )
    }
)


def script_error(
    code: int, command: str, *, job_id: str = "undefined", parent_key: str = "undefined", state: str = "undefined"
) -> ScriptError:
    """Return the exception of a script's negative reply.

    Source: specs/01-data-model-and-adding.md#sec-9
    """
    kind = SCRIPT_ERRORS.get(code, ScriptError)
    return kind(command, job_id=job_id, parent_key=parent_key, state=state, code=code)
