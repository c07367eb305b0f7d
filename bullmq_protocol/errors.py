"""The error tree, and the exception of each script error code.

`BullMQError` is the root. Below it: mistakes of the caller (`UsageError`), replies of the server (`ServerError`,
`UnexpectedReply`, `ScriptError`), failures of the connection (`TransportError`), and the signals a processor raises
(`JobSignal`). Any reply to any command decodes or raises `BullMQError`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from bullmq_protocol.lazy import lazy_pattern

# Redis 6.2 and all servers for permissions: the error of a command inside a script is wrapped.
_MET_BY_SCRIPT = lazy_pattern(r"^(?:ERR )?Error running script.*?: -?([A-Z]{2,}) ", re.DOTALL)
_FORBIDDEN_TO_SCRIPT = lazy_pattern(r"The user executing the script can't |ACL failure in script")


class BullMQError(Exception):
    """The base class of all errors of this library. Errors can be copied and pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (type(self), self.args, dict(self.__dict__))


def _remake(kind: type[BullMQError], args: tuple[object, ...], state: dict[str, object]) -> BullMQError:
    """Return an equal error without running its constructor, whose arguments are not those of the message."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


_TOKEN = lazy_pattern(r"\S+")
_NEXT_TOKEN = lazy_pattern(r"\s+\S+")
_IN_SCHEME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-")
_NOT_IN_USER = frozenset(":/@'\"([{")
_AFTER_SCHEME = lazy_pattern(r"/{1,2}(?:\[[0-9a-f:.%]*\]?)?", re.IGNORECASE)
_NO_PORT = lazy_pattern(
    r"""@|password=|:(?!$|(?:port|[0-9]{1,5})(?:[/?#,;:.'"\])}>\s]|$))""",
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
    text = text.replace(_MASK, "*" * len(_MASK))
    for token in _TOKEN.finditer(text):
        starts = [start for start in (_url_in(token[0]), _pair_in(token[0])) if start is not None]
        if token[0].endswith(":") and ":/" in token[0]:
            # A password may begin with a blank.
            after = _NEXT_TOKEN.match(text, token.end())
            if after is not None and "@" in after[0][:-1]:
                starts.append(0)
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
            # Everything after it belongs to this rest, too.
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
    """A bad value from the caller, found before anything was sent. The message has all three arguments.

    Args:
        field: The argument or option.
        value: The value. If it looks like a URL with a login, a note that says so replaces it.
        rule: The rule that it breaks.

    Examples:
        >>> error = UsageError("delay", -1, "must be at least 0")
        >>> print(error)
        delay: must be at least 0 (got -1)
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
    """The server answered in a form that the specification does not allow.

    Args:
        expected: The form that is allowed.
        reply: The actual reply.
    """

    def __init__(self, expected: str, reply: object) -> None:
        super().__init__(f"expected {expected}, got {shown(reply, 200)}")
        self.expected = expected
        self.reply = reply


class ServerError(BullMQError):
    """An error reply of the server.

    `code` is its first word (`ERR`, `WRONGTYPE`, `OOM`, ...), or that of an error inside a script.

    Args:
        message: The reply.
    """

    def __init__(self, message: str) -> None:
        super().__init__(without_login(message))
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
    """A failed child whose parent ignores its failure was moved back to wait, and will run; but then the script
    stopped, as BullMQ 5.62.0's does (WRONGTYPE): no event announces it, and the parent still counts the failure as
    ignored.

    Args:
        job_id: The id of the child.
        parent_key: The key of its parent's hash.

    Source: specs/03-transitions-admin-getters.md#reprocess-job
    """

    def __init__(self, job_id: str, parent_key: str) -> None:
        super().__init__(
            f"WRONGTYPE job {without_login(job_id)} waits again, but the retry stopped before its end, as in BullMQ "
            f"5.62.0: its parent {without_login(parent_key)} ignores failures of children; no event reports it, "
            "and the parent counts the failure still"
        )
        self.job_id = job_id
        self.parent_key = parent_key


class PayloadError(BullMQError, msgspec.DecodeError):
    """Text that is not JSON where data, a result or progress belongs."""


class PayloadMismatch(PayloadError, msgspec.ValidationError):
    """JSON that does not match the expected type."""


class ServerTooOld(BullMQError):
    """The server is too old for the scripts."""


class TransportError(BullMQError):
    """The connection failed before a reply came.

    Args:
        message: What happened; `reason` has it unchanged.
        maybe_applied: True: the command may have run on the server, because its bytes had been passed to the operating
            system. False: it certainly did not run.

    Examples:
        >>> print(TransportError("connection reset", maybe_applied=True))
        connection reset; the command may have run on the server
    """

    def __init__(self, message: str, *, maybe_applied: bool) -> None:
        note = "; the command may have run on the server" if maybe_applied else ""
        message = without_login(message)
        super().__init__(f"{message}{note}")
        self.reason = message
        self.maybe_applied = maybe_applied


class ConnectionLost(TransportError):
    """No connection could be made, or it broke. `maybe_applied` says whether the command may have run."""


class TransportTimeout(TransportError):
    """No reply came within `ConnectionOptions.command_timeout_ms`; the connection was dropped."""


class Closed(TransportError):
    """The client was closed by its owner.

    Args:
        message: What was closed; the client by default.
        maybe_applied: Whether the command may have run on the server; False by default.
    """

    def __init__(self, message: str = "the client is closed", *, maybe_applied: bool = False) -> None:
        super().__init__(message, maybe_applied=maybe_applied)


class AuthenticationFailed(ServerError):
    """The server refused the login (WRONGPASS, NOAUTH, or NOPERM when connecting)."""


class BulkAddError(BullMQError):
    """The server refused some jobs of a bulk.

    Args:
        results: For each job, in order, the added job or the error.
    """

    def __init__(self, results: Sequence[object]) -> None:
        errors = [result for result in results if isinstance(result, BullMQError)]
        super().__init__(f"{len(errors)} of {len(results)} jobs were not added; the first error: {errors[0]}")
        self.results = list(results)


class FlowAddError(BullMQError):
    """The server refused some nodes of a flow; the transaction does not undo the others.

    Args:
        place: The position of the node that the message names, such as `flow[0].children[1]`; only in the message.
        nodes: Each node with its job's id, level by level.
        results: For each of them the job's id, or the error.
        named: The index of the node that the message names. None, the default: the first that was refused.
    """

    def __init__(
        self, place: str, nodes: Sequence[str], results: Sequence[str | BullMQError], *, named: int | None = None
    ) -> None:
        refused = [index for index, each in enumerate(results) if isinstance(each, BullMQError)]
        first = refused[0] if named is None else named
        which = f"{place} ({without_login(nodes[first])})"
        super().__init__(f"{len(refused)} of {len(results)} nodes were refused; the first, {which}: {results[first]}")
        self.nodes = list(nodes)
        self.results = list(results)


class NodeRefused(BullMQError):
    """A node of a flow was not added because its job existed already, so its place in the flow stays empty.

    Args:
        message: Which rule refused it.
        existing_id: The id of the existing job.
    """

    def __init__(self, message: str, *, existing_id: str) -> None:
        super().__init__(without_login(message))
        self.existing_id = existing_id


class JobFailedError(BullMQError):
    """A job that a caller waited for has failed for good.

    Args:
        job_id: The job.
        reason: The text of its failure. The attribute keeps it whole; the message hides a URL with a login.
    """

    def __init__(self, job_id: str, reason: str) -> None:
        super().__init__(without_login(reason) or f"job {without_login(job_id)} failed without a reason")
        self.job_id = job_id
        self.reason = reason


class WaitTimeout(BullMQError, TimeoutError):
    """A job that a caller waited for did not finish in time. It may still finish later.

    Args:
        job_id: The job.
        timeout_ms: How long the caller waited, in milliseconds.
    """

    def __init__(self, job_id: str, timeout_ms: int) -> None:
        super().__init__(f"job {without_login(job_id)} did not finish within {timeout_ms} ms")
        self.job_id = job_id
        self.timeout_ms = timeout_ms


# --- signals of a processor -----------------------------------------------------------------------------------------


class JobSignal(BullMQError):
    """The base class of what a processor raises to decide how its job ends.

    Args:
        message: The text of the failure. None, the default: the signal's own `default_message`, which is BullMQ's.

    Source: specs/05-worker-runtime.md#sec-8-2

    Examples:
        >>> print(UnrecoverableError("the account is closed"))
        the account is closed
    """

    default_message = ""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(self.default_message if message is None else message)


class UnrecoverableError(JobSignal):
    """Raised by a processor: fail the job for good, however many attempts are left."""

    default_message = "bullmq:unrecoverable"


class DelayedError(JobSignal):
    """Raised by a processor that has moved the job to delayed itself, with `Job.move_to_delayed`."""

    default_message = "bullmq:movedToDelayed"


class WaitingError(JobSignal):
    """Raised by a processor that has moved the job to wait itself, with `Job.move_to_wait`."""

    default_message = "bullmq:movedToWait"


class WaitingChildrenError(JobSignal):
    """Raised by a processor after `Job.move_to_waiting_children` has returned True."""

    default_message = "bullmq:movedToWaitingChildren"


class RateLimitError(JobSignal):
    """Raised by a processor to return the job to the queue, because the queue is rate limited (`Queue.rate_limit`). It
    is recognised by its message, as in BullMQ.
    """

    default_message = "bullmq:rateLimitExceeded"


class TransientError(JobSignal):
    """Raised by a processor: this failure is worth a retry, whatever its type.

    Args:
        message: The text of the failure; `transient error` by default.
        retry_after_ms: The wait before the retry in milliseconds. None, the default: the job's own backoff.

    Examples:
        >>> TransientError("mail server is busy", retry_after_ms=30_000).retry_after_ms
        30000
    """

    default_message = "transient error"

    def __init__(self, message: str | None = None, *, retry_after_ms: int | None = None) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class PermanentError(JobSignal):
    """Raised by a processor: a retry is pointless, so fail the job for good."""

    default_message = "permanent error"


# --- script error codes ---------------------------------------------------------------------------------------------


class ScriptError(BullMQError):
    """A script refused the call. `code` is the number it replied; each known number has its own subclass below.

    Args:
        command: BullMQ's name of the command.
        job_id: The id of the job.
        parent_key: The key of its parent's hash; only in the message.
        state: The state that the command needs; only in the message.
        code: The number. None, the default: the number of the class.

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
        job, parent = without_login(job_id), without_login(parent_key)
        super().__init__(
            self.template.format(code=self.code, command=command, job_id=job, parent_key=parent, state=state)
        )
        self.command = command
        self.job_id = job_id


class JobNotFound(ScriptError):
    """-1: the job does not exist (any more)."""

    code = -1
    template = "Missing key for job {job_id}. {command}"


class LockMissing(ScriptError):
    """-2: the job has no lock: it expired, or the job was never active."""

    code = -2
    template = "Missing lock for job {job_id}. {command}"


class WrongState(ScriptError):
    """-3: the job is not in the state that the command needs."""

    code = -3
    template = "Job {job_id} is not in the {state} state. {command}"


class PendingChildren(ScriptError):
    """-4: the job has children that are not finished."""

    code = -4
    template = "Job {job_id} has pending dependencies. {command}"


class ParentNotFound(ScriptError):
    """-5: the parent does not exist (any more)."""

    code = -5
    template = "Missing key for parent job {parent_key}. {command}"


class LockMismatch(ScriptError):
    """-6: the job's lock has another token: another worker holds the job."""

    code = -6
    template = "Lock mismatch for job {job_id}. Cmd {command} from {state}"


class ParentNotReplaceable(ScriptError):
    """-7: the job exists already and belongs to another parent, which still exists."""

    code = -7
    template = "The parent job {parent_key} cannot be replaced. {command}"


class JobBelongsToScheduler(ScriptError):
    """-8: the job is the next one of a job scheduler, which must be removed instead."""

    code = -8
    template = "Job {job_id} belongs to a job scheduler and cannot be removed directly. {command}"


class ChildFailed(ScriptError, UnrecoverableError):
    """-9: a child has failed that fails its parent."""

    code = -9
    template = "Cannot complete job {job_id} because it has at least one failed child. {command}"


class SchedulerIdTaken(ScriptError):
    """-10: a job has the id that the scheduler's next job would get."""

    code = -10
    template = "Cannot create job scheduler iteration - job ID already exists. {command}"


class SchedulerSlotsTaken(ScriptError):
    """-11: there are jobs at the scheduler's next time and the one after it."""

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


RELAY_CODES: Mapping[int, str] = MappingProxyType(
    {
        -1: "the topic is none",
        -2: "the pattern is none",
        -3: "the node is not registered (any more)",
        -4: "the message is larger than allowed",
        -5: "an id is none",
        -6: "the namespace has a layout that this library does not know",
    }
)


class RelayRefused(BullMQError):
    """A script of the relay refused the call.

    Args:
        command: BullMQ's name of the command.
        code: The number it replied, a key of `RELAY_CODES`.

    Source: specs/06-later-versions.md#sec-4-14
    """

    def __init__(self, command: str, code: int) -> None:
        super().__init__(f"{RELAY_CODES.get(code, f'unknown code {code}')}. {command}")
        self.command = command
        self.code = code
