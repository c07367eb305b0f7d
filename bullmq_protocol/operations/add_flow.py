"""Add flows, and read what became of every node."""

from __future__ import annotations

from typing import Any

from bullmq_protocol.command import Batch, Command, Operation, Repeat
from bullmq_protocol.commands.adding import add_job
from bullmq_protocol.errors import BullMQError, FlowAddError, NodeRefused
from bullmq_protocol.flow import PreparedFlow, PreparedNode
from bullmq_protocol.reply import as_optional_text


def add_flow(flow: PreparedFlow) -> Operation[list[str]]:
    """Add all nodes in one transaction; return their ids, in the order of the nodes.

    A node whose id is taken is the existing job from then on, and the flow hangs on that. A single job that is
    deduplicated has the id of the job that stands for it; within a tree that is an error, because nothing is linked.

    Steps:   one round trip; none for no nodes
    Atomic:  yes, but the server does not undo what it did before it refused a node
    Raises:  FlowAddError
    Source:  specs/04-schedulers-flows-events.md#sec-7-2
    """
    nodes = flow.nodes
    if not nodes:
        return []
    # Whether an existing job was linked cannot be told from its reply.
    links = {index: _link(node) for index, node in enumerate(nodes) if _may_keep_its_parent(node)}
    answer = yield from Batch((*(add_job(node.keys, node.job) for node in nodes), *links.values()), atomic=True)
    results: list[Any] = answer[: len(nodes)]
    for index, parent_key in zip(links, answer[len(nodes) :], strict=True):
        if not isinstance(results[index], BullMQError) and parent_key != nodes[index].job.parent_key:
            results[index] = parent_key if isinstance(parent_key, BullMQError) else _kept_its_parent(nodes[index])
    for index, node in enumerate(nodes):
        given_way = not isinstance(results[index], BullMQError) and results[index] != node.job.job_id
        if given_way and (node.parent >= 0 or node.job.command == "addParentJob"):
            results[index] = _deduplicated(node, results[index])
    refused = [index for index, result in enumerate(results) if isinstance(result, BullMQError)]
    if refused:
        raise FlowAddError(flow.label(refused[0]), list(map(_title, nodes)), results)
    return results


def _title(node: PreparedNode) -> str:
    return f"{node.job.name!r} {node.job.job_id} of {node.keys.qualified}"


def _may_keep_its_parent(node: PreparedNode) -> bool:
    return node.parent >= 0 and node.job.options.job_id == node.job.job_id


def _link(node: PreparedNode) -> Command[str | None]:
    key = node.keys.job(node.job.job_id)
    return Command("HGET", (key,), ("parentKey",), as_optional_text, repeat=Repeat.SAFE)


def _kept_its_parent(node: PreparedNode) -> NodeRefused:
    job_id = node.job.job_id
    return NodeRefused(
        f"job {job_id} of {node.keys.qualified} exists and keeps its own parent, which is gone", existing_id=job_id
    )


def _deduplicated(node: PreparedNode, existing: str) -> NodeRefused:
    return NodeRefused(
        f"job {node.job.name!r} of {node.keys.qualified} was deduplicated: job {existing} stands for it",
        existing_id=existing,
    )
