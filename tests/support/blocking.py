"""Objects of `bullmq_anyio` for plain functions: each call runs in the event loop of a portal."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Self

from anyio.from_thread import BlockingPortal, start_blocking_portal

import bullmq_anyio
import bullmq_sync


class Package(NamedTuple):
    """The classes of one adapter, in the shape of `bullmq_sync`, and a processor that does nothing."""

    Queue: Callable[..., Any]
    Worker: Callable[..., Any]
    FlowProducer: Callable[..., Any]
    nothing: Callable[[Any], Any]


@contextmanager
def package_of(adapter: str) -> Iterator[Package]:
    """Give the classes of an adapter: asyncio, trio or threads."""
    if adapter == "threads":
        yield Package(bullmq_sync.Queue, bullmq_sync.Worker, bullmq_sync.FlowProducer, lambda job: None)
        return

    async def nothing(job: Any) -> None:
        """A processor that has nothing to do."""

    with start_blocking_portal(adapter) as portal:
        making = partial(partial, _made, portal)
        yield Package(
            making(bullmq_anyio.Queue), making(bullmq_anyio.Worker), making(bullmq_anyio.FlowProducer), nothing
        )


def _made(portal: BlockingPortal, kind: type[Any], *args: Any, **options: Any) -> "_Blocking":
    return _Blocking(portal, portal.call(partial(kind, *args, **options)))


class _Blocking:
    """An object whose async methods are called from a plain function."""

    def __init__(self, portal: BlockingPortal, target: Any) -> None:
        self._portal = portal
        self._target = target

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, {"close": "aclose"}.get(name, name))
        if not inspect.iscoroutinefunction(value):
            return self._outward(value)

        def call(*args: Any, **options: Any) -> Any:
            inward = [each._target if isinstance(each, _Blocking) else each for each in args]
            return self._outward(self._portal.call(partial(value, *inward, **options)))

        return call

    def __enter__(self) -> Self:
        self._entered = self._portal.wrap_async_context_manager(self._target)
        self._entered.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._entered.__exit__(*error)

    def _outward(self, value: Any) -> Any:
        if isinstance(value, bullmq_anyio.Job):
            return _Blocking(self._portal, value)
        return [self._outward(each) for each in value] if isinstance(value, list) else value
