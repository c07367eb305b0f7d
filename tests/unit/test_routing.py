"""Routers, middleware and lifespans: what is refused, and how they are put together."""

import contextlib
import functools
import itertools
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from functools import partial
from types import FrameType
from typing import Any

import msgspec
import pytest

import bullmq_anyio
import bullmq_sync
from bullmq_protocol import JobType, UsageError
from bullmq_protocol.worker.options import LONGEST_MS
from bullmq_protocol.worker.routing import (
    Routes,
    chained,
    check_lifespan,
    check_manager,
    check_middleware,
    handler_not_async,
    routes_of,
    took_too_long,
)


class Welcome(msgspec.Struct):
    to: str


WELCOME = JobType("welcome", Welcome)


async def asynchronous(job: Any) -> str:
    return "async"


def blocking(job: Any) -> str:
    return "blocking"


def generator(job: Any) -> Iterator[str]:
    yield "one"


async def asynchronous_generator(job: Any) -> AsyncIterator[str]:
    yield "one"


async def takes_nothing() -> None: ...


def blocking_takes_two(job: Any, token: str) -> None: ...


async def around(job: Any, call_next: Any) -> Any:
    return await call_next(job)


def blocking_around(job: Any, call_next: Any) -> Any:
    return call_next(job)


def generator_around(job: Any, call_next: Any) -> Iterator[Any]:
    yield call_next(job)


@contextlib.asynccontextmanager
async def lifespan(worker: Any) -> AsyncIterator[str]:
    yield "state"


@contextlib.contextmanager
def blocking_lifespan(worker: Any) -> Iterator[str]:
    yield "state"


@contextlib.asynccontextmanager
async def lifespan_of_nothing() -> AsyncIterator[str]:
    yield "state"


async def bare(worker: Any) -> AsyncIterator[str]:
    yield "state"


def blocking_bare(worker: Any) -> Iterator[str]:
    yield "state"


class Manager:
    def __init__(self, worker: Any) -> None: ...
    async def __aenter__(self) -> None: ...
    async def __aexit__(self, *what: object) -> None: ...


@pytest.mark.parametrize(
    ("is_async", "kind", "handler", "options", "field", "rule"),
    [
        (True, "", asynchronous, {}, "name", "empty"),
        (True, 3, asynchronous, {}, "name", ""),
        (True, "x", blocking, {}, "handler", "must be an async function: write"),
        (False, "x", asynchronous, {}, "handler", "plain function"),
        (True, "x", asynchronous_generator, {}, "handler", "without yield"),
        (True, "x", generator, {}, "handler", "without yield"),
        (False, "x", generator, {}, "handler", "without yield"),
        (False, "x", asynchronous_generator, {}, "handler", "without yield"),
        (True, "x", takes_nothing, {}, "handler", "must take one argument"),
        (False, "x", blocking_takes_two, {}, "handler", "must take one argument"),
        (True, "x", "asynchronous", {}, "handler", "must be an async function of the job"),
        (False, "x", None, {}, "handler", "must be a function of the job"),
        (True, "x", asynchronous, {"data_type": object()}, "data_type", "must be a type"),
        (True, WELCOME, asynchronous, {"data_type": int}, "data_type", "JobType"),
        (True, "x", asynchronous, {"timeout": 0}, "timeout", "greater than 0"),
        (True, "x", asynchronous, {"timeout": LONGEST_MS + 1}, "timeout", "at most"),
        (True, "x", asynchronous, {"timeout": "1s"}, "timeout", ""),
        (True, "known", asynchronous, {}, "name", "has a handler already"),
    ],
)
def test_a_router_refuses(
    is_async: bool, kind: Any, handler: Any, options: dict[str, Any], field: str, rule: str
) -> None:
    router: Any = bullmq_anyio.Router() if is_async else bullmq_sync.Router()
    router.add("known", asynchronous if is_async else blocking)
    with pytest.raises(UsageError) as caught:
        router.add(kind, handler, **options)
    assert caught.value.field == field
    assert rule in caught.value.rule
    assert router.names == ("known",)


@pytest.mark.parametrize("package", [bullmq_anyio, bullmq_sync])
@pytest.mark.parametrize("kind", [blocking, asynchronous, 3, None])
def test_a_decorator_without_a_name_is_refused(package: Any, kind: Any) -> None:
    """`@router` above a function would add nothing, and leave something else in its place."""
    with pytest.raises(UsageError, match=r"^kind: must be a JobType or the name of the jobs, as in @router\("):
        package.Router()(kind)


@pytest.mark.parametrize("package", [bullmq_anyio, bullmq_sync])
def test_a_router_shows_what_it_knows(package: Any) -> None:
    router = package.Router()
    assert repr(router) == "<Router for nothing>"
    handler = asynchronous if package is bullmq_anyio else blocking
    assert router(WELCOME, timeout=timedelta(seconds=2))(handler) is handler
    router("alpha", data_type=dict[str, int])(handler)
    assert (router.names, repr(router)) == (("alpha", "welcome"), "<Router for 'alpha', 'welcome'>")
    found = router.routes.by_name["welcome"]
    assert found.data_type is not None
    assert (found.handler, found.data_type.kind) == (handler, Welcome)
    assert isinstance(found.call, partial)
    assert found.call.args == (2_000, handler)
    alpha = router.routes.by_name["alpha"]
    assert alpha.data_type is not None
    assert (alpha.data_type.kind, alpha.result_type, alpha.call) == (dict[str, int], None, handler)


def test_unknown_names_are_told_with_those_that_are_known() -> None:
    router = bullmq_sync.Router()
    assert str(router.routes.unknown("x")) == "no handler for jobs named 'x'; known are: none"
    for number in range(22):
        router.add(f"job {number:02}", blocking)
    text = str(router.routes.unknown("redis://:secret@host/0"))
    assert "secret" not in text
    assert text.endswith("'job 18', 'job 19' and 2 more")


def test_including_takes_the_routes_as_they_are_then() -> None:
    whole, part = bullmq_sync.Router(), bullmq_sync.Router()
    part.add("one", blocking)
    whole.include(part)
    part.add("two", blocking)
    assert whole.names == ("one",)
    for wrong in (part, bullmq_anyio.Router(), {"one": blocking}):
        with pytest.raises(UsageError):
            whole.include(wrong)  # type: ignore[arg-type]
    assert whole.names == ("one",)


def test_including_takes_all_or_nothing() -> None:
    whole, part = bullmq_sync.Router(), bullmq_sync.Router()
    for name in ("one", "known", "two"):
        part.add(name, blocking)
    whole.add("known", blocking)
    for _ in range(2):
        with pytest.raises(UsageError, match="name: has a handler already"):
            whole.include(part)
        assert whole.names == ("known",)


def interrupted(call: Callable[[], object], moment: int, other: Callable[[], object]) -> bool:
    """Make a call, and before its nth line in `Routes._put` another one, as another thread may; tell whether there was
    one."""
    lines = itertools.count()
    made = False

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal made
        if frame.f_code is not Routes._put.__code__:
            return None
        if event == "line" and next(lines) == moment:
            made = True
            sys.settrace(None)
            other()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return made


@pytest.mark.parametrize("package", [bullmq_anyio, bullmq_sync])
def test_threads_may_add_and_include_at_once(package: Any) -> None:
    """Whenever another thread comes between: of two handlers of one name one is refused, and none is lost."""
    handler = asynchronous if package is bullmq_anyio else blocking
    moments = 0
    for name, way, moment in itertools.product(("same", "other"), ("add", "include"), range(20)):
        router, part = package.Router(), package.Router()
        for each in ("first", "same"):
            part.add(each, handler)
        refused: list[str] = []

        def attempt(call: Callable[[], object], refused: list[str] = refused) -> None:
            try:
                call()
            except UsageError as error:
                refused.append(error.value)

        def add(name: str = name, router: Any = router) -> None:
            router.add(name, handler)

        own = partial(router.add, "same", handler) if way == "add" else partial(router.include, part)
        if not interrupted(partial(attempt, own), moment, partial(attempt, add)):
            continue
        moments += 1
        assert len(refused) == (name == "same")
        wanted = {"same", *(("other",) if name == "other" else ()), *(("first",) if way == "include" else ())}
        # An include that is refused adds nothing.
        assert set(router.names) in ({*wanted}, wanted - {"first"} if refused else wanted)
    assert moments > 20


def test_routers_serve_workers_of_their_own_package_alone() -> None:
    assert bullmq_anyio.Worker("q", bullmq_anyio.Router()).name == "q"
    assert bullmq_sync.Worker("q", bullmq_sync.Router()).name == "q"
    for package, other in ((bullmq_anyio, bullmq_sync), (bullmq_sync, bullmq_anyio)):
        with pytest.raises(UsageError, match=f"processor: must be a Router of {package.__name__}"):
            package.Worker("q", other.Router())  # type: ignore[attr-defined]
    assert routes_of(blocking) is None


@pytest.mark.parametrize(
    ("is_async", "middleware", "field", "rule"),
    [
        (True, around, "middleware", "must be a list"),
        (True, "around", "middleware", "must be a list"),
        (True, [around, blocking_around], "middleware[1]", "must be an async function"),
        (False, [around], "middleware[0]", "plain function"),
        (False, [generator_around], "middleware[0]", "without yield"),
        (True, [asynchronous], "middleware[0]", "must take the job and call_next"),
        (True, [None], "middleware[0]", "of the job and call_next"),
    ],
)
def test_middleware_is_refused(is_async: bool, middleware: Any, field: str, rule: str) -> None:
    package: Any = bullmq_anyio if is_async else bullmq_sync
    with pytest.raises(UsageError) as caught:
        package.Worker("q", asynchronous if is_async else blocking, middleware=middleware)
    assert caught.value.field == field
    assert rule in caught.value.rule


def test_middleware_is_taken() -> None:
    assert check_middleware([around], is_async=True) == (around,)
    assert check_middleware((), is_async=False) == ()


@pytest.mark.parametrize(
    ("is_async", "wrong", "rule"),
    [
        (True, "lifespan", "asynccontextmanager"),
        (True, bare, "asynccontextmanager"),
        (True, blocking_lifespan, "asynccontextmanager"),
        (True, asynchronous, "asynccontextmanager"),
        (True, functools.partial(bare), "asynccontextmanager"),
        (False, blocking_bare, "@contextlib.contextmanager"),
        (False, lifespan, "@contextlib.contextmanager"),
        (False, Manager, "@contextlib.contextmanager"),
        (True, lifespan_of_nothing, "must take one argument, the worker"),
    ],
)
def test_lifespans_are_refused(is_async: bool, wrong: Any, rule: str) -> None:
    package: Any = bullmq_anyio if is_async else bullmq_sync
    with pytest.raises(UsageError) as caught:
        package.Worker("q", asynchronous if is_async else blocking, lifespan=wrong)
    assert caught.value.field == "lifespan"
    assert rule in caught.value.rule


def test_lifespans_are_taken() -> None:
    for right in (None, lifespan, Manager, functools.partial(lifespan)):
        check_lifespan(right, is_async=True)
    for right in (blocking_lifespan, contextlib.nullcontext):
        check_lifespan(right, is_async=False)


class Unsigned:
    """As some functions in C: nothing tells what it takes."""

    __signature__ = "none"

    def __call__(self, worker: Any) -> Any: ...


def test_what_shows_no_signature_is_taken() -> None:
    check_lifespan(Unsigned(), is_async=False)
    with pytest.raises(UsageError, match="must return a context manager that is not async"):
        check_manager(object(), is_async=False)
    with pytest.raises(UsageError, match="must return an async context manager"):
        check_manager(contextlib.nullcontext, is_async=True)
    check_manager(contextlib.nullcontext(), is_async=True)


def test_a_handler_that_is_not_async_is_named() -> None:
    error = handler_not_async("redis://:secret@host/0", blocking)
    assert not isinstance(error, Exception)
    assert (error.fault.field, error.fault.value) == ("handler", blocking)
    assert "secret" not in str(error.fault)


def test_a_time_limit_is_named() -> None:
    assert took_too_long(1500) == "the handler took longer than 1500 ms"


def test_the_first_middleware_is_outermost() -> None:
    def named(name: str) -> Any:
        return lambda job, call_next: f"{name}({call_next(job)})"

    assert chained([named("a"), named("b")], lambda job: job)("x") == "a(b(x))"
    assert chained([], lambda job: job)("x") == "x"
    with pytest.raises(TypeError, match=r"^call_next\(\) missing 1 required positional argument: 'job'$"):
        chained([lambda job, call_next: call_next(), lambda job, call_next: job], lambda job: job)("x")
