"""What queues and jobs are made of: a transport, the names of the keys, and a walk through pages."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, Self, TypeVar

from msgspec import UNSET

from bullmq_anyio.clocks import clock as system_clock
from bullmq_anyio.drive import Connection, check_server, perform, run, transport_of
from bullmq_anyio.generics import Defaulted
from bullmq_anyio.net.closable import Closable
from bullmq_anyio.primitives import Lock, in_each_process
from bullmq_protocol import VERSION
from bullmq_protocol.command import Command, Operation
from bullmq_protocol.commands.queues import write_meta
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.units import check_clock, check_flag, check_whole
from bullmq_protocol.errors import AuthenticationFailed, BullMQError, ServerError, UsageError
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.model.options import DEFAULT_LIMITS, Limits
from bullmq_protocol.net.transport import AsyncTransport, Clock
from bullmq_protocol.observability.telemetry import (
    NO_SPAN,
    Attributes,
    SpanKind,
    TelemetryProvider,
    TelemetrySpan,
    Tracing,
)
from bullmq_protocol.operations.paging import Page, Plan
from bullmq_protocol.scripts.profile import Profile

R = TypeVar("R")
V = TypeVar("V")
X = TypeVar("X")

_log = logging.getLogger("bullmq_anyio")

SHORT_EVENT_STREAM = 100


class Pages(Generic[V]):
    """The pages of a long operation, one at each step of the iteration. Methods named `..._pages` make one.

    `rest` is the plan of the pages to come, None after the last. After an error the next step tries the same page
    again.

    It is for one task.

    Examples:
        >>> async for page in queue.clean_pages(0, page_size=100):
        ...     print(page.value, page.rest)
        [] None
    """

    def __init__(self, plan: Plan[V], keys: QueueKeys, run: Callable[[Operation[Page[V]]], Awaitable[Page[V]]]) -> None:
        self.rest: Plan[V] | None = plan
        self._keys = keys
        self._run = run

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Page[V]:
        if self.rest is None:
            raise StopAsyncIteration
        page = await self._run(self.rest.page(self._keys))
        self.rest = page.rest
        return page


class Items(Generic[X]):
    """The single items of all pages of a long operation. Methods named `iter_...` make one.

    Examples:
        >>> async for each in queue.iter_jobs("waiting", page_size=100):
        ...     print(each.id == job.id)
        True
    """

    def __init__(self, pages: Pages[V], items_of: Callable[[V], Sequence[X]]) -> None:
        self._pages: Any = pages
        self._items_of: Callable[[Any], Sequence[X]] = items_of
        self._ready: deque[X] = deque()

    @property
    def rest(self) -> Plan[Any] | None:
        """The plan of the pages that are not read yet; None after the last."""
        rest: Plan[Any] | None = self._pages.rest
        return rest

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> X:
        while not self._ready:
            page = await self._pages.__anext__()
            self._ready.extend(self._items_of(page.value))
        return self._ready.popleft()


class QueueBase(Closable):
    """A queue's connection, and its description in Redis."""

    def __init__(
        self,
        keys: QueueKeys,
        connection: Connection,
        *,
        scripts: Profile,
        max_len_events: int,
        skip_meta_update: bool,
        telemetry: TelemetryProvider | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._keys = keys
        self._own_clock = check_clock(clock)
        self._clock = system_clock if clock is None else clock
        if 0 < check_whole("max_len_events", max_len_events, least=0) < SHORT_EVENT_STREAM:
            _log.warning("max_len_events: %d is short; slow listeners will miss events", max_len_events)
        self._max_len_events = max_len_events
        self._transport, self._owned = transport_of(connection, scripts)
        self._checked = False
        self._described = check_flag("skip_meta_update", skip_meta_update)
        self._tracing = None if telemetry is None else Tracing(telemetry, keys.name)
        in_each_process(self._renew)

    def _renew(self) -> None:
        self._lock = Lock()
        self._describing = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}, prefix {self._keys.prefix!r}>"

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._keys.name

    @property
    def keys(self) -> QueueKeys:
        """The names of the queue's keys in Redis."""
        return self._keys

    async def call(self, command: Command[R]) -> R:
        """Perform any command of the core.

        Args:
            command: A command from `bullmq_protocol.commands`, for this queue's `keys`.

        Returns:
            The decoded reply.

        Raises:
            BullMQError: What the command's own docstring lists.

        Examples:
            >>> from bullmq_protocol.commands.queues import is_paused
            >>> await queue.call(is_paused(queue.keys))
            False
        """
        if not isinstance(command, Command):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("command", command, "must be a Command of the core (an operation goes through run)")
        if not (self._checked and self._described):
            await self._open()
        return command.decode(await self._transport.perform(command))

    async def run(self, operation: Operation[R]) -> R:
        """Run any operation of the core: several commands, each decided by the replies before it.

        Args:
            operation: An operation from `bullmq_protocol.operations`, for this queue's `keys`.

        Returns:
            What the operation returns.

        Raises:
            BullMQError: What the operation's own docstring lists.

        Examples:
            >>> from bullmq_protocol.operations.read_jobs import get_jobs
            >>> await queue.run(get_jobs(queue.keys, ["waiting"]))
            []
        """
        if not isinstance(operation, Generator):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("operation", operation, "must be an operation of the core (a command goes through call)")
        return await run(operation, self._transport, self._clock, self._open)

    def pages(self, plan: Plan[V]) -> Pages[V]:
        """Iterate over the pages of a long operation, or over the rest of one that was begun before.

        Args:
            plan: The `rest` of the pages of a long operation, or a new plan from `bullmq_protocol.operations`. A plan
                is a plain value, which `msgspec.json` can store.

        Returns:
            An iterator over the pages; each has a `value` and the plan of the `rest`.

        Examples:
            >>> begun = queue.retry_pages("failed", count=100)
            >>> async for page in queue.pages(begun.rest):
            ...     print(page.value, "left")
            0 left
        """
        if not callable(getattr(plan, "page", None)):
            raise UsageError("plan", plan, "must be the plan of a long operation, such as the `rest` of its pages")
        return Pages(plan, self._keys, self.run)

    async def aclose(self) -> None:
        """Close the connection, unless it is a transport that was handed over. Calling it again does nothing.

        Examples:
            >>> await queue.aclose()
        """
        with self._span("close"):
            if self._owned:
                await self._transport.aclose()

    def _span(
        self,
        operation: str,
        kind: SpanKind = "internal",
        *,
        destination: str | None = None,
        attributes: Attributes | None = None,
    ) -> AbstractContextManager[TelemetrySpan, bool | None]:
        """Return what runs a body in a span, where there is telemetry."""
        if self._tracing is None:
            return NO_SPAN
        return self._tracing.span(operation, kind, destination=destination, attributes=attributes)

    async def _open(self) -> None:
        """Before the first call: check that the server can hold the queue, and describe it in its meta hash."""
        if self._checked and self._described:
            return
        with self._lock:
            if not self._checked:
                # The connection shares the attempt, and its failure, with calls that come meanwhile.
                await check_server(self._transport, self._keys)
                self._checked = True
            if not self._described and not self._describing:
                self._describing = True
                try:
                    await self._describe()
                finally:
                    self._describing = False

    def _description(self) -> tuple[Command[None], ...]:
        """Return what describes the queue in its meta hash; nothing where that was done, or is not wanted."""
        if self._described:
            return ()
        version = f"bullmq-protocol:{VERSION}"
        return (write_meta(self._keys, max_len_events=self._max_len_events, version=version),)

    async def _describe(self) -> None:
        try:
            for command in self._description():
                await perform(self._transport, command)
        except BullMQError as error:
            # The call that follows meets the same fault, or shows that it was none.
            _log.warning("queue %s: its meta hash could not be written: %s", self.name, error)
            self._described = isinstance(error, ServerError) and not isinstance(error, AuthenticationFailed)
        else:
            self._described = True


class JobBase(Defaulted):
    """What a job was read as, and where it came from."""

    _discarded = False
    _payload: Any = UNSET
    _state: Any = UNSET
    _result_type: Any = None
    _limits = DEFAULT_LIMITS
    _clock: Clock = staticmethod(system_clock)

    def __init__(
        self,
        record: JobRecord,
        keys: QueueKeys,
        transport: AsyncTransport,
        data_type: Any = Any,
        token: str | None = None,
        limits: Limits = DEFAULT_LIMITS,
        clock: Clock | None = None,
    ) -> None:
        if limits is not DEFAULT_LIMITS:
            self._limits = limits
        if clock is not None:
            self._clock = clock
        self.record = record
        self._added = record.added
        self.token = token
        self._keys = keys
        self._transport = transport
        self._data_type = data_type

    async def _perform(self, command: Command[R]) -> R:
        return await perform(self._transport, command)

    async def _run(self, operation: Operation[R]) -> R:
        return await run(operation, self._transport, self._clock)

    def _pages(self, plan: Plan[V]) -> Pages[V]:
        return Pages(plan, self._keys, self._run)


def expected_result(job: JobBase) -> Any:
    """Return the type that a job's result is read into; None without one."""
    return job._result_type  # pyright: ignore[reportPrivateUsage]


def expect_result(job: JobBase, result_type: Any) -> None:
    """Let a job's result be read into a type."""
    job._result_type = result_type  # pyright: ignore[reportPrivateUsage]


def lend_state(job: JobBase, state: object) -> None:
    """Give a job what the worker's lifespan yields."""
    job._state = state  # pyright: ignore[reportPrivateUsage]


async def finish(pages: Pages[V], on_page: Callable[[Page[V]], object] | None = None) -> list[V]:
    """Go through all pages, and report each."""
    values: list[V] = []
    async for page in pages:
        values.append(page.value)
        if on_page is not None:
            on_page(page)
    return values


def check_callback(on_page: object) -> None:
    """Raise `UsageError` for anything that cannot be called."""
    if on_page is not None and not callable(on_page):
        raise UsageError("on_page", on_page, "must be a function of a page")
