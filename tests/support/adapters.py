"""One text of a scenario for asyncio, trio and threads.

`adapter.Queue` and `adapter.Worker` are those of `bullmq_anyio`, or wrap those of `bullmq_sync` so that they look the
same: what is to be awaited runs in a thread, and functions that the scenario hands over (processors, callbacks) are
called in the scenario's own event loop.
"""

import functools
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, Self

import anyio
import anyio.to_thread
from anyio.from_thread import BlockingPortal

import bullmq_anyio
import bullmq_anyio.relay
import bullmq_anyio.testing
import bullmq_sync
import bullmq_sync.relay
import bullmq_sync.testing
from bullmq_protocol.model.flow import FlowJob, tree
from bullmq_protocol.scripts.profile import STRICT, Profile

NAMES = ("asyncio", "trio", "threads")
_TWINS: dict[type, type] = {
    bullmq_sync.Queue: bullmq_anyio.Queue,
    bullmq_sync.Job: bullmq_anyio.Job,
    bullmq_sync.Worker: bullmq_anyio.Worker,
    bullmq_sync.Router: bullmq_anyio.Router,
    bullmq_sync.Notices: bullmq_anyio.Notices,
    bullmq_sync.Pages: bullmq_anyio.Pages,
    bullmq_sync.Items: bullmq_anyio.Items,
    bullmq_sync.QueueEvents: bullmq_anyio.QueueEvents,
    bullmq_sync.EventStream: bullmq_anyio.EventStream,
    bullmq_sync.FlowProducer: bullmq_anyio.FlowProducer,
    bullmq_sync.QueueEventsProducer: bullmq_anyio.QueueEventsProducer,
    bullmq_sync.relay.Relay: bullmq_anyio.relay.Relay,
    bullmq_sync.relay.RelayNode: bullmq_anyio.relay.RelayNode,
}
_OTHER_NAMES = {"aclose": "close"}


class Adapter:
    """The classes of one adapter, and the scripts they use by default."""

    def __init__(self, name: str, portal: BlockingPortal, scripts: Profile) -> None:
        self.name = name
        self.logger = "bullmq_sync" if name == "threads" else "bullmq_anyio"
        threads = _Threads(portal)
        queue = threads.making(bullmq_sync.Queue) if name == "threads" else bullmq_anyio.Queue
        worker = threads.making(bullmq_sync.Worker) if name == "threads" else bullmq_anyio.Worker
        self.Router: Any = threads.making(bullmq_sync.Router) if name == "threads" else bullmq_anyio.Router
        self.scripts = scripts
        self.Queue: Any = functools.partial(queue, scripts=scripts)
        self.Worker: Any = functools.partial(worker, scripts=scripts)
        events = threads.making(bullmq_sync.QueueEvents) if name == "threads" else bullmq_anyio.QueueEvents
        flows = threads.making(bullmq_sync.FlowProducer) if name == "threads" else bullmq_anyio.FlowProducer
        publisher = bullmq_sync.QueueEventsProducer
        self.QueueEvents: Any = functools.partial(events, scripts=scripts)
        self.FlowProducer: Any = functools.partial(flows, scripts=scripts)
        relay = bullmq_sync.relay.Relay
        self.kit: Any = threads.functions(bullmq_sync.testing) if name == "threads" else bullmq_anyio.testing
        self.Relay: Any = threads.making(relay) if name == "threads" else bullmq_anyio.relay.Relay
        self.QueueEventsProducer: Any = (
            threads.making(publisher) if name == "threads" else bullmq_anyio.QueueEventsProducer
        )


async def opened(name: str, scripts: Profile = STRICT) -> AsyncIterator[Adapter]:
    """Give the adapter of this name, in the event loop that is running."""
    async with BlockingPortal() as portal:
        yield Adapter(name, portal, scripts)
        await portal.stop(cancel_remaining=True)


@asynccontextmanager
async def threads_of(twins: Mapping[type, type]) -> AsyncIterator[Callable[[type], Callable[..., Any]]]:
    """Give what makes objects of further blocking classes look like their asynchronous twins."""
    _TWINS.update(twins)
    async with BlockingPortal() as portal:
        yield _Threads(portal).making
        await portal.stop(cancel_remaining=True)


class _Threads:
    """The way from the event loop to blocking objects and back."""

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal
        self._loop_thread = threading.get_ident()
        self._limiter = anyio.CapacityLimiter(1500)

    def making(self, kind: type) -> Callable[..., Any]:
        def make(*args: Any, **options: Any) -> Any:
            return self.outward(kind(*map(self.inward, args), **{k: self.inward(v) for k, v in options.items()}))

        return make

    def functions(self, module: ModuleType) -> SimpleNamespace:
        """Make the public functions of a module look like their asynchronous twins."""
        names = [name for name in module.__all__ if inspect.isfunction(getattr(module, name))]
        return SimpleNamespace(**{name: functools.partial(self.call, getattr(module, name)) for name in names})

    async def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call it in a thread."""
        ready = functools.partial(function, *map(self.inward, args), **{k: self.inward(v) for k, v in options.items()})
        return self.outward(await anyio.to_thread.run_sync(ready, abandon_on_cancel=True, limiter=self._limiter))

    def inward(self, value: Any) -> Any:
        """Make of a scenario's value what a blocking object can use."""
        if isinstance(value, _Wrapped):
            return value._target
        if inspect.isfunction(value) or inspect.ismethod(value):

            @functools.wraps(value)
            def call_in_loop(*args: Any) -> Any:
                args = tuple(map(self.handed, args))
                if threading.get_ident() == self._loop_thread:
                    asynchronous = inspect.iscoroutinefunction(value)
                    return self._portal.start_task_soon(value, *args) if asynchronous else value(*args)
                return self._portal.call(value, *args)

            return call_in_loop
        # A list of middleware, not of what a job holds, which may be deep.
        return list(map(self.inward, value)) if type(value) is list and all(map(callable, value)) else value

    def handed(self, value: Any) -> Any:
        """Make of what a scenario's function is given, `call_next` among it, what it can use."""
        is_function = inspect.isfunction(value) or inspect.ismethod(value)
        return functools.partial(self.call, value) if is_function else self.outward(value)

    def outward(self, value: Any) -> Any:
        """Make of a blocking object what a scenario can use."""
        if type(value) in _TWINS:
            return _Wrapped(self, value)
        if type(value) in (list, tuple):
            return type(value)(self.outward(item) for item in value)
        if type(value) is FlowJob:
            # A flow may be deeper than the stack.
            found = [(-1, value)]
            for index, (_, each) in enumerate(found):
                found += [(index, child) for child in each.children]
            missing = {index: each.missing for index, (_, each) in enumerate(found)}
            return tree([(above, self.outward(each.job)) for above, each in found], missing)[0]
        return value


class _Wrapped:
    """A blocking object in the shape of its asynchronous twin."""

    def __init__(self, threads: _Threads, target: Any) -> None:
        self.__dict__.update(_threads=threads, _target=target, _twin=_TWINS[type(target)])

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, _OTHER_NAMES.get(name, name))
        if not inspect.ismethod(value):
            return self._threads.outward(value)
        if inspect.iscoroutinefunction(inspect.getattr_static(self._twin, name)):
            return functools.partial(self._threads.call, value)

        def call(*args: Any, **options: Any) -> Any:
            inward = self._threads.inward
            result = value(*map(inward, args), **{key: inward(option) for key, option in options.items()})
            return self._threads.outward(result)

        return call

    def __call__(self, *args: Any) -> Any:
        return self._threads.call(self._target, *args)

    def __aiter__(self) -> Any:
        # An iterator is its own; others give one.
        return self._threads.outward(iter(self._target))

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._target, name, value)

    def __repr__(self) -> str:
        return f"threads: {self._target!r}"

    async def __aenter__(self) -> Self:
        await self._threads.call(self._target.__enter__)
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._threads.call(self._target.__exit__, *error)

    async def __anext__(self) -> Any:
        ended = object()
        found = await self._threads.call(next, self._target, ended)
        if found is ended:
            raise StopAsyncIteration
        return found
