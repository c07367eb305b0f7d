"""Read raw replies. Each reader takes RESP2 and RESP3 shapes, bytes or text, and returns a value or
`UnexpectedReply`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias, Union, cast

from bullmq_protocol.errors import UnexpectedReply

Reply: TypeAlias = Union[bool, int, float, bytes, str, Sequence["Reply"], "dict[bytes | str, Reply]", None]
"""What a transport hands over. Error replies are not among them: they are raised, or stand as `ServerError` in a
batch."""


class _Names(dict[bytes, str]):
    """Names of fields as text: decoding them anew for each job is a tenth of its cost."""

    def __missing__(self, name: bytes) -> str:
        return name.decode("utf-8", "surrogateescape")


_name_of: Final = _Names(
    {
        name.encode(): name
        for name in (
            "name",
            "data",
            "opts",
            "timestamp",
            "delay",
            "priority",
            "parentKey",
            "parent",
            "rjk",
            "deid",
            "processedOn",
            "ats",
            "atm",
            "stc",
            "pb",
            "returnvalue",
            "finishedOn",
            "failedReason",
            "stacktrace",
        )
    }
).__getitem__


def as_int(reply: Reply) -> int:
    """Return an integer reply; a bulk string of digits counts."""
    if isinstance(reply, bool):
        return int(reply)
    if isinstance(reply, int):
        return reply
    if isinstance(reply, (bytes, str)):
        try:
            return int(reply)
        except ValueError:
            pass
    raise UnexpectedReply("an integer", reply)


def as_bool(reply: Reply) -> bool:
    """Return True for 1, False for 0 and for nil (a script's `false`)."""
    return False if reply is None else as_int(reply) != 0


def as_text(reply: Reply) -> str:
    """Return a string reply. Bytes that are not UTF-8 survive as surrogate escapes."""
    if isinstance(reply, bytes):
        return reply.decode("utf-8", "surrogateescape")
    if isinstance(reply, str):
        return reply
    raise UnexpectedReply("a string", reply)


def as_optional_text(reply: Reply) -> str | None:
    """Return a string reply, or None for nil."""
    return None if reply is None else as_text(reply)


def as_optional_float(reply: Reply) -> float | None:
    """Return a number (a score), or None for nil."""
    if reply is None:
        return None
    if isinstance(reply, (int, float, bytes, str)):
        try:
            return float(reply)
        except ValueError:
            pass
    raise UnexpectedReply("a number", reply)


def as_none(reply: Reply) -> None:
    """Accept any reply; the command's effect is all that counts."""


def as_list(reply: Reply) -> Sequence[Reply]:
    """Return an array reply."""
    if isinstance(reply, (list, tuple)):
        return cast("Sequence[Reply]", reply)
    raise UnexpectedReply("an array", reply)


def as_texts(reply: Reply) -> list[str]:
    """Return an array (or set) of strings."""
    raw: object = reply
    if isinstance(raw, (set, frozenset)):
        return [as_text(item) for item in cast("set[Reply]", raw)]
    return [as_text(item) for item in as_list(reply)]


def as_ints(reply: Reply) -> list[int]:
    """Return an array of integers."""
    return [as_int(item) for item in as_list(reply)]


def as_fields(reply: Reply) -> dict[str, bytes]:
    """Return a hash: flat array (RESP2, or inside a script's reply) or map (RESP3), field name to raw value."""
    if isinstance(reply, dict):
        return {as_text(field): as_bytes(value) for field, value in reply.items()}
    flat = as_list(reply)
    if len(flat) % 2:
        raise UnexpectedReply("an even number of fields and values", reply)
    raw = cast("Sequence[bytes]", flat)
    try:
        # The shortest way to see that they are bytes, all of them.
        b"".join(raw)
    except TypeError:
        return {as_text(field): as_bytes(value) for field, value in zip(flat[::2], flat[1::2], strict=True)}
    items = iter(raw)
    return dict(zip(map(_name_of, items), items))  # noqa: B905


def as_text_fields(reply: Reply) -> dict[str, str]:
    """Return a hash with its values as text."""
    return {field: as_text(value) for field, value in as_fields(reply).items()}


def as_bytes(reply: Reply) -> bytes:
    """Return a string reply as it came."""
    if isinstance(reply, bytes):
        return reply
    try:
        return as_text(reply).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise UnexpectedReply("text", reply) from None
