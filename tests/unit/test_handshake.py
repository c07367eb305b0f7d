"""What a connection says first, and what the answers mean."""

from typing import Any

import pytest

from bullmq_protocol.errors import (
    AuthenticationFailed,
    ConnectionLost,
    ServerError,
    ServerTooOld,
    TransportError,
    TransportTimeout,
    UsageError,
)
from bullmq_protocol.net.handshake import ASKING, WITH_TLS, Greeting, opening, unanswered, why_no_greeting, without_tls

INFO = (b"redis_version:7.2.4", b"maxmemory_policy:noeviction", b"cluster_enabled:0", b"role:master")


def greeting(login: Any, **options: Any) -> Greeting:
    return Greeting("redis://h", login[0], (*opening(login, **options), *ASKING))


@pytest.mark.parametrize(
    ("login", "options", "first"),
    [
        ((None, None), {}, ()),
        ((None, "secret"), {}, (("AUTH", "secret"),)),
        (("ada", None), {}, (("AUTH", "ada", ""),)),
        (
            ("ada", "secret"),
            {"db": 3, "client_name": "me"},
            (("AUTH", "ada", "secret"), ("SELECT", 3), ("CLIENT", "SETNAME", "me")),
        ),
    ],
)
def test_what_is_said(login: Any, options: Any, first: Any) -> None:
    assert opening(login, **options) == first
    assert ASKING == (("INFO", "server"), ("INFO", "memory"), ("INFO", "cluster"), ("INFO", "replication"))


def test_what_the_server_says() -> None:
    said = greeting((None, None), client_name="me")
    greeted = said.read(["OK", *INFO])
    assert (greeted.info.version, greeted.info.role) == ((7, 2, 4), "master")
    assert (greeted.unnamed, greeted.uninformed) == (None, None)


def test_what_may_be_refused() -> None:
    said = greeting((None, None), client_name="a b")
    greeted = said.read([ServerError("ERR no spaces"), *[ServerError("NOPERM no INFO")] * 4])
    assert [str(greeted.unnamed), str(greeted.uninformed)] == ["ERR no spaces", "NOPERM no INFO"]
    assert greeted.info.version_text == ""
    assert greeted.warnings == ("cannot check version and eviction policy: NOPERM no INFO",)


def test_what_is_warned_about() -> None:
    said = greeting((None, None))
    assert said.read(INFO).warnings == ()
    (warning,) = said.read([INFO[0], b"maxmemory_policy:allkeys-lru", *INFO[2:]]).warnings
    assert "allkeys-lru" in warning
    # Sections can be refused one by one.
    warnings = said.read([ServerError("NOPERM no"), b"maxmemory_policy:allkeys-lru", *INFO[2:]]).warnings
    assert [each.partition(" ")[0] for each in warnings] == ["cannot", "the"]


@pytest.mark.parametrize("kind", [ConnectionLost, TransportTimeout])
def test_first_commands_without_an_answer(kind: type[TransportError]) -> None:
    error = unanswered("redis://h", kind("reading failed", maybe_applied=True), tls=True)
    assert (type(error), str(error), error.maybe_applied) == (kind, "redis://h: reading failed", False)
    told = unanswered("redis://h", kind("reading failed", maybe_applied=True), tls=False)
    assert WITH_TLS in str(told)


@pytest.mark.parametrize(
    ("replies", "kind", "text"),
    [
        (
            [ServerError("WRONGPASS invalid"), b"OK", *INFO],
            AuthenticationFailed,
            "WRONGPASS invalid .user 'ada' at redi",
        ),
        ([ServerError("ERR AUTH secret?"), b"OK", *INFO], AuthenticationFailed, r"ERR AUTH \*\*\*\?"),
        ([b"OK", ServerError("ERR DB index"), *INFO], UsageError, "refuses this database: ERR DB index"),
        ([b"OK", ServerError("NOPERM select"), *INFO], AuthenticationFailed, "NOPERM select"),
        ([b"OK", b"OK", *[ServerError("LOADING it")] * 4], ConnectionLost, "redis://h is not ready: LOADING it"),
        ([b"OK", b"OK", ServerError("NOAUTH first"), *INFO[1:]], AuthenticationFailed, "NOAUTH first"),
        ([b"OK", b"OK", b"redis_version:5.0.1", *INFO[1:]], ServerTooOld, "6.2"),
    ],
)
def test_what_ends_it(replies: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        greeting(("ada", "secret"), db=1).read(replies)


def test_the_default_user_is_named() -> None:
    with pytest.raises(AuthenticationFailed, match="user 'default'"):
        greeting((None, "secret")).read([ServerError("WRONGPASS invalid"), *INFO])


def test_a_server_that_answers_tls_in_plain_words_has_none() -> None:
    found = without_tls(OSError("[SSL: WRONG_VERSION_NUMBER] wrong version number"))
    assert str(found).endswith(": a port without TLS (redis in place of rediss, or tls=False)")
    other = OSError("certificate verify failed")
    assert without_tls(other) is other


@pytest.mark.parametrize(
    "reason", ["reading failed: x", "the server closed the connection", "the server sent no RESP: x"]
)
def test_a_server_that_ends_plain_words_at_once_may_have_tls(reason: str) -> None:
    assert why_no_greeting(reason, tls=False) == f"{reason} {WITH_TLS}"
    assert why_no_greeting(reason, tls=True) == reason
    assert why_no_greeting("no reply within the time limit", tls=False) == "no reply within the time limit"
