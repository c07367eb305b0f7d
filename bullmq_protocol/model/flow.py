"""A flow: a tree of jobs, each parent of which waits for its children. As written, and as prepared for adding.

Source: specs/04-schedulers-flows-events.md#sec-7
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar, cast

import msgspec
from msgspec import UNSET, Struct

from bullmq_protocol.common.codec import plain_text
from bullmq_protocol.common.keys import DEFAULT_PREFIX, KeyLayout, QueueKeys, key_slot
from bullmq_protocol.common.switches import STRICT_SWITCHES, Switches
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import UsageError, shown
from bullmq_protocol.model.job import CheckedOptions, JobTemplate, PreparedJob, check_options, template_of
from bullmq_protocol.model.options import DEFAULT_LIMITS, JobOptions, Limits, ParentRef

J = TypeVar("J")

_NO_OPTIONS: Final = JobOptions()
_NOT_ABOVE: Final = (
    "cannot be used together with children, which BullMQ refuses since 6.0.0; the profile STRICT takes it"
)
_NOT_BELOW: Final = "is for roots only: a job that comes later has no place in the flow (BullMQ refuses it since 6.5.1)"


class FlowNode(Struct, frozen=True):
    """A job to be added, with the children that it waits for, each in any queue. Children inherit nothing from their
    parent.

    Args:
        name: The kind of job: 1 to 255 characters.
        queue_name: The name of its queue.
        data: The payload: any value with a JSON form; `{}` by default.
        options: The job's options; none by default. `repeat` is not allowed, nor `parent` below the root.
        prefix: The prefix of its queue. None, the default: the producer's.
        children: The nodes that this one waits for; none by default.
        data_type: The type that the payload is checked against, and the added job's `data` read into, as in a queue.
            None, the default: JSON values.

    Source: specs/04-schedulers-flows-events.md#sec-7-2

    Examples:
        >>> FlowNode("book", "prints", children=[FlowNode("page", "renders", {"number": 1})])
        FlowNode('book', 'prints', 1 child)
    """

    name: str
    queue_name: str
    data: Any = UNSET
    options: JobOptions = JobOptions()
    prefix: str | None = None
    children: Sequence[FlowNode] = ()
    data_type: Any = None

    def __repr__(self) -> str:
        # A flow may be deeper than the stack.
        options = "" if self.options is _NO_OPTIONS or self.options == _NO_OPTIONS else f", {shown(self.options)}"
        data = "" if self.data is UNSET else f", {shown(self.data)}"
        return f"FlowNode({shown(self.name)}, {shown(self.queue_name)}{data}{options}{_below(self.children)})"


class FlowJob(Struct, Generic[J], frozen=True, gc=False):
    """A job of a flow and its children, as `FlowProducer` returns them.

    Args:
        job: The job.
        children: Its children, each a `FlowJob`.
        missing: The keys of children whose jobs are gone; only if the flow was read.
    """

    job: J
    children: tuple[FlowJob[J], ...] = ()
    missing: tuple[str, ...] = ()

    def __repr__(self) -> str:
        missing = f", {len(self.missing)} missing" if self.missing else ""
        return f"FlowJob({self.job!r}{_below(self.children)}{missing})"


class PreparedNode(Struct, frozen=True, gc=False):
    """A node of a flow, checked and serialised. `parent` is the index of its parent among the nodes, -1 for a root;
    `place` its index among its siblings, `data_type` that of the node."""

    keys: QueueKeys
    job: PreparedJob
    parent: int
    place: int
    data_type: Any = None


class PreparedFlow(Struct, frozen=True):
    """The nodes of one or many flows, level by level: the order in which they are added. `now` is when that is."""

    nodes: tuple[PreparedNode, ...]
    now: Millis = 0

    @property
    def queues(self) -> tuple[QueueKeys, ...]:
        """The queues of the nodes, each once."""
        return tuple({node.keys.qualified: node.keys for node in self.nodes}.values())

    def label(self, index: int) -> str:
        """Return a node's place in words: `flow[1].children[0]` is the first child of the second flow."""
        return _label(self.nodes, self.nodes[index].parent, self.nodes[index].place)

    def require_one_slot(self) -> None:
        """Refuse what a Redis Cluster cannot add in one transaction, with the fix in the message."""
        slots: dict[int, str] = {}
        for keys in self.queues:
            keys.require_hash_tag()
            slots.setdefault(keys.slot, keys.qualified)
        for node in self.nodes:
            if node.parent < 0 and node.job.parent_key is not None:
                slots.setdefault(key_slot(node.job.parent_key), node.job.parent_key)
        if len(slots) > 1:
            shown = " and ".join(sorted(slots.values())[:2])
            raise UsageError(
                "flow",
                sorted(slots.values()),
                f"a Redis Cluster needs all queues of a flow in one slot, which {shown} are not: give all of them the "
                'same hash tag, best by the same prefix and layout=KeyLayout.TAGGED_PREFIX (Node: prefix "{bull}")',
            )


def prepare_flow(
    flows: Sequence[FlowNode],
    *,
    new_id: Callable[[], str],
    now_ms: Millis,
    prefix: str = DEFAULT_PREFIX,
    layout: KeyLayout = KeyLayout.PLAIN,
    switches: Switches = STRICT_SWITCHES,
    queues_options: Mapping[str, JobOptions] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    options_of: Callable[[FlowNode, int], JobOptions] | None = None,
) -> PreparedFlow:
    """Check and serialise all nodes.

    `new_id` gives the id of a job without one; `queues_options` are the default options of queues by their names. A
    root that an existing job waits for has that in its options, as `parent`. `options_of`, called with each node and
    the index of the one above (-1: none), gives options that take the place of the node's.

    Raises `UsageError`, naming the node: for a flow that contains itself, too.

    Source: specs/04-schedulers-flows-events.md#sec-7-2
    """
    roots = _node_list("flows", flows)
    _refuse_cycles(roots)
    defaults = _checked_defaults(queues_options or {})
    known: dict[tuple[str, str], QueueKeys] = {}
    nodes: list[PreparedNode] = []
    level = [(root, -1, place) for place, root in enumerate(roots)]
    while level:
        below: list[tuple[FlowNode, int, int]] = []
        # By identity: what they are of stays alive meanwhile.
        checked: dict[tuple[int, int, str], tuple[CheckedOptions, JobOptions]] = {}
        templates: dict[tuple[object, ...], JobTemplate] = {}
        for node, above, place in level:
            try:
                keys = _keys(known, node, prefix, layout, switches)
                if options_of is not None:
                    node = msgspec.structs.replace(node, options=options_of(node, above))
                # Siblings mostly have the same options, and the same name.
                shared = (id(node.options), above, node.queue_name)
                found = checked.get(shared)
                if found is None:
                    parent = None if above < 0 else ParentRef(nodes[above].job.job_id, nodes[above].keys.qualified)
                    _check_node(node, parent)
                    own = defaults.get(node.queue_name, _NO_OPTIONS)
                    options = check_options(own, node.options, limits=limits, parent=parent, switches=switches)
                    checked[shared] = (options, node.options)
                else:
                    options, _ = found
                own_id = options.options.deduplication
                if node.children and own_id is not UNSET and switches.deduplication_in_families == "6":
                    raise UsageError("options.deduplication", own_id.id, _NOT_ABOVE)
                if above >= 0 and own_id is not UNSET and own_id.keep_last_if_active is True:
                    raise UsageError("options.deduplication.keep_last_if_active", True, _NOT_BELOW)
                generated_id = new_id()
                alike = (*shared, id(keys), id(node.name), id(node.data_type), len(node.children) > 0)
                template = templates.get(alike)
                if template is None:
                    template = templates[alike] = template_of(
                        keys,
                        node.name,
                        options,
                        limits=limits,
                        generated_id=generated_id,
                        data_type=node.data_type,
                        has_children=len(node.children) > 0,
                        deferring=switches.deferred_parent_release,
                    )
                    job = template.prepare(node.data, now_ms)
                else:
                    job = template.prepare(node.data, now_ms, options.found.get("job_id") or generated_id)
            except UsageError as error:
                raise UsageError(f"{_label(nodes, above, place)}: {error.field}", error.value, error.rule) from None
            below += [(child, len(nodes), index) for index, child in enumerate(node.children)]
            nodes.append(PreparedNode(keys, job, above, place, node.data_type))
        level = below
    return PreparedFlow(tuple(nodes), now_ms)


def tree(nodes: Sequence[tuple[int, J]], missing: Mapping[int, Sequence[str]] | None = None) -> list[FlowJob[J]]:
    """Put jobs together again: each with the index of its parent (-1: none), parents before their children."""
    children: dict[int, list[FlowJob[J]]] = {}
    for index in range(len(nodes) - 1, -1, -1):
        above, job = nodes[index]
        below = tuple(reversed(children.pop(index, [])))
        made = FlowJob(job, below, tuple((missing or {}).get(index, ())))
        children.setdefault(above, []).append(made)
    return list(reversed(children.get(-1, [])))


def _below(children: object) -> str:
    if not isinstance(children, (list, tuple)):
        return f", children {shown(children)}"
    count = len(cast("Sequence[object]", children))
    return f", {count} child{'' if count == 1 else 'ren'}" if count else ""


def _label(nodes: Sequence[PreparedNode], above: int, place: int) -> str:
    places = [place]
    while above >= 0:
        places.append(nodes[above].place)
        above = nodes[above].parent
    return f"flow[{places.pop()}]" + "".join(f".children[{each}]" for each in reversed(places))


def _keys(
    known: dict[tuple[str, str], QueueKeys], node: FlowNode, prefix: str, layout: KeyLayout, switches: Switches
) -> QueueKeys:
    given = prefix if node.prefix is None else node.prefix
    if type(given) is str and type(node.queue_name) is str:
        keys = known.get((given, node.queue_name))
        if keys is not None:
            return keys
    for field, value in (("queue_name", node.queue_name), ("prefix", given)):
        if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(field, value, "must be a string")
    place = (plain_text(given), plain_text(node.queue_name))
    return known.setdefault(place, QueueKeys.of(place[1], prefix=place[0], layout=layout, switches=switches))


def _check_node(node: FlowNode, parent: ParentRef | None) -> None:
    if not isinstance(node.options, JobOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError("options", node.options, "must be a JobOptions")
    if node.options.repeat is not UNSET:
        raise UsageError("options.repeat", node.options.repeat, "has no meaning in a flow")
    if parent is not None and node.options.parent is not UNSET:
        raise UsageError("options.parent", node.options.parent, "is the node above; only a root may name another job")


def _checked_defaults(queues_options: Mapping[str, JobOptions]) -> Mapping[str, JobOptions]:
    if not isinstance(queues_options, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError("queues_options", queues_options, "must map names of queues to JobOptions")
    for name, options in queues_options.items():
        if not isinstance(options, JobOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"queues_options[{name!r}]", options, "must be a JobOptions")
    return queues_options


def _node_list(field: str, nodes: Sequence[FlowNode]) -> Sequence[FlowNode]:
    if not isinstance(nodes, (list, tuple)):
        raise UsageError(field, type(nodes).__name__, "must be a list or tuple of FlowNode")
    for index, node in enumerate(nodes):
        if not isinstance(node, FlowNode):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"{field}[{index}]", type(node).__name__, "must be a FlowNode")
    return nodes


def _refuse_cycles(roots: Sequence[FlowNode]) -> None:
    """Visit each node once, at any depth, and check its type on the way."""
    finished: set[int] = set()
    above: set[int] = set()
    stack: list[tuple[FlowNode, bool]] = [(root, False) for root in roots]
    while stack:
        node, seen = stack.pop()
        if seen:
            above.discard(id(node))
            finished.add(id(node))
        elif id(node) in above:
            raise UsageError("flow", node.name, "contains itself: a child must not be one of those above it")
        elif id(node) not in finished:
            above.add(id(node))
            stack.append((node, True))
            below = _node_list(f"children of {node.name!r}", node.children)
            # A child without any has nothing below it that it could be.
            stack += [(child, False) for child in below if child.children or type(child.children) is not tuple]
