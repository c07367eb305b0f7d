"""Add flows, and read what became of every node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from typing import Any, NamedTuple

from bullmq_protocol.command import Batch, Command, Operation, Repeat
from bullmq_protocol.commands.adding import add_job, looked_up, looks_before, release_parent, were_added
from bullmq_protocol.common.reply import as_optional_text
from bullmq_protocol.errors import BullMQError, FlowAddError, NodeRefused, ServerError
from bullmq_protocol.model.flow import PreparedFlow, PreparedNode
from bullmq_protocol.net.merge import calls_of, cut, results_of


class AddedNode(NamedTuple):
    """The id of a node's job, and whether it was added (False: it is an existing job; None: nothing tells)."""

    job_id: str
    added: bool | None


def add_flow(flow: PreparedFlow, *, together: bool = False) -> Operation[list[AddedNode]]:
    """Add all nodes in one transaction; return their ids, and which were added, in the order of the nodes.

    `together`: nodes that follow each other in one queue go in one script call, as in `add_many`, and all in one call
    if they can; with our own scripts only.

    A node whose id is taken is the existing job from then on, and the flow hangs on that. A single job that is
    deduplicated has the id of the job that stands for it; within a tree that is an error, because nothing is linked.
    With `deferred_parent_release` the parents are let go last, each once (specs/06-later-versions.md#sec-4-9-3).

    Steps:   one round trip; none for no nodes
    Atomic:  yes, but the server does not undo its changes from before it refused a node
    Raises:  FlowAddError
    Source:  specs/04-schedulers-flows-events.md#sec-7-2, specs/08-batches.md#add-many
    """
    nodes = flow.nodes
    if not nodes:
        return []
    # The reply does not reveal whether an existing job was linked.
    links = {index: _link(node) for index, node in enumerate(nodes) if _may_keep_its_parent(node)}
    looks = [looks_before(node.keys, node.job) for node in nodes]
    adds = [add_job(node.keys, node.job) for node in nodes]
    releases = _releases(flow)
    commands = [*adds, *releases]
    parts = list(_parts(commands)) if together else [(each,) for each in commands]
    calls = (*chain(*looks), *calls_of(parts, one_script=together and len(parts) > 1), *links.values())
    seen, answer = looked_up(looks, (yield from Batch(calls, atomic=len(calls) > 1)))
    results = results_of(parts, answer[: len(parts)])
    results, released = results[: len(nodes)], results[len(nodes) :]
    added = _were_added(nodes, seen, results)
    for index, parent_key in zip(links, answer[len(parts) :], strict=True):
        if not isinstance(results[index], BullMQError) and parent_key != nodes[index].job.parent_key:
            results[index] = parent_key if isinstance(parent_key, BullMQError) else _kept_its_parent(nodes[index])
    for index, node in enumerate(nodes):
        given_way = not isinstance(results[index], BullMQError) and results[index] != node.job.job_id
        if given_way and (node.parent >= 0 or node.job.command == "addParentJob"):
            results[index] = _deduplicated(node, results[index])
    refused = [index for index, result in enumerate(results) if isinstance(result, BullMQError)]
    if refused:
        named = next((index for index in refused if not _is_discarded(results[index])), refused[0])
        raise FlowAddError(flow.label(named), list(map(_title, nodes)), results, named=named)
    for each in released:
        if isinstance(each, BullMQError):
            raise each
    return [AddedNode(job_id, each) for job_id, each in zip(results, added, strict=True)]


def _parts(commands: Sequence[Command[Any]]) -> Iterator[Sequence[Command[Any]]]:
    """Cut commands, in their order, into groups of one call each."""
    for _, of_one_queue in groupby(commands, lambda each: None if each.merge is None else each.merge.queue):
        yield from cut(list(of_one_queue))


def _releases(flow: PreparedFlow) -> list[Command[None]]:
    if not flow.nodes[0].keys.switches.deferred_parent_release:
        return []
    parents = {node.job.parent_key: node.job.parent for node in flow.nodes if node.job.parent is not None}
    return [release_parent(parent["queueKey"], parent["id"], now=flow.now) for parent in parents.values()]


def _were_added(
    nodes: Sequence[PreparedNode], seen: Sequence[Sequence[Any]], results: Sequence[Any]
) -> list[bool | None]:
    """Ask queue by queue: each has ids of its own."""
    places: dict[str, list[int]] = {}
    for index, node in enumerate(nodes):
        places.setdefault(node.keys.qualified, []).append(index)
    found: dict[int, bool | None] = {}
    for own in places.values():
        added = were_added([nodes[at].job for at in own], [seen[at] for at in own], [results[at] for at in own])
        found.update(zip(own, added, strict=True))
    return [found[index] for index in range(len(nodes))]


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


def _is_discarded(refusal: BullMQError) -> bool:
    """Tell whether it was refused because another was: nothing of a transaction runs then."""
    return isinstance(refusal, ServerError) and refusal.code == "EXECABORT"


def _deduplicated(node: PreparedNode, existing: str) -> NodeRefused:
    return NodeRefused(
        f"job {node.job.name!r} of {node.keys.qualified} was deduplicated: job {existing} stands for it",
        existing_id=existing,
    )
