"""Every public method, by its signature: a wrong type is refused by name before anything is sent, and a URL with a
login that was given by mistake is quoted nowhere."""

from __future__ import annotations

import inspect
import logging
import pickle
import threading
import traceback
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

import bullmq_anyio
import bullmq_sync
from bullmq_protocol import FlowNode, JobOptions, NewJob, RepeatOptions, WorkerOptions
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import BullMQError, Closed, UsageError, looks_like_login, without_login
from bullmq_protocol.events.stream import AddedEvent
from bullmq_protocol.model.job import JobRecord

pytestmark = pytest.mark.slow

SECRET = "s3cr3t-Xyzzy"
LOGIN = f"redis://user:{SECRET}"
PACKAGES = {"anyio": bullmq_anyio, "sync": bullmq_sync}
NAMES = ("Queue", "Job", "FlowProducer", "QueueEvents", "QueueEventsProducer")
MADE = ("Queue", "Worker", "FlowProducer", "QueueEvents", "QueueEventsProducer")


class Sent(Exception):
    """A step reached the transport."""


class Recorder:
    """A transport that nothing may reach, in both colours."""

    def perform(self, step: Any) -> Any:
        raise Sent(step)

    def server_info(self) -> Any:
        raise Sent("INFO")

    def dedicated(self, *, client_name: str | None = None) -> Recorder:
        return self

    def close(self) -> None: ...

    async def aclose(self) -> None: ...


class Odd:
    """Nothing that any parameter takes."""


FITTING: dict[str, Any] = {
    "command": None,
    "data": {},
    "delay": 5,
    "duration": 5,
    "event_name": "e",
    "flow": FlowNode("a", "q"),
    "flows": [FlowNode("a", "q")],
    "grace": 0,
    "jobs": [NewJob("a")],
    "kind": "pending",
    "name": "n",
    "outcome": "failed",
    "priorities": [1],
    "repeat": RepeatOptions(every=1000),
    "states": "failed",
    "timestamp_ms": 5,
    "token": "t",
    "callback": print,
}
# `Job.iter_dependencies` has other kinds than `Queue.get_dependencies`, `QueueEvents.on` has classes.
KINDS: dict[tuple[str, str], Any] = {("Job", "iter_dependencies"): "failed", ("QueueEvents", "on"): AddedEvent}
ALIASES = {
    "states": "state",
    "priorities": "priority",
    "value": "progress",
    "queue_name": "queue name",
    "event_name": "name",
    "concurrency": "concurrency",
    "child": "child",
    "kinds": "kind",
    "labels": "label",
}


def target(package: Any, name: str) -> Any:
    transport = Recorder()
    if name == "Job":
        return package.Job(JobRecord("7", {"name": b"n"}), QueueKeys.of("q"), transport)
    if name == "Queue":
        return package.Queue("q", transport, skip_meta_update=True)
    return getattr(package, name)(*(() if name == "FlowProducer" else ("q",)), transport)


def methods(kind: type) -> Iterator[str]:
    for name, member in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            yield name
            assert member is not None


PARAMETERS = [
    (name, method, parameter.name, str(parameter.annotation))
    for name in NAMES
    for method in methods(getattr(bullmq_sync, name))
    for parameter in list(inspect.signature(getattr(getattr(bullmq_sync, name), method)).parameters.values())[1:]
]
CONSTRUCTORS = [
    (name, parameter.name, str(parameter.annotation))
    for name in MADE
    for parameter in inspect.signature(getattr(bullmq_sync, name)).parameters.values()
]


def wrong_values(annotation: str) -> list[Any]:
    """Return values of types that an annotation has no place for."""
    if "Any" in annotation.replace("Page[list[Any]]", "") or annotation == "T":
        return []
    found: list[Any] = [Odd(), b"x", 1.5]
    if "str" not in annotation and "Literal" not in annotation:
        found.append("x")
    if not any(word in annotation for word in ("int", "Duration", "Millis", "float")):
        found.append(1)
    if "bool" not in annotation:
        found.append(True)
    if "None" not in annotation and annotation != "Connection":
        found.append(None)
    return found


async def call(owner: Any, kind: str, method: str, parameter: str, value: Any) -> Any:
    function = getattr(owner, method)
    signature = inspect.signature(function)
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for each in signature.parameters.values():
        if each.name == parameter:
            if each.kind is each.VAR_POSITIONAL:
                positional = [value]
            else:
                named[each.name] = value
        elif each.name == "queue_events":
            named[each.name] = target(
                bullmq_anyio if inspect.iscoroutinefunction(function) else bullmq_sync, "QueueEvents"
            )
        elif each.name == "token" or (each.default is each.empty and each.kind is not each.VAR_POSITIONAL):
            fitting = KINDS.get((kind, method)) if each.name == "kind" else None
            named[each.name] = FITTING.get(each.name, "7") if fitting is None else fitting
    result = function(*positional, **named)
    if inspect.isawaitable(result):
        return await result
    if hasattr(result, "__anext__"):
        return await result.__anext__()
    return next(result) if hasattr(result, "__next__") else result


def refusal(package: str, name: str, method: str, parameter: str, value: Any) -> UsageError:
    owner = target(PACKAGES[package], name)
    with pytest.raises(UsageError) as caught:
        anyio.run(call, owner, name, method, parameter, value)
    return caught.value


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize(("name", "method", "parameter", "annotation"), PARAMETERS)
def test_methods_refuse_wrong_types(package: str, name: str, method: str, parameter: str, annotation: str) -> None:
    values = wrong_values(annotation)
    assert values or "Any" in annotation or annotation == "T"
    for value in values:
        error = refusal(package, name, method, parameter, value)
        assert ALIASES.get(parameter, parameter) in error.field or parameter in error.field, (value, error)


def test_the_table_is_not_empty() -> None:
    assert len(PARAMETERS) > 130
    assert len({(name, method) for name, method, *_ in PARAMETERS}) > 70


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize(("name", "parameter", "annotation"), CONSTRUCTORS)
def test_constructors_refuse_wrong_types(package: str, name: str, parameter: str, annotation: str) -> None:
    kind = getattr(PACKAGES[package], name)
    for value in wrong_values(annotation):
        given = {"connection": Recorder(), **({} if name == "FlowProducer" else {"name": "q"}), parameter: value}
        with pytest.raises(UsageError) as caught:
            kind(**given)
        wanted = {"name": "queue name"}.get(parameter, parameter)
        assert wanted in caught.value.field or (value == "x" and caught.value.field == "url"), (value, caught.value)


# --- texts that look like a URL with a login ------------------------------------------------------------------------


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    caplog.set_level(logging.DEBUG)
    texts: list[str] = []
    yield texts
    texts += [logging.Formatter("%(message)s").format(record) for record in caplog.records]
    assert texts
    assert [text for text in texts if SECRET in text] == []


def shown(error: BaseException) -> list[str]:
    return [
        repr(error),
        str(error),
        repr(vars(error)),
        *traceback.format_exception_only(error),
        pickle.dumps(error).decode("latin-1") if isinstance(error, BullMQError) else "",
    ]


TEXTS = [each for each in PARAMETERS if "str" in each[3] or "Literal" in each[3] or "Any" in each[3]]


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize(("name", "method", "parameter"), [each[:3] for each in TEXTS])
@pytest.mark.parametrize("text", [LOGIN, [LOGIN], f"{LOGIN}@host"])
def test_methods_quote_no_login(
    told: list[str], package: str, name: str, method: str, parameter: str, text: object
) -> None:
    owner = target(PACKAGES[package], name)
    try:
        told.append(repr(anyio.run(call, owner, name, method, parameter, text)))
    except (BullMQError, TypeError) as error:
        told += shown(error)
    except Sent:
        told.append("sent")  # as a name that it may well be
    told.append(repr(owner))


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize(("name", "parameter", "annotation"), CONSTRUCTORS)
def test_constructors_quote_no_login(told: list[str], package: str, name: str, parameter: str, annotation: str) -> None:
    given: dict[str, Any] = {"connection": Recorder(), **({} if name == "FlowProducer" else {"name": "q"})}
    for text in (LOGIN, f"{LOGIN}@host", f"{LOGIN}@host:6379/0", f"user:{SECRET}@host"):
        try:
            told.append(repr(getattr(PACKAGES[package], name)(**{**given, parameter: text})))
        except UsageError as error:
            told += shown(error)


@pytest.mark.parametrize("package", PACKAGES)
def test_names_that_stand_in_keys_and_logs_must_be_none(told: list[str], package: str) -> None:
    module = PACKAGES[package]
    for make in (
        lambda: module.Queue("q", prefix=LOGIN),
        lambda: module.Queue(f"{SECRET}:{SECRET}@host"),
        lambda: module.Worker("q", worker_id=LOGIN),
        lambda: module.Worker("q", options=WorkerOptions(name=LOGIN)),
        lambda: module.FlowProducer(prefix=LOGIN),
    ):
        with pytest.raises(UsageError, match="looks like a URL with a login") as caught:
            make()
        told += shown(caught.value)


@pytest.mark.parametrize("package", PACKAGES)
def test_names_of_jobs_are_shown_without_it(told: list[str], package: str) -> None:
    module = PACKAGES[package]
    job = module.Job(JobRecord(LOGIN, {"name": LOGIN.encode()}), QueueKeys.of("q"), Recorder())
    assert repr(job) == "Job(id='[a URL with a login]', name='[a URL with a login]', queue='q')"
    told.append(repr(job))
    queue = module.Queue("q", Recorder(), skip_meta_update=True)
    # The warning of a delay over an hour names the job.
    warned = NewJob(LOGIN, {}, JobOptions(attempts=2, backoff=4_000_000))
    with pytest.raises(Sent):
        anyio.run(call, queue, "Queue", "add_bulk", "jobs", [warned])


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("redis://localhost:6379/0", None),
        ("redis://[::1]:6379", None),
        ("connect by redis+sentinel://host:port,host:port/service", None),
        ("mail", None),
        ("bull:mail:7", None),
        ("ada@example.org", None),
        ("unix:///run/redis.sock", None),
        ("2020-01-01T00:00:00Z", None),
        ("redis://user:pw", ""),
        ("redis://:pw@h", ""),
        ("redis://pw@h", ""),
        ("redis://user:123456", ""),
        ("redis://h?password=pw", ""),
        ("at redis:/:pw@h", "at "),
        ("user:pw@h", ""),
        ("['x', 'redis://u:pw@h', 'y']", "['x', '"),
    ],
)
def test_what_looks_like_a_login(text: str, left: str | None) -> None:
    assert looks_like_login(text) == (left is not None)
    assert without_login(text) == (text if left is None else f"{left}[a URL with a login]")


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError(SECRET)


def test_values_without_a_repr_are_shown_by_type(told: list[str]) -> None:
    error = UsageError("field", Unshowable(), "rule")
    assert str(error) == "field: rule (got a Unshowable)"
    told.append(str(error))
    error = UsageError(f"of {LOGIN}", {"a": [LOGIN]}, f"not {LOGIN}")
    assert str(error) == "of [a URL with a login]: not [a URL with a login] (got '[a URL with a login]')"
    told += shown(error)


# --- what is no argument ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", PACKAGES)
def test_data_is_not_assigned(package: str) -> None:
    job = target(PACKAGES[package], "Job")
    assert job.data == {}
    with pytest.raises(UsageError, match="data: cannot be assigned: call update_data"):
        job.data = 3
    assert job.data == {}
    with pytest.raises(AttributeError):
        job.name = "x"


class Silent:
    """A server that says nothing for as long as it is asked."""

    def __init__(self) -> None:
        self.ended = anyio.Event()

    async def server_info(self) -> Any:
        return SimpleNamespace(cluster=False)

    async def perform(self, step: Any) -> Any:
        await self.ended.wait()
        raise Closed

    def dedicated(self, *, client_name: str | None = None) -> Silent:
        return self

    async def aclose(self) -> None:
        self.ended.set()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("first", ["enter", "run"])
def test_events_are_entered_once(backend: str, first: str) -> None:
    async def main() -> None:
        events = bullmq_anyio.QueueEvents("q", Silent(), last_event_id="0-0")

        async def enter() -> None:
            async with events:
                raise AssertionError("there was no answer")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(enter if first == "enter" else events.run)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(UsageError, match="queue_events: is already running"):
                await events.__aenter__()
            with pytest.raises(UsageError, match="queue_events: is already running"):
                await events.run()
            assert events.is_running
            tasks.cancel_scope.cancel()
        await events.aclose()
        with pytest.raises(Closed):
            await events.__aenter__()

    anyio.run(main, backend=backend)


class SilentThread:
    """The same for threads."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.ended = threading.Event()

    def server_info(self) -> Any:
        return SimpleNamespace(cluster=False)

    def perform(self, step: Any) -> Any:
        self.asked.set()
        self.ended.wait(60)
        raise Closed

    def dedicated(self, *, client_name: str | None = None) -> SilentThread:
        return self

    def close(self) -> None:
        self.ended.set()


@pytest.mark.parametrize("first", ["__enter__", "run"])
def test_events_are_entered_once_on_threads(first: str) -> None:
    server: Any = SilentThread()
    events = bullmq_sync.QueueEvents("q", server, last_event_id="0-0")
    failures: list[BaseException] = []

    def begin() -> None:
        try:
            getattr(events, first)()
        except BullMQError as error:
            failures.append(error)

    thread = threading.Thread(target=begin)
    thread.start()
    assert server.asked.wait(60)
    with pytest.raises(UsageError, match="queue_events: is already running"):
        events.__enter__()
    assert events.is_running
    events.close()
    thread.join(60)
    assert not thread.is_alive()
    with pytest.raises(Closed):
        events.__enter__()
