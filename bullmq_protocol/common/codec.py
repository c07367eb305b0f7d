"""JSON and MessagePack as the JavaScript side writes and reads them.

A value is carried exactly, or refused with a `UsageError`; it is never silently changed.

Source: specs/01-data-model-and-adding.md#sec-3-6
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from operator import is_
from types import MappingProxyType
from typing import Any, Final, NoReturn, TypeVar, cast, overload

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from bullmq_protocol.errors import PayloadError, PayloadMismatch, UsageError
from bullmq_protocol.lazy import lazy_module, lazy_pattern

MAX_SAFE_INTEGER: Final = 2**53 - 1
"""The largest integer that JavaScript and the server's scripts (both use doubles) hold exactly."""

_RULE_INTEGER: Final = "JavaScript and the server hold integers exactly only within +-(2**53 - 1); send it as text"
_RULE_NUMBER: Final = "must be a finite number"
_RULE_KEY: Final = "keys of objects must be strings"
_RULE_DEPTH: Final = "must not be cyclic or nested too deeply"
_RULE_UTF8: Final = "must be text that UTF-8 can hold (no lone surrogates)"

_MODEL_METHODS: Final = ("model_validate_json", "model_dump")
_EASY: Final = frozenset((str, bool, type(None)))
_INDEX_KEY: Final = lazy_pattern(r"0|[1-9][0-9]{0,9}")
_MAX_INDEX: Final = 2**32 - 2
_ESCAPED: Final = lazy_pattern('["\\\\\x00-\x1f\ud800-\udfff]')
_SHORT_ESCAPES: Final = MappingProxyType(
    {
        '"': '\\"',
        "\\": "\\\\",
        "\b": "\\b",
        "\t": "\\t",
        "\n": "\\n",
        "\f": "\\f",
        "\r": "\\r",
    }
)

T = TypeVar("T")
L = TypeVar("L", bound=str)

_encode_json = msgspec.json.Encoder().encode
_encode_msgpack = msgspec.msgpack.Encoder().encode
_decode_json = msgspec.json.Decoder().decode


def plain_text(text: str) -> str:
    """Return a text that is of a subclass, such as a member of a `StrEnum`, as the plain text that it holds."""
    # The subclass's own methods may return anything, and the encoder takes no subclass.
    return text if type(text) is str else str.__str__(text)


def plain(value: Any) -> Any:
    """Return a value in which all texts are plain, through structs, mappings and lists; itself where they are."""
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, Struct):
        found = {field: getattr(value, field) for field in value.__struct_fields__}
        made = {field: new for field, old in found.items() if (new := plain(old)) is not old}
        return replace(value, **made) if made else value
    if isinstance(value, Mapping):
        pairs: Mapping[Any, Any] = cast("Any", value)
        members = {plain(key): plain(item) for key, item in pairs.items()}
        return pairs if all(map(is_, (*members, *members.values()), (*pairs, *pairs.values()))) else members
    if type(value) is list or type(value) is tuple:
        given = cast("list[Any]", value)
        items = [plain(item) for item in given]
        return given if all(map(is_, items, given)) else items
    return value


def check_text(field: str, value: object) -> str:
    """Return a string that UTF-8 can hold, as plain text, or raise `UsageError`. It may be empty."""
    if not isinstance(value, str):
        raise UsageError(field, value, "must be a string")
    text = plain_text(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(field, text, _RULE_UTF8) from None
    return text


def check_choice(field: str, value: object, choices: Collection[L]) -> L:
    """Return the one of the choices that is given, or raise `UsageError`."""
    text = plain_text(value) if isinstance(value, str) else None
    for choice in choices:
        if choice == text:
            return choice
    known = " or ".join(choices) if len(choices) == 2 else f"one of {', '.join(choices)}"
    raise UsageError(field, value, f"must be {known}")


def clean_text(text: str) -> str:
    """Return text that UTF-8 can hold: anything else becomes U+FFFD, as in JavaScript. A subclass becomes plain
    `str`."""
    text = plain_text(text)
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


# --- numbers --------------------------------------------------------------------------------------------------------


def double(value: float) -> int | float:
    """Return a number as JavaScript holds it: beyond +-(2**53 - 1) the nearest double, infinite if it is too large."""
    if -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
        return value
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def doubles(value: Any) -> Any:
    """Return JSON values with every number as `double` gives it."""
    if isinstance(value, dict):
        return {name: doubles(member) for name, member in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [doubles(item) for item in cast("list[object]", value)]
    return double(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def number_text(value: float) -> str:
    """Return a number as JavaScript prints it: the text of a plain script argument.

    Infinities give `Infinity` and `-Infinity`, not-a-number `NaN`, negative zero `0`. Raises `UsageError` for booleans,
    other types, and integers beyond +-(2**53 - 1).

    Source: specs/03-transitions-admin-getters.md#sec-1-2
    """
    if type(value) is int:
        if not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
            raise UsageError("number", value, _RULE_INTEGER)
        return str(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError("number", value, "must be a number")
    if isinstance(value, int):
        return number_text(int(value))
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if math.isnan(value):
        return "NaN"
    return _float_text(value)


def _float_text(value: float) -> str:
    # Python and JavaScript print the same shortest digits; they differ in where the exponent begins and how it looks.
    text = float.__repr__(value)
    if "e" not in text:
        if text.endswith(".0"):
            return text[:-2] if value else "0"
        return text
    mantissa, _, exponent_text = text.partition("e")
    exponent = int(exponent_text)
    sign = "-" if mantissa[0] == "-" else ""
    digits = mantissa.lstrip("-").replace(".", "")
    if 0 < exponent < 21:
        return sign + digits.ljust(exponent + 1, "0")
    if -7 < exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    return f"{mantissa}e{exponent:+d}"


# --- JSON, writing --------------------------------------------------------------------------------------------------


def json_text(value: object, *, field: str = "data", typed: bool = False) -> str:
    """Return what JavaScript's `JSON.stringify` writes for this value.

    Beside JSON values it takes tuples (arrays), datetimes with a time zone (ISO 8601 in UTC, milliseconds; microseconds
    only where the value has them), and what msgspec turns into builtins: structs, dataclasses, attrs classes, enums,
    UUIDs, dates, decimals; and pydantic's models, which write themselves, by their aliases. `msgspec.UNSET` is
    JavaScript's undefined: left out of objects, `null` in arrays. Inside structs and dataclasses msgspec's own rules
    hold (bytes become base64 text, sets become arrays), and everywhere if the value is `typed`: one whose type says
    what they are when it is read again.

    Raises `UsageError` (with `field`) for NaN and infinities, integers beyond +-(2**53 - 1), keys that are not strings,
    naive datetimes, bytes, sets, cyclic values, and anything else.

    Source: specs/01-data-model-and-adding.md#sec-3-6
    """
    try:
        if _is_plain(value):
            return _encode_json(value).decode()
    except (UnicodeEncodeError, RecursionError):
        pass  # a lone surrogate is written as an escape below; a cycle is refused there
    parts: list[str] = []
    try:
        _write(field, value, parts, typed)
    except RecursionError:
        raise UsageError(field, type(value).__name__, _RULE_DEPTH) from None
    return "".join(parts)


def _is_plain(value: Any) -> bool:
    # Whether msgspec's encoder gives JavaScript's bytes. A key that starts with a digit may be reordered by JavaScript.
    # Any in place of casts, which are calls: this is the hot path.
    kind: object = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or "0" <= key < ":":
                return False
            sort: object = type(item)  # pyright: ignore[reportUnknownVariableType]
            if sort is int:
                if not -MAX_SAFE_INTEGER <= item <= MAX_SAFE_INTEGER:
                    return False
            elif sort not in _EASY and not _is_plain(item):
                return False
        return True
    if kind is list or kind is tuple:
        for item in value:  # noqa: SIM110 - twice as fast as all() for short lists
            if type(item) not in _EASY and not _is_plain(item):
                return False
        return True
    if kind is int:
        integer: int = value
        return -MAX_SAFE_INTEGER <= integer <= MAX_SAFE_INTEGER
    if kind is float:
        number: float = value
        return 1e-4 < abs(number) < 1e15 and number % 1 != 0
    return kind in _EASY


def _write(field: str, value: object, parts: list[str], typed: bool) -> None:
    if value is None or value is UNSET:
        parts.append("null")
    elif value is True:
        parts.append("true")
    elif value is False:
        parts.append("false")
    elif type(value) is str:
        parts.append(_string_text(value))
    elif type(value) is int:
        if not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
            raise UsageError(field, value, _RULE_INTEGER)
        parts.append(str(value))
    elif type(value) is float:
        if not math.isfinite(value):
            raise UsageError(field, value, f"{_RULE_NUMBER} (JSON has no NaN and no infinities)")
        parts.append(_float_text(value))
    elif isinstance(value, dict):
        _write_object(field, cast("dict[object, object]", value), parts, typed)
    elif isinstance(value, (list, tuple)):
        separator = "["
        for item in cast("list[object]", value):
            parts.append(separator)
            _write(field, item, parts, typed)
            separator = ","
        parts.append("[]" if separator == "[" else "]")
    elif isinstance(value, datetime):
        parts.append(f'"{_datetime_text(field, value)}"')
    else:
        _write(field, _to_builtins(field, value, typed), parts, typed)


def _write_object(field: str, value: dict[object, object], parts: list[str], typed: bool) -> None:
    first: list[tuple[int, str, object]] = []
    rest: list[tuple[str, object]] = []
    for key, item in value.items():
        if not isinstance(key, str):
            key = _key_text(field, key, typed)
        if item is UNSET:
            continue
        if _INDEX_KEY.fullmatch(key) and int(key) <= _MAX_INDEX:
            first.append((int(key), str.__str__(key), item))
        else:
            rest.append((str.__str__(key), item))
    first.sort(key=lambda entry: entry[0])
    separator = "{"
    for name, item in [*((name, item) for _, name, item in first), *rest]:
        parts.append(f"{separator}{_string_text(name)}:")
        _write(field, item, parts, typed)
        separator = ","
    parts.append("{}" if separator == "{" else "}")


def _key_text(field: str, key: object, typed: bool) -> str:
    """Return the text of a key that msgspec makes one of: a number, a UUID and so on."""
    try:
        if typed:
            (text,) = msgspec.to_builtins({key: None}, str_keys=True)
            return str(text)
    except TypeError:
        pass
    raise UsageError(field, key, _RULE_KEY)


def _string_text(value: str) -> str:
    if not value.isascii():
        # Two surrogates side by side are one character to JavaScript.
        value = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return f'"{_ESCAPED.sub(_escape, value)}"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return _SHORT_ESCAPES.get(character) or f"\\u{ord(character):04x}"


def _datetime_text(field: str, value: datetime) -> str:
    if value.tzinfo is None:
        raise UsageError(field, value, "a datetime needs a time zone")
    utc = value.astimezone(UTC).replace(tzinfo=None)
    return utc.isoformat(timespec="microseconds" if utc.microsecond % 1000 else "milliseconds") + "Z"


def _to_builtins(field: str, value: object, typed: bool) -> object:
    if not typed and isinstance(value, (bytes, bytearray, memoryview, set, frozenset)):
        kind = type(cast("object", value)).__name__
        raise UsageError(field, cast("object", value), f"JSON has no {kind}; send text or a list")
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    try:
        plain: object = msgspec.to_builtins(value, builtin_types=(datetime,), str_keys=True, enc_hook=_of_model)
    except RecursionError:
        raise
    except Exception as error:
        raise UsageError(field, value, f"has no JSON form: {error}") from error
    return plain


def is_model(kind: Any) -> bool:
    """Tell whether this is a model class of pydantic 2, by its methods."""
    try:
        return isinstance(kind, type) and all(callable(getattr(kind, name, None)) for name in _MODEL_METHODS)
    except Exception:
        return False


def _of_model(value: Any) -> object:
    """Return what a value that msgspec does not know writes of itself."""
    if is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True, warnings=False)
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


# --- JSON, reading --------------------------------------------------------------------------------------------------


@overload
def parse_json(text: str | bytes) -> Any: ...
@overload
def parse_json(text: str | bytes, type: type[T]) -> T: ...
@overload
def parse_json(text: str | bytes, type: Any) -> Any: ...
def parse_json(text: str | bytes, type: Any = Any) -> Any:
    """Read any valid JSON: blanks, escapes, lone surrogates, big integers (kept exactly); the last of equal keys wins.

    `type` is anything msgspec can decode. Raises `PayloadError`, or `PayloadMismatch` (a kind of it) when
    valid JSON does not fit the type: `msgspec.DecodeError` and `msgspec.ValidationError`, and so `ValueError`s.
    """
    try:
        if type is Any:
            return _decode_json(text)
        return msgspec.json.decode(text, type=type)
    except msgspec.ValidationError as error:
        if type is not Any:
            raise PayloadMismatch(str(error)) from None
    except (msgspec.DecodeError, UnicodeError):
        pass
    except RecursionError:
        raise PayloadError("JSON is nested too deeply") from None
    # msgspec refuses escapes of lone surrogates and numbers beyond the doubles; JavaScript reads both.
    value = _parse_leniently(text)
    if type is Any:
        return value
    try:
        return msgspec.convert(value, type, strict=True, str_keys=True)
    except msgspec.ValidationError as error:
        raise PayloadMismatch(str(error)) from None
    except (UnicodeEncodeError, RecursionError):
        raise PayloadMismatch("holds a lone surrogate, or nesting, that the type's decoder does not take") from None


# What JSON gives: a class that one of these is an instance of takes it as it is.
_FROM_JSON: Final[tuple[object, ...]] = ({}, [], "", 0, 0.5, True, None)


def check_type(field: str, kind: Any) -> None:
    """Raise `UsageError` for what msgspec cannot decode into, or only with a hook. None and `Any` are taken."""
    if kind is None or kind is Any:
        return
    try:
        msgspec.json.Decoder(kind)
        found = msgspec.inspect.type_info(kind)
    except Exception as error:
        raise UsageError(field, kind, f"must be a type that msgspec can decode: {error}") from None
    unsupported = _unsupported_class(found)
    if unsupported is not None:
        name = getattr(unsupported, "__qualname__", unsupported)
        instead = "pydantic's TypeAdapter" if is_model(unsupported) else "a struct, a dataclass or a TypedDict"
        raise UsageError(field, kind, f"must be a type that msgspec can decode, which {name} is not: take {instead}")


def _unsupported_class(found: msgspec.inspect.Type) -> object | None:
    """Return a class within a type that no JSON value can become, if there is one."""
    seen: set[int] = set()
    rest: list[object] = [found]
    while rest:
        each = rest.pop()
        if isinstance(each, msgspec.inspect.CustomType):
            if not _takes_json(each.cls):
                return each.cls
        elif isinstance(each, msgspec.inspect.ExtType):
            return msgspec.msgpack.Ext
        elif isinstance(each, tuple):
            rest += cast("tuple[object, ...]", each)
        elif isinstance(each, (msgspec.inspect.Type, msgspec.inspect.Field)) and id(each) not in seen:
            # Types refer to themselves; a field's default is no type.
            seen.add(id(each))
            rest += [getattr(each, name) for name in each.__struct_fields__ if name not in ("default", "values")]
    return None


def _takes_json(kind: type) -> bool:
    try:
        return any(isinstance(each, kind) for each in _FROM_JSON)
    except TypeError:  # a protocol that no instance can be asked for
        return False


def listed(field: str, items: Iterable[T]) -> list[T]:
    """Return a caller's iterable as a list; a generator is read once. Raises `UsageError` for anything else."""
    if not isinstance(cast("object", items), Iterable) or isinstance(items, (str, bytes, Mapping)):
        raise UsageError(field, cast("object", items), "must be a list")
    return list(items)


def _parse_leniently(text: str | bytes) -> Any:
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8", "surrogatepass")
        # Seldom needed: not imported before.
        return lazy_module("json").loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise PayloadError("JSON is nested too deeply") from None
    except ValueError as error:
        raise PayloadError(f"invalid JSON: {error}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# --- MessagePack ----------------------------------------------------------------------------------------------------


def pack(value: object, *, field: str = "options") -> bytes:
    """Return MessagePack that the server's decoder accepts: text as `str`, never `bin`; no extension types.

    Takes None, booleans, integers within +-(2**53 - 1), finite floats, strings, lists, tuples, and dicts with string
    keys. Raises `UsageError` (with `field`) for everything else.

    Source: specs/01-data-model-and-adding.md#sec-4-2
    """
    try:
        _check_packable(field, value)
        return _encode_msgpack(value)
    except UnicodeEncodeError:
        raise UsageError(field, value, _RULE_UTF8) from None
    except RecursionError:
        raise UsageError(field, type(value).__name__, _RULE_DEPTH) from None


def pack_text(text: str) -> bytes:
    """Do what `pack` does, for a text alone."""
    try:
        return _encode_msgpack(text)
    except UnicodeEncodeError:
        raise UsageError("options", text, _RULE_UTF8) from None


def pack_known(values: list[str | int]) -> bytes:
    """Do what `pack` does, for texts and small integers that this library made; bytes that were not UTF-8 go as they
    were.

    Raises `UsageError` for a lone surrogate that stands for no byte.
    """
    try:
        return _encode_msgpack(values)
    except UnicodeEncodeError:
        return b"\xdd" + len(values).to_bytes(4) + b"".join(map(_pack_raw, values))


def _pack_raw(value: str | int) -> bytes:
    if isinstance(value, int):
        return _encode_msgpack(value)
    try:
        raw = value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise UsageError("options", value, _RULE_UTF8) from None
    return b"\xdb" + len(raw).to_bytes(4) + raw


def _check_packable(field: str, value: object) -> None:
    kind = type(value)
    if kind is dict:
        for key, item in cast("dict[object, object]", value).items():
            if type(key) is not str:
                raise UsageError(field, key, _RULE_KEY)
            sort = type(item)
            if sort not in _EASY and not (sort is int and -MAX_SAFE_INTEGER <= cast("int", item) <= MAX_SAFE_INTEGER):
                _check_packable(f"{field}.{key}", item)
    elif kind is list or kind is tuple:
        for item in cast("list[object]", value):
            sort = type(item)
            if sort not in _EASY and not (sort is int and -MAX_SAFE_INTEGER <= cast("int", item) <= MAX_SAFE_INTEGER):
                _check_packable(field, item)
    elif kind is int:
        if not -MAX_SAFE_INTEGER <= cast("int", value) <= MAX_SAFE_INTEGER:
            raise UsageError(field, value, _RULE_INTEGER)
    elif kind is float:
        if not math.isfinite(cast("float", value)):
            raise UsageError(field, value, _RULE_NUMBER)
    elif kind not in _EASY:
        raise UsageError(field, value, "must be text, a number, a boolean, None, a list or a dict")
