"""Jobs for a transaction of the caller's: what goes on the wire, and what the replies mean."""

from __future__ import annotations

from typing import Any

import pytest
from redis.connection import DefaultParser

from bullmq_protocol import (
    BulkAddError,
    JobOptions,
    JobRecord,
    NewJob,
    Operation,
    QueueKeys,
    ServerError,
    UsageError,
    prepare,
)
from bullmq_protocol.command import NOW, Command
from bullmq_protocol.commands.queues import write_meta
from bullmq_protocol.common.reply import as_text
from bullmq_protocol.operations.add_jobs import add_many
from bullmq_protocol.operations.adding import Adding, add_in_one, require_one_slot
from bullmq_protocol.scripts.profile import FLEET, STRICT

KEYS = QueueKeys.of("mail")
META = write_meta(KEYS, max_len_events=10_000, version="v")


def adding(count: int = 1, profile: Any = STRICT, **options: Any) -> Adding[list[Any]]:
    jobs = [prepare(KEYS, NewJob("n", {"n": n}, JobOptions(**options)), now_ms=1) for n in range(count)]
    return Adding(lambda: add_many(KEYS, jobs), profile.applied, before=(META,))


def test_the_first_command_with_a_script_brings_its_text() -> None:
    ready = adding(120)
    assert [wire[0] for wire in ready.wires()] == ["HMSET", "EVAL", "EVALSHA", "EVALSHA"]
    assert [wire[0] for wire in ready.wires(loaded=True)] == ["HMSET", *["EVALSHA"] * 3]
    [script] = ready.scripts
    assert ready.wires()[1][1] == script.source and ready.wires()[2][1] == script.sha1
    assert len(ready) == 4 and repr(ready) == "<Adding, 4 commands>"


def test_the_scripts_are_those_of_the_profile() -> None:
    strict, fleet = adding(delay=1), adding(profile=FLEET, delay=1)
    assert strict.scripts[0].sha1 == STRICT.scripts["addDelayedJob"].sha1
    assert fleet.scripts[0].sha1 == FLEET.scripts["addDelayedJob"].sha1 != strict.scripts[0].sha1


def test_replies_are_read_as_often_as_the_transaction_is_sent() -> None:
    ready = adding(2)
    for ids in ([b"1", b"2"], ["3", "4"]):
        assert [each.id for each in ready.results([True, ids])] == [f"{number}" for number in map(int, ids)]


def test_another_number_of_replies_is_refused() -> None:
    for replies in ([b"1"], [True, b"1", b"2"]):
        with pytest.raises(UsageError, match="must be one for each of the 2 commands"):
            adding().results(replies)
    missing: Any = None
    with pytest.raises(UsageError, match=r"replies: must be a list.* \(got None\)"):
        adding().results(missing)


class NoScriptError(Exception):
    """As clients name it."""


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (ServerError("NOSCRIPT none"), "NOSCRIPT"),
        (NoScriptError("No matching script"), "NOSCRIPT"),
        (NoScriptError("NOSCRIPT none"), "NOSCRIPT"),
        (RuntimeError("WRONGTYPE other"), "WRONGTYPE"),
    ],
)
def test_the_exceptions_of_clients_are_refusals(reply: Exception, code: str) -> None:
    [result] = adding().results([True, reply])
    assert isinstance(result, ServerError) and result.code == code


@pytest.mark.parametrize(
    "code", sorted(DefaultParser.EXCEPTION_CLASSES.keys() - {"ERR", "EXECABORT", "NOAUTH", "WRONGPASS"})
)
def test_the_code_that_redis_py_cuts_off_is_there(code: str) -> None:
    """But those of a login, which come before any command, and that of a transaction which has not run."""
    words = "1 127.0.0.1:6379" if code in ("ASK", "MOVED") else "is what it says"
    [result] = adding().results([True, DefaultParser.parse_error(f"{code} {words}")])
    assert isinstance(result, ServerError)
    assert (result.code, str(result).partition(" ")[0]) == (code, code)


def test_what_is_one_command_raises_its_refusal() -> None:
    command = Command("GET", ("a",), (), as_text)

    def one() -> Operation[str]:
        return (yield from command)

    ready = Adding(one, STRICT.applied)
    assert ready.keys == ("a",) and ready.scripts == () and ready.results([b"x"]) == "x"
    with pytest.raises(ServerError, match="LOADING"):
        ready.results([ServerError("LOADING")])


def test_an_operation_of_several_steps_does_not_fit() -> None:
    def two() -> Operation[None]:
        yield Command("GET", ("a",), (), as_text)
        yield NOW

    with pytest.raises(AssertionError, match="more than one step"):
        Adding(two, STRICT.applied).results([b"x"])


def test_keys_of_parents_count_for_the_slot() -> None:
    jobs = [prepare(QueueKeys.of("{a}"), NewJob("n", {}), now_ms=1)]
    keys = QueueKeys.of("{a}")
    inside = Adding(lambda: add_many(keys, jobs), STRICT.applied, parents=["x:{a}:1"])
    inside.require_one_slot()
    assert inside.keys[-1] == "x:{a}:1"
    outside = Adding(lambda: add_many(keys, jobs), STRICT.applied, parents=["x:{b}:1"])
    for refused in (outside.require_one_slot, lambda: require_one_slot((inside, outside))):
        with pytest.raises(UsageError, match="runs a transaction in one slot"):
            refused()


def test_several_are_one_batch_and_each_reads_its_part() -> None:
    operation = add_in_one((adding(2), adding(1)))
    batch: Any = next(operation)
    assert batch.atomic and len(batch.commands) == 4
    with pytest.raises(StopIteration) as stop:
        operation.send([True, [b"1", b"2"], True, b"3"])
    assert [[each.id for each in part] for part in stop.value.value] == [["1", "2"], ["3"]]


def test_nothing_is_sent_for_nothing() -> None:
    with pytest.raises(StopIteration) as stop:
        next(add_in_one(()))
    assert stop.value.value == []


class Pipeline:
    """As redis-py has it."""

    transaction = False

    def __init__(self, transaction: bool = True, *, watching: bool = False, explicit: bool = False) -> None:
        self.transaction = transaction
        self.watching = watching
        self.explicit_transaction = explicit
        self.command_stack: list[Any] = ["own"]

    def execute_command(self, *args: Any) -> None:
        self.command_stack.append(args)


class PipelineStrategy:
    """What redis-py's cluster pipelines keep all in."""

    def __init__(self, *, watching: bool = False, explicit: bool = False) -> None:
        self._watching = watching
        self._explicit_transaction = explicit
        self.queue: list[Any] = ["own"]


class TransactionStrategy(PipelineStrategy):
    """The same for a transaction."""


class ClusterPipeline:
    """As redis-py has it: what it shows as a stack is always empty, and asyncio's has none."""

    def __init__(self, strategy: PipelineStrategy) -> None:
        self._execution_strategy = strategy
        self.command_stack: list[Any] = []

    def __len__(self) -> int:
        return len(self._execution_strategy.queue)

    def execute_command(self, *args: Any) -> None:
        self._execution_strategy.queue.append(args)


class CoredisPipeline:
    """As coredis has it."""

    def __init__(self, transaction: bool) -> None:
        self._transaction = transaction
        self.command_stack: list[Any] = []
        self.decoded: list[Any] = []

    def execute_command(self, *args: Any) -> None:
        raise NotImplementedError

    def create_request(self, name: bytes, *args: Any, callback: Any) -> None:
        self.command_stack.append((name, *args))
        self.decoded.append(callback(b"as it came", version=3))


class CoredisClusterPipeline(CoredisPipeline):
    """The same for a cluster: it takes keys alone that are marked as such by a type of its own."""


def test_a_pipeline_gets_the_wires_behind_what_it_holds() -> None:
    ready = adding()
    for pipeline in (Pipeline(), Pipeline(False, explicit=True), Pipeline(watching=True, explicit=True)):
        queued = ready.into_pipeline(pipeline)
        assert pipeline.command_stack == ["own", *ready.wires()]
        assert [each.id for each in queued.results(["own", True, b"7", "more"])] == ["7"]


def test_a_pipeline_of_coredis_gets_requests() -> None:
    ready, pipeline = adding(), CoredisPipeline(True)
    ready.into_pipeline(pipeline, loaded=True)
    assert pipeline.command_stack == [(str(name).encode(), *rest) for name, *rest in ready.wires(loaded=True)]
    assert pipeline.decoded == [b"as it came"] * 2


def held(pipeline: Any) -> list[Any]:
    strategy = getattr(pipeline, "_execution_strategy", None)
    return list(getattr(pipeline, "command_stack", ()) if strategy is None else strategy.queue)


@pytest.mark.parametrize(
    ("pipeline", "rule"),
    [
        (Pipeline(False), "must run as a transaction"),
        (CoredisPipeline(False), "must run as a transaction"),
        (Pipeline(watching=True), "call its multi() first"),
        (ClusterPipeline(TransactionStrategy()), "runs a transaction in one slot"),
        (ClusterPipeline(TransactionStrategy(watching=True)), "call its multi() first"),
        (ClusterPipeline(PipelineStrategy()), "must run as a transaction"),
        (CoredisClusterPipeline(True), "cannot be one of coredis in a cluster"),
        (object(), "must be a pipeline of redis-py or coredis"),
        (None, "must be a pipeline of redis-py or coredis"),
    ],
)
def test_another_pipeline_is_refused_before_anything_is_queued(pipeline: Any, rule: str) -> None:
    before = held(pipeline)
    with pytest.raises(UsageError) as caught:
        adding().into_pipeline(pipeline)
    assert rule in str(caught.value)
    assert held(pipeline) == before


def test_a_pipeline_of_a_cluster_is_taken_for_one_slot() -> None:
    keys = QueueKeys.of("{mail}")
    job = prepare(keys, NewJob("n", {}), now_ms=1)
    ready = Adding(lambda: add_many(keys, [job]), STRICT.applied)
    for strategy in (TransactionStrategy(), TransactionStrategy(watching=True, explicit=True)):
        queued = ready.into_pipeline(ClusterPipeline(strategy))
        assert strategy.queue == ["own", *ready.wires()]
        assert [each.id for each in queued.results(["own", b"7"])] == ["7"]


def test_the_results_of_refused_jobs_are_values() -> None:
    record, error = adding(2).results([True, [b"1", ServerError("ERR no")]])
    assert isinstance(record, JobRecord) and isinstance(error, Exception)
    assert not isinstance(error, BulkAddError)
