"""Every Redis key of a queue, and the checks on names."""

from __future__ import annotations

from base64 import b64encode
from binascii import crc_hqx
from enum import Enum
from functools import cached_property

import msgspec

from bullmq_protocol.common.codec import check_text, plain_text
from bullmq_protocol.common.switches import STRICT_SWITCHES, Switches
from bullmq_protocol.errors import UsageError, looks_like_login

DEFAULT_PREFIX = "bull"
MAX_NAME_LENGTH = 255


class KeyLayout(Enum):
    """Where the hash tag of a Redis Cluster goes. All keys of a queue share one slot only with a tag.

    Source: specs/01-data-model-and-adding.md#sec-2-2
    """

    PLAIN = "plain"
    """`bull:mail:wait`. The default; meets an unconfigured Node client: `new Queue("mail")`. Not for a cluster."""
    TAGGED_QUEUE = "tagged-queue"
    """`bull:{mail}:wait`. The equal Node configuration is `new Queue("{mail}")`. Parents and children in one queue
    only."""
    TAGGED_PREFIX = "tagged-prefix"
    """`{bull}:mail:wait`. The equal Node configuration is `new Queue("mail", {prefix: "{bull}"})`."""


def check_name(field: str, value: object, *, max_length: int | None = MAX_NAME_LENGTH) -> str:
    """Return a name that is a non-empty string within the length limit, as plain text, or raise `UsageError`."""
    if isinstance(value, str):
        value = plain_text(value)
        if not value:
            raise UsageError(field, value, "must not be empty")
        if max_length is not None and len(value) > max_length:
            raise UsageError(field, value, f"must have at most {max_length} characters, has {len(value)}")
    return check_text(field, value)


def refuse_login(field: str, value: str) -> None:
    """Raise `UsageError` for a name that would carry a password into every key, log and list of clients."""
    if looks_like_login(value):
        raise UsageError(field, value, "looks like a URL with a login, which belongs into the connection")


def check_label(field: str, value: object) -> str:
    """Return a name that stands in logs and lists of clients, or raise `UsageError`."""
    name = check_name(field, value)
    refuse_login(field, name)
    return name


class QueueKeys(msgspec.Struct, frozen=True, dict=True):
    """All key names of one queue, computed once.

    `name` and `prefix` are as they stand in the keys (with their braces); `base` is `<prefix>:<name>:`; `qualified` is
    `<prefix>:<name>`, the form that parent references use. `switches` are those of the profile whose scripts the
    commands are for.

    Source: specs/01-data-model-and-adding.md#sec-2-3
    """

    name: str
    prefix: str
    qualified: str
    base: str
    wait: str
    paused: str
    active: str
    prioritized: str
    delayed: str
    waiting_children: str
    completed: str
    failed: str
    meta: str
    id: str
    pc: str
    marker: str
    events: str
    limiter: str
    stalled: str
    stalled_check: str
    repeat: str
    metrics_completed: str
    metrics_failed: str
    switches: Switches = STRICT_SWITCHES

    @classmethod
    def of(
        cls,
        name: str,
        *,
        prefix: str = DEFAULT_PREFIX,
        layout: KeyLayout = KeyLayout.PLAIN,
        switches: Switches = STRICT_SWITCHES,
    ) -> QueueKeys:
        """Check the names and build the keys.

        Raises `UsageError` for an empty name, one with a colon, one over 255 characters, a prefix that is not text, and
        a name or prefix that the layout's braces do not make a hash tag of.

        Source: specs/01-data-model-and-adding.md#sec-2-1
        """
        name = check_label("queue name", name)
        if ":" in name:
            raise UsageError("queue name", name, "must not contain ':'")
        prefix = check_text("prefix", prefix)
        refuse_login("prefix", prefix)
        if not isinstance(layout, KeyLayout):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("layout", layout, "must be a KeyLayout")
        if layout is KeyLayout.TAGGED_QUEUE:
            name = name if _has_tag(name) else f"{{{name}}}"
        elif layout is KeyLayout.TAGGED_PREFIX:
            prefix = prefix if _has_tag(prefix) else f"{{{prefix}}}"
        qualified = f"{prefix}:{name}"
        if layout is not KeyLayout.PLAIN and not _has_tag(qualified):
            blamed = ("prefix", prefix) if layout is KeyLayout.TAGGED_PREFIX or "{" in prefix else ("queue name", name)
            raise UsageError(*blamed, "is no hash tag: the first '{' of the keys must have text before the next '}'")
        base = f"{qualified}:"
        return cls(
            name=name,
            prefix=prefix,
            qualified=qualified,
            base=base,
            wait=f"{base}wait",
            paused=f"{base}paused",
            active=f"{base}active",
            prioritized=f"{base}prioritized",
            delayed=f"{base}delayed",
            waiting_children=f"{base}waiting-children",
            completed=f"{base}completed",
            failed=f"{base}failed",
            meta=f"{base}meta",
            id=f"{base}id",
            pc=f"{base}pc",
            marker=f"{base}marker",
            events=f"{base}events",
            limiter=f"{base}limiter",
            stalled=f"{base}stalled",
            stalled_check=f"{base}stalled-check",
            repeat=f"{base}repeat",
            metrics_completed=f"{base}metrics:completed",
            metrics_failed=f"{base}metrics:failed",
            switches=switches,
        )

    @cached_property
    def of_fetch(self) -> tuple[str, ...]:
        """The keys that every script which can take a job has first: wait, active, prioritized, events, stalled,
        limiter, delayed, paused, meta, pc."""
        return (
            self.wait,
            self.active,
            self.prioritized,
            self.events,
            self.stalled,
            self.limiter,
            self.delayed,
            self.paused,
            self.meta,
            self.pc,
        )

    @cached_property
    def of_standard_add(self) -> tuple[str, ...]:
        """The keys of addStandardJob: wait, paused, meta, id, completed, delayed, active, events, marker."""
        return (
            self.wait,
            self.paused,
            self.meta,
            self.id,
            self.completed,
            self.delayed,
            self.active,
            self.events,
            self.marker,
        )

    @cached_property
    def of_many_adds(self) -> tuple[str, ...]:
        """The keys of addMany: those of addStandardJob, then prioritized, pc and waiting-children."""
        return (*self.of_standard_add, self.prioritized, self.pc, self.waiting_children)

    @cached_property
    def of_delayed_add(self) -> tuple[str, ...]:
        """The keys of addDelayedJob: marker, meta, id, delayed, completed, events."""
        return (self.marker, self.meta, self.id, self.delayed, self.completed, self.events)

    @cached_property
    def of_prioritized_add(self) -> tuple[str, ...]:
        """The keys of addPrioritizedJob: marker, meta, id, prioritized, delayed, completed, active, events, pc."""
        return (
            self.marker,
            self.meta,
            self.id,
            self.prioritized,
            self.delayed,
            self.completed,
            self.active,
            self.events,
            self.pc,
        )

    def job(self, job_id: str) -> str:
        """Return the key of a job's hash."""
        return f"{self.base}{job_id}"

    def lock(self, job_id: str) -> str:
        """Return the key of a job's lock."""
        return f"{self.base}{job_id}:lock"

    def logs(self, job_id: str) -> str:
        """Return the key of a job's log rows."""
        return f"{self.base}{job_id}:logs"

    def processed(self, job_id: str) -> str:
        """Return the key of a parent's finished children."""
        return f"{self.base}{job_id}:processed"

    def dependencies(self, job_id: str) -> str:
        """Return the key of a parent's pending children."""
        return f"{self.base}{job_id}:dependencies"

    def ignored(self, job_id: str) -> str:
        """Return the key of a parent's children whose failure was ignored."""
        return f"{self.base}{job_id}:failed"

    def unsuccessful(self, job_id: str) -> str:
        """Return the key of a parent's children whose failure fails the parent."""
        return f"{self.base}{job_id}:unsuccessful"

    def deduplication(self, deduplication_id: str) -> str:
        """Return the key that holds the owner of a deduplication id."""
        return f"{self.base}de:{deduplication_id}"

    @property
    def slot(self) -> int:
        """The slot of a Redis Cluster that holds all keys of this queue, if it has a hash tag."""
        return key_slot(self.base)

    @property
    def has_hash_tag(self) -> bool:
        """Whether a Redis Cluster puts all keys of this queue into one slot."""
        return _has_tag(self.qualified)

    def require_hash_tag(self) -> None:
        """Refuse an untagged queue on a cluster, with the fix in the message."""
        if not self.has_hash_tag:
            ways: list[str] = []
            # Advice that is followed must lead to a tag.
            if _has_tag(f"{{{self.prefix}}}:{self.name}"):
                ways.append(f'layout=KeyLayout.TAGGED_PREFIX (Node: prefix "{{{self.prefix}}}")')
            if _has_tag(f"{self.prefix}:{{{self.name}}}"):
                ways.append(f'layout=KeyLayout.TAGGED_QUEUE (Node: queue name "{{{self.name}}}")')
            raise UsageError(
                "queue name",
                self.qualified,
                "a Redis Cluster needs all keys of a queue in one slot: use "
                f"{' or '.join(ways) or 'another prefix'}; otherwise the server answers CROSSSLOT",
            )

    def require_same_slot(self, parent_key: str) -> None:
        """Refuse a parent that a Redis Cluster holds elsewhere: the commands of its children reach for its keys."""
        if not self.has_hash_tag or key_slot(parent_key) != self.slot:
            raise UsageError(
                "parent",
                parent_key,
                f"a Redis Cluster needs the queue of a parent in the slot of {self.qualified}: give both the same hash "
                'tag, best by the same prefix and layout=KeyLayout.TAGGED_PREFIX (Node: prefix "{bull}")',
            )

    def client_name(self, worker_name: str | None = None) -> str:
        """Return the connection name by which `getWorkers` finds a worker's blocking connection.

        Source: specs/03-transitions-admin-getters.md#sec-14
        """
        base = f"{self.prefix}:{b64encode(self.name.encode()).decode()}"
        return base if worker_name is None else f"{base}:w:{worker_name}"


def key_slot(key: str) -> int:
    """Return a key's slot, 0 to 16,383: the CRC16 of its hash tag, if it has one that is not empty, else of the key."""
    opening = key.find("{")
    closing = key.find("}", opening + 1) if opening >= 0 else -1
    tag = key[opening + 1 : closing] if closing > opening + 1 else key
    return crc_hqx(tag.encode("utf-8", "surrogateescape"), 0) % 16_384


def is_client_name(name: str) -> bool:
    """Whether CLIENT SETNAME takes this name: printable ASCII without blanks. Another leaves the connection unnamed."""
    return all("!" <= character <= "~" for character in name)


def _has_tag(text: str) -> bool:
    opening = text.find("{")
    return opening >= 0 and text.find("}", opening + 1) > opening + 1
