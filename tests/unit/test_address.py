"""Connection options and URLs."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from bullmq_protocol.errors import AuthenticationFailed, ConnectionLost, UsageError
from bullmq_protocol.net.address import ConnectionOptions, checked_login, parse_url, refusal_of_login


@pytest.mark.parametrize(
    ("url", "fields"),
    [
        ("redis://", {}),
        ("redis://example", {"host": "example"}),
        ("redis://example:7000/", {"host": "example", "port": 7000}),
        ("redis://:s%2Fcret@example/3", {"host": "example", "password": "s/cret", "db": 3}),
        ("redis://me:s%40cret@[::1]:7000", {"host": "::1", "port": 7000, "username": "me", "password": "s@cret"}),
        ("redis://me@example", {"host": "example", "username": "me"}),
        ("redis://example?db=2&client_name=a%20b", {"host": "example", "db": 2, "client_name": "a b"}),
        ("rediss://example", {"host": "example", "tls": True}),
        ("unix:///run/redis.sock?db=4", {"unix_path": "/run/redis.sock", "db": 4}),
        ("unix://:secret@/run/redis.sock", {"unix_path": "/run/redis.sock", "password": "secret"}),
        (
            "redis://h?connect_timeout_ms=10&command_timeout_ms=20",
            {"host": "h", "connect_timeout_ms": 10, "command_timeout_ms": 20},
        ),
    ],
)
def test_url(url: str, fields: dict[str, Any]) -> None:
    assert parse_url(url) == ConnectionOptions(**fields)


@pytest.mark.parametrize(
    ("url", "field", "rule"),
    [
        (7, "url", "must be a string"),
        ("localhost:6379", "url", "must begin with"),
        ("http://example", "url", "must begin with"),
        ("redis:/example", "url", "must begin with"),
        ("redis://example:port", "url", "bad host or port"),
        ("redis://example:70000", "url", "bad host or port"),
        ("redis://[::1", "url", "bad host or port"),
        ("redis://example:0", "port", "from 1 to 65535"),
        ("redis://:pa/ss@example", "url", "%2F"),
        ("redis://:pa#ss@example", "url", "bad host or port"),
        ("redis://example#x", "url", "%23"),
        ("redis://example/one", "db", "whole number"),
        ("redis://example/-1", "db", "whole number"),
        ("redis://example/1/2", "db", "whole number"),
        ("redis://example?db=x", "db", "whole number"),
        ("redis://example/1?db=2", "url query", "twice"),
        ("redis://example?ssl_cert_reqs=none", "url query", "must be one of"),
        ("redis://example?connect_timeout_ms=0", "connect_timeout_ms", "above 0"),
        ("redis://example?command_timeout_ms=1.5", "command_timeout_ms", "whole number"),
        ("unix://", "url", "unix:///absolute"),
        ("unix:///", "url", "unix:///absolute"),
        ("unix://host/run/redis.sock", "url", "unix:///absolute"),
        ("unix://:7/run/redis.sock", "url", "unix:///absolute"),
        ("redis://user:hidden@", "url", "no host"),
        ("redis://:hidden@", "url", "no host"),
        ("rediss://user:hidden@:6379", "url", "no host"),
    ],
)
def test_bad_url(url: Any, field: str, rule: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_url(url)
    assert caught.value.field == field
    assert rule in caught.value.rule
    assert caught.value.value is not None


@pytest.mark.parametrize(
    ("url", "value"),
    [
        (7, int),
        ("redis://h/one", "one"),
        ("redis://h?db=x", "x"),
        ("redis://h?db=", ""),
        ("redis://h?db=²", "²"),
        ("redis://h?db=٣", "٣"),
        ("redis://h/1?db=2", "db"),
        ("redis://h?colour=red", "colour"),
        ("redis://u:p@h?a@b=1", "a@b"),
    ],
)
def test_what_a_refused_url_shows(url: Any, value: object) -> None:
    with pytest.raises(UsageError) as caught:
        parse_url(url)
    assert caught.value.value == value


def test_a_hint_to_encode_passwords_where_there_may_be_one() -> None:
    for url, hinted in (("redis://h:port", False), ("redis://:pa#ss@h", True)):
        with pytest.raises(UsageError) as caught:
            parse_url(url)
        assert ("%2F" in caught.value.rule) is hinted


def test_parts_of_a_url_are_decoded() -> None:
    options = parse_url("unix://%75s%65r:p%20w@/run/a%20b.sock")
    assert (options.username, options.password, options.unix_path) == ("user", "p w", "/run/a b.sock")
    assert parse_url("redis://a%2Db").host == "a-b"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"host": ""}, "host"),
        ({"host": None}, "host"),
        ({"port": 0}, "port"),
        ({"port": 65536}, "port"),
        ({"port": "6379"}, "port"),
        ({"port": True}, "port"),
        ({"db": -1}, "db"),
        ({"db": 1.0}, "db"),
        ({"unix_path": ""}, "unix_path"),
        ({"unix_path": 7}, "unix_path"),
        ({"unix_path": "/run/redis.sock", "tls": True}, "tls"),
        ({"username": 7}, "username"),
        ({"password": b"secret"}, "password"),
        ({"client_name": 7}, "client_name"),
        ({"credentials": lambda: (None, "secret"), "password": "secret"}, "credentials"),
        ({"credentials": lambda: (None, "secret"), "username": "me"}, "credentials"),
        ({"connect_timeout_ms": 0}, "connect_timeout_ms"),
        ({"connect_timeout_ms": None}, "connect_timeout_ms"),
        ({"command_timeout_ms": -1}, "command_timeout_ms"),
        ({"command_timeout_ms": 1.5}, "command_timeout_ms"),
    ],
)
def test_bad_option(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(UsageError) as caught:
        ConnectionOptions(**fields)
    assert caught.value.field == field
    hidden = field in ("password", "credentials")
    assert caught.value.value == ("***" if hidden else fields[field])
    if fields.get("host", 1) is None:
        assert caught.value.rule == "must be a string"


def test_limits_of_options_are_taken() -> None:
    for port in (1, 65_535):
        assert ConnectionOptions(port=port).port == port
    assert ConnectionOptions(connect_timeout_ms=1, command_timeout_ms=1).command_timeout_ms == 1
    assert ConnectionOptions(command_timeout_ms=None).command_timeout_ms is None


@pytest.mark.parametrize("url", ["redis://me:hidden@host:port", "http://me:hidden@host", "redis://me:hidden@host/x"])
def test_no_password_in_errors(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_url(url)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("path", ["redis://me:hidden@host", "unix://me:hidden@/run/redis.sock"])
def test_a_url_is_no_path_and_not_shown(path: str) -> None:
    with pytest.raises(UsageError, match=r"^unix_path: must be a path; a URL goes through parse_url") as caught:
        ConnectionOptions(unix_path=path)
    assert "hidden" not in repr((caught.value, caught.value.value))


def test_what_looks_like_a_login_in_a_path_is_not_shown() -> None:
    options = ConnectionOptions(unix_path="/run/me:hidden@host")
    assert options.unix_path == "/run/me:hidden@host"
    assert repr(options) == "ConnectionOptions('unix:///run/[a URL with a login]?db=0')"


def test_no_password_in_repr() -> None:
    options = parse_url("rediss://me:hidden@host/1")
    assert repr(options) == "ConnectionOptions('rediss://host:6379/1')"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://[::1]:7000/2", "redis://[::1]:7000/2"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock?db=0"),
        ("rediss://h", "rediss://h:6379/0"),
    ],
)
def test_address(url: str, address: str) -> None:
    assert parse_url(url).address == address


def test_login() -> None:
    assert ConnectionOptions().login() == (None, None)
    assert ConnectionOptions(username="me", password="secret").login() == ("me", "secret")
    assert ConnectionOptions(credentials=lambda: (None, "fresh")).login() == (None, "fresh")


def test_login_to_be_awaited() -> None:
    class Login:
        def __await__(self) -> Iterator[Any]:
            yield from ()

    login = Login()
    options = ConnectionOptions(credentials=lambda: login)  # type: ignore[arg-type, return-value]
    assert options.login() is login


@pytest.mark.parametrize("answer", [None, "secret", ("secret",), ("secret", b"secret"), (1, "secret"), ["a", "secret"]])
def test_credentials_of_another_shape(answer: Any) -> None:
    options = ConnectionOptions(credentials=lambda: answer)
    if isinstance(answer, list):
        assert options.login() == ("a", "secret")
        return
    with pytest.raises(AuthenticationFailed, match="must return a user name") as caught:
        options.login()
    assert "secret" not in str(caught.value)


def test_credentials_that_raise() -> None:
    def credentials() -> tuple[str, str]:
        raise OSError("secret")

    with pytest.raises(ConnectionLost, match="credentials raised OSError") as caught:
        ConnectionOptions(credentials=credentials).login()
    assert "secret" not in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)
    assert not caught.value.maybe_applied


def test_replaced_options_are_checked() -> None:
    with pytest.raises(UsageError):
        msgspec.structs.replace(ConnectionOptions(), port=0)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis//:hidden@h", "***@h"),
        ("user:hidden@h:1", "***@h:1"),
        ("redis://:hidden", "redis://***"),
        ("redis://user:hidden:6379", "redis://***"),
        ("redis://[::1", "redis://[::1"),
        ("redis://h:port?password=hidden", "redis://h:port"),
        ("redis://:x/hidden@h", "redis://***@h"),
        ("redis://u:1/hidden@h", "redis://***@h"),
        ("redis://u:1?hidden=@h", "***"),
        ("redis://h?password=hidden", "password"),
    ],
)
def test_urls_are_shown_without_passwords(url: str, shown: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_url(url)
    assert caught.value.value == shown


def test_host_is_no_url() -> None:
    for host in ("redis://:hidden@h", "me:hidden@h"):
        with pytest.raises(UsageError, match="host: must be a name") as caught:
            ConnectionOptions(host=host)
        assert "hidden" not in str(caught.value)


def test_login_needs_a_form_on_the_wire() -> None:
    with pytest.raises(UsageError, match="surrogate") as caught:
        ConnectionOptions(password="hidden\ud800")
    assert "hidden" not in str(caught.value)
    with pytest.raises(AuthenticationFailed, match="surrogate") as refused:
        checked_login((None, "hidden\udcff"))
    assert "hidden" not in str(refused.value)
    for last in ("\udfff", "\ud800"):
        with pytest.raises(AuthenticationFailed, match="surrogate"):
            checked_login((last, None))
    for fine in ("é", "\ud7ff", "\ue000"):
        assert checked_login((fine, None)) == (fine, None)


@pytest.mark.parametrize(
    ("answer", "password", "reported"),
    [
        ("ERR unknown command 'AUTH', with args beginning with: 'hidden' ", None, "ERR unknown command 'AUTH'"),
        ("ERR AUTH hidden is refused", "hidden", "ERR AUTH *** is refused"),
        ("WRONGPASS invalid", "", "WRONGPASS invalid"),
    ],
)
def test_refusal_of_a_login_holds_no_password(answer: str, password: str | None, reported: str) -> None:
    assert refusal_of_login(answer, password) == reported


def test_a_figure_in_the_query_that_is_none() -> None:
    with pytest.raises(UsageError, match=r"^database: must be|must be a whole number \(got 'x'\)$"):
        parse_url("redis://h?connect_timeout_ms=x")
