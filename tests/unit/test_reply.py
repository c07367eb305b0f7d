"""Readers take RESP2 and RESP3 shapes and refuse the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bullmq_protocol.common import reply
from bullmq_protocol.errors import UnexpectedReply


@pytest.mark.parametrize(
    ("read", "raw", "value"),
    [
        (reply.as_int, 5, 5),
        (reply.as_int, b"5", 5),
        (reply.as_int, "-5", -5),
        (reply.as_int, True, 1),
        (reply.as_bool, None, False),
        (reply.as_bool, 1, True),
        (reply.as_bool, 0, False),
        (reply.as_text, b"\xc3\xa9", "é"),
        (reply.as_text, "x", "x"),
        (reply.as_text, b"\xff", "\udcff"),
        (reply.as_optional_text, None, None),
        (reply.as_optional_text, b"x", "x"),
        (reply.as_optional_float, None, None),
        (reply.as_optional_float, b"1.5", 1.5),
        (reply.as_optional_float, 2.5, 2.5),
        (reply.as_none, b"anything", None),
        (reply.as_list, [1], [1]),
        (reply.as_texts, [b"a", "b"], ["a", "b"]),
        (reply.as_texts, {b"a"}, ["a"]),
        (reply.as_ints, [1, b"2"], [1, 2]),
        (reply.as_fields, [b"a", b"1"], {"a": b"1"}),
        (reply.as_fields, {b"a": b"1", "b": "é"}, {"a": b"1", "b": "é".encode()}),
        (reply.as_fields, [b"a", "é"], {"a": "é".encode()}),
        (reply.as_fields, [], {}),
        (reply.as_text_fields, [b"a", b"1"], {"a": "1"}),
    ],
)
def test_readers(read: Callable[[Any], Any], raw: Any, value: Any) -> None:
    assert read(raw) == value


@pytest.mark.parametrize(
    ("read", "raw"),
    [
        (reply.as_int, b"x"),
        (reply.as_int, None),
        (reply.as_int, []),
        (reply.as_text, 5),
        (reply.as_text, None),
        (reply.as_optional_float, b"x"),
        (reply.as_optional_float, []),
        (reply.as_list, 5),
        (reply.as_list, b"x" * 500),
        (reply.as_texts, [1]),
        (reply.as_fields, [b"a"]),
        (reply.as_fields, 5),
        (reply.as_fields, {"a": "\ud800"}),
    ],
)
def test_other_shapes_are_refused(read: Callable[[Any], Any], raw: Any) -> None:
    with pytest.raises(UnexpectedReply) as caught:
        read(raw)
    assert len(str(caught.value)) < 300
