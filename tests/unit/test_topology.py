"""Addresses of sentinels and clusters, their replies, and the way of a step through a cluster."""

from typing import Any

import pytest

from bullmq_protocol.command import Batch, Command, Repeat, Script
from bullmq_protocol.common.keys import KeyLayout, QueueKeys, key_slot
from bullmq_protocol.common.reply import as_none
from bullmq_protocol.errors import (
    AuthenticationFailed,
    Closed,
    ConnectionLost,
    ServerError,
    UnexpectedReply,
    UsageError,
)
from bullmq_protocol.net.address import ConnectionOptions
from bullmq_protocol.net.topology import (
    ClusterOptions,
    Learn,
    Locate,
    Named,
    Pause,
    Place,
    Redirect,
    Send,
    SentinelOptions,
    SlotMap,
    explained,
    follow,
    is_deposed,
    later_delay,
    parse_address,
    ranked,
    read_master,
    read_redirect,
    read_sentinel,
    read_slots,
    sentinel_question,
    slots_of,
    unserved,
)

A: Place = ("a", 1)
B: Place = ("b", 2)
SCRIPT = Script("s", "0" * 40, 1, "return 1")
GET = Command("GET", ("{q}a",), (), as_none, repeat=Repeat.SAFE)
RUN = Command("s", ("{q}a", "{q}b"), ("x",), as_none, script=SCRIPT)
POP = Command("BZPOPMIN", ("{q}marker",), (5,), as_none, block_ms=5000)
PING = Command("PING", (), (), as_none)
MOVED = ServerError("MOVED 5 b:2")
ASK = ServerError("ASK 5 b:2")
TRYAGAIN = ServerError("TRYAGAIN Multiple keys request during rehashing of slot")
ASKING = Command("ASKING", (), (), as_none)


# --- addresses --------------------------------------------------------------------------------------------------------


def test_urls_of_sentinels() -> None:
    found = parse_address(
        "redis+sentinel://me:p%40ss@s1,s2:26380,[::1]:5/jobs/2?sentinel_password=x%26y&sentinel_username=u&client_name=n"
    )
    assert found == SentinelOptions(
        sentinels=(("s1", 26379), ("s2", 26380), ("::1", 5)),
        service="jobs",
        server=ConnectionOptions(host="localhost", username="me", password="p@ss", db=2, client_name="n"),
        sentinel_username="u",
        sentinel_password="x&y",
    )
    assert found.address == "redis+sentinel://s1:26379,s2:26380,[::1]:5/jobs/2"
    assert repr(found) == f"SentinelOptions({found.address!r})"
    assert isinstance(found, SentinelOptions)
    asked = found.sentinel(("s1", 26379))
    assert (asked.host, asked.username, asked.password, asked.db, asked.tls) == ("s1", "u", "x&y", 0, False)


def test_tls_of_sentinels_is_that_of_the_servers_unless_given() -> None:
    found = parse_address("rediss+sentinel://s1/jobs")
    assert isinstance(found, SentinelOptions)
    assert found.server.tls is True and found.sentinel(("s1", 1)).tls is True
    assert found.address == "rediss+sentinel://s1:26379/jobs/0"
    plain = SentinelOptions(sentinels=(A,), service="x", server=ConnectionOptions(tls=True), sentinel_tls=False)
    assert plain.sentinel(A).tls is False


def test_urls_of_clusters() -> None:
    found = parse_address("rediss+cluster://:secret@n1:7000,n2?command_timeout_ms=100")
    assert found == ClusterOptions(
        nodes=(("n1", 7000), ("n2", 6379)),
        server=ConnectionOptions(host="localhost", password="secret", tls=True, command_timeout_ms=100),
    )
    assert repr(found) == "ClusterOptions('rediss+cluster://n1:7000,n2:6379')"
    assert ClusterOptions(nodes=(A,)).address == "redis+cluster://a:1"


def test_other_urls_are_those_of_one_server() -> None:
    assert parse_address("redis://h:1/2") == ConnectionOptions(host="h", port=1, db=2)


@pytest.mark.parametrize(
    ("url", "field"),
    [
        ("redis+sentinel://s1", "url"),
        ("redis+sentinel:///jobs", "url"),
        ("redis+sentinel://s1,/jobs", "url"),
        ("redis+sentinel://s1:x/jobs", "url"),
        ("redis+sentinel://s1:0/jobs", "port"),
        ("redis+sentinel://s1/jobs/x", "db"),
        ("redis+sentinel://s1/jobs?sentinel_password=a&sentinel_password=b", "url query"),
        ("redis+sentinel://s1/jobs?what=1", "url query"),
        ("redis+sentinel://s1/jobs#x", "url"),
        ("redis+cluster://:hid/den@n1", "url"),
        ("redis+cluster://n1/1", "db"),
        ("redis+cluster://n1?what=1", "url query"),
        ("unix+cluster://n1", "url"),
        ("redis+other://n1", "url"),
        ("http://n1", "url"),
    ],
)
def test_bad_urls(url: str, field: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_address(url)
    assert caught.value.field == field


def test_errors_show_no_password() -> None:
    for url in (
        "redis+sentinel://u:hidden@s1",
        "redis+cluster://:hidden/@n1",
        "redis+cluster://:hidden#@n1",
        "redis+sentinel://u:hidden@s1:x/j?sentinel_password=hidden",
    ):
        with pytest.raises(UsageError) as caught:
            parse_address(url)
        assert "hidden" not in str(caught.value)
    with pytest.raises(UsageError) as caught:
        SentinelOptions(sentinels=(A,), service="x", sentinel_password=b"hidden")  # type: ignore[arg-type]
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (lambda: SentinelOptions(sentinels=(), service="x"), "sentinels"),
        (lambda: SentinelOptions(sentinels=[A], service="x"), "sentinels"),  # type: ignore[arg-type]
        (lambda: SentinelOptions(sentinels=("a:1",), service="x"), "sentinels"),  # type: ignore[arg-type]
        (lambda: SentinelOptions(sentinels=(A,), service=""), "service"),
        (lambda: SentinelOptions(sentinels=(A,), service=1), "service"),  # type: ignore[arg-type]
        (lambda: SentinelOptions(sentinels=(A,), service="x", server="redis://"), "server"),  # type: ignore[arg-type]
        (lambda: SentinelOptions(sentinels=(A,), service="x", server=ConnectionOptions(unix_path="/s")), "unix_path"),
        (lambda: ClusterOptions(nodes=(("a", 0),)), "port"),
        (lambda: ClusterOptions(nodes=(A,), server=ConnectionOptions(db=1)), "db"),
    ],
)
def test_bad_options(options: Any, field: str) -> None:
    with pytest.raises(UsageError) as caught:
        options()
    assert caught.value.field == field


# --- replies ----------------------------------------------------------------------------------------------------------


def test_the_master_that_a_sentinel_names() -> None:
    assert read_master([b"10.0.0.1", b"6379"]) == ("10.0.0.1", 6379)
    assert read_master(None) is None
    for reply in ([b"h"], [b"h", b"x"], 1, b"h"):
        with pytest.raises(UnexpectedReply):
            read_master(reply)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MOVED 3999 127.0.0.1:6381", Redirect(3999, ("127.0.0.1", 6381), False)),
        ("ASK 3999 node-2.example:6381", Redirect(3999, ("node-2.example", 6381), True)),
        ("MOVED 1 2001:db8::1:6381", Redirect(1, ("2001:db8::1", 6381), False)),
        ("MOVED 1 :6381", Redirect(1, ("a", 6381), False)),
        ("MOVED 1 ?:6381", None),
        ("MOVED 1 h:0", None),
        ("MOVED 1 h:65536", None),
        ("MOVED 16384 h:1", None),
        ("MOVED x h:1", None),
        ("MOVED 1 h", None),
        ("MOVED 1", None),
        ("ERR moved", None),
    ],
)
def test_redirections(text: str, expected: Redirect | None) -> None:
    assert read_redirect(ServerError(text), A) == expected


def test_only_errors_redirect() -> None:
    assert read_redirect(b"MOVED 1 h:1", A) is None


def test_a_redirection_is_raised_with_the_way_to_follow_it() -> None:
    assert explained(TRYAGAIN) is TRYAGAIN
    found = explained(MOVED)
    assert found.code == "MOVED" and "redis+cluster://" in str(found)
    assert read_redirect(found, A) == read_redirect(MOVED, A)


def test_parents_in_another_slot_are_refused() -> None:
    keys = QueueKeys.of("q", layout=KeyLayout.TAGGED_QUEUE)
    keys.require_same_slot("bull:{q}:1")
    keys.require_same_slot("other:{q}:1")
    for own, parent in ((keys, "bull:{r}:1"), (keys, "bull:q:1"), (QueueKeys.of("q"), "bull:{q}:1")):
        with pytest.raises(UsageError, match="same hash tag") as caught:
            own.require_same_slot(parent)
        assert (caught.value.field, caught.value.value) == ("parent", parent)


def test_the_map_of_the_slots() -> None:
    reply = [
        [0, 5460, [b"10.0.0.1", 7000, b"id"], [b"10.0.0.2", 7001, b"id", []], [None, 0]],
        [5461, 10922, [b"", 7002, b"id", [b"hostname", b"x"]], [b"?", 7003, b"id"], b"odd"],
        [10923, 16382, [b"?", 7004, b"id"]],
    ]
    found = read_slots(reply, A)
    assert found.owner(0) == ("10.0.0.1", 7000) and found.owner(5460) == ("10.0.0.1", 7000)
    assert found.owner(5461) == ("a", 7002)
    assert found.owner(10923) is None and found.owner(16383) is None
    assert found.owner(None) == ("10.0.0.1", 7000)
    assert found.nodes == (("10.0.0.1", 7000), ("a", 7002), ("10.0.0.2", 7001), ("a", 0))
    later = found.moved(Redirect(3, B, False))
    assert (later.owner(3), later.owner(4), later.nodes[0]) == (B, ("10.0.0.1", 7000), B)
    assert SlotMap().owner(None) is None


@pytest.mark.parametrize("reply", [None, b"x", [1], [[0, 1]], [[5, 1, [b"h", 1]]], [[0, 16384, [b"h", 1]]]])
def test_odd_maps(reply: Any) -> None:
    with pytest.raises(UnexpectedReply):
        read_slots(reply, A)


def test_refusals_of_a_server_that_is_no_master() -> None:
    assert is_deposed(ServerError("READONLY You can't write against a read only replica."))
    assert is_deposed(ServerError("UNBLOCKED force unblock from blocking operation, instance state changed"))
    assert not is_deposed(ServerError("ERR x")) and not is_deposed(b"READONLY")


# --- what sentinels say -----------------------------------------------------------------------------------------------

ADDRESS = [b"a", b"1"]


def replica(place: tuple[str, int], flags: str) -> list[bytes]:
    return [b"ip", place[0].encode(), b"port", str(place[1]).encode(), b"flags", flags.encode()]


def test_a_sentinel_is_asked_and_listened_to_at_once() -> None:
    *asked, selected, promoted, switched = sentinel_question("jobs")
    assert [each[1] for each in asked] == ["GET-MASTER-ADDR-BY-NAME", "MASTER", "SLAVES"]
    assert all(each[0] == "SENTINEL" and each[2] == "jobs" for each in asked)
    # One subscription each, so that a refusal of one is one reply.
    assert (selected, promoted, switched) == tuple(
        ("SUBSCRIBE", event) for event in ("+selected-slave", "+promoted-slave", "+switch-master")
    )


@pytest.mark.parametrize(
    ("state", "replicas", "expected"),
    [
        ([b"config-epoch", b"7"], [], Named(A, 7)),
        ([b"config-epoch", b"7"], [replica(B, "slave"), replica(B, "slave,promoted")], Named(A, 7, B)),
        # It is the master already.
        ([b"config-epoch", b"8"], [replica(A, "slave,promoted")], Named(A, 8)),
        ([b"config-epoch", b"x"], [replica(("b", 123_456), "promoted"), b"odd", [b"flags", 1]], Named(A)),
        ([b"config-epoch", b"9" * 21], None, Named(A)),
        # What the login may not ask.
        (ServerError("NOPERM x"), ServerError("NOPERM x"), Named(A)),
    ],
)
def test_what_a_sentinel_says(state: Any, replicas: Any, expected: Named) -> None:
    assert read_sentinel((ADDRESS, state, replicas)) == expected


def test_a_sentinel_that_refuses_or_does_not_know() -> None:
    assert read_sentinel((None, ServerError("ERR No such master"), ServerError("ERR No such master"))) == Named(None)
    with pytest.raises(ServerError, match="unknown command"):
        read_sentinel((ServerError("ERR unknown command"), None, None))


def test_the_word_of_the_latest_epoch_counts() -> None:
    assert ranked([]) == (None, ())
    assert ranked([Named(None)]) == (None, ())
    assert ranked([Named(A, 1), Named(B, 2), Named(A, 1), Named(None, 9)]) == (None, (B, A))
    assert ranked([Named(A, 1), Named(A, 1, B)]) == (B, (A,))
    # A choice of an epoch that is over.
    assert ranked([Named(A, 1, B), Named(B, 2)]) == (None, (B, A))


# --- slots of a step --------------------------------------------------------------------------------------------------


def test_slots_of_steps() -> None:
    slot = key_slot("{q}a")
    other = Command("GET", ("{r}a",), (), as_none)
    assert slots_of(GET) == {slot: [0]}
    assert slots_of(PING) == {None: [0]}
    assert slots_of(Batch((GET, PING, other, RUN))) == {slot: [0, 3], None: [1], key_slot("{r}a"): [2]}
    assert slots_of(Batch((PING, GET), atomic=True)) == {slot: [0, 1]}
    assert slots_of(Batch((PING,), atomic=True)) == {None: [0]}
    assert slots_of(Batch(())) == {}
    with pytest.raises(UsageError, match="TAGGED_PREFIX"):
        slots_of(Batch((GET, other), atomic=True))


# --- the way of a step ------------------------------------------------------------------------------------------------


def walk(step: Command[Any] | Batch, *answers: object, limit_ms: int | None = 1000) -> tuple[list[Any], Any]:
    """Answer acts in turn (exceptions are thrown); return the acts, and the result or the error at the end."""
    course = follow(step, 5, limit_ms)
    acts: list[Any] = [next(course)]
    for answer in answers:
        try:
            acts.append(course.throw(answer) if isinstance(answer, Exception) else course.send(answer))
        except StopIteration as stop:
            return acts, stop.value
        except Exception as error:
            return acts, error
    raise AssertionError(f"it goes on with {acts[-1]}")


def test_the_owner_answers() -> None:
    assert walk(GET, A, b"1") == ([Locate(5), Send(A, GET)], b"1")
    batch = Batch((GET, RUN))
    assert walk(batch, A, [b"1", ServerError("ERR x")])[1][0] == b"1"


def test_moved_is_followed_and_learned() -> None:
    acts, result = walk(RUN, A, MOVED, None, b"1")
    assert acts == [Locate(5), Send(A, RUN), Learn(Redirect(5, B, False)), Send(B, RUN)]
    assert result == b"1"


def test_ask_is_followed_once_with_the_script_in_full() -> None:
    acts, result = walk(RUN, A, ASK, [b"OK", b"1"])
    whole = acts[2].step.commands[1]
    assert (acts[2].place, acts[2].step.commands[0].wire()) == (B, ("ASKING",))
    assert whole.wire() == ("EVAL", "return 1", 2, "{q}a", "{q}b", "x") and whole.script is None
    assert result == b"1"
    _, error = walk(RUN, A, ASK, [b"OK", ServerError("ERR x")])
    assert str(error) == "ERR x"


def test_ask_of_a_blocking_command_keeps_its_own_connection() -> None:
    acts, result = walk(POP, A, ASK, b"OK", b"1")
    assert [act.step.wire() for act in acts[2:]] == [("ASKING",), POP.wire()]
    assert result == b"1"


def test_only_the_refused_part_of_a_batch_is_sent_again() -> None:
    batch = Batch((GET, RUN, GET))
    acts, result = walk(batch, A, [b"1", ASK, MOVED], [b"OK", b"2", b"OK", b"3"])
    assert [each.name for each in acts[2].step.commands] == ["ASKING", "EVAL", "ASKING", "GET"]
    assert result == [b"1", b"2", b"3"]


def test_a_transaction_is_sent_again_as_a_whole() -> None:
    batch = Batch((GET, RUN), atomic=True)
    exec_abort = ServerError("EXECABORT Transaction discarded because of previous errors.")
    acts, result = walk(batch, A, [MOVED, exec_abort], None, [b"1", b"2"])
    assert acts[-1] == Send(B, batch) and result == [b"1", b"2"]
    # Where a part has run, nothing is.
    assert walk(batch, A, [b"1", MOVED])[1] == [b"1", MOVED]
    # ASKING counts for one command alone.
    acts, _ = walk(batch, A, [ASK, ASK], None, A, [b"1", b"2"])
    assert acts[2:] == [Pause(20), Locate(5, fresh=True), Send(A, batch)]


def test_what_is_refused_for_now_is_sent_after_pauses_within_the_limit() -> None:
    acts, result = walk(RUN, A, TRYAGAIN, None, A, TRYAGAIN, None, B, b"1")
    assert acts == [
        Locate(5),
        Send(A, RUN),
        Pause(20),
        Locate(5, fresh=True),
        Send(A, RUN),
        Pause(40),
        Locate(5, fresh=True),
        Send(B, RUN),
    ]
    assert result == b"1"
    acts, error = walk(RUN, A, *(TRYAGAIN, None, A) * 3, TRYAGAIN, limit_ms=150)
    assert acts[-1] == Send(A, RUN) and error is TRYAGAIN
    assert [later_delay(number) for number in (0, 1, 4, 5, 99)] == [20, 40, 320, 320, 320]
    down = ServerError("CLUSTERDOWN The cluster is down")
    assert walk(Batch((GET, GET)), A, [b"1", down], limit_ms=0)[1] == [b"1", down]
    assert walk(GET, A, *(down, None, A) * 20, b"1", limit_ms=None)[1] == b"1"
    assert walk(POP, A, ServerError("UNBLOCKED force unblock"), None, B, b"1")[0][-1] == Send(B, POP)


def test_a_slot_that_no_node_serves_is_refused_for_now() -> None:
    acts, result = walk(GET, None, None, None, None, A, b"1")
    assert acts == [
        Locate(5),
        Pause(20),
        Locate(5, fresh=True),
        Pause(40),
        Locate(5, fresh=True),
        Send(A, GET),
    ]
    assert result == b"1"
    _, error = walk(GET, None, limit_ms=0)
    assert isinstance(error, ServerError) and str(error) == "CLUSTERDOWN no node serves slot 5"
    both = walk(Batch((GET, GET)), None, limit_ms=0)[1]
    assert [str(each) for each in both] == ["CLUSTERDOWN no node serves slot 5"] * 2
    # Its owner is gone, and the others know of no new one yet.
    lost = ConnectionLost("x", maybe_applied=False)
    acts, result = walk(GET, A, lost, None, None, B, b"1")
    assert acts[2:] == [Locate(5, fresh=True, avoid=A), Pause(20), Locate(5, fresh=True), Send(B, GET)]
    assert result == b"1"
    assert str(unserved(None)) == "CLUSTERDOWN no node serves any slot"


def test_nodes_that_disagree_are_given_time() -> None:
    acts, result = walk(GET, A, *(MOVED, None) * 4, MOVED, None, A, b"1")
    assert isinstance(acts[-3], Pause) and result == b"1"
    odd = ServerError("MOVED 5 ?:1")
    assert isinstance(walk(GET, A, odd, None, A, b"1")[0][2], Pause)


def test_a_redirection_that_was_followed_in_vain_does_not_advise_what_is_done_already() -> None:
    reported = explained(MOVED)
    rounds = (*(reported, None) * 4, reported, None, A)
    _, error = walk(GET, A, *rounds, *rounds, *rounds, *rounds, limit_ms=100)
    assert str(error) == f"{MOVED} (followed for 100 ms: the nodes do not agree which of them serves the slot)"
    assert read_redirect(error, A) == read_redirect(MOVED, A)
    batch = Batch((GET, RUN))
    _, (moved, other) = walk(batch, A, [MOVED, TRYAGAIN], *([None, [MOVED, TRYAGAIN]] * 4), limit_ms=0)
    assert "followed for 0 ms" in str(moved) and other is TRYAGAIN


def test_a_node_that_is_gone_is_looked_for_once() -> None:
    lost = ConnectionLost("refused", maybe_applied=False)
    acts, result = walk(RUN, A, lost, B, b"1")
    assert acts == [Locate(5), Send(A, RUN), Locate(5, fresh=True, avoid=A), Send(B, RUN)] and result == b"1"
    assert walk(RUN, A, lost, A)[1] is lost
    assert walk(RUN, A, lost, B, lost)[1] is lost
    assert walk(RUN, A, ConnectionLost("x", maybe_applied=True))[1].maybe_applied
    assert isinstance(walk(RUN, A, Closed())[1], Closed)
    # Behind an ASK the owner itself may be asked again.
    assert walk(RUN, A, ASK, lost, A, b"1")[1] == b"1"


def test_errors_of_the_login_and_others_are_raised() -> None:
    assert isinstance(walk(GET, A, AuthenticationFailed("NOAUTH x"))[1], AuthenticationFailed)
    assert isinstance(walk(GET, A, UsageError("a", 1, "b"))[1], UsageError)
    assert str(walk(GET, A, ServerError("WRONGTYPE x"))[1]) == "WRONGTYPE x"
    assert str(walk(POP, A, ServerError("ERR x"))[1]) == "ERR x"
    assert ASKING.wire() == ("ASKING",)


@pytest.mark.parametrize(("text", "helped"), [("MOVED 1 h:1", True), ("ASK 1 h:1", True), ("ERR x", False)])
def test_a_redirection_says_how_to_follow_it(text: str, helped: bool) -> None:
    assert ("redis+cluster://" in str(explained(ServerError(text)))) == helped


@pytest.mark.parametrize(
    ("rest", "shown"),
    [
        ("h:99999/s", "h:99999/s"),
        ("u:p@h:99999/s", "***@h:99999/s"),
        ("h:99999/s?a=b@c", "***"),
        ("u:p@h:99999/s?a=b@c", "***@h:99999/s"),
    ],
)
def test_a_refused_address_shows_that_it_has_a_login(rest: str, shown: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_address(f"redis+sentinel://{rest}")
    assert caught.value.value == f"redis+sentinel://{shown}"
