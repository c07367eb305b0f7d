"""Whatever sentinels and nodes say is read or refused, and a step in a cluster comes to an end."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bullmq_protocol.command import Batch, Command, Repeat
from bullmq_protocol.common.reply import as_none
from bullmq_protocol.errors import BullMQError, ConnectionLost, ServerError, UsageError
from bullmq_protocol.net.topology import (
    SLOTS,
    ClusterOptions,
    Pause,
    Send,
    SentinelOptions,
    follow,
    parse_address,
    read_master,
    read_redirect,
    read_sentinel,
    read_slots,
)

_replies = st.recursive(
    st.none() | st.integers() | st.binary(max_size=12) | st.sampled_from([b"", b"?", b"host", b"7000"]),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=15,
)
_hosts = st.from_regex(r"[a-z][a-z0-9.-]{0,8}[a-z0-9]", fullmatch=True)
_places = st.tuples(_hosts, st.integers(1, 65_535))


@given(_replies)
def test_replies_are_read_or_refused(reply: Any) -> None:
    for read in (
        read_master,
        lambda value: read_sentinel((value, value, value)),
        lambda value: read_slots(value, ("asked", 1)),
    ):
        try:
            read(reply)
        except BullMQError:
            continue


@given(
    st.lists(st.tuples(st.integers(0, SLOTS - 1), st.integers(0, SLOTS - 1), _places), max_size=8),
    st.integers(0, SLOTS),
)
def test_the_owner_is_that_of_the_first_range(rows: list[Any], slot: int) -> None:
    rows = [(min(first, last), max(first, last), place) for first, last, place in rows]
    reply = [[first, last, [host.encode(), port, b"id"]] for first, last, (host, port) in rows]
    expected = [place for first, last, place in rows if first <= slot <= last]
    assert read_slots(reply, ("asked", 1)).owner(slot) == (expected[0] if expected else None)


@given(
    st.text(max_size=40)
    | st.builds(
        "{} {} {}:{}".format, st.sampled_from(["MOVED", "ASK"]), st.integers(), st.text(max_size=9), st.integers()
    )
)
def test_redirections_name_a_place_that_can_be_asked(text: str) -> None:
    found = read_redirect(ServerError(text), ("asked", 1))
    assert found is None or (0 <= found.slot < SLOTS and found.place[0] and 0 < found.place[1] < 65_536)


@given(st.lists(_places, min_size=1, max_size=4), st.from_regex(r"[a-z]{1,6}", fullmatch=True), st.integers(0, 15))
def test_an_address_is_read_as_it_is_shown(places: list[Any], service: str, db: int) -> None:
    shown = parse_address(f"redis+sentinel://{','.join(f'{host}:{port}' for host, port in places)}/{service}/{db}")
    assert isinstance(shown, SentinelOptions)
    assert (list(shown.sentinels), shown.service, shown.server.db) == (places, service, db)
    assert parse_address(shown.address) == shown
    cluster = ClusterOptions(nodes=tuple(places))
    found = parse_address(cluster.address)
    assert isinstance(found, ClusterOptions) and found.nodes == cluster.nodes


@given(st.text(max_size=30))
def test_urls_are_read_or_refused(rest: str) -> None:
    for scheme in ("redis+sentinel", "rediss+cluster"):
        try:
            parse_address(f"{scheme}://{rest}")
        except UsageError:
            continue


_answers = st.sampled_from(
    [b"1", ServerError("MOVED 1 b:2"), ServerError("ASK 1 c:3"), ServerError("TRYAGAIN x"), ServerError("ERR x")]
)


@given(st.data(), st.integers(1, 4), st.booleans(), st.integers(0, 2000))
def test_each_command_is_answered_once_and_sent_no_more_after_it(
    data: st.DataObject, count: int, atomic: bool, limit_ms: int
) -> None:
    """The nodes answer at random; a command that has run is never sent again."""
    commands = tuple(Command("SET", (f"{{q}}{number}",), (), as_none, repeat=Repeat.UNSAFE) for number in range(count))
    course = follow(Batch(commands, atomic=atomic), 1, limit_ms)
    done: set[str] = set()
    acts: list[Any] = []
    replies = None
    value: Any = None
    resume: Any = course.send
    while replies is None:
        try:
            acts.append(resume(value))
        except StopIteration as stop:
            replies = stop.value
            break
        except ConnectionLost:
            break
        resume, value = course.send, ("a", 1)
        if isinstance(acts[-1], Send):
            if data.draw(st.booleans()) and len(acts) < 5:
                resume, value = course.throw, ConnectionLost("x", maybe_applied=False)
                continue
            assert isinstance(acts[-1].step, Batch)
            names = [each.keys[0] if each.keys else "" for each in acts[-1].step.commands]
            assert not done.intersection(names)
            value = [data.draw(_answers) for _ in names]
            if atomic:
                value = [value[0]] * len(names)
            # ASKING has no key, and may come again.
            done.update(name for name, each in zip(names, value, strict=True) if name and each == b"1")
    assert sum(act.delay_ms for act in acts if isinstance(act, Pause)) <= limit_ms
    assert replies is None or [reply == b"1" for reply in replies] == [each.keys[0] in done for each in commands]
