"""Which handler is for which jobs: the table of a router, and the checks of what stands around handlers.

A router holds routes, one for each name of jobs. Middleware stands around each handler, a lifespan around `run`. What
cannot be one of these is refused where it is given, before anything is opened.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec.structs import replace

from bullmq_protocol.common.keys import check_name
from bullmq_protocol.common.payloads import PayloadType, payload_type
from bullmq_protocol.common.units import Duration, Millis, to_ms
from bullmq_protocol.errors import UnrecoverableError, UsageError, shown
from bullmq_protocol.model.job_type import JobType
from bullmq_protocol.worker.options import LONGEST_MS, check_handler

F = TypeVar("F", bound=Callable[..., Any])

_MOST_NAMES: Final = 20
"""How many names an error lists."""


class Route(msgspec.Struct, frozen=True, eq=False):
    """What jobs of one name are: their handler, and `call`, the same within its time limit; the types of their payload
    and result (None: the worker's)."""

    handler: Callable[..., Any]
    call: Callable[..., Any]
    data_type: PayloadType | None
    result_type: PayloadType | None


class Routes:
    """The routes of a router. `is_async`: for handlers on asyncio or trio. `within` calls a handler of a job within a
    time limit."""

    def __init__(self, within: Callable[[Millis, Callable[..., Any], Any], Any], *, is_async: bool) -> None:
        self.is_async = is_async
        self._within = within
        self.by_name: dict[str, Route] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names that have a handler, in alphabetical order."""
        return tuple(sorted(self.by_name))

    def put(self, kind: object, handler: object, data_type: Any, timeout: Duration | None) -> None:
        """Check and keep a route. Raises `UsageError`."""
        if isinstance(kind, JobType):
            if data_type is not None:
                raise UsageError("data_type", data_type, "is that of the JobType: give it no other")
            name, data_type, result_type = kind.name, kind.data_type, kind.result_type
        else:
            name, result_type = check_name("name", kind, max_length=None), None
        check_handler("handler", handler, is_async=self.is_async)
        call = cast("Callable[..., Any]", handler)
        payload, result = payload_type("data_type", data_type), payload_type("result_type", result_type)
        limit_ms = _timeout_ms(timeout)
        route = Route(call, call if limit_ms is None else partial(self._within, limit_ms, call), payload, result)
        self._put({name: route})

    def put_all(self, other: object) -> None:
        """Keep all routes of another router, as they are now. Raises `UsageError`."""
        routes = routes_of(other)
        if routes is None or routes.is_async is not self.is_async:
            raise UsageError("router", other, "must be a Router of the same package")
        self._put({name: replace(route) for name, route in routes.by_name.copy().items()})

    def _put(self, routes: dict[str, Route]) -> None:
        """Keep all of these, or none. Threads may add at once, and look meanwhile: each step below is one for them."""
        kept: list[str] = []
        for name, route in routes.items():
            if self.by_name.setdefault(name, route) is not route:
                for each in kept:
                    del self.by_name[each]
                raise UsageError("name", name, "has a handler already")
            kept.append(name)

    def unknown(self, name: str) -> UnrecoverableError:
        """Return the error for jobs of a name that has no handler: it lists the known ones."""
        names = self.names
        known = ", ".join(map(shown, names[:_MOST_NAMES])) or "none"
        more = len(names) - _MOST_NAMES
        known += f" and {more} more" if more > 0 else ""
        return UnrecoverableError(f"no handler for jobs named {shown(name)}; known are: {known}")


def check_kind(kind: object) -> None:
    """Refuse a decorator that was given no name: it would add nothing. Raises `UsageError`."""
    if not isinstance(kind, (JobType, str)):
        raise UsageError("kind", kind, 'must be a JobType or the name of the jobs, as in @router("welcome")')


def _timeout_ms(timeout: Duration | None) -> Millis | None:
    if timeout is None:
        return None
    ms = to_ms("timeout", timeout)
    if not 0 < ms <= LONGEST_MS:
        raise UsageError("timeout", timeout, f"must be greater than 0, and at most {LONGEST_MS} ms (ten years)")
    return ms


class NotAsync(BaseException):
    """A function of the user's has returned nothing to await; `fault` says which. No `Exception`: it is not the job's
    failure."""

    def __init__(self, field: str, function: object, more: str = "") -> None:
        super().__init__(field)
        self.fault = UsageError(field, function, f"must be an async function{more}")


def handler_not_async(job_name: str, handler: object) -> NotAsync:
    """Return the error for a handler of a router's."""
    return NotAsync("handler", handler, f": it was added for jobs named {shown(job_name)}")


def took_too_long(limit_ms: Millis) -> str:
    """Return what is said of a handler whose time is over."""
    return f"the handler took longer than {limit_ms} ms"


def routes_of(processor: object) -> Routes | None:
    """Return the routes of a router, None for anything else."""
    routes: object = getattr(processor, "routes", None)
    return routes if isinstance(routes, Routes) else None


def check_router(processor: object, *, is_async: bool) -> bool:
    """Tell whether it is a router; refuse one of the other package."""
    routes = routes_of(processor)
    if routes is not None and routes.is_async is not is_async:
        package = "bullmq_anyio" if is_async else "bullmq_sync"
        raise UsageError("processor", processor, f"must be a Router of {package}, as the worker is")
    return routes is not None


def check_middleware(middleware: object, *, is_async: bool) -> tuple[Callable[..., Any], ...]:
    """Return the middleware as a tuple. Raises `UsageError`."""
    if isinstance(middleware, str) or not isinstance(middleware, Sequence):
        raise UsageError("middleware", middleware, "must be a list of functions of the job and call_next")
    given: tuple[Any, ...] = tuple(cast("Any", middleware))
    for index, each in enumerate(given):
        check_handler(f"middleware[{index}]", each, is_async=is_async, takes=("the job", "call_next"))
    return given


def check_lifespan(lifespan: Any, *, is_async: bool) -> None:
    """Refuse what cannot be a lifespan, as far as that shows without calling it. Raises `UsageError`."""
    if lifespan is None:
        return
    decorator = "contextlib.asynccontextmanager" if is_async else "contextlib.contextmanager"
    rule = f"must be a function of the worker that returns {_managers(is_async)}, such as one with @{decorator}"
    function = _function(lifespan)
    if not callable(function) or any(is_kind(function) for is_kind in _NO_MANAGERS):
        raise UsageError("lifespan", lifespan, rule)
    inner: Any = inspect.unwrap(function)
    is_of_the_other = inspect.isgeneratorfunction(inner) if is_async else inspect.isasyncgenfunction(inner)
    if is_of_the_other or (isinstance(function, type) and not _is_manager(function, is_async)):
        raise UsageError("lifespan", lifespan, rule)
    try:
        signature = inspect.signature(lifespan)
    except (TypeError, ValueError):
        return
    try:
        signature.bind("the worker")
    except TypeError as error:
        raise UsageError("lifespan", lifespan, f"must take one argument, the worker: called with it, {error}") from None


def _function(given: Any) -> Any:
    return given.func if type(given) is partial else given


def check_manager(manager: object, *, is_async: bool) -> None:
    """Refuse what a lifespan has returned, if it is no context manager. Raises `UsageError`."""
    if not _is_manager(type(manager), is_async):
        raise UsageError("lifespan", manager, f"must return {_managers(is_async)}")


def _is_manager(kind: type, is_async: bool) -> bool:
    return all(
        hasattr(kind, method) for method in (("__aenter__", "__aexit__") if is_async else ("__enter__", "__exit__"))
    )


def _managers(is_async: bool) -> str:
    return "an async context manager" if is_async else "a context manager that is not async"


_NO_MANAGERS = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


def chained(middleware: Sequence[Callable[..., Any]], handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function of the job that calls them all, the first of the middleware outermost, the handler last."""
    call = handler
    for each in reversed(middleware):
        call = _around(each, call)
    return call


def known_as_call_next(function: F) -> F:
    """Let Python's errors name it as middleware does, `call_next()` without the job for one."""
    function.__qualname__ = "call_next"
    return function


def _around(middleware: Callable[..., Any], following: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @known_as_call_next
    def call_next(job: Any) -> Any:
        return middleware(job, following)

    return call_next
