"""Where a server is and how to log in: `ConnectionOptions`, and URLs read into them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import AuthenticationFailed, ConnectionLost, UsageError, without_login

Login: TypeAlias = tuple[str | None, str | None]
"""User name (None: the default user) and password; two times None means no AUTH."""

Credentials: TypeAlias = Callable[[], "Login | Awaitable[Login]"]
"""Called once per connection attempt; may be async in `bullmq_anyio`. An exception fails that attempt."""

_SCHEMES = (
    "must begin with redis://, rediss:// or unix://, or for a set of them with redis+sentinel:// or redis+cluster:// "
    "(rediss+ with TLS)"
)
_PORT_RULE = "must be a whole number from 1 to 65535"
_DB_RULE = "must be a whole number, at least 0"
_SURROGATE = "holds a lone surrogate, which has no form on the wire"
_QUERY_KEYS = ("db", "client_name", "connect_timeout_ms", "command_timeout_ms")


class ConnectionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One server, for either adapter. Values are checked when the object is created.

    Args:
        host: A name or an address; `127.0.0.1` by default.
        port: From 1 to 65535; 6379 by default.
        unix_path: The path of a unix socket, which replaces host and port. None by default.
        username: The user to log in as; None, the default: the server's default user.
        password: The password; None, the default: no login.
        credentials: A function that returns user and password, called before each attempt to connect; it may be async
            in `bullmq_anyio`. It replaces `username` and `password`; None by default.
        db: The number of the database; 0 by default.
        tls: False, the default; True, which trusts the system's authorities; or an `ssl.SSLContext`.
        connect_timeout_ms: The longest attempt to connect, in milliseconds; 5,000 by default.
        command_timeout_ms: The longest wait for a reply, in milliseconds; 3,000 by default. None: no limit.
        client_name: The connection's name in CLIENT LIST; None by default.

    Raises:
        UsageError: A value is wrong, or two contradict each other.

    Examples:
        >>> ConnectionOptions(host="redis.example.org", password="secret", tls=True)
        ConnectionOptions('rediss://redis.example.org:6379/0')
    """

    host: str = "127.0.0.1"
    port: int = 6379
    unix_path: str | None = None
    username: str | None = None
    password: str | None = None
    credentials: Credentials | None = None
    db: int = 0
    tls: Any = False
    connect_timeout_ms: Millis = 5000
    command_timeout_ms: Millis | None = 3000
    client_name: str | None = None

    def __post_init__(self) -> None:
        for field in ("host", "unix_path", "username", "password", "client_name"):
            value = getattr(self, field)
            if not isinstance(value, str) and (value is not None or field == "host"):
                raise UsageError(field, "***" if field == "password" else value, "must be a string")
        if not _has_form(self.username, self.password):
            raise UsageError("password", "***", _SURROGATE)
        if not self.host:
            raise UsageError("host", self.host, "must not be empty")
        if "@" in self.host or "/" in self.host:
            raise UsageError("host", "***", "must be a name or an address; a URL goes through parse_url")
        if not _is_whole(self.port) or not 1 <= self.port <= 65535:
            raise UsageError("port", self.port, _PORT_RULE)
        if not _is_whole(self.db) or self.db < 0:
            raise UsageError("db", self.db, _DB_RULE)
        if self.unix_path == "":
            raise UsageError("unix_path", self.unix_path, "must not be empty")
        if self.unix_path is not None and "://" in self.unix_path:
            raise UsageError("unix_path", "***", "must be a path; a URL goes through parse_url")
        if self.unix_path is not None and self.tls:
            raise UsageError("tls", self.tls, "is not possible over a unix socket")
        if self.credentials is not None and (self.username is not None or self.password is not None):
            raise UsageError("credentials", "***", "cannot be combined with username or password")
        if not _is_whole(self.connect_timeout_ms) or self.connect_timeout_ms <= 0:
            raise UsageError("connect_timeout_ms", self.connect_timeout_ms, "must be a whole number above 0")
        limit = self.command_timeout_ms
        if limit is not None and (not _is_whole(limit) or limit <= 0):
            raise UsageError("command_timeout_ms", limit, "must be a whole number above 0, or None")

    def login(self) -> Login | Awaitable[Login]:
        """Return user name and password for one connection attempt, or an awaitable of them.

        Pass the awaited value through `checked_login`. Raises `ConnectionLost` if `credentials` raises (its message may
        hold a secret, so it is only the cause), and `AuthenticationFailed` if it returns something else.
        """
        if self.credentials is None:
            return self.username, self.password
        try:
            answer: object = self.credentials()
        except Exception as error:
            raise login_failed(error) from error
        return answer if isinstance(answer, Awaitable) else checked_login(answer)

    @property
    def address(self) -> str:
        """The server's address as messages show it, without user and password."""
        if self.unix_path is not None:
            return f"unix://{without_login(self.unix_path)}?db={self.db}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'rediss' if self.tls else 'redis'}://{host}:{self.port}/{self.db}"

    def __repr__(self) -> str:
        return f"ConnectionOptions({self.address!r})"


def checked_login(answer: object) -> Login:
    """Return what `credentials` gave if it is a user name (or None) and a password (or None).

    Raises `AuthenticationFailed`, which does not show it.
    """
    match answer:
        case (str() | None as user, str() | None as password):
            if not _has_form(user, password):
                raise AuthenticationFailed(f"credentials: user or password {_SURROGATE}")
            return user, password
        case _:
            rule = "credentials must return a user name (or None) and a password (or None)"
            raise AuthenticationFailed(f"{rule}, not a {type(answer).__name__}")


def login_failed(error: Exception) -> ConnectionLost:
    """Return the failure of an attempt to connect for which `credentials` raised."""
    return ConnectionLost(f"credentials raised {type(error).__name__}", maybe_applied=False)


def parse_url(url: str) -> ConnectionOptions:
    """Read `redis://`, `rediss://` or `unix://` into options.

    `redis://[[user]:password@]host[:port][/db]`, `rediss://` the same with TLS, `unix://[[user]:password@]/path`.
    The query may hold `db`, `client_name`, `connect_timeout_ms` and `command_timeout_ms`; reserved characters in user
    and password are percent-encoded. Raises `UsageError` that names field, value and rule and shows no password.
    """
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError("url", type(url), "must be a string")
    shown = _redacted(url)
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in ("redis", "rediss", "unix"):
        raise UsageError("url", shown, _SCHEMES)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        hint = "; write / ? # @ : in a password as %2F %3F %23 %40 %3A" if "@" in url else ""
        raise UsageError("url", shown, f"has a bad host or port: a port {_PORT_RULE}{hint}") from None
    if parts.fragment:
        raise UsageError("url", shown, "must not hold a '#'; in a password it is written %23")
    fields: dict[str, Any] = {}
    if parts.username:
        fields["username"] = unquote(parts.username)
    if parts.password:
        fields["password"] = unquote(parts.password)
    if scheme == "unix":
        if parts.hostname or port is not None or len(parts.path) < 2:
            raise UsageError("url", shown, "must be unix:///absolute/path/of/the.sock")
        fields["unix_path"] = unquote(parts.path)
    else:
        if parts.hostname:
            fields["host"] = unquote(parts.hostname)
        elif "@" in parts.netloc:
            raise UsageError("url", shown, "has a login and no host: write redis://user:password@host")
        if port is not None:
            fields["port"] = port
        if scheme == "rediss":
            fields["tls"] = True
        if "@" in parts.path:
            raise UsageError("url", shown, "has a '/' or '@' in user or password, which are written %2F and %40")
        if parts.path not in ("", "/"):
            fields["db"] = _whole("db", parts.path[1:], _DB_RULE)
    # A '?' of the password may have hidden the '@'.
    hidden = "@" in parts.query and "@" not in parts.netloc
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if key not in _QUERY_KEYS:
            raise UsageError("url query", "***" if hidden else key, f"must be one of {', '.join(_QUERY_KEYS)}")
        if key in fields:
            raise UsageError("url query", key, "is given twice")
        fields[key] = value if key == "client_name" else _whole(key, value, "must be a whole number")
    return ConnectionOptions(**fields)


def refusal_of_login(answer: str, password: object) -> str:
    """Return a server's refusal of AUTH without the password: a server that does not know AUTH repeats its
    arguments."""
    shown = answer.partition(", with args")[0]
    return shown.replace(str(password), "***") if password else shown


def _has_form(*texts: str | None) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for text in texts for letter in text or "")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(field: str, text: str, rule: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise UsageError(field, text, rule)
    return int(text)


def _redacted(url: str) -> str:
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    _, at, place = rest.rpartition("@")
    # A colon without a host before it comes from a URL whose '@' was forgotten.
    place = "***" if place.startswith(":") or (place.count(":") > 1 and "[" not in place) else place.partition("?")[0]
    return f"{scheme}{separator}{'***@' if at else ''}{place}"
