"""Every public method, by its signature: a wrong type is refused by name before anything is sent, and a URL with a
login that was given by mistake is quoted nowhere."""

from __future__ import annotations

import inspect
import logging
import pickle
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from enum import Enum, StrEnum
from types import MappingProxyType, SimpleNamespace
from typing import Any

import anyio
import msgspec
import pytest

import bullmq_anyio.producers
import bullmq_anyio.queue
import bullmq_sync.producers
import bullmq_sync.queue
from bullmq_protocol import (
    Backoff,
    Deduplication,
    FlowNode,
    JobOptions,
    NewJob,
    ParentRef,
    RepeatOptions,
    WorkerOptions,
    errors,
)
from bullmq_protocol.command import Batch, Command
from bullmq_protocol.commands import queues
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import BullMQError, Closed, UsageError, looks_like_login, without_login
from bullmq_protocol.events.stream import AddedEvent
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.model.options import Telemetry
from bullmq_protocol.worker.logline import logline
from bullmq_protocol.worker.notices import JobActive, JobCompleted, JobStalled, RenewalFailed, WorkerProblem

pytestmark = pytest.mark.slow

SECRET = "s3cr3t-Xyzzy"
LOGIN = f"redis://user:{SECRET}"
PACKAGES = {"anyio": bullmq_anyio, "sync": bullmq_sync}
NAMES = ("Queue", "Job", "Worker", "FlowProducer", "QueueEvents", "QueueEventsProducer")
MADE = ("Queue", "Worker", "FlowProducer", "QueueEvents", "QueueEventsProducer")


class Sent(Exception):
    """A step reached the transport."""


class Recorder:
    """A transport that nothing may reach, in both adapters."""

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
    "error": LookupError(),
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
KINDS: dict[tuple[str, str], Any] = {
    ("Job", "iter_dependencies"): "failed",
    ("QueueEvents", "on"): AddedEvent,
    ("Worker", "on"): JobActive,
}
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
    if name == "Worker":
        return package.Worker("q", None, transport)
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
    function = getattr(owner, "aclose" if method == "close" and hasattr(owner, "aclose") else method)
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
            if each.name == "job":
                package = bullmq_anyio if hasattr(owner, "aclose") else bullmq_sync
                named["job"] = package.Job(JobRecord("7", {}), QueueKeys.of("q"), Recorder(), token="t")
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
def reported(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
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
    reported: list[str], package: str, name: str, method: str, parameter: str, text: object
) -> None:
    owner = target(PACKAGES[package], name)
    try:
        reported.append(repr(anyio.run(call, owner, name, method, parameter, text)))
    except (BullMQError, TypeError) as error:
        reported += shown(error)
    except Sent:
        reported.append("sent")  # as a name that it may well be
    reported.append(repr(owner))


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize(("name", "parameter", "annotation"), CONSTRUCTORS)
def test_constructors_quote_no_login(
    reported: list[str], package: str, name: str, parameter: str, annotation: str
) -> None:
    given: dict[str, Any] = {"connection": Recorder(), **({} if name == "FlowProducer" else {"name": "q"})}
    for text in (LOGIN, f"{LOGIN}@host", f"{LOGIN}@host:6379/0", f"user:{SECRET}@host"):
        try:
            reported.append(repr(getattr(PACKAGES[package], name)(**{**given, parameter: text})))
        except UsageError as error:
            reported += shown(error)


@pytest.mark.parametrize("package", PACKAGES)
def test_names_that_stand_in_keys_and_logs_must_be_none(reported: list[str], package: str) -> None:
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
        reported += shown(caught.value)


@pytest.mark.parametrize("package", PACKAGES)
def test_names_of_jobs_are_shown_without_it(reported: list[str], package: str) -> None:
    module = PACKAGES[package]
    job = module.Job(JobRecord(LOGIN, {"name": LOGIN.encode()}), QueueKeys.of("q"), Recorder())
    assert repr(job) == "Job(id='[a URL with a login]', name='[a URL with a login]', queue='q')"
    reported.append(repr(job))
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
        ("cannot connect to redis://127.0.0.1:6379: refused", None),
        ("cannot connect to redis://[::1]:6379/0: refused", None),
        ("no answer from redis+sentinel://a:1,b:2/service: refused", None),
        ("no answer from unix:///run/redis.sock: refused", None),
        ("WRONGPASS (user 'default' at redis://***@127.0.0.1:6379)", None),
        ("redis://h: it is no place", None),
        ("connect by redis+sentinel://host:port,host:port/service", None),
        ("mail", None),
        ("bull:mail:7", None),
        ("ada@example.org", None),
        ("unix:///run/redis.sock", None),
        ("2020-01-01T00:00:00Z", None),
        ("redis://h: ask ada at home", None),
        ("redis://user: pw@h", ""),
        ("at redis://: pw@h", "at "),
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


def test_values_without_a_repr_are_shown_by_type(reported: list[str]) -> None:
    error = UsageError("field", Unshowable(), "rule")
    assert str(error) == "field: rule (got a Unshowable)"
    reported.append(str(error))
    error = UsageError(f"of {LOGIN}", {"a": [LOGIN]}, f"not {LOGIN}")
    assert str(error) == "of [a URL with a login]: not [a URL with a login] (got '[a URL with a login]')"
    reported += shown(error)


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


# --- members of a StrEnum, and other subclasses of str ----------------------------------------------------------------


class Strange(str):
    """A text whose own methods say something else."""

    __slots__ = ()

    def __str__(self) -> str:
        return "strange"

    def __format__(self, spec: str) -> str:
        return "strange"

    def __repr__(self) -> str:
        return "<strange>"


def member_of_str_enum(text: str) -> str:
    return StrEnum("Word", {"IT": text})["IT"]


def member_of_mixed_enum(text: str) -> str:
    class Base(str, Enum):  # noqa: UP042
        pass

    return Base("Word", {"IT": text})["IT"]  # type: ignore[return-value,call-overload,no-any-return]


SUBCLASSES = [member_of_str_enum, member_of_mixed_enum, Strange]


class Keeper(Recorder):
    """A transport that keeps what is asked of it."""

    def __init__(self, is_async: bool) -> None:
        self.is_async = is_async

    def server_info(self) -> Any:
        async def later() -> Any:
            return SimpleNamespace(cluster=False)

        return later() if self.is_async else SimpleNamespace(cluster=False)


def leaves(value: Any) -> Iterator[Any]:
    """All values that a step holds, but for what decodes the reply."""
    if isinstance(value, (Command, Batch)):
        parts = value.commands if isinstance(value, Batch) else (value.name, value.keys, value.args, value.merge)
        yield from leaves(parts)
    elif isinstance(value, msgspec.Struct):
        yield from leaves(tuple(getattr(value, field) for field in value.__struct_fields__))
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from leaves(each)
    elif not callable(value):
        yield value


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, ...]]:
    """What a call sends first, at one and the same moment."""
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000_000_000)
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=7))
    for module in (bullmq_anyio.queue, bullmq_sync.queue):
        monkeypatch.setattr(module, "time_ns", time.time_ns)
    for module in (bullmq_anyio.producers, bullmq_sync.producers):
        monkeypatch.setattr(module, "urandom", bytes)

    def caught(package: str, name: str, method: str, parameter: str, value: Any) -> tuple[Any, ...]:
        owner = target(PACKAGES[package], name)
        owner._transport = Keeper(package == "anyio")
        try:
            # The names that it takes from a value show where it is reported.
            return ("returned", repr(anyio.run(call, owner, name, method, parameter, value)))
        except Sent as found:
            return tuple(leaves(found.args[0]))

    return caught


# What else than a text they take, and what they hand on to a Job, or to readers, that they then ask for.
NAMED = [
    (name, method, parameter)
    for name, method, parameter, annotation in PARAMETERS
    if ("str" in annotation or "Literal" in annotation)
    # Further names, callbacks, and what nobody reads before it runs.
    and not any(word in annotation for word in ("Mapping", "Callable"))
    and method not in ("wait_until_finished", "run")
]
CHOICES = {
    ("Queue", "retry_jobs", "state"): "completed",
    ("Queue", "retry_pages", "state"): "completed",
    ("Job", "retry", "state"): "completed",
    ("Queue", "get_dependencies", "kind"): "processed",
    ("Job", "iter_dependencies", "kind"): "failed",
    ("Job", "get_dependencies_count", "kinds"): "failed",
}
PLACES = {
    "job.id": lambda text: [NewJob("n", {}, JobOptions(job_id=text))],
    "job.name": lambda text: [NewJob(text)],
    "repeat_job_key": lambda text: [NewJob("n", {}, JobOptions(repeat_job_key=text))],
    "backoff.type": lambda text: [NewJob("n", {}, JobOptions(backoff=Backoff(text, 5)))],
    "parent.id": lambda text: [NewJob("n", {}, JobOptions(parent=ParentRef(text, "bull:q")))],
    "parent.queue": lambda text: [NewJob("n", {}, JobOptions(parent=ParentRef("7", f"bull:{text}")))],
    "deduplication.id": lambda text: [NewJob("n", {}, JobOptions(deduplication=Deduplication(text)))],
    "telemetry": lambda text: [NewJob("n", {}, JobOptions(telemetry=Telemetry(text)))],
    "extra": lambda text: [NewJob("n", {}, JobOptions(extra={text: [text, {text: (text, 1)}]}))],
    "extra as a mapping": lambda text: [NewJob("n", {}, JobOptions(extra=MappingProxyType({text: text})))],
    "backoff.extra": lambda text: [NewJob("n", {}, JobOptions(backoff=Backoff("x", 5, extra={text: text})))],
    "data": lambda text: [NewJob("n", {text: [text]})],
}


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("kind", SUBCLASSES)
@pytest.mark.parametrize(("name", "method", "parameter"), NAMED)
def test_methods_take_subclasses_of_str(
    sent: Any, package: str, kind: Callable[[str], str], name: str, method: str, parameter: str
) -> None:
    text = CHOICES.get((name, method, parameter))
    if text is None:
        text = {"states": "failed", "state": "failed", "outcome": "failed", "last_event_id": "5-0"}.get(
            parameter, "some"
        )
    plain = sent(package, name, method, parameter, text)
    assert {type(each) for each in plain} <= {str, bytes, int, type(None)}, plain
    odd = sent(package, name, method, parameter, kind(text))
    assert odd == plain
    assert [type(each) for each in odd] == [type(each) for each in plain]


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("kind", SUBCLASSES)
@pytest.mark.parametrize("place", PLACES)
def test_options_take_subclasses_of_str(sent: Any, package: str, kind: Callable[[str], str], place: str) -> None:
    def made(text: str) -> Any:
        return sent(package, "Queue", "add_bulk", "jobs", PLACES[place](text))

    plain = made("some")
    if place == "parent.queue":
        odd = sent(
            package,
            "Queue",
            "add_bulk",
            "jobs",
            [NewJob("n", {}, JobOptions(parent=ParentRef("7", kind("bull:some"))))],
        )
    else:
        odd = made(kind("some"))
    assert odd == plain
    assert [type(each) for each in odd] == [type(each) for each in plain]


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("kind", SUBCLASSES)
def test_flows_and_schedulers_take_subclasses_of_str(sent: Any, package: str, kind: Callable[[str], str]) -> None:
    def node(text: Callable[[str], str]) -> FlowNode:
        below = FlowNode(text("a"), text("other"), prefix=text("pre"))
        return FlowNode("a", text("q"), {}, JobOptions(job_id=text("own")), children=[below])

    def rule(text: Callable[[str], str]) -> RepeatOptions:
        return RepeatOptions(pattern=text("0 6 * * *"), tz=text("utc"))

    for name, method, parameter, value in (
        ("FlowProducer", "add", "flow", node),
        ("FlowProducer", "add", "queues_options", lambda text: {text("q"): JobOptions(attempts=3)}),
        ("Queue", "upsert_job_scheduler", "repeat", rule),
        ("Queue", "upsert_job_scheduler", "options", lambda text: JobOptions(backoff=Backoff(text("x"), 5))),
        ("Queue", "remove_repeatable", "repeat", rule),
        ("QueueEventsProducer", "publish", "fields", lambda text: {text("a"): text("b")}),
    ):
        plain = sent(package, name, method, parameter, value(str))
        odd = sent(package, name, method, parameter, value(kind))
        assert odd == plain
        assert [type(each) for each in odd] == [type(each) for each in plain]


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("kind", SUBCLASSES)
def test_constructors_take_subclasses_of_str(package: str, kind: Callable[[str], str]) -> None:
    module = PACKAGES[package]
    for made in (
        module.Queue(kind("q"), Recorder(), prefix=kind("pre")),
        module.QueueEvents(kind("q"), Recorder(), prefix=kind("pre"), last_event_id=kind("0-0")),
        module.QueueEventsProducer(kind("q"), Recorder(), prefix=kind("pre")),
    ):
        assert made.keys == QueueKeys.of("q", prefix="pre", switches=made.keys.switches)
        texts = (field for field in QueueKeys.__struct_fields__ if field != "switches")
        assert {type(getattr(made.keys, field)) for field in texts} == {str}
    worker = module.Worker(kind("q"), None, Recorder(), worker_id=kind("w"), options=WorkerOptions(name=kind("some")))
    assert (worker.id, type(worker.id), worker.keys.name) == ("w", str, "q")
    assert (worker._setup.settings.name, type(worker._setup.settings.name)) == ("some", str)
    labels = queues.prometheus_text("q", {"failed": 1}, {kind("region"): kind("eu")})
    assert labels.splitlines()[-1] == 'bullmq_job_count{queue="q", state="failed", region="eu"} 1'


# --- texts of others in errors and logs -------------------------------------------------------------------------------


def test_errors_after_sending_quote_no_login(reported: list[str]) -> None:
    """A job's id, or its parent's key, may be anything."""
    url = f"{LOGIN}@host:6379"
    node = f"{url} in q"
    for error in (
        *(kind("c", job_id=url, parent_key=f"{url}:7") for kind in errors.SCRIPT_ERRORS.values()),
        errors.RetriedInPart(url, url),
        errors.WaitTimeout(url, 5),
        errors.JobFailedError(url, ""),
        errors.JobFailedError("7", f"no answer from {url}"),
        errors.FlowAddError("flow[0]", [node], [errors.NodeRefused(f"it is {url}", existing_id="7")]),
        errors.NodeRefused(f"it is {url}", existing_id=url),
        errors.BulkAddError([errors.JobNotFound("c", job_id=url)]),
        errors.ServerError(f"ERR unknown command, with args beginning with: `{url}`"),
        errors.ConnectionLost(f"no way to {url}", maybe_applied=True),
        errors.UnexpectedReply("a number", url),
    ):
        reported += [str(error), repr(error), *traceback.format_exception_only(error)]
    assert errors.ServerError(f"OOM for {url}").code == "OOM"


def test_log_lines_quote_no_login(reported: list[str]) -> None:
    url = f"{LOGIN}@host:6379"
    job = JobRecord(url, {"name": url.encode()})
    for notice in (
        JobActive(job),
        JobCompleted(job, "null", 5),
        JobStalled(url),
        RenewalFailed((url,), f"no way to {url}"),
        WorkerProblem(f"no way to {url}", url),
    ):
        line = logline(notice, "q")
        reported += [line.message, repr(line.fields)]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_parents_queue_is_no_login(reported: list[str], package: str) -> None:
    for text in (f"{LOGIN}@host:6379", LOGIN):
        queue = target(PACKAGES[package], "Queue")
        jobs = [NewJob("n", {}, JobOptions(parent=ParentRef("7", text)))]
        with pytest.raises(UsageError, match=r"parent\.queue: looks like a URL with a login") as caught:
            anyio.run(call, queue, "Queue", "add_bulk", "jobs", jobs)
        reported += shown(caught.value)
