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
from bullmq_protocol.net.handshake import (
    INFO_COMMANDS,
    WITH_TLS,
    Handshake,
    login_commands,
    unanswered,
    why_no_handshake,
    without_tls,
)

INFO = (b"redis_version:7.2.4", b"maxmemory_policy:noeviction", b"cluster_enabled:0", b"role:master")


def handshake(login: Any, **options: Any) -> Handshake:
    return Handshake("redis://h", login[0], (*login_commands(login, **options), *INFO_COMMANDS))


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
    assert login_commands(login, **options) == first
    assert INFO_COMMANDS == (("INFO", "server"), ("INFO", "memory"), ("INFO", "cluster"), ("INFO", "replication"))


def test_what_the_server_says() -> None:
    said = handshake((None, None), client_name="me")
    result = said.read(["OK", *INFO])
    assert (result.info.version, result.info.role) == ((7, 2, 4), "master")
    assert (result.unnamed, result.uninformed) == (None, None)


def test_what_may_be_refused() -> None:
    said = handshake((None, None), client_name="a b")
    result = said.read([ServerError("ERR no spaces"), *[ServerError("NOPERM no INFO")] * 4])
    assert [str(result.unnamed), str(result.uninformed)] == ["ERR no spaces", "NOPERM no INFO"]
    assert result.info.version_text == ""
    assert result.warnings == ("cannot check version and eviction policy: NOPERM no INFO",)


def test_a_server_that_does_not_know_info_is_not_refused() -> None:
    refusal = ServerError("ERR unknown command 'INFO', with args beginning with: 'server' ")
    result = handshake((None, None)).read([refusal] * 4)
    assert result.uninformed is refusal
    assert result.info.version_text == ""


def test_what_is_warned_about() -> None:
    said = handshake((None, None))
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
    reported = unanswered("redis://h", kind("reading failed", maybe_applied=True), tls=False)
    assert WITH_TLS in str(reported)


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
        handshake(("ada", "secret"), db=1).read(replies)


def test_the_default_user_is_named() -> None:
    with pytest.raises(AuthenticationFailed, match="user 'default'"):
        handshake((None, "secret")).read([ServerError("WRONGPASS invalid"), *INFO])


def test_a_server_that_answers_tls_in_plain_words_has_none() -> None:
    found = without_tls(OSError("[SSL: WRONG_VERSION_NUMBER] wrong version number"))
    assert str(found).endswith(": a port without TLS (redis in place of rediss, or tls=False)")
    other = OSError("certificate verify failed")
    assert without_tls(other) is other


@pytest.mark.parametrize(
    "reason", ["reading failed: x", "the server closed the connection", "the server sent no RESP: x"]
)
def test_a_server_that_ends_plain_words_at_once_may_have_tls(reason: str) -> None:
    assert why_no_handshake(reason, tls=False) == f"{reason} {WITH_TLS}"
    assert why_no_handshake(reason, tls=True) == reason
    assert why_no_handshake("no reply within the time limit", tls=False) == "no reply within the time limit"
