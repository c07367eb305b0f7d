"""Several kinds of jobs on one queue: a router is a processor that knows which function handles which."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar, cast, overload

from msgspec import UNSET

from bullmq_anyio.base import JobBase
from bullmq_anyio.job import Job
from bullmq_anyio.time_limit import within
from bullmq_protocol.common.payloads import DataType
from bullmq_protocol.common.units import Duration
from bullmq_protocol.model.job_type import JobType
from bullmq_protocol.worker.failures import check_payload
from bullmq_protocol.worker.routing import NotAsync, Route, Routes, check_kind

P = TypeVar("P")
R = TypeVar("R")

Handler: TypeAlias = Callable[[Job[P, R, Any]], Awaitable[R]]


class Router:
    """A processor that calls the function that was added for the job's name.

    A job whose name has no function fails for good, with an `UnrecoverableError` that lists the known names. You may
    change a router at any time, and several workers may share it.

    Source: specs/05-worker-runtime.md#sec-8

    Examples:
        >>> WELCOME = JobType("welcome", dict[str, str], result=str)
        >>> router = Router()
        >>> @router(WELCOME, timeout=5_000)
        ... async def welcome(job):
        ...     return f"hello {job.data['to']}"
        >>> router.names
        ('welcome',)
        >>> await router(job)
        'hello ada'
    """

    def __init__(self) -> None:
        self.routes = Routes(within, is_async=True)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that have a function, in alphabetical order."""
        return self.routes.names

    def __repr__(self) -> str:
        return f"<Router for {', '.join(map(repr, self.names)) or 'nothing'}>"

    @overload
    def __call__(
        self, kind: JobType[P, R], /, *, timeout: Duration | None = None
    ) -> Callable[[Handler[P, R]], Handler[P, R]]: ...
    @overload
    def __call__(
        self, kind: str, /, *, data_type: DataType[P], timeout: Duration | None = None
    ) -> Callable[[Handler[P, Any]], Handler[P, Any]]: ...
    @overload
    def __call__(
        self, kind: str, /, *, data_type: None = None, timeout: Duration | None = None
    ) -> Callable[[Handler[Any, Any]], Handler[Any, Any]]: ...
    @overload
    def __call__(self, kind: Job[Any, Any, Any], /) -> Awaitable[Any]: ...

    def __call__(self, kind: Any, /, *, data_type: Any = None, timeout: Duration | None = None) -> Any:
        """Return a decorator that adds a function as `add` does; or handle a job, as workers ask it to.

        Args:
            kind: A `JobType`, or the name of the jobs. Or a job.
            data_type: With a name, the type that payloads are read into, of any kind that a worker's `data_type` may
                be. None, the default: the worker's type.
            timeout: As in `add`; None by default.

        Returns:
            The decorator, which returns the function as it is; for a job, what its function returns.

        Raises:
            UnrecoverableError: No function is there for the job's name, or the payload does not fit.
            TimeoutError: The function took longer than its `timeout`.

        Examples:
            >>> @router("farewell")
            ... async def farewell(job):
            ...     return "bye"
        """
        if isinstance(kind, JobBase):
            return self._handle(cast("Job[Any, Any, Any]", kind))
        check_kind(kind)

        def register(handler: Any) -> Any:
            self.routes.put(kind, handler, data_type, timeout)
            return handler

        return register

    @overload
    def add(self, kind: JobType[P, R], handler: Handler[P, R], *, timeout: Duration | None = None) -> None: ...
    @overload
    def add(
        self, kind: str, handler: Handler[P, Any], *, data_type: DataType[P], timeout: Duration | None = None
    ) -> None: ...
    @overload
    def add(
        self,
        kind: str,
        handler: Handler[Any, Any],
        *,
        data_type: None = None,
        timeout: Duration | None = None,
    ) -> None: ...

    def add(
        self, kind: Any, handler: Callable[..., Any], *, data_type: Any = None, timeout: Duration | None = None
    ) -> None:
        """Let a function handle jobs of this name.

        Args:
            kind: A `JobType`, or the name of the jobs, for which there is no function yet.
            handler: An async function of the `Job`, as a worker's processor.
            data_type: With a name, the type that payloads are read into, of any kind that a worker's `data_type` may
                be. None, the default: the worker's type.
            timeout: How long a job may take, in milliseconds or as a `timedelta`, above 0. None, the default: any time.
                The function is then cancelled, as by a cancel scope around it, and the attempt fails with a
                `TimeoutError`.

        Examples:
            >>> async def farewell(job):
            ...     return "bye"
            >>> router.add("farewell", farewell, timeout=5_000)
        """
        self.routes.put(kind, handler, data_type, timeout)

    def include(self, router: Router) -> None:
        """Add all functions that another router has now. Functions added to it later are not included.

        Args:
            router: The other router, without names that this one has.

        Examples:
            >>> whole = Router()
            >>> whole.include(router)
        """
        self.routes.put_all(router)

    async def _handle(self, job: Job[Any, Any, Any]) -> Any:
        try:
            return await routed(self.routes, job).call(job)
        except NotAsync as error:
            raise error.fault from None


def routed(routes: Routes, job: Any) -> Route:
    """Find the route of a job, and check its payload and later its result as that says. Raises `UnrecoverableError`.

    Written out in one function: each call would cost each job.
    """
    route = routes.by_name.get(job.record.name)
    if route is None:
        raise routes.unknown(job.record.name)
    if route.result_type is not None:
        job._result_type = route.result_type
    if route.data_type is not None and job._data_type is not route.data_type:
        job._data_type = route.data_type
        job._payload = UNSET
        check_payload(job)
    return route
