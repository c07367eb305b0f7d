"""What hypothesis gives for the library's types: values that the library takes."""

from typing import Any

import msgspec
import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample
from msgspec import UNSET

from bullmq_protocol import (
    Backoff,
    Deduplication,
    FlowNode,
    JobOptions,
    JobRecord,
    KeepJobs,
    NewJob,
    ParentRef,
    QueueKeys,
    RepeatOptions,
    Telemetry,
    prepare,
)
from bullmq_protocol.model.flow import prepare_flow
from bullmq_protocol.model.schedule import prepare_scheduler
from bullmq_protocol.testing import strategies

KEYS = QueueKeys.of("q")
NOW = 1_700_000_000_000


@pytest.fixture(autouse=True)
def _registered() -> None:
    # As the entry point of an installed package has done.
    strategies.register()


@pytest.mark.parametrize(
    "kind", [Backoff, Deduplication, KeepJobs, ParentRef, Telemetry, JobOptions, NewJob, JobRecord]
)
@given(data=st.data())
def test_values_are_of_their_type(kind: type[Any], data: st.DataObject) -> None:
    assert type(data.draw(st.from_type(kind))) is kind


@given(st.from_type(NewJob))
def test_jobs_can_be_prepared(job: NewJob) -> None:
    assert prepare(KEYS, job, now_ms=NOW).packed_options


@given(st.from_type(FlowNode))
def test_flows_can_be_prepared(flow: FlowNode) -> None:
    ids = iter(map(str, range(1_000)))
    assert prepare_flow([flow], new_id=lambda: next(ids), now_ms=NOW).nodes


@given(st.from_type(RepeatOptions))
def test_schedulers_can_be_prepared(repeat: RepeatOptions) -> None:
    made = prepare_scheduler(KEYS, "s", repeat, NewJob("n"), defaults=JobOptions(), now_ms=NOW, zones=lambda name: None)
    assert made is not None


@given(strategies.job_ids())
def test_ids_are_those_that_a_caller_may_choose(job_id: str) -> None:
    assert prepare(KEYS, NewJob("n", 1, JobOptions(job_id=job_id)), now_ms=NOW).job_id == job_id


@pytest.mark.parametrize("colons", [0, 2])
def test_ids_are_of_one_part_or_three(colons: int) -> None:
    assert find(strategies.job_ids(), lambda job_id: job_id.count(":") == colons)


@given(strategies.flow_nodes())
def test_nodes_of_flows_have_no_ids_parents_or_deduplication(flow: FlowNode) -> None:
    nodes = [flow]
    for node in nodes:
        nodes += node.children
        own = node.options
        assert (own.job_id, own.parent, own.deduplication) == (UNSET, UNSET, UNSET)


def test_numbers_have_fractions() -> None:
    assert find(strategies.json_values(), lambda value: isinstance(value, float) and value % 1 > 0)


@pytest.mark.parametrize("power", [54, 60, 69])
def test_numbers_that_javascript_writes_otherwise_are_not_given(power: int) -> None:
    """From 2^53 on whole numbers have shortened digits, and from 1e21 on an exponent."""
    with pytest.raises(NoSuchExample):
        find(
            strategies.json_values(max_leaves=1),
            lambda value: isinstance(value, float) and 2.0 ** (power - 6) <= value < 2.0**power and value > 2.0**53,
            settings=settings(max_examples=1_000),
        )


class Order(msgspec.Struct):
    """A type of a program's own that has ours in it."""

    job: NewJob
    repeat: RepeatOptions | None


@given(st.builds(Order))
def test_types_with_ours_in_them(order: Order) -> None:
    assert isinstance(order.job, NewJob)
