"""The events of a queue: read one by one, given to callbacks, and waited for."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar, get_args

from bullmq_protocol.codec import check_type
from bullmq_protocol.errors import BullMQError, Closed, TransportError, UsageError, WaitTimeout
from bullmq_protocol.keys import DEFAULT_PREFIX, KeyLayout, QueueKeys, check_name
from bullmq_protocol.operations.ask_finished import ask_finished
from bullmq_protocol.operations.read_events import MAX_DELAY_MS, EventReader
from bullmq_protocol.scripts import OWN, ScriptSource
from bullmq_protocol.stream import EventsMissed, ReadEvent
from bullmq_protocol.transport import Transport
from bullmq_protocol.units import Duration, check_flag, check_whole, to_ms
from bullmq_protocol.waiters import RECHECK_MS, Waiters, result_of
from bullmq_sync.drive import Connection, check_server, run, transport_of

E = TypeVar("E")

_log = logging.getLogger("bullmq_sync")

_RECHECK_S = RECHECK_MS / 1000


class EventStream(Iterator[ReadEvent]):
    """The events of a queue, one at each step, on a connection of its own; it ends when it is closed.

    No event is lost or comes twice, also over lost connections, which are made again; unless the stream is trimmed past
    this reader, which an `EventsMissed` tells. It is for one thread.
    """

    def __init__(self, reader: EventReader, keys: QueueKeys, transport: Transport, closed: bool = False) -> None:
        self._reader = reader
        self._keys = keys
        self._transport = transport
        self._ready: deque[ReadEvent] = deque()
        self._last = reader.position
        self._checked = False
        self._closed = closed
        self._ended = threading.Event()

    @property
    def last_event_id(self) -> str | None:
        """The id of the event that came last, or the place where it began; None before it began."""
        return self._last

    @property
    def closed(self) -> bool:
        return self._closed

    def start(self) -> str | None:
        """Fix the place to begin at, without waiting for an event; return it. None while the server is not there."""
        if self._reader.position is None:
            self.read()
        return self._reader.position

    def read(self) -> list[ReadEvent]:
        """Return what came next; nothing after a lost connection, and when no event came in the blocking time."""
        if self._closed:
            raise Closed
        try:
            if not self._checked:
                check_server(self._transport, self._keys)
                self._checked = True
            events = self._reader.answered(self._transport.perform(self._reader.step()))
        except BullMQError as error:
            delay_ms = self._reader.failed(error, random.random())
            _log.warning("events of %s: %s; next attempt in %d ms", self._keys.name, error, delay_ms)
            self._ended.wait(delay_ms / 1000)
            return []
        if self._last is None:
            self._last = self._reader.position
        return events

    def close(self) -> None:
        """End the iteration and close the connection."""
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
    """The events of a queue, of all its jobs and workers of every library. Nothing is opened before the first use.

    `with events:` reads on a thread in the background, on one connection: for callbacks (`on`) and for any number of
    `wait_until_finished`. `for event in events:` is a reader of its own (see `stream`).

    It begins at `last_event_id`, or now: at the newest entry when it starts. No event is lost or comes twice, also over
    lost connections, which are made again after 100 ms, doubling to `max_reconnect_delay`, give or take 20 %. A queue
    keeps about 10,000 events: a reader that was away for longer gets an `EventsMissed` and goes on with the oldest that
    is left. An entry that cannot be decoded comes as an `UndecodableEvent`.

    Raises `AuthenticationFailed`, `ServerTooOld` and `UsageError` if the server has never answered otherwise.
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
        scripts: ScriptSource = OWN,
    ) -> None:
        self._keys = QueueKeys.of(name, prefix=prefix, layout=layout)
        self._block_ms = to_ms("blocking_timeout", blocking_timeout)
        self._max_delay_ms = to_ms("max_reconnect_delay", max_reconnect_delay)
        self._begin = last_event_id
        self._new_reader(last_event_id)
        self._transport, self._owned = transport_of(connection, scripts)
        self._lock = threading.Lock()
        self._waiters = Waiters()
        self._callbacks: dict[type[Any], tuple[Callable[[Any], object], ...]] = {}
        self._streams: list[EventStream] = []
        self._source: EventStream | None = None
        self._last = last_event_id
        self._running = False
        self._closed = False
        self._met = threading.Event()
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None

    @property
    def name(self) -> str:
        return self._keys.name

    @property
    def keys(self) -> QueueKeys:
        return self._keys

    @property
    def is_running(self) -> bool:
        """Whether it reads for callbacks and waiters."""
        return self._running

    @property
    def last_event_id(self) -> str | None:
        """The id of the event that went to the callbacks last, or the place where it began; None before it began."""
        return self._last

    def on(self, kind: type[E], callback: Callable[[E], object]) -> Callable[[], None]:
        """Call `callback` with each event of that kind (a class of `bullmq_protocol.stream`); return what takes it off.

        Callbacks are called one after the other in the order of the events, on the reader's thread: a slow one holds up
        the next event. An exception in a callback is logged and does no harm.
        """
        if kind not in get_args(ReadEvent):
            raise UsageError("kind", kind, "must be an event's class of bullmq_protocol.stream")
        if not callable(callback):
            raise UsageError("callback", callback, "must be a function of the event")
        self._callbacks[kind] = (*self._callbacks.get(kind, ()), callback)

        def remove() -> None:
            known = list(self._callbacks.get(kind, ()))
            if callback in known:
                known.remove(callback)
            self._callbacks[kind] = tuple(known)

        return remove

    def stream(self, last_event_id: str | None = None) -> EventStream:
        """Return a reader of its own, on a connection of its own, which ends when this object is closed.

        It begins at `last_event_id`; by default where this object began, or now at its first step.
        """
        stream = self._new_stream(self._begin if last_event_id is None else last_event_id)
        self._streams = [each for each in self._streams if not each.closed] + [stream]
        return stream

    def __iter__(self) -> EventStream:
        return self.stream()

    def wait_until_finished(
        self,
        job_id: str,
        timeout: Duration | None = None,
        *,
        result_type: Any = Any,
        may_not_exist: bool = False,
    ) -> Any:
        """Wait until a job is finished, at most `timeout` milliseconds; return its result, read into `result_type`.

        The result of a job that was removed at its end is read back from the stream, as long as it is among the newest
        10,000 entries. `may_not_exist` also waits for a job that is still to be added; it had better have an id that no
        job had before, because an end that the stream still tells of counts.

        For any number of callers it needs this reader's connection, and one to ask for the state of their jobs. Raises
        `JobFailedError` with the reason of a failure, `JobNotFound` for a job that was removed or does not exist (one
        that went without an event, with its whole queue, is noticed within 15 s), `WaitTimeout`, `Closed` when this
        object is closed, and `msgspec.ValidationError` for a result that does not fit.
        """
        check_name("job_id", job_id, max_length=None)
        check_type("result_type", result_type)
        check_flag("may_not_exist", may_not_exist)
        timeout_ms = None if timeout is None else check_whole("timeout", to_ms("timeout", timeout), least=1)
        if self._closed:
            raise Closed
        if not self._running:
            raise UsageError("queue_events", self.name, "is not running: wait within `with queue_events:`")
        end = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        waiters, lock = self._waiters, self._lock
        woken = threading.Event()
        with lock:
            waiter = waiters.add(job_id, woken.set, may_not_exist=may_not_exist)
        try:
            first = True
            while True:
                woken.clear()
                with lock:
                    if waiter.finished is not None:
                        break
                    if waiters.closed:
                        raise Closed("the queue events are closed")
                    must_ask, waiter.must_ask = waiter.must_ask, False
                left = _RECHECK_S if end is None else end - time.monotonic()
                if left <= 0:
                    raise WaitTimeout(job_id, timeout_ms or 0)
                if not must_ask:
                    if not woken.wait(min(left, _RECHECK_S)):
                        waiter.must_ask = end is None or left > _RECHECK_S
                    continue
                try:
                    answer = run(ask_finished(self._keys, job_id, look_back=first), self._transport)
                except TransportError as error:
                    # Later the events tell, or the next question.
                    if first or isinstance(error, Closed):
                        raise
                else:
                    with lock:
                        waiters.answer(waiter, answer)
                first = False
            return result_of(waiter.finished, job_id, result_type)
        finally:
            with lock:
                waiters.discard(waiter)

    def run(self) -> None:
        """Read for callbacks and waiters until `close`."""
        if self._running:
            raise UsageError("queue_events", self.name, "is already running")
        if self._closed:
            raise Closed
        self._running = True
        self._source = self._new_stream(self._last)
        try:
            while not self._closed:
                events = self._source.read()
                self._meet(self._source)
                for event in events:
                    self._deliver(event)
        except Closed:
            if not self._is_closed():
                raise
        finally:
            self._running = False
            with self._lock:
                self._waiters.close()
            self._source.close()

    def close(self) -> None:
        """End all reading, and close the connections that were opened. Callers that wait get `Closed`."""
        self._closed = True
        for stream in (*self._streams, self._source):
            if stream is not None:
                stream.close()
        if self._owned:
            self._transport.close()

    def __enter__(self) -> Self:
        if self._closed:
            raise Closed
        if self._running or self._thread is not None:
            raise UsageError("queue_events", self.name, "is already running")
        # A callback that never ends must not keep the process alive.
        self._thread = threading.Thread(target=self._run_behind, name=f"bullmq events {self.name}", daemon=True)
        self._thread.start()
        self._met.wait()
        if self._error is not None:
            self.__exit__(None, None, None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def _run_behind(self) -> None:
        try:
            self.run()
        except Exception as error:
            self._error = error
        finally:
            self._met.set()

    def _meet(self, source: EventStream) -> None:
        """After the first answer, or the first failure."""
        if self._last is None:
            self._begin = self._last = source.last_event_id
        if self._last is not None:
            with self._lock:
                self._waiters.reached(self._last)
        self._met.set()

    def _deliver(self, event: ReadEvent) -> None:
        with self._lock:
            self._waiters.take(event)
        for callback in self._callbacks.get(type(event), ()):
            try:
                callback(event)
            except (Exception, SystemExit):
                _log.exception("events of %s: a callback for %s raised", self.name, type(event).__name__)
        if not isinstance(event, EventsMissed):
            self._last = event.entry_id
            with self._lock:
                self._waiters.reached(event.entry_id)

    def _new_reader(self, last_event_id: str | None) -> EventReader:
        return EventReader(
            self._keys, last_event_id=last_event_id, block_ms=self._block_ms, max_delay_ms=self._max_delay_ms
        )

    def _new_stream(self, last_event_id: str | None) -> EventStream:
        reader = self._new_reader(last_event_id)
        transport = self._transport.dedicated(client_name=f"{self._keys.client_name()}:qe")
        return EventStream(reader, self._keys, transport, self._closed)

    def _is_closed(self) -> bool:
        return self._closed
