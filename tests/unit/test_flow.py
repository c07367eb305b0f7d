"""Flows without a server: their order, checks, slots, and what becomes of refused nodes."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from bullmq_protocol import Deduplication, JobOptions, KeyLayout, ParentRef, QueueKeys, UsageError
from bullmq_protocol.command import Batch
from bullmq_protocol.common.keys import key_slot
from bullmq_protocol.common.switches import STRICT_SWITCHES, Switches
from bullmq_protocol.errors import FlowAddError, NodeRefused, ParentNotFound, ServerError
from bullmq_protocol.model.flow import FlowJob, FlowNode, PreparedFlow, prepare_flow, tree
from bullmq_protocol.model.job import check_options, template_of
from bullmq_protocol.operations.add_flow import add_flow
from bullmq_protocol.operations.read_flow import FoundFlow, read_flow
from bullmq_protocol.scripts.profile import FLEET
from tests.support.refusals import shows


def node(name: str, *children: FlowNode, queue: str = "q", **options: Any) -> FlowNode:
    return FlowNode(name, queue, options=JobOptions(**options), children=children)


def prepared(*flows: FlowNode, **arguments: Any) -> PreparedFlow:
    numbers = itertools.count(1)
    return prepare_flow(flows, new_id=lambda: f"id-{next(numbers)}", now_ms=1000, **arguments)


def names(flow: PreparedFlow) -> str:
    return " ".join(each.job.name for each in flow.nodes)


# --- preparing --------------------------------------------------------------------------------------------------------


def test_nodes_go_level_by_level_over_all_flows() -> None:
    tall = node("R", node("A", node("A1", node("A11")), node("A2")), node("B", node("B1")), node("C"))
    assert names(prepared(tall)) == "R A B C A1 A2 B1 A11"
    two = prepared(node("r1", node("r1a", node("r1a1")), node("r1b")), node("r2", node("r2a")))
    assert names(two) == "r1 r2 r1a r1b r2a r1a1"
    assert [each.parent for each in two.nodes] == [-1, -1, 0, 0, 1, 2]


def test_commands_and_links_follow_the_tree() -> None:
    flow = prepared(
        FlowNode(
            "p",
            "parents",
            children=[
                FlowNode("a", "children", prefix="other", options=JobOptions(delay=5, fail_parent_on_failure=True)),
                node("b", queue="children", priority=3),
                FlowNode("c", "children", {"x": 1}, children=[]),
            ],
        )
    )
    assert [each.job.command for each in flow.nodes] == [
        "addParentJob",
        "addDelayedJob",
        "addPrioritizedJob",
        "addStandardJob",
    ]
    first = flow.nodes[1]
    assert (first.keys.qualified, first.job.job_id) == ("other:children", "id-2")
    assert first.job.parent_key == "bull:parents:id-1"
    assert first.job.parent == {"id": "id-1", "queueKey": "bull:parents", "fpof": True}
    assert flow.nodes[3].job.data_text == '{"x":1}'
    assert [keys.qualified for keys in flow.queues] == ["bull:parents", "other:children", "bull:children"]


def test_options_of_queues_lie_under_those_of_nodes() -> None:
    flow = prepared(
        node("p", node("a", queue="c", attempts=5), queue="p"),
        queues_options={"c": JobOptions(attempts=2, lifo=True), "x": JobOptions(attempts=9)},
    )
    assert flow.nodes[0].job.options == JobOptions()
    assert (flow.nodes[1].job.options.attempts, flow.nodes[1].job.options.lifo) == (5, True)


@pytest.mark.parametrize("switches", [STRICT_SWITCHES, FLEET.switches])
def test_nodes_that_are_alike_are_prepared_as_each_alone_would_be(switches: Switches) -> None:
    both = ("a", "b")
    options = (JobOptions(), JobOptions(priority=3), JobOptions(job_id="own"), JobOptions(delay=5, timestamp=7))
    kinds = (Any, int)
    below = [
        FlowNode(name, queue, number, given, children=(FlowNode("leaf", "q"),) * own, prefix=prefix, data_type=kind)
        for number, (name, queue, given, own, prefix, kind) in enumerate(
            itertools.product(both, ("q", "other"), options, (0, 1), (None, "p"), kinds)
        )
    ]
    flow = prepared(FlowNode("root", "q", children=[*below, *below]), switches=switches)
    assert len(flow.nodes) == 1 + 2 * len(below) * 3 // 2
    given = [FlowNode("root", "q", children=below), *below, *below]
    given += [child for each in given[1:] for child in each.children]
    parents = [None if each.parent < 0 else flow.nodes[each.parent] for each in flow.nodes]
    for number, (each, wanted, above) in enumerate(zip(flow.nodes, given, parents, strict=True), 1):
        parent = None if above is None else ParentRef(above.job.job_id, above.keys.qualified)
        alone = template_of(
            QueueKeys.of(wanted.queue_name, prefix=wanted.prefix or "bull", switches=switches),
            wanted.name,
            check_options(JobOptions(), wanted.options, parent=parent, switches=switches),
            generated_id=f"id-{number}",
            data_type=wanted.data_type,
            has_children=len(wanted.children) > 0,
            deferring=switches.deferred_parent_release,
        )
        assert each.job == alone.prepare(wanted.data, 1000)


def test_a_type_is_that_of_its_node_alone() -> None:
    free, typed = FlowNode("n", "q", "x"), FlowNode("n", "q", "x", data_type=int)
    prepared(FlowNode("p", "q", children=[free, free]))
    with pytest.raises(UsageError, match=r"flow\[0\].children\[1\]: data"):
        prepared(FlowNode("p", "q", children=[free, typed]))


@pytest.mark.parametrize("children", [None, 0, "", {}])
def test_children_of_a_child_must_be_a_list_or_tuple(children: Any) -> None:
    with pytest.raises(UsageError, match="must be a list or tuple"):
        prepared(FlowNode("p", "q", children=[FlowNode("c", "q", children=children)]))


def test_options_made_for_a_node_need_not_be_kept_alive() -> None:
    numbers = itertools.count()
    flow = prepared(
        node("p", *(node("c") for _ in range(50))),
        options_of=lambda each, above: JobOptions(attempts=next(numbers) + 1),
    )
    assert [each.job.options.attempts for each in flow.nodes] == list(range(1, 52))


def test_own_ids_count_and_a_root_may_have_a_parent() -> None:
    flow = prepared(node("p", node("a", job_id="mine"), parent=ParentRef("9", "bull:up"), job_id="root"))
    assert [each.job.job_id for each in flow.nodes] == ["root", "mine"]
    assert flow.nodes[0].job.parent_key == "bull:up:9"
    assert flow.nodes[1].job.parent_key == "bull:q:root"


@pytest.mark.parametrize(
    ("flow", "where"),
    [
        (node("p", node("", queue="q")), r"flow\[0\].children\[0\]: name"),
        (node("p", node("a", node("b"), node("c", job_id="7"))), r"flow\[0\].children\[0\].children\[1\]: job_id"),
        (node("p", node("a", queue="a:b")), r"children\[0\]: queue name"),
        (node("p", node("a", parent=ParentRef("1", "bull:q"))), r"children\[0\]: options.parent"),
        (node("p", repeat={"every": 5}), r"flow\[0\]: options.repeat"),
        (FlowNode("p", "q", options={}), r"flow\[0\]: options"),  # type: ignore[arg-type]
        (FlowNode("p", ["q"]), r"flow\[0\]: queue_name"),  # type: ignore[arg-type]
        (FlowNode("p", "q", prefix=5), r"flow\[0\]: prefix"),  # type: ignore[arg-type]
        (FlowNode("p", "q", object()), r"flow\[0\]: data"),
        (FlowNode("p", "q", children=["a"]), r"children of 'p'\[0\]"),  # type: ignore[list-item]
        (FlowNode("p", "q", children="ab"), "children of 'p'"),  # type: ignore[arg-type]
    ],
)
def test_bad_nodes_are_named(flow: FlowNode, where: str) -> None:
    with pytest.raises(UsageError, match=where) as caught:
        prepared(flow)
    assert caught.value.value is not None and shows(caught.value, flow)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(UsageError, match="flows") as caught:
        prepare_flow("ab", new_id=str, now_ms=1)  # type: ignore[arg-type]
    assert shows(caught.value, "ab")
    for wrong in ([1], {"q": {"attempts": 1}}):
        with pytest.raises(UsageError, match="queues_options") as caught:
            prepared(node("p"), queues_options=wrong)
        assert shows(caught.value, wrong)


@pytest.mark.parametrize("kind", [list, tuple])
def test_flow_that_contains_itself_is_refused(kind: type[list[FlowNode]]) -> None:
    children: list[FlowNode] = []
    loop = FlowNode("loop", "q", children=kind([FlowNode("middle", "q", children=children)]))
    children.append(loop)
    with pytest.raises(UsageError, match="contains itself"):
        prepared(loop)
    shared = node("shared", node("deep"))
    assert names(prepared(node("p", shared, shared))) == "p shared shared deep deep"


@pytest.mark.search
def test_depth_and_width_have_no_limit() -> None:
    deep = node("bottom")
    for _ in range(5000):
        deep = node("x", deep)
    assert len(prepared(deep).nodes) == 5001
    wide = prepared(node("p", *[node("c")] * 10_000))
    assert len(wide.nodes) == 10_001
    made = tree([(each.parent, index) for index, each in enumerate(prepared(deep).nodes)])[0]
    depth = 0
    while made.children:
        depth, made = depth + 1, made.children[0]
    assert depth == 5000


def test_tree_puts_jobs_together() -> None:
    assert tree([(-1, "r1"), (-1, "r2"), (0, "a"), (0, "b"), (1, "c"), (3, "d")], {3: ["gone"]}) == [
        FlowJob("r1", (FlowJob("a"), FlowJob("b", (FlowJob("d"),), ("gone",)))),
        FlowJob("r2", (FlowJob("c"),)),
    ]
    assert tree([]) == []


# --- clusters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "slot"),
    [
        # The check value of CRC16/XMODEM is 0x31C3.
        ("123456789", 0x31C3),
        ("{123456789}:x", 0x31C3),
        ("a{123456789}b{c}", 0x31C3),
        ("foo", 12182),
        ("foo{}{bar}", key_slot("foo{}{bar}")),
        ("", 0),
    ],
)
def test_slots(key: str, slot: int) -> None:
    assert key_slot(key) == slot


def test_empty_or_open_tag_is_none() -> None:
    assert key_slot("foo{}") != key_slot("foo{}x")
    assert key_slot("foo{bar") != key_slot("bar")
    assert QueueKeys.of("q", layout=KeyLayout.TAGGED_QUEUE).slot == key_slot("q")


def test_queues_of_several_slots_are_refused_with_the_fix() -> None:
    prepared(node("p", node("a", queue="b")), layout=KeyLayout.TAGGED_PREFIX).require_one_slot()
    with pytest.raises(UsageError, match="TAGGED_PREFIX"):
        prepared(node("p", node("a", queue="b")), layout=KeyLayout.TAGGED_QUEUE).require_one_slot()
    with pytest.raises(UsageError, match="in one slot"):
        prepared(node("p")).require_one_slot()
    upward = node("p", queue="{q}", parent=ParentRef("1", "bull:{up}"))
    with pytest.raises(UsageError, match=r"bull:\{up\}:1"):
        prepared(upward).require_one_slot()


# --- adding -----------------------------------------------------------------------------------------------------------


def added(flow: PreparedFlow, replies: Sequence[Any], *, together: bool = False) -> list[str]:
    operation = add_flow(flow, together=together)
    batch = next(operation)
    assert isinstance(batch, Batch)
    assert batch.atomic is (len(replies) > 1)
    assert len(batch.commands) == len(replies)
    try:
        operation.send(list(replies))
    except StopIteration as stop:
        ids: list[str] = stop.value
        return ids
    raise AssertionError("not over")


def test_ids_of_all_nodes_are_returned() -> None:
    assert added(prepared(node("p", node("a"))), [b"id-1", b"id-2"]) == [("id-1", True), ("id-2", True)]
    assert list(add_flow(PreparedFlow(()))) == []


def test_leaves_of_one_queue_go_together() -> None:
    flow = prepared(node("p", node("a"), node("b"), node("c", queue="other"), node("d", queue="other"), node("e")))
    commands = next(add_flow(flow, together=True)).commands
    # One script for all, so that the transaction needs no sources.
    assert [each.name for each in commands] == ["addMany"] * 3
    assert [each.keys[0] for each in commands] == [f"{flow.nodes[at].keys.base}wait" for at in (0, 3, 5)]
    replies = [[b"id-1", b"id-2", b"id-3"], [b"id-4", b"id-5"], [b"id-6"]]
    assert added(flow, replies, together=True) == [(f"id-{number}", True) for number in range(1, 7)]


def test_a_parent_between_leaves_keeps_its_place() -> None:
    flow = prepared(node("p", node("a"), node("b", node("c"), node("d")), node("e")))
    commands = next(add_flow(flow, together=True)).commands
    assert [each.name for each in commands] == ["addMany"]
    assert commands[0].args[::4] == ("3", "0", "3", "0", "0", "0")
    replies = [[b"id-1", b"id-2", b"id-3", b"id-4", b"id-5", b"id-6"]]
    assert added(flow, replies, together=True) == [(each.job.job_id, True) for each in flow.nodes]


@pytest.mark.parametrize("together", [False, True])
def test_a_release_that_the_server_refused_is_raised(together: bool) -> None:
    flow = prepared(node("p", node("a")), switches=FLEET.switches)
    refused = ServerError("WRONGTYPE of a key")
    replies = [[b"id-1", b"id-2", [b"WRONGTYPE of a key"]]] if together else [b"id-1", b"id-2", refused]
    with pytest.raises(ServerError, match="WRONGTYPE of a key"):
        added(flow, replies, together=together)


def test_one_job_goes_in_its_own_script() -> None:
    commands = next(add_flow(prepared(node("p")), together=True)).commands
    assert [each.name for each in commands] == ["addStandardJob"]


def test_what_cannot_go_together_goes_as_it_is() -> None:
    flow = prepared(node("p", node("a"), node("b"), deduplication=Deduplication("d")))
    look, *commands = next(add_flow(flow, together=True)).commands
    assert look.name == "GET"
    assert [each.name for each in commands] == ["addParentJob", "addMany"]
    assert added(flow, [None, b"id-1", [b"id-2", b"id-3"]], together=True)[0] == ("id-1", True)


def test_nodes_that_are_refused_together_are_named() -> None:
    flow = prepared(node("p", node("a"), node("b"), node("c")))
    with pytest.raises(FlowAddError, match="2 of 4 nodes were refused") as error:
        added(flow, [[b"id-1", b"id-2", [b"WRONGTYPE x"], -5]], together=True)
    assert error.value.results[:2] == ["id-1", "id-2"]
    assert isinstance(error.value.results[2], ServerError)
    assert isinstance(error.value.results[3], ParentNotFound)
    with pytest.raises(FlowAddError, match="4 of 4 nodes were refused"):
        added(flow, [ServerError("OOM no memory")], together=True)


def test_the_node_that_had_the_transaction_discarded_is_named() -> None:
    flow = prepared(node("p", node("a", queue="other")))
    discarded = ServerError("EXECABORT Transaction discarded because of previous errors.")
    with pytest.raises(
        FlowAddError, match=r"2 of 2 .* the first, flow\[0\]\.children\[0\] \('a' .*: NOPERM no"
    ) as error:
        added(flow, [discarded, ServerError("NOPERM no")], together=True)
    assert error.value.results[0] is discarded
    with pytest.raises(FlowAddError, match=r"the first, flow\[0\] \('p' .*: EXECABORT"):
        added(flow, [discarded, discarded], together=True)


def test_refused_nodes_are_named() -> None:
    flow = prepared(node("p", node("a"), node("b")))
    with pytest.raises(
        FlowAddError, match=r"1 of 3 nodes were refused; the first, flow\[0\].children\[1\] \('b'"
    ) as error:
        added(flow, [b"id-1", b"id-2", -5])
    assert error.value.results[:2] == ["id-1", "id-2"]
    assert isinstance(error.value.results[2], ParentNotFound)
    assert error.value.nodes == ["'p' id-1 of bull:q", "'a' id-2 of bull:q", "'b' id-3 of bull:q"]
    aborted = [ServerError("OOM no memory")] * 3
    with pytest.raises(FlowAddError, match="3 of 3"):
        added(flow, aborted)


def test_deduplicated_nodes_are_refused_but_a_single_job_is_not() -> None:
    once = {"deduplication": Deduplication("d")}
    assert added(prepared(node("p", **once)), [b"other", b"other"]) == [("other", False)]
    assert added(prepared(node("p", **once)), [None, b"id-1"]) == [("id-1", True)]
    with pytest.raises(FlowAddError, match="job other stands for it") as error:
        added(prepared(node("p", node("a"), **once)), [b"other", b"other", -5])
    assert isinstance(error.value.results[0], NodeRefused)
    assert error.value.results[0].existing_id == "other"
    with pytest.raises(FlowAddError):
        added(prepared(node("p", node("a", **once))), [b"other", b"id-1", b"other"])


def test_nodes_of_one_flow_that_are_the_same_job_are_reported() -> None:
    def mine(queue: str) -> FlowNode:
        return FlowNode("a", queue, options=JobOptions(job_id="mine"))

    flow = prepared(FlowNode("p", "q", children=[mine("q"), mine("q"), mine("r")]))
    parents = [b"bull:q:id-1"] * 3
    found = added(flow, [0, 0, 0, b"id-1", b"mine", b"mine", b"mine", *parents])
    assert [each.added for each in found] == [True, True, False, True]
    refused = [ServerError("WRONGTYPE x"), 0, 0, b"id-1", b"mine", b"mine", b"mine", *parents]
    assert [each.added for each in added(flow, refused)] == [True, None, True, True]


def test_existing_child_that_keeps_its_parent_is_refused() -> None:
    flow = prepared(node("p", node("a", job_id="mine")))
    assert added(flow, [1, b"id-1", b"mine", b"bull:q:id-1"]) == [("id-1", True), ("mine", False)]
    assert added(flow, [0, b"id-1", b"mine", b"bull:q:id-1"]) == [("id-1", True), ("mine", True)]
    with pytest.raises(FlowAddError, match="keeps its own parent"):
        added(flow, [1, b"id-1", b"mine", b"bull:q:gone"])
    with pytest.raises(FlowAddError, match="WRONGTYPE"):
        added(flow, [1, b"id-1", b"mine", ServerError("WRONGTYPE x")])
    with pytest.raises(FlowAddError, match="cannot be replaced"):
        added(flow, [1, b"id-1", -7, b"bull:q:gone"])


# --- reading ----------------------------------------------------------------------------------------------------------


class Store:
    """Answers as a server that has these jobs, and children by kind."""

    def __init__(self, jobs: Sequence[str], children: dict[str, list[Any]]) -> None:
        self.jobs = jobs
        self.children = children

    def reply(self, command: Any) -> Any:
        (key,) = command.keys
        if command.name == "HGETALL":
            return [b"name", key.encode()] if key in self.jobs else []
        found = self.children.get(key, [])
        if command.name == "ZRANGE":
            return found[command.args[0] : command.args[1] + 1]
        at, _, count = command.args
        items = found[at : at + count]
        if command.name == "HSCAN":
            items = [part for item in items for part in (item, b"1")]
        return [b"%d" % (at + count if at + count < len(found) else 0), items]


def read(store: Store, **arguments: Any) -> FoundFlow | None:
    operation = read_flow(QueueKeys.of("q"), "r", **arguments)
    step = next(operation)
    while True:
        answer = [store.reply(each) for each in step.commands] if isinstance(step, Batch) else store.reply(step)
        try:
            step = operation.send(answer)
        except StopIteration as stop:
            found: FoundFlow | None = stop.value
            return found


def found_names(found: FoundFlow | None) -> list[tuple[int, str]]:
    assert found is not None
    return [(above, f"{each.keys.qualified} {each.record.id}") for above, each in found.jobs]


def test_reading_goes_level_by_level_in_the_order_of_the_kinds() -> None:
    store = Store(
        ["bull:q:r", "bull:q:done", "other:w:a:b:c", "bull:q:failed", "bull:q:ignored", "bull:q:deep"],
        {
            "bull:q:r:processed": [b"bull:q:done"],
            "bull:q:r:dependencies": [b"other:w:a:b:c", b"bull:q:gone"],
            "bull:q:r:unsuccessful": [b"bull:q:failed"],
            "bull:q:r:failed": [b"bull:q:ignored"],
            "bull:q:done:processed": [b"bull:q:deep"],
        },
    )
    found = read(store)
    assert found_names(found) == [
        (-1, "bull:q r"),
        (0, "bull:q done"),
        (0, "other:w a:b:c"),
        (0, "bull:q failed"),
        (0, "bull:q ignored"),
        (1, "bull:q deep"),
    ]
    assert found is not None and found.missing == {0: ["bull:q:gone"]}
    assert found_names(read(store, depth=1)) == [(-1, "bull:q r")]
    assert len(found_names(read(store, depth=2))) == 5
    assert read(Store([], {})) is None


def test_reading_keeps_to_the_width() -> None:
    keys = [b"bull:q:c%d" % n for n in range(30)]
    store = Store(["bull:q:r", *(key.decode() for key in keys)], {"bull:q:r:dependencies": keys})
    assert len(found_names(read(store, max_children=7))) == 8
    assert len(found_names(read(store, max_children=100))) == 31
    twice = Store(store.jobs, {"bull:q:r:dependencies": [*keys[:1] * 10, *keys[:15]]})
    assert len(found_names(read(twice, max_children=10))) == 11


def test_bad_limits_and_errors_are_raised() -> None:
    for wrong in ({"depth": 0}, {"max_children": 0}):
        with pytest.raises(UsageError):
            next(read_flow(QueueKeys.of("q"), "r", **wrong))
    operation = read_flow(QueueKeys.of("q"), "r")
    next(operation)
    operation.send([b"name", b"n"])
    with pytest.raises(ServerError):
        operation.send([ServerError("WRONGTYPE x")] * 4)


def test_a_flow_of_any_depth_can_be_shown() -> None:
    flow = FlowNode("last", "q")
    for _ in range(1000):
        flow = FlowNode("n", "q", {"x": "y" * 1000}, JobOptions(delay=5), children=[flow])
    text = repr(flow)
    assert text.startswith("FlowNode('n', 'q', {'x': 'yyyy")
    assert text.endswith(", 1 child)")
    assert len(text) < 400
    assert "JobOptions" in text
    jobs = tree([(index - 1, "j") for index in range(1000)])[0]
    assert repr(jobs) == "FlowJob('j', 1 child)"
    assert repr(tree([(-1, "a"), (0, "b"), (0, "c")], {0: ["gone"]})[0]) == "FlowJob('a', 2 children, 1 missing)"
    assert repr(FlowNode("a", "q")) == "FlowNode('a', 'q')"
    assert repr(FlowNode("a", "q", children=7)) == "FlowNode('a', 'q', children 7)"  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"got FlowNode\('a', 'q'\)"):
        raise UsageError("flow", FlowNode("a", "q"), "rule")


def test_children_of_the_second_of_a_level_are_read_once() -> None:
    store = Store(
        [f"bull:q:{name}" for name in ("r", "a", "b", "c")],
        {
            "bull:q:r:processed": [b"bull:q:a", b"bull:q:b"],
            "bull:q:b:processed": [b"bull:q:c"],
        },
    )
    assert found_names(read(store, depth=3, max_children=10)) == [
        (-1, "bull:q r"),
        (0, "bull:q a"),
        (0, "bull:q b"),
        (2, "bull:q c"),
    ]
