"""What `data_type` and `result_type` take, and how such values are written as JSON and read from it.

Pydantic's models and adapters are known by their methods: nothing is imported for them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from types import FunctionType, ModuleType, UnionType
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct

from bullmq_protocol.common.codec import check_text, check_type, is_model, json_text, parse_json
from bullmq_protocol.errors import PayloadError, PayloadMismatch, UsageError

T = TypeVar("T")
P = TypeVar("P")
Read = TypeVar("Read", covariant=True)

_MOST_MISFITS: Final = 3
_ADAPTER_METHODS: Final = ("validate_json", "dump_python")
_CODEC_METHODS: Final = ("dumps", "loads")


class Validator(Protocol[P]):
    """The shape of pydantic's `TypeAdapter`."""

    def validate_json(self, data: str | bytes, /) -> P: ...
    def dump_python(self, instance: P, /) -> Any: ...


class Codec(Protocol[P]):
    """An object that writes values as JSON text and reads them again.

    `dumps` returns text, or bytes of UTF-8; `loads` gets text that is JSON. What either raises means that a value does
    not fit.
    """

    def dumps(self, value: P, /) -> str | bytes: ...
    def loads(self, text: str, /) -> P: ...


DataType: TypeAlias = type[T] | Validator[T] | Codec[T] | UnionType
"""What `data_type` and `result_type` take: a type that msgspec decodes (structs, dataclasses, attrs classes, builtins,
TypedDicts, unions), a pydantic model, a `TypeAdapter`, or any object with `dumps` and `loads`."""


class PayloadType(Struct, frozen=True):
    """How values of one type are written and read: what `payload_type` makes of a `data_type`.

    `write`, given the field's name and a value, returns JSON text or raises `UsageError`. `read` raises `PayloadError`
    for what is no JSON, and `PayloadMismatch` for what does not fit.
    """

    kind: Any
    write: Callable[[str, object], str]
    read: Callable[[str | bytes], Any]

    def checked(self, field: str, value: object) -> str:
        """Return the JSON text of a value, if that can be read again. Raises `UsageError`."""
        return self.check_text(field, value, self.write(field, value))

    def check_text(self, field: str, value: object, text: str) -> str:
        """Return the JSON text of a value that can be read. Raises `UsageError`."""
        try:
            self.read(text)
        except PayloadError as error:
            name = "result type" if field == "returnvalue" else "data type"
            raise UsageError(field, value, f"does not fit the {name}: {error}") from None
        return text


def payload_type(field: str, kind: Any) -> PayloadType | None:
    """Return how values of a type are written and read; None for None and `Any`, which are JSON values.

    Raises `UsageError`, naming the field, for what is no type.
    """
    if kind is None or kind is Any:
        return None
    if isinstance(kind, PayloadType):
        return kind
    found = _of_others(field, kind)
    if found is not None:
        return found
    _refuse_objects(field, kind)
    check_type(field, kind)
    return PayloadType(kind, _write_typed, partial(_read_typed, msgspec.json.Decoder(kind).decode, kind))


def read_as(text: str | bytes, kind: Any) -> Any:
    """Read JSON into whatever `payload_type` takes, or what that returned.

    Raises `PayloadError`, or `PayloadMismatch` for JSON that does not fit.
    """
    if kind is None or kind is Any:
        return parse_json(text)
    found = kind if isinstance(kind, PayloadType) else _of_others("type", kind)
    return parse_json(text, kind) if found is None else found.read(text)


# --- types of msgspec -----------------------------------------------------------------------------------------------


def _write_typed(field: str, value: object) -> str:
    return json_text(value, field=field, typed=True)


def _read_typed(decode: Callable[[str | bytes], Any], kind: Any, text: str | bytes) -> Any:
    try:
        return decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        # It reads more, and knows what is wrong.
        return parse_json(text, kind)
    except Exception as error:
        # A `__post_init__` may raise anything.
        raise PayloadMismatch(_misfit(error)) from error


# --- types of others ------------------------------------------------------------------------------------------------


def _of_others(field: str, kind: Any) -> PayloadType | None:
    """Return how models, adapters and codecs write and read; None for everything else."""
    if is_model(kind):
        _complete(field, kind, "__pydantic_complete__", "model_rebuild")
        return PayloadType(kind, _write_typed, partial(_read_model, kind.model_validate_json))
    if _has(kind, _ADAPTER_METHODS):
        if not all(_takes_one(getattr(kind, name)) for name in _ADAPTER_METHODS):
            raise UsageError(field, kind, "must be a type: give TypeAdapter(X), not TypeAdapter")
        _complete(field, kind, "pydantic_complete", "rebuild")
        return PayloadType(kind, partial(_write_adapted, kind.dump_python), partial(_read_model, kind.validate_json))
    if _has(kind, _CODEC_METHODS):
        for name in _CODEC_METHODS:
            method = getattr(kind, name)
            if inspect.iscoroutinefunction(method):
                raise UsageError(field, kind, f"must not have an async {name}")
            if not _takes_one(method):
                what = "give an instance of the class" if isinstance(kind, type) else "it takes more, or nothing"
                raise UsageError(field, kind, f"must have a {name} that takes one argument: {what}")
        return PayloadType(kind, partial(_write_dumped, kind.dumps), partial(_read_loaded, kind.loads))
    return None


def _read_model(validate: Callable[[str | bytes], Any], text: str | bytes) -> Any:
    try:
        return validate(text)
    except Exception as error:
        parse_json(text)
        raise PayloadMismatch(_misfit(error)) from error


def _write_adapted(dump: Callable[..., object], field: str, value: object) -> str:
    try:
        plain = dump(value, mode="json", by_alias=True, warnings=False)
    except Exception as error:
        raise UsageError(field, value, f"has no JSON form: {_misfit(error)}") from error
    return json_text(plain, field=field)


def _write_dumped(dumps: Callable[[object], object], field: str, value: object) -> str:
    try:
        text = dumps(value)
    except Exception as error:
        raise UsageError(field, value, f"is refused by dumps: {_misfit(error)}") from error
    if isinstance(text, (bytes, bytearray)):
        try:
            text = text.decode()
        except UnicodeDecodeError:
            raise UsageError(field, value, "dumps must return JSON in UTF-8") from None
    if not isinstance(text, str):
        raise UsageError(field, value, f"dumps must return JSON as text or bytes, not a {type(text).__name__}")
    return check_text(field, text)


def _read_loaded(loads: Callable[[str], object], text: str | bytes) -> object:
    # Loaders of other formats (pickle's runs code) never see what is no JSON.
    parse_json(text)
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogatepass")
    try:
        return loads(text)
    except Exception as error:
        raise PayloadMismatch(_misfit(error)) from error


def _misfit(error: Exception) -> str:
    """Return what an error says, with the paths of the fields where it knows them, as pydantic's does."""
    try:
        found = cast("Any", error).errors(include_url=False, include_context=False, include_input=False)
        texts = [f"{each['msg']} - at `${_path(each['loc'])}`" for each in found]
    except Exception:
        text = str(error)
        return f"{type(error).__name__}: {text}" if text else type(error).__name__
    more = len(texts) - _MOST_MISFITS
    return "; ".join(texts[:_MOST_MISFITS]) + (f"; and {more} more" if more > 0 else "")


def _path(places: Iterable[object]) -> str:
    return "".join(f"[{place}]" if isinstance(place, int) else f".{place}" for place in places)


# --- what is no type ------------------------------------------------------------------------------------------------


def _has(kind: Any, names: Iterable[str]) -> bool:
    try:
        return all(callable(getattr(kind, name, None)) for name in names)
    except Exception:
        return False


def _takes_one(method: Any) -> bool:
    try:
        inspect.signature(method).bind(None)
    except TypeError:
        return False
    except Exception:
        # What is written in C need not tell.
        return True
    return True


def _complete(field: str, kind: Any, flag: str, rebuild: str) -> None:
    """Refuse a type of pydantic's that refers to one that is not there."""
    if getattr(kind, flag, True):
        return
    try:
        getattr(kind, rebuild)()
    except Exception as error:
        reason = _misfit(error).partition("\n")[0]
        raise UsageError(field, kind, f"must be fully defined: {reason}") from None


def _refuse_objects(field: str, kind: Any) -> None:
    """Name what is often given in place of a type."""
    if isinstance(kind, ModuleType):
        raise UsageError(field, kind, "must be a type, and is a module: give a class of it")
    if isinstance(kind, FunctionType) or inspect.isbuiltin(kind) or inspect.ismethod(kind):
        raise UsageError(field, kind, "must be a type, and is a function: give an object with dumps and loads")
    for one, other in (_CODEC_METHODS, _CODEC_METHODS[::-1]):
        if _has(kind, (one,)):
            raise UsageError(field, kind, f"must be a type, or have dumps and loads: it has {one}, but no {other}")
    if isinstance(kind, type):
        if _has(kind, ("parse_raw",)) and hasattr(kind, "__fields__"):
            raise UsageError(field, kind, "must be a model of pydantic 2, and is one of pydantic 1")
        if hasattr(kind, "__pydantic_validator__"):
            raise UsageError(field, kind, f"is a dataclass of pydantic's: give TypeAdapter({kind.__qualname__})")
    elif _is_record(kind) and {"data_type", "result_type"} <= getattr(kind, "__dataclass_fields__", {}).keys():
        raise UsageError(field, kind, "must be a type, and is a JobType: queue.add and a Router take it as it is")
    elif isinstance(kind, Struct) or _is_record(kind):
        name = type(cast("object", kind)).__qualname__
        raise UsageError(field, kind, f"must be a type, and is an instance: give the class {name}")


def _is_record(value: object) -> bool:
    kind = type(value)
    return is_model(kind) or hasattr(kind, "__dataclass_fields__") or hasattr(kind, "__attrs_attrs__")
