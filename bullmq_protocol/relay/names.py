"""Names of the relay: ids, topics, patterns, and the keys of a namespace."""

from __future__ import annotations

from base64 import b64encode
from functools import cached_property

import msgspec

from bullmq_protocol.common.codec import check_text
from bullmq_protocol.common.keys import DEFAULT_PREFIX, check_label
from bullmq_protocol.errors import UsageError
from bullmq_protocol.lazy import lazy_pattern

DEFAULT_NAMESPACE = "default"
MOST_SEGMENTS = 16
MOST_BYTES = 512

_ID = lazy_pattern(r"[A-Za-z0-9_-]{1,64}")
_SEGMENT = lazy_pattern(r"[A-Za-z0-9_:%-]+")


def check_id(field: str, value: object) -> str:
    """Return the id of a node or endpoint, or a namespace; raise `UsageError` for anything else.

    Source: specs/06-later-versions.md#sec-4-14
    """
    text = check_text(field, value)
    if not _ID.fullmatch(text):
        raise UsageError(field, text, "must be 1 to 64 letters of a to z and A to Z, digits, _ and -")
    return text


def check_topic(field: str, value: object) -> str:
    """Return a topic, or raise `UsageError`.

    Source: specs/06-later-versions.md#sec-4-14
    """
    text, segments = _split(field, value)
    for segment in segments:
        if segment in ("*", ">"):
            raise UsageError(field, text, f"must have no {segment}, which only a pattern has")
        _check_segment(field, text, segment)
    return text


def check_pattern(field: str, value: object) -> str:
    """Return a pattern of topics, or raise `UsageError`.

    Source: specs/06-later-versions.md#sec-4-14
    """
    text, segments = _split(field, value)
    for segment in segments[:-1]:
        if segment == ">":
            raise UsageError(field, text, "must have > at its end only")
    for segment in segments:
        if segment not in ("*", ">"):
            _check_segment(field, text, segment)
    return text


def _split(field: str, value: object) -> tuple[str, list[str]]:
    text = check_text(field, value)
    if not 1 <= len(text.encode()) <= MOST_BYTES:
        raise UsageError(field, text, f"must have 1 to {MOST_BYTES} bytes")
    segments = text.split(".")
    if len(segments) > MOST_SEGMENTS:
        raise UsageError(field, text, f"must have at most {MOST_SEGMENTS} segments, has {len(segments)}")
    return text, segments


def _check_segment(field: str, text: str, segment: str) -> None:
    if not _SEGMENT.fullmatch(segment):
        rule = "must have letters of a to z and A to Z, digits, _, :, % and - between its dots"
        raise UsageError(field, text, rule)


class RelayKeys(msgspec.Struct, frozen=True, dict=True):
    """The keys of one namespace. No queue has a key among them: the segment of the queue's name is empty.

    Source: specs/06-later-versions.md#sec-4-14
    """

    namespace: str
    prefix: str

    @classmethod
    def of(cls, namespace: str = DEFAULT_NAMESPACE, *, prefix: str = DEFAULT_PREFIX) -> RelayKeys:
        """Return the keys; raise `UsageError` for a name that breaks a rule."""
        return cls(check_id("namespace", namespace), check_label("prefix", prefix))

    @cached_property
    def base(self) -> str:
        """What all keys of the namespace but the registry begin with."""
        return f"{self.prefix}::relay:{{{self.namespace}}}"

    @cached_property
    def nodes(self) -> str:
        """The key of the set of nodes, which stands for all others."""
        return f"{self.base}:nodes"

    @cached_property
    def registry(self) -> str:
        """The key of the set of namespaces."""
        return f"{self.prefix}::relay:namespaces"

    def inbox(self, node: str) -> str:
        """Return the key of a node's stream of messages."""
        return f"{self.base}:{node}:inbox"

    def client_name(self, node: str) -> str:
        """Return the name of the connection on which a node waits for messages."""
        return f"{b64encode(self.base.encode()).decode()}:{node}"
