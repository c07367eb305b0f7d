"""The events of a queue: read one by one, given to callbacks, and waited for."""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar, get_args, overload

from bullmq_protocol.common.keys import DEFAULT_PREFIX, KeyLayout, QueueKeys, check_name
from bullmq_protocol.common.payloads import DataType, payload_type
from bullmq_protocol.common.units import Duration, Millis, check_flag, check_whole, to_ms
from bullmq_protocol.errors import BullMQError, Closed, ConnectionLost, UsageError, WaitTimeout
from bullmq_protocol.events.stream import EventsMissed, ReadEvent
from bullmq_protocol.events.waiters import RECHECK_MS, Waiter, Waiters, result_of
from bullmq_protocol.net.transport import Transport
from bullmq_protocol.operations.ask_finished import ask_again, ask_finished
from bullmq_protocol.operations.read_events import MAX_DELAY_MS, EventReader
from bullmq_protocol.scripts.profile import DEFAULT, Profile, check_profile
from bullmq_sync.callbacks import Caller
from bullmq_sync.drive import Connection, check_server, run, transport_of
from bullmq_sync.guard import say
from bullmq_sync.primitives import SHORTAGE, Background, Event, Lock, in_each_process, shielded, time_limit
from bullmq_sync.subscribers import Subscribers

E = TypeVar("E")
R = TypeVar("R")

_RECHECK_S = RECHECK_MS / 1000
_FIRST_ASK_S = 0.1
"""How long a callback that waits for a job rests before it asks again; doubling up to `_RECHECK_S`."""
_LOOK_MS: Millis = 5_000
"""How often, at least, the reader that others wait for looks up."""
_ASKED_TOGETHER = 250
"""How many jobs are asked for in one round trip."""


class EventStream(Iterator[ReadEvent]):
    """The events of a queue, one at each step of the iteration, on its own connection. `QueueEvents.stream` creates
    one.

    No event is lost or repeated, even when a connection is lost and opened again. Only if the queue's stream is trimmed
    past this reader are events missed, and an `EventsMissed` says so. A stream is for one thread. The iteration ends
    when the stream is closed.

    Source: specs/04-schedulers-flows-events.md#sec-8

    Examples:
        >>> for event in events.stream("0-0"):
        ...     print(type(event).__name__, event.job_id == job.id)
        ...     break
        AddedEvent True
    """

    def __init__(self, reader: EventReader, keys: QueueKeys, transport: Transport, closed: bool = False) -> None:
        self._reader = reader
        self._keys = keys
        self._transport = transport
        self._ready: deque[ReadEvent] = deque()
        self._last = reader.position
        self._checked = False
        self._closed = closed
        in_each_process(self._renew)

    def _renew(self) -> None:
        self._ended = Event()
        if self._closed:
            self._ended.set()

    @property
    def last_event_id(self) -> str | None:
        """The id of the last event, or the place where it began; None before it began."""
        return self._last

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._closed

    def start(self) -> str | None:
        """Fix the place where reading begins, without waiting for an event.

        Returns:
            The id of the event to begin after; None while the server cannot be reached.

        Source: specs/04-schedulers-flows-events.md#sec-8-1

        Examples:
            >>> stream = events.stream()
            >>> begin = stream.start()
            >>> begin == stream.last_event_id
            True
        """
        if self._reader.position is None:
            self.read()
        return self._reader.position

    def read(self) -> list[ReadEvent]:
        """Read the next events.

        Returns:
            The events; none after a lost connection, or if none arrived within `blocking_timeout`.

        Raises:
            Closed: It has been closed.
            AuthenticationFailed: The server refused the login, and has not accepted it before. The same goes for the
                next.
            ServerTooOld: The server is older than the scripts need.

        Source: specs/04-schedulers-flows-events.md#sec-8-1

        Examples:
            >>> found = events.stream("0-0").read()
            >>> found[0].job_id == job.id
            True
        """
        if self._closed:
            raise Closed
        try:
            if not self._checked:
                check_server(self._transport, self._keys)
                self._checked = True
            events = self._reader.answered(self._transport.perform(self._reader.step()))
        except (BullMQError, *SHORTAGE) as error:
            if not isinstance(error, BullMQError):
                error = ConnectionLost(f"the call could not be made: {error!r}", maybe_applied=True)
            delay_ms = self._reader.failed(error, random.random())
            message = "events of %s: %s; next attempt in %d ms"
            say(logging.WARNING, message, self._keys.name, error, delay_ms)
            self._ended.wait(delay_ms / 1000)
            return []
        if self._last is None:
            self._last = self._reader.position
        return events

    def close(self) -> None:
        """End the iteration and close the connection.

        Examples:
            >>> stream = events.stream()
            >>> stream.close()
            >>> stream.closed
            True
        """
        self._closed = True
        self._ended.set()
        self._transport.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReadEvent:
        try:
            while not self._ready:
                self._ready.extend(self.read())
        except Closed:
            if self._closed:
                raise StopIteration from None
            raise
        event = self._ready.popleft()
        if not isinstance(event, EventsMissed):
            self._last = event.entry_id
        return event


class QueueEvents:
    """The events of a queue, about all its jobs and the workers of every library. It opens nothing before the first
    use.

    `with events:` reads in the background, on one connection: for callbacks (`on`) and for any number of callers
    of `wait_until_finished`. `for event in events:` is a separate reader (see `stream`).

    No event is lost or repeated, even when a connection is lost; it is opened again after 100 ms, doubling up to
    `max_reconnect_delay`, give or take 20 %. A queue keeps about 10,000 events: a reader that was away for longer gets
    an `EventsMissed` and continues with the oldest one left. An entry that cannot be decoded becomes an
    `UndecodableEvent`.

    Reading raises `AuthenticationFailed`, `ServerTooOld` and `UsageError` only if the server has not accepted a
    connection before.

    Args:
        name: The queue's name: 1 to 255 characters, no colon.
        connection: A URL, options (`ConnectionOptions`, `SentinelOptions`, `ClusterOptions`), a transport, which
            remains yours to close, or None, the default: the server that `BULLMQ_URL` names, else 127.0.0.1:6379.
        prefix: The beginning of all keys of the queue; `bull` by default, as in BullMQ.
        layout: Where the keys have the hash tag that a Redis Cluster needs. `KeyLayout.PLAIN`, the default: nowhere.
        last_event_id: The id of the event to begin after; `0-0` begins with the oldest. None, the default, begins now,
            after the newest.
        blocking_timeout: The longest wait in one call to the server, in milliseconds or as a `timedelta`; 10,000 by
            default.
        max_reconnect_delay: The longest pause between two attempts to connect, in milliseconds or as a `timedelta`;
            30,000 by default.
        scripts: A profile of `bullmq_protocol.scripts.profile`: `FLEET`, the default, beside clients of BullMQ 5 and 6,
            `V6_7` beside BullMQ 6 alone, `STRICT` for what 5.62.0 does, or BullMQ's own scripts from `bullmq_scripts`.

    Source: specs/04-schedulers-flows-events.md#sec-8

    Examples:
        >>> with events, worker:
        ...     print(events.wait_until_finished(job.id, timeout=10_000))
        sent to ada
    """

    def __init__(
        self,
        name: str,
        connection: Connection = None,
        *,
        prefix: str = DEFAULT_PREFIX,
        layout: KeyLayout = KeyLayout.PLAIN,
        last_event_id: str | None = None,
        blocking_timeout: Duration = 10_000,
        max_reconnect_delay: Duration = MAX_DELAY_MS,
        scripts: Profile = DEFAULT,
    ) -> None:
        self._keys = QueueKeys.of(name, prefix=prefix, layout=layout, switches=check_profile(scripts).switches)
        self._block_ms = to_ms("blocking_timeout", blocking_timeout)
        self._max_delay_ms = to_ms("max_reconnect_delay", max_reconnect_delay)
        self._begin = last_event_id
        self._new_reader(last_event_id, self._block_ms)
        self._transport, self._owned = transport_of(connection, scripts)
        self._subscribers = Subscribers({})
        # the reader's own, of which others may read the last place
        self._last = last_event_id
        self._ask_at = 0.0
        # set once
        self._closed = False
        in_each_process(self._renew)

    def _renew(self) -> None:
        """In a process of its own nobody reads yet."""
        self._lock = Lock()
        # guarded by _lock
        self._waiters = Waiters()
        self._streams: list[EventStream] = []
        self._source: EventStream | None = None
        self._running = False
        self._caller = Caller(self.name)
        # set once
        self._met = Event()
        self._background: Background | None = None

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._keys.name

    @property
    def keys(self) -> QueueKeys:
        """The names of the queue's keys in Redis."""
        return self._keys

    @property
    def is_running(self) -> bool:
        """Whether it reads, for callbacks and for callers that wait."""
        with self._lock:
            return self._running

    @property
    def last_event_id(self) -> str | None:
        """The id of the last event passed to callbacks, or the place where it began; None before it began."""
        return self._last

    def on(self, kind: type[E], callback: Callable[[E], object]) -> Callable[[], None]:
        """Call a function with each event of one kind.

        Functions are called one after another in the order of the events: a slow one delays the next event. Exceptions
        from a function are logged and change nothing. It runs on the reader's thread, in a copy of
        the context in which it was entered, or `run` called.

        Args:
            kind: A class of `bullmq_protocol.events.stream`, such as `CompletedEvent`.
            callback: The function, which takes the event.

        Returns:
            A function without arguments that removes the callback.

        Source: specs/04-schedulers-flows-events.md#sec-8-3

        Examples:
            >>> remove = events.on(CompletedEvent, lambda event: print(event.job_id, event.returnvalue))
            >>> remove()
        """
        if kind not in get_args(ReadEvent):
            raise UsageError("kind", kind, "must be an event's class of bullmq_protocol.events.stream")
        if not callable(callback):
            raise UsageError("callback", callback, "must be a function of the event")
        return self._subscribers.add(kind, callback)

    def stream(self, last_event_id: str | None = None) -> EventStream:
        """Return a separate reader with its own connection. It ends when this object is closed.

        Args:
            last_event_id: The id of the event to begin after; `0-0` begins with the oldest. None, the default, begins
                where this object began, or else at the time of the first step.

        Source: specs/04-schedulers-flows-events.md#sec-8-1

        Examples:
            >>> stream = events.stream("0-0")
            >>> for event in stream:
            ...     print(type(event).__name__, event.job_id == job.id)
            ...     break
            AddedEvent True
            >>> stream.close()
        """
        with self._lock:
            stream = self._new_stream(self._begin if last_event_id is None else last_event_id, self._block_ms)
            self._streams = [each for each in self._streams if not each.closed] + [stream]
        return stream

    def __iter__(self) -> EventStream:
        return self.stream()

    @overload
    def wait_until_finished(
        self, job_id: str, timeout: Duration | None = None, *, result_type: None = None, may_not_exist: bool = False
    ) -> Any: ...
    @overload
    def wait_until_finished(
        self, job_id: str, timeout: Duration | None = None, *, result_type: DataType[R], may_not_exist: bool = False
    ) -> R: ...
    def wait_until_finished(
        self,
        job_id: str,
        timeout: Duration | None = None,
        *,
        result_type: Any = None,
        may_not_exist: bool = False,
    ) -> Any:
        """Wait until a job has finished, and return its result.

        The result of a job that was removed when it ended is read from the stream, as long as it is among the newest
        10,000 entries. A job that was removed without an event, together with its whole queue, is noticed within 15 s.
        Besides the connection for events, all callers share one that reads the states of their jobs.

        A callback of this object may call it, too, but then delays all further events: it polls for the job after 100
        ms, doubling up to 15 s.

        Args:
            job_id: The id of the job.
            timeout: How long to wait at most, in milliseconds or as a `timedelta`. None, the default: no limit.
            result_type: The type to read the result into, of any kind that a queue's `data_type` may be. None, the
                default: JSON values.
            may_not_exist: True also waits for a job that has not been added yet. Its id should be one that no job had
                before, because an earlier end that is still in the stream counts. False by default.

        Raises:
            JobFailedError: The job failed for good; `reason` says why.
            JobNotFound: The job was removed or does not exist.
            WaitTimeout: It did not finish in time; it may still finish later.
            Closed: This object has been closed.
            PayloadMismatch: The result is not of `result_type`.
            UsageError: This object is not reading: call this within `with events:`.

        Source: specs/04-schedulers-flows-events.md#sec-10

        Examples:
            >>> with events, worker:
            ...     print(events.wait_until_finished(job.id, timeout=10_000, result_type=str))
            sent to ada
        """
        job_id = check_name("job_id", job_id, max_length=None)
        kind = payload_type("result_type", result_type)
        check_flag("may_not_exist", may_not_exist)
        timeout_ms = None if timeout is None else check_whole("timeout", to_ms("timeout", timeout), least=1)
        if self._closed:
            raise Closed
        end = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        woken, lock = Event(), self._lock
        with self._lock:
            waiters = self._waiters
            if not self._running:
                raise UsageError("queue_events", self.name, "is not running: wait within `with queue_events:`")
            waiter = waiters.add(job_id, woken.set, may_not_exist=may_not_exist)
            waiter.must_ask = False
            caller = self._caller
        pause_s = _FIRST_ASK_S
        try:
            with time_limit(None if timeout_ms is None else timeout_ms / 1000):
                # The first question is the caller's own; later ones the reader asks for all.
                answer = run(ask_finished(self._keys, job_id, look_back=True), self._transport)
                with lock:
                    waiters.answer(waiter, answer)
            while True:
                woken.clear()
                with lock:
                    if waiter.finished is not None:
                        break
                    if waiters.closed:
                        raise Closed("the queue events are closed")
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    raise WaitTimeout(job_id, timeout_ms or 0)
                if caller.is_calling():
                    # The reader waits for this code, so that no event comes.
                    woken.wait(pause_s if left is None else min(left, pause_s))
                    pause_s = min(2 * pause_s, _RECHECK_S)
                    self._ask_for(waiter, waiters, None if end is None else max(0, end - time.monotonic()))
                else:
                    woken.wait(left)
            return result_of(waiter.finished, job_id, kind)
        finally:
            with lock:
                waiters.discard(waiter)

    def _ask_for(self, waiter: Waiter, waiters: Waiters, limit_s: float | None) -> None:
        """Ask for one job again, without the reader."""
        try:
            with time_limit(limit_s):
                answer = run(ask_finished(self._keys, waiter.job_id, look_back=True), self._transport)
                with self._lock:
                    waiters.answer(waiter, answer)
                    if answer.finished is not None and not waiter.may_not_exist:
                        # It is gone, and an end that the reader may still come to would have been in the stream.
                        waiter.settle(answer.finished)
        except (BullMQError, *SHORTAGE) as error:
            say(logging.DEBUG, "events of %s: %s", self.name, error)

    def run(self) -> None:
        """Read for callbacks and waiting callers until this object is closed. `with` does this in the background.

        Raises:
            Closed: It has been closed.
            AuthenticationFailed: The server refused the login, and has not accepted it before. The same goes for the
                next two.
            ServerTooOld: The server is older than the scripts need.
            UsageError: The server cannot hold this queue, or this object is already reading.

        Source: specs/04-schedulers-flows-events.md#sec-8-1

        Examples:
            >>> def stop(event):
            ...     events.close()
            >>> remove = events.on(AddedEvent, stop)
            >>> job = queue.add("welcome", {"to": "ada"})
            >>> events.run()
        """
        self._claim()
        self._read_on()

    def _claim(self) -> Caller:
        """Note that it begins to read, or refuse it; return what calls back."""
        if self._closed:
            raise Closed
        with self._lock:
            if self._running:
                raise UsageError("queue_events", self.name, "is already running")
            self._running = True
            self._waiters = Waiters()
            self._caller = Caller(self.name)
            return self._caller

    def _read_on(self) -> None:
        source: EventStream | None = None
        with self._lock:
            caller = self._caller
        try:
            with self._lock:
                source = self._source = self._new_stream(self._last, min(self._block_ms, _LOOK_MS))
            self._ask_at = time.monotonic() + _RECHECK_S
            while not self._closed:
                events = source.read()
                self._meet(source)
                for event in events:
                    if caller.is_over():
                        break
                    self._deliver(event, caller)
                self._ask_again()
        except Closed:
            if not self._is_closed():
                raise
        finally:
            caller.end()
            with self._lock:
                self._running = False
                self._waiters.close()
            if source is not None:
                with shielded():
                    source.close()

    def close(self) -> None:
        """End all reading, and close the connections that were opened. Waiting callers get `Closed`. A callback that
        has not ended a second later is cancelled; on threads it is abandoned. Calling it again does nothing.

        Examples:
            >>> events.close()
        """
        with self._lock:
            self._closed = True
            streams = (*self._streams, self._source)
            self._caller.close()
            self._waiters.close()
        for stream in streams:
            if stream is not None:
                stream.close()
        if self._owned:
            self._transport.close()

    def __enter__(self) -> Self:
        caller = self._claim()
        background = Background(self._run_behind, f"bullmq events {self.name}", caller.is_left)
        try:
            background.start()
        except BaseException:
            with self._lock:
                self._running = False
            raise
        self._background = background
        try:
            self._met.wait()
        except BaseException as error:
            background.leave(self.close, type(error), error, error.__traceback__)
            raise
        if background.error is not None:
            self.__exit__(None, None, None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._background is None:
            # The child of a fork that was made in the body.
            self.close()
            return None
        return self._background.leave(self.close, kind, error, trace)

    def _run_behind(self) -> None:
        try:
            self._read_on()
        except Exception as error:
            say(logging.ERROR, "events of %s: the reader ended: %s", self.name, error)
            raise
        finally:
            self._met.set()

    def _ask_again(self) -> None:
        """Ask for the jobs of all callers at once: removing a whole queue emits no event for any of them."""
        now = time.monotonic()
        # When it looks up next, it would be too late.
        everyone = now + _LOOK_MS / 1000 >= self._ask_at
        with self._lock:
            found = self._waiters.to_ask(everyone=everyone)
        if everyone:
            # Readers that began together do not ask together for ever.
            self._ask_at = now + _RECHECK_S * (1 - 0.3 * random.random())
        for begin in range(0, len(found), _ASKED_TOGETHER):
            waiters = found[begin : begin + _ASKED_TOGETHER]
            try:
                answers = run(ask_again(self._keys, sorted({each.job_id for each in waiters})), self._transport)
            except (BullMQError, *SHORTAGE) as error:
                # The events tell later, or the next question does.
                say(logging.DEBUG, "events of %s: %s", self.name, error)
                return
            with self._lock:
                for waiter in waiters:
                    if waiter.job_id in answers:
                        self._waiters.answer(waiter, answers[waiter.job_id])

    def _meet(self, source: EventStream) -> None:
        """After the first answer, or the first failure."""
        if self._last is None:
            self._begin = self._last = source.last_event_id
        if self._last is not None:
            with self._lock:
                self._waiters.reached(self._last)
        self._met.set()

    def _deliver(self, event: ReadEvent, caller: Caller) -> None:
        with self._lock:
            self._waiters.take(event)
        for callback in self._subscribers.of_kind.get(type(event), ()):
            caller.call(callback, event)
        if not isinstance(event, EventsMissed):
            self._last = event.entry_id
            with self._lock:
                self._waiters.reached(event.entry_id)

    def _new_reader(self, last_event_id: str | None, block_ms: Millis) -> EventReader:
        return EventReader(self._keys, last_event_id=last_event_id, block_ms=block_ms, max_delay_ms=self._max_delay_ms)

    def _new_stream(self, last_event_id: str | None, block_ms: Millis) -> EventStream:
        reader = self._new_reader(last_event_id, block_ms)
        transport = self._transport.dedicated(client_name=f"{self._keys.client_name()}:qe")
        return EventStream(reader, self._keys, transport, self._closed)

    def _is_closed(self) -> bool:
        return self._closed
