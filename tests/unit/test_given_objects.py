"""Types, collectors and providers that a program hands over are checked before anything begins."""

import dataclasses
import numbers
import pathlib
import subprocess
import sys
from collections.abc import Callable, Hashable
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NotRequired,
    Protocol,
    TypedDict,
    TypeVar,
    runtime_checkable,
)

import attrs
import msgspec
import pydantic
import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio

import bullmq_anyio
import bullmq_sync
from bullmq_protocol.common.codec import check_type
from bullmq_protocol.errors import UsageError
from bullmq_protocol.observability.metrics import NO_METRICS, NoMetrics, check_collector
from bullmq_protocol.observability.telemetry import check_provider

T = TypeVar("T")


class Provider:
    def start_span(self) -> None: ...


@pytest.mark.parametrize("wrong", [5, "x", object(), NoMetrics, None])
def test_what_is_no_collector_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="methods of MetricsCollector") as caught:
        check_collector(wrong)
    assert caught.value.field == "metrics_collector"


@pytest.mark.parametrize("wrong", [5, "x", object(), Provider])
def test_what_is_no_provider_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="method start_span") as caught:
        check_provider(wrong)
    assert caught.value.field == "telemetry"


@pytest.mark.parametrize("wrong", [5, "x", (int, str), dict[int, set[Any]] | list[int] | tuple[int, ...]])
def test_what_is_no_type_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="a type that msgspec can decode") as caught:
        check_type("data_type", wrong)
    assert caught.value.field == "data_type"


class Plain:
    pass


class Boxed(Generic[T]):
    pass


class PydanticModel(pydantic.BaseModel):
    to: str


class Holder(msgspec.Struct):
    inner: Plain
    again: "Holder | None" = None


class GenericHolder(msgspec.Struct, Generic[T]):
    value: T


@dataclasses.dataclass
class Record:
    paths: dict[str, pathlib.Path]


class Typed(TypedDict):
    there: NotRequired[Plain]


class Tupled(NamedTuple):
    first: int
    second: Plain


@attrs.define
class Attrs:
    plain: Plain


@runtime_checkable
class HasName(Protocol):
    name: str


@runtime_checkable
class HasKeys(Protocol):
    def keys(self) -> Any: ...


class Tree(msgspec.Struct):
    value: int
    below: "list[Tree]" = []
    at: Literal["a", 1] = "a"


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (Plain, "Plain"),
        (pathlib.Path, "Path"),
        (complex, "complex"),
        (Boxed[int], "Boxed"),
        (Plain | None, "Plain"),
        (list[Plain], "Plain"),
        (dict[str, list[tuple[int, Plain]]], "Plain"),
        (dict[Plain, int], "Plain"),
        (Annotated[Plain, "x"], "Plain"),
        (Holder, "Plain"),
        (list[Holder | None], "Plain"),
        (GenericHolder[Plain], "Plain"),
        (Record, "Path"),
        (Typed, "Plain"),
        (Tupled, "Plain"),
        (Attrs, "Plain"),
        (HasName, "HasName"),
        (type, "type"),
        (msgspec.msgpack.Ext, "Ext"),
        (list[msgspec.msgpack.Ext | None], "Ext"),
        (Callable[[int], int], "Callable"),
    ],
)
def test_a_class_that_no_json_becomes_is_refused(kind: Any, named: str) -> None:
    with pytest.raises(UsageError, match=f"that msgspec can decode, which .*{named} is not: take a struct") as caught:
        check_type("data_type", kind)
    assert caught.value.field == "data_type"


@pytest.mark.parametrize("package", [bullmq_anyio, bullmq_sync])
@pytest.mark.parametrize("name", ["Queue", "Worker"])
def test_queues_and_workers_refuse_it_when_they_are_made(package: Any, name: str) -> None:
    for kind in (Plain, list[PydanticModel], list[pathlib.Path]):
        with pytest.raises(UsageError, match="data_type"):
            getattr(package, name)("q", connection="redis://127.0.0.1:1", data_type=kind)


class Odd(type):
    def __instancecheck__(cls, instance: object) -> bool:
        raise TypeError


class NobodyKnows(metaclass=Odd):
    pass


def test_what_fits_is_taken() -> None:
    for kind in (None, Any, int, list[int], int | str | None, Tree, list[Tree | None], GenericHolder[int], T):
        check_type("data_type", kind)
    # What JSON gives is an instance of these.
    for kind in (object, numbers.Number, Hashable, HasKeys, list[object], dict[Hashable, Any]):
        check_type("data_type", kind)
    with pytest.raises(UsageError):
        check_type("data_type", NobodyKnows)
    check_collector(NO_METRICS)
    check_provider(None)
    check_provider(Provider())
    assert callable(NO_METRICS.job_failed)


@pytest.mark.parametrize("package", ["bullmq_anyio", "bullmq_sync"])
def test_logging_is_silent_until_it_is_configured(package: str) -> None:
    program = f"import logging, {package}; logging.getLogger('{package}').error('heard')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert (done.stdout, done.stderr) == ("", "")


def client_of(module: Any, name: str) -> Any:
    kind = getattr(module, name)
    return kind.__new__(kind)


@pytest.mark.parametrize("package", [bullmq_anyio, bullmq_sync])
@pytest.mark.parametrize("name", ["Queue", "Worker", "QueueEvents", "QueueEventsProducer", "FlowProducer"])
def test_the_refusal_of_a_bare_client_names_its_wrapper(package: Any, name: str) -> None:
    class Own(redis.asyncio.Redis):
        pass

    cases: list[tuple[Any, str]] = [
        (redis.asyncio.Redis(), r"bullmq_anyio\.net\.redis_asyncio\.RedisAsyncioTransport\(client\)"),
        (Own(), r"redis_asyncio\.RedisAsyncioTransport\(client\)"),
        (client_of(redis.asyncio, "RedisCluster"), r"nothing wraps it: connect by redis\+cluster://"),
        (redis.asyncio.Sentinel([("h", 1)]), r"connect by redis\+sentinel://"),
        (valkey.Valkey(), "no transport of this library wraps it: connect by a URL"),
        (valkey.asyncio.Valkey(), "no transport of this library wraps it: connect by a URL"),
        (client_of(valkey, "ValkeyCluster"), "no transport of this library wraps it: connect by a URL"),
        (redis.Sentinel([("h", 1)]), r"give bullmq_sync its master_for\(service\)"),
        (object(), "must be a URL"),
    ]
    if package is bullmq_anyio:
        cases += [
            (redis.Redis(), r"bullmq_sync\.RedisPyTransport\(client\)"),
            (client_of(redis, "RedisCluster"), "give it to bullmq_sync as it is"),
        ]
    for client, text in cases:
        with pytest.raises(UsageError, match=text) as caught:
            getattr(package, name)(*(() if name == "FlowProducer" else ("q",)), connection=client)
        assert caught.value.field == "connection"
