"""Topologies of several servers: addresses of sentinels and clusters, and their answers about which server to use.

Source: specs/01-data-model-and-adding.md#sec-2-2
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any, TypeAlias, cast
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import msgspec

from bullmq_protocol.command import Batch, Command, Repeat
from bullmq_protocol.common.keys import key_slot
from bullmq_protocol.common.reply import Reply, as_list, as_none, as_text
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import (
    AuthenticationFailed,
    Closed,
    ServerError,
    TransportError,
    UnexpectedReply,
    UsageError,
)
from bullmq_protocol.net.address import ConnectionOptions, parse_url

Place: TypeAlias = tuple[str, int]
"""Host and port."""

SLOTS = 16_384
_REFUSALS = ("MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN")
_DEPOSED_CODES = ("READONLY", "UNBLOCKED")
_HOPS = 5
"""After this many redirections in a row the nodes disagree: wait."""
_FIRST_DELAY_MS: Millis = 20
_LONGEST_DELAY_MS: Millis = 320
_SENTINEL_PORT = 26_379
_SENTINEL_KEYS = ("sentinel_username", "sentinel_password")


class SentinelOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A master that sentinels know by the name of its service. The values are checked when it is made.

    Args:
        sentinels: Host and port of some of the sentinels.
        service: The name that they know the master by.
        server: What all data nodes have in common: login, TLS, database, time limits. Host and port are not used.
        sentinel_username: The user to log in as at the sentinels; None by default.
        sentinel_password: The password for the sentinels; None, the default: no login.
        sentinel_tls: TLS to the sentinels, as in `ConnectionOptions`. None, the default: as to the server.

    Raises:
        UsageError: A value is wrong.

    Examples:
        >>> SentinelOptions(sentinels=(("s1.example.org", 26379),), service="mymaster")
        SentinelOptions('redis+sentinel://s1.example.org:26379/mymaster/0')
    """

    sentinels: tuple[Place, ...]
    service: str
    server: ConnectionOptions = ConnectionOptions()
    sentinel_username: str | None = None
    sentinel_password: str | None = None
    sentinel_tls: Any = None

    def __post_init__(self) -> None:
        _check_places("sentinels", self.sentinels)
        service: Any = self.service
        if not isinstance(service, str) or not service:
            raise UsageError("service", service, "must be the name that the sentinels know the master by")
        _check_server(self.server)
        for field in _SENTINEL_KEYS:
            value = getattr(self, field)
            if value is not None and not isinstance(value, str):
                raise UsageError(field, "***", "must be a string")

    def sentinel(self, place: Place) -> ConnectionOptions:
        """Return the options for one sentinel."""
        return ConnectionOptions(
            host=place[0],
            port=place[1],
            username=self.sentinel_username,
            password=self.sentinel_password,
            tls=self.server.tls if self.sentinel_tls is None else self.sentinel_tls,
            connect_timeout_ms=self.server.connect_timeout_ms,
            command_timeout_ms=self.server.command_timeout_ms,
        )

    @property
    def address(self) -> str:
        """The address as messages show it, without users and passwords."""
        scheme = "rediss" if self.server.tls else "redis"
        return f"{scheme}+sentinel://{_shown(self.sentinels)}/{self.service}/{self.server.db}"

    def __repr__(self) -> str:
        return f"SentinelOptions({self.address!r})"


class ClusterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A Redis Cluster, by some of its nodes; the others are found. The values are checked when it is made.

    Args:
        nodes: Host and port of some of the nodes.
        server: What all nodes have in common: login, TLS, time limits. Host and port are not used.

    Raises:
        UsageError: A value is wrong.

    Examples:
        >>> ClusterOptions(nodes=(("n1.example.org", 6379),))
        ClusterOptions('redis+cluster://n1.example.org:6379')
    """

    nodes: tuple[Place, ...]
    server: ConnectionOptions = ConnectionOptions()

    def __post_init__(self) -> None:
        _check_places("nodes", self.nodes)
        _check_server(self.server)
        if self.server.db:
            raise UsageError("db", self.server.db, "must be 0: a Redis Cluster has no other database")

    @property
    def address(self) -> str:
        """The address as messages show it, without user and password."""
        return f"{'rediss' if self.server.tls else 'redis'}+cluster://{_shown(self.nodes)}"

    def __repr__(self) -> str:
        return f"ClusterOptions({self.address!r})"


Address: TypeAlias = ConnectionOptions | SentinelOptions | ClusterOptions


def parse_address(url: str) -> Address:
    """Read a URL of one server (see `parse_url`), of sentinels, or of a cluster.

    - `redis+sentinel://[[user]:password@]host[:port][,host...]/service[/db]`, port 26379 if none is given; the query
      may hold `sentinel_username` and `sentinel_password` beside what `parse_url` takes.
    - `redis+cluster://[[user]:password@]host[:port][,host...]`.

    Both with TLS as `rediss+...`. Raises `UsageError` that names field, value and rule and shows no password.
    """
    scheme, _, rest = str(url).partition("://")
    security, plus, kind = scheme.partition("+")
    if not plus or security not in ("redis", "rediss") or kind not in ("sentinel", "cluster"):
        return parse_url(url)
    end = min(found if (found := rest.find(mark)) >= 0 else len(rest) for mark in "/?#")
    login, at, hosts = rest[:end].rpartition("@")
    path, _, query = rest[end:].partition("?")
    if "#" in rest or "@" in path:
        raise UsageError(
            "url", f"{scheme}://***", "must hold no '#', and '/ ? # @ :' in a password as %2F %3F %23 %40 %3A"
        )
    # A '?' of the password may have hidden the '@'.
    shown = f"{scheme}://{'***@' if at else ''}{'***' if not at and '@' in query else hosts + path}"
    places = tuple(_place(shown, host, _SENTINEL_PORT if kind == "sentinel" else 6379) for host in hosts.split(","))
    if kind == "cluster":
        server = parse_url(f"{security}://{login}{at}localhost{path}{'?' if query else ''}{query}")
        return ClusterOptions(nodes=places, server=server)
    own: dict[str, str] = {}
    others: list[tuple[str, str]] = []
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key in own:
            raise UsageError("url query", key, "is given twice")
        if key in _SENTINEL_KEYS:
            own[key] = value
        else:
            others.append((key, value))
    service, _, db = path.strip("/").partition("/")
    if not service:
        raise UsageError("url", shown, "must name the service: redis+sentinel://host:port/service")
    server = parse_url(f"{security}://{login}{at}localhost/{db}?{urlencode(others)}")
    return SentinelOptions(sentinels=places, service=unquote(service), server=server, **own)


# --- sentinels --------------------------------------------------------------------------------------------------------


def read_master(reply: Any) -> Place | None:
    """Read the reply to `SENTINEL GET-MASTER-ADDR-BY-NAME`; None for a service that this sentinel does not know."""
    if reply is None:
        return None
    match reply:
        case [bytes() | str() as host, bytes() | str() as port] if _is_number(as_text(port)):
            return as_text(host), int(as_text(port))
        case _:
            raise UnexpectedReply("host and port of a master", reply)


SENTINEL_EVENTS = ("+selected-slave", "+promoted-slave", "+switch-master")
"""What a sentinel announces in a failover: first the one that leads it, at the end every one.

After the first the replica is made a master in a tenth of a second. The third comes from the leader only when all other
replicas follow the new master, from the others within two seconds; till then the old one takes commands that are lost.
"""


def sentinel_question(service: str) -> tuple[tuple[str, ...], ...]:
    """Return what to ask a sentinel: three questions for `read_sentinel`, and a subscription to each event.

    `SENTINEL MASTER` still names the old master where `GET-MASTER-ADDR-BY-NAME` names the new one, but knows the epoch.
    """
    asked = ("GET-MASTER-ADDR-BY-NAME", "MASTER", "SLAVES")
    return (*(("SENTINEL", each, service) for each in asked), *(("SUBSCRIBE", event) for event in SENTINEL_EVENTS))


class Named(msgspec.Struct, frozen=True):
    """What one sentinel says: the master (None: it does not know the service), the epoch of this news, and the replica
    that is being made the next master."""

    place: Place | None
    epoch: int = 0
    chosen: Place | None = None


def read_sentinel(replies: Sequence[Any]) -> Named:
    """Read the replies to the questions of `sentinel_question`. Raises the `ServerError` that refuses the first.

    What its login may not ask is unknown.
    """
    named, state, replicas = replies
    if isinstance(named, ServerError):
        raise named
    place = read_master(named)
    epoch = _fields(state).get("config-epoch", "")
    chosen: Place | None = None
    for row in cast("list[object]", replicas) if isinstance(replicas, list) else []:
        fields = _fields(row)
        if "promoted" in fields.get("flags", "").split(",") and _is_number(fields.get("port", "")):
            chosen = fields.get("ip", ""), int(fields["port"])
    is_epoch = epoch.isascii() and epoch.isdecimal() and len(epoch) <= 20
    return Named(place, int(epoch) if is_epoch else 0, None if chosen == place else chosen)


def ranked(answers: Iterable[Named]) -> tuple[Place | None, tuple[Place, ...]]:
    """Return the replica that is about to be the master, if there is one, and the masters named, the latest first."""
    known = sorted((each for each in answers if each.place is not None), key=lambda each: -each.epoch)
    latest = [each for each in known if each.epoch == known[0].epoch]
    chosen = next((each.chosen for each in latest if each.chosen is not None), None)
    return chosen, tuple(dict.fromkeys(each.place for each in known if each.place is not None))


def _fields(row: Any) -> dict[str, str]:
    """Read names and values in turn."""
    values = cast("list[Reply]", row) if isinstance(row, list) else []
    if not all(isinstance(each, (bytes, str)) for each in values):
        return {}
    texts = [as_text(each) for each in values]
    return dict(zip(texts[::2], texts[1::2], strict=False))


def _is_number(text: str) -> bool:
    """Whether it is a slot or port in figures: a few."""
    return text.isascii() and text.isdecimal() and len(text) <= 5


# --- clusters ---------------------------------------------------------------------------------------------------------


class Redirect(msgspec.Struct, frozen=True):
    """A node's word that another one is to be asked: from now on, or (`ask`) for this command, after ASKING."""

    slot: int
    place: Place
    ask: bool


def read_redirect(error: object, asked: Place) -> Redirect | None:
    """Read an error reply MOVED or ASK of the node `asked`; None for anything else.

    A reply without a host means the host that was asked.
    """
    if not isinstance(error, ServerError) or error.code not in ("MOVED", "ASK"):
        return None
    words = str(error).split(" ")
    if len(words) < 3 or not _is_number(words[1]):
        return None
    host, _, port = words[2].rpartition(":")
    slot = int(words[1])
    if not _is_number(port) or not 0 < int(port) < 65_536 or slot >= SLOTS or host == "?":
        return None
    return Redirect(slot, (host or asked[0], int(port)), error.code == "ASK")


_ADVICE = " (a Redis Cluster: connect to it by redis+cluster://host:port, with TLS by rediss+cluster://)"


def explained(error: ServerError) -> ServerError:
    """Return what to raise for an error reply: a redirection with the way to follow it."""
    return ServerError(f"{error}{_ADVICE}") if error.code in ("MOVED", "ASK") else error


class SlotMap(msgspec.Struct, frozen=True):
    """The owners of slots: ranges (first and last slot, owner), and all nodes, masters first."""

    ranges: tuple[tuple[int, int, Place], ...] = ()
    nodes: tuple[Place, ...] = ()

    def owner(self, slot: int | None) -> Place | None:
        """Return the master of a slot, of any if it is None; None if no node serves it."""
        return next((place for first, last, place in self.ranges if slot is None or first <= slot <= last), None)

    def moved(self, redirect: Redirect) -> SlotMap:
        """Return the map updated with a node's answer about one slot."""
        slot, place = redirect.slot, redirect.place
        return SlotMap(((slot, slot, place), *self.ranges), tuple(dict.fromkeys((place, *self.nodes))))


def read_slots(reply: Any, asked: Place) -> SlotMap:
    """Read the reply to `CLUSTER SLOTS` of the node `asked`."""
    ranges: list[tuple[int, int, Place]] = []
    others: list[Place] = []
    for row in as_list(reply):
        match row:
            case [int(first), int(last), [owner_host, int(owner_port), *_], *replicas] if 0 <= first <= last < SLOTS:
                owner = _host(owner_host, asked)
                if owner is not None:
                    ranges.append((first, last, (owner, owner_port)))
                for replica in replicas:
                    match replica:
                        case [host, int(port), *_] if (name := _host(host, asked)) is not None:
                            others.append((name, port))
                        case _:
                            pass
            case _:
                raise UnexpectedReply("ranges of slots with their nodes", row)
    masters = [place for _, _, place in ranges]
    return SlotMap(tuple(ranges), tuple(dict.fromkeys((*masters, *others))))


def slots_of(step: Command[Any] | Batch) -> dict[int | None, list[int]]:
    """Sort the numbers of a step's commands by the slots of their keys; None stands for commands without a key.

    Raises `UsageError` for an atomic batch over several slots, with the fix in the message.
    """
    commands = step.commands if isinstance(step, Batch) else (step,)
    found: dict[int | None, list[int]] = {}
    for number, command in enumerate(commands):
        found.setdefault(key_slot(command.keys[0]) if command.keys else None, []).append(number)
    if not isinstance(step, Batch) or not step.atomic:
        return found
    slots = [slot for slot in found if slot is not None]
    if len(slots) > 1:
        raise UsageError(
            "keys",
            sorted({command.keys[0] for command in commands if command.keys}),
            "a Redis Cluster runs a transaction in one slot: give all queues the same hash tag, best by the same "
            'prefix and layout=KeyLayout.TAGGED_PREFIX (Node: prefix "{bull}")',
        )
    return {slots[0] if slots else None: list(range(len(commands)))}


class Locate(msgspec.Struct, frozen=True):
    """Answer with the place of a slot's owner (slot None: of any node), or None where no node serves it. `fresh`: ask
    the cluster, `avoid` last of all."""

    slot: int | None
    fresh: bool = False
    avoid: Place | None = None


class Send(msgspec.Struct, frozen=True):
    """Answer with the raw reply of the node at a place, or throw the exception."""

    place: Place
    step: Command[Any] | Batch


class Learn(msgspec.Struct, frozen=True):
    """Note a node's answer about a slot."""

    redirect: Redirect


class Pause(msgspec.Struct, frozen=True):
    """Wait."""

    delay_ms: Millis


Act: TypeAlias = Locate | Send | Learn | Pause

_ASKING: Command[None] = Command("ASKING", (), (), as_none)
CLUSTER_SLOTS: Command[None] = Command("CLUSTER SLOTS", (), (), as_none, repeat=Repeat.SAFE)
"""Its reply is for `read_slots`."""


def follow(step: Command[Any] | Batch, slot: int | None, limit_ms: Millis | None) -> Generator[Act, Any, Any]:
    """Carry a step whose keys are in one slot to the node that serves it; return what `perform` returns.

    What a cluster redirects or refuses for now did not run, so it is sent again whatever its repeat class: at once to
    the node that is named, else after a pause, until the pauses come to `limit_ms` (None: no limit). A node that cannot
    be reached is looked for anew, once, if nothing was sent. A slot that no node serves is one that is refused for now:
    while a master changes, a node may know of no owner.
    """
    commands = step.commands if isinstance(step, Batch) else (step,)
    replies: list[Any] = [None] * len(commands)
    left = list(range(len(commands)))
    whole = isinstance(step, Command) or step.atomic
    asking = relocated = False
    paused: Millis = 0
    pauses = hops = 0
    place: Place | None = yield Locate(slot)
    while True:
        part = step if whole or len(left) == len(commands) else Batch(tuple(commands[number] for number in left))
        try:
            answers = [unserved(slot)] * len(left) if place is None else (yield from _sent(place, part, asking))
        except TransportError as error:
            if error.maybe_applied or isinstance(error, Closed) or relocated:
                raise
            relocated = True
            found: Place | None = yield Locate(slot, fresh=True, avoid=place)
            if found == place and not asking:
                raise
            place, asking = found, False
            continue
        for number, answer in zip(left, answers, strict=True):
            replies[number] = answer
        refused = [number for number in left if _was_refused(replies[number])]
        if not refused or (whole and not all(isinstance(reply, ServerError) for reply in replies)):
            break
        redirect = None if place is None else read_redirect(replies[refused[0]], place)
        left = left if whole else refused
        hops += 1
        if redirect is not None and hops % _HOPS and not (redirect.ask and isinstance(step, Batch) and step.atomic):
            if not redirect.ask:
                yield Learn(redirect)
            place, asking = redirect.place, redirect.ask
            continue
        delay = later_delay(pauses)
        if limit_ms is not None and paused + delay > limit_ms:
            replies = [_given_up(reply, limit_ms) for reply in replies]
            break
        yield Pause(delay)
        paused, pauses = paused + delay, pauses + 1
        place, asking = (yield Locate(slot, fresh=True)), False
    if isinstance(step, Batch):
        return replies
    if isinstance(replies[0], ServerError):
        raise replies[0]
    return replies[0]


def unserved(slot: int | None) -> ServerError:
    """Return the refusal of a slot that no node serves, as servers word it."""
    return ServerError("CLUSTERDOWN no node serves " + ("any slot" if slot is None else f"slot {slot}"))


def _sent(place: Place, step: Command[Any] | Batch, asking: bool) -> Generator[Act, Any, list[Any]]:
    """Send a part of a step and return one reply per command, refusals as values."""
    if isinstance(step, Batch):
        replies: list[Any]
        if not asking:
            replies = yield Send(place, step)
            return replies
        commands = [each for command in step.commands for each in (_ASKING, _unscripted(command))]
        replies = yield Send(place, Batch(tuple(commands)))
        return replies[1::2]
    try:
        if not asking:
            return [(yield Send(place, step))]
        if step.block_ms is None:
            replies = yield Send(place, Batch((_ASKING, _unscripted(step))))
            return replies[1:]
        # It has a connection of its own, so nothing comes between.
        yield Send(place, _ASKING)
        return [(yield Send(place, step))]
    except ServerError as error:
        if isinstance(error, AuthenticationFailed):
            raise
        text = str(error)
        return [ServerError(text.removesuffix(_ADVICE)) if text.endswith(_ADVICE) else error]


def _given_up(reply: Any, limit_ms: Millis) -> Any:
    """Return what to answer with at the time limit: a redirection says that it was followed in vain."""
    if not isinstance(reply, ServerError) or reply.code not in ("MOVED", "ASK"):
        return reply
    return ServerError(f"{reply} (followed for {limit_ms} ms: the nodes do not agree which of them serves the slot)")


def is_deposed(reply: object) -> bool:
    """Whether a reply refuses a command because the server is not the master any more; it did not run."""
    return isinstance(reply, ServerError) and (reply.code in _DEPOSED_CODES or "-READONLY " in str(reply))


def _was_refused(reply: object) -> bool:
    if not isinstance(reply, ServerError):
        return False
    return reply.code in _REFUSALS or is_deposed(reply)


def _unscripted(command: Command[Any]) -> Command[Any]:
    """Put the script into the command in full, so that no second attempt is needed behind ASKING."""
    if command.script is None:
        return command
    _, *args = command.wire(full_source=True)
    return msgspec.structs.replace(command, name="EVAL", keys=(), args=tuple(args), script=None)


def later_delay(attempt: int) -> Millis:
    """Return how long to wait before a command is sent again that was refused for now; `attempt` counts from 0."""
    return int(min(_FIRST_DELAY_MS << min(attempt, 10), _LONGEST_DELAY_MS))


def _check_places(field: str, places: Any) -> None:
    if not isinstance(places, tuple) or not places:
        raise UsageError(field, type(cast("object", places)), "must be a tuple of (host, port), at least one")
    for each in cast("tuple[object, ...]", places):
        match each:
            case (str(host), int(port)):
                ConnectionOptions(host=host, port=port)
            case _:
                raise UsageError(field, type(each), "must be a tuple of (host, port)")


def _check_server(server: object) -> None:
    if not isinstance(server, ConnectionOptions):
        raise UsageError("server", type(server), "must be ConnectionOptions")
    if server.unix_path is not None:
        raise UsageError("unix_path", server.unix_path, "is not possible with several servers")


def _place(shown: str, text: str, port: int) -> Place:
    try:
        parts = urlsplit(f"//{text}")
        found = parts.port
    except ValueError:
        raise UsageError("url", shown, "has a bad host or port") from None
    if not parts.hostname:
        raise UsageError("url", shown, "must name hosts, with commas between them: host:port,host:port")
    return unquote(parts.hostname), port if found is None else found


def _shown(places: Sequence[Place]) -> str:
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in places)


def _host(host: Any, asked: Place) -> str | None:
    """A node without a name has that of the node that was asked; one whose name is unknown cannot be asked."""
    text = as_text(host) if isinstance(host, (bytes, str)) else ""
    return None if text == "?" else text or asked[0]
