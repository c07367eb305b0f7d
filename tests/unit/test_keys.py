"""Key layouts and the checks on names."""

from __future__ import annotations

from binascii import crc_hqx
from typing import Any

import pytest

from bullmq_protocol.common.keys import KeyLayout, QueueKeys, check_name, is_client_name, key_slot
from bullmq_protocol.errors import UsageError


def test_plain_layout() -> None:
    keys = QueueKeys.of("mail")
    assert keys.base == "bull:mail:"
    assert keys.qualified == "bull:mail"
    assert keys.wait == "bull:mail:wait"
    assert keys.waiting_children == "bull:mail:waiting-children"
    assert keys.stalled_check == "bull:mail:stalled-check"
    assert keys.metrics_completed == "bull:mail:metrics:completed"
    assert keys.job("7") == "bull:mail:7"
    assert keys.lock("7") == "bull:mail:7:lock"
    assert keys.logs("7") == "bull:mail:7:logs"
    assert keys.processed("7") == "bull:mail:7:processed"
    assert keys.dependencies("7") == "bull:mail:7:dependencies"
    assert keys.deduplication("d") == "bull:mail:de:d"
    assert not keys.has_hash_tag


@pytest.mark.parametrize(
    ("layout", "name", "prefix", "wait"),
    [
        (KeyLayout.TAGGED_QUEUE, "mail", "bull", "bull:{mail}:wait"),
        (KeyLayout.TAGGED_QUEUE, "{mail}", "bull", "bull:{mail}:wait"),
        (KeyLayout.TAGGED_PREFIX, "mail", "bull", "{bull}:mail:wait"),
        (KeyLayout.TAGGED_PREFIX, "mail", "{my}:app", "{my}:app:mail:wait"),
        (KeyLayout.PLAIN, "mail", "", ":mail:wait"),
    ],
)
def test_layouts(layout: KeyLayout, name: str, prefix: str, wait: str) -> None:
    keys = QueueKeys.of(name, prefix=prefix, layout=layout)
    assert keys.wait == wait
    assert keys.has_hash_tag is (layout is not KeyLayout.PLAIN)


@pytest.mark.parametrize("prefix", ["{}", "{}x{y}", "}{", "{open", "tail}"])
def test_what_is_no_hash_tag(prefix: str) -> None:
    assert not QueueKeys.of("q", prefix=prefix).has_hash_tag


@pytest.mark.parametrize(
    ("key", "equal"),
    [("}{a}b", "a"), ("a}b", "a}b"), ("{a}{b}", "a"), ("a{b", "a{b"), ("\udcff", b"\xff"), ("é{ü}", "ü")],
)
def test_slots_are_those_of_the_hash_tag(key: str, equal: str | bytes) -> None:
    hashed = equal.encode() if isinstance(equal, str) else equal
    assert key_slot(key) == crc_hqx(hashed, 0) % 16_384


def test_a_tag_may_follow_a_closing_brace() -> None:
    assert QueueKeys.of("q", prefix="}{a}").has_hash_tag


def test_crossslot_is_refused_early() -> None:
    with pytest.raises(UsageError, match="CROSSSLOT") as caught:
        QueueKeys.of("mail").require_hash_tag()
    assert "TAGGED_PREFIX" in str(caught.value) and '"{bull}"' in str(caught.value)
    assert (caught.value.field, caught.value.value) == ("queue name", "bull:mail")
    QueueKeys.of("mail", layout=KeyLayout.TAGGED_QUEUE).require_hash_tag()


@pytest.mark.parametrize(
    ("layout", "name", "prefix", "field"),
    [
        (KeyLayout.TAGGED_PREFIX, "mail", "", "prefix"),
        (KeyLayout.TAGGED_PREFIX, "mail", "}x", "prefix"),
        (KeyLayout.TAGGED_QUEUE, "mail", "{}", "prefix"),
        (KeyLayout.TAGGED_QUEUE, "}x", "bull", "queue name"),
    ],
)
def test_a_layout_that_gives_no_hash_tag_is_refused(layout: KeyLayout, name: str, prefix: str, field: str) -> None:
    with pytest.raises(UsageError, match="no hash tag") as caught:
        QueueKeys.of(name, prefix=prefix, layout=layout)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("name", "prefix", "advised"),
    [
        ("mail", "bull", ["TAGGED_PREFIX", "TAGGED_QUEUE"]),
        ("mail", "", ["TAGGED_QUEUE"]),
        ("mail", "{}", ["TAGGED_PREFIX"]),
        ("}x", "}", ["another prefix"]),
    ],
)
def test_advice_about_hash_tags_leads_to_one(name: str, prefix: str, advised: list[str]) -> None:
    with pytest.raises(UsageError, match="CROSSSLOT") as caught:
        QueueKeys.of(name, prefix=prefix).require_hash_tag()
    ways = ["TAGGED_PREFIX", "TAGGED_QUEUE", "another prefix"]
    assert [way for way in ways if way in str(caught.value)] == advised
    for way in advised[: 2 if "another prefix" not in advised else 0]:
        QueueKeys.of(name, prefix=prefix, layout=KeyLayout[way]).require_hash_tag()


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("", "must not be empty"),
        ("a:b", "must not contain"),
        ("x" * 256, "at most 255 characters"),
        (None, "must be a string"),
        (7, "must be a string"),
        ("\ud800", "lone surrogates"),
    ],
)
def test_bad_queue_names(name: Any, rule: str) -> None:
    with pytest.raises(UsageError, match=rule) as caught:
        QueueKeys.of(name)
    assert caught.value.field == "queue name"
    assert caught.value.value == name


def test_bad_prefix() -> None:
    with pytest.raises(UsageError, match="prefix") as caught:
        QueueKeys.of("q", prefix=7)  # type: ignore[arg-type]
    assert caught.value.value == 7


def test_bad_layout() -> None:
    with pytest.raises(UsageError, match="layout") as caught:
        QueueKeys.of("q", layout="tagged-queue")  # type: ignore[arg-type]
    assert caught.value.value == "tagged-queue"


def test_the_longest_name_is_taken() -> None:
    assert QueueKeys.of("x" * 255).name == "x" * 255


@pytest.mark.parametrize(
    ("name", "good"),
    [("bull:cQ==:w:a", True), ("!", True), ("~", True), ("a b", False), ("\x7f", False), ("ü", False), ("a\n", False)],
)
def test_names_that_the_server_takes(name: str, good: bool) -> None:
    assert is_client_name(name) is good


def test_a_name_limit_can_be_lifted() -> None:
    assert check_name("name", "x" * 300, max_length=None) == "x" * 300


def test_long_values_are_shortened_in_errors() -> None:
    with pytest.raises(UsageError) as caught:
        QueueKeys.of("x" * 5000)
    assert len(str(caught.value)) < 300


def test_client_names() -> None:
    assert QueueKeys.of("idle").client_name("wname") == "bull:aWRsZQ==:w:wname"
    assert QueueKeys.of("q").client_name() == "bull:cQ=="
