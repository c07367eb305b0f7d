"""What `data_type` and `result_type` take, how values of each are written and read, and what is refused."""

import dataclasses
import datetime as dt
import decimal
import enum
import json
import marshal
import pickle
import typing
import uuid
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import attrs
import msgspec
import pydantic
import pydantic.v1
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullmq_protocol.common.codec import json_text
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.payloads import PayloadType, payload_type, read_as
from bullmq_protocol.errors import PayloadError, PayloadMismatch, UsageError
from bullmq_protocol.model.job import JobRecord, NewJob, prepare
from bullmq_protocol.model.job_type import JobType
from bullmq_protocol.model.options import Limits, result_text
from bullmq_protocol.testing.strategies import json_values
from tests.support.points import Point, PointCodec

T = TypeVar("T")


class Suit(enum.Enum):
    CLUBS = "clubs"


class Mail(pydantic.BaseModel):
    to: str
    sizes: list[int] = []
    at: dt.datetime | None = None
    price: decimal.Decimal | None = None
    sender: str = pydantic.Field(default="", alias="from")


class Root(pydantic.RootModel[list[int]]):
    pass


class Generic_(pydantic.BaseModel, Generic[T]):  # noqa: N801
    value: T


class Note(msgspec.Struct):
    text: str
    raw: bytes = b""
    tags: set[str] = set()


@dataclasses.dataclass
class Visit:
    place: str
    id: uuid.UUID


@attrs.define
class Call:
    number: str
    length: int = attrs.field(default=5, validator=attrs.validators.gt(3))


class Raising(msgspec.Struct):
    x: int

    def __post_init__(self) -> None:
        if self.x == 0:
            raise LookupError("no such x")


MAILS = pydantic.TypeAdapter(list[Mail])
NOW = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC)


def made(kind: Any) -> PayloadType:
    found = payload_type("data_type", kind)
    assert found is not None
    assert found.kind is kind
    assert payload_type("data_type", found) is found
    return found


# --- what is taken ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (
            Mail,
            Mail(to="me", sizes=[1], at=NOW, price=decimal.Decimal("1.10"), **{"from": "you"}),
            '{"to":"me","sizes":[1],"at":"2026-01-02T03:04:05.678901Z","price":"1.10","from":"you"}',
        ),
        (Root, Root([1, 2]), "[1,2]"),
        (Generic_[int], Generic_[int](value=3), '{"value":3}'),
        (MAILS, [Mail(to="me")], '[{"to":"me","sizes":[],"at":null,"price":null,"from":""}]'),
        (pydantic.TypeAdapter(dt.date | None), dt.date(2026, 1, 2), '"2026-01-02"'),
        (Call, Call("1", 4), '{"length":4,"number":"1"}'),
        (Visit, Visit("here", uuid.UUID(int=1)), '{"place":"here","id":"00000000-0000-0000-0000-000000000001"}'),
        (Note, Note("x", b"\xff", {"a"}), '{"text":"x","raw":"/w==","tags":["a"]}'),
        (bytes, b"\xff\x00", '"/wA="'),
        (dict[str, list[bytes]], {"a": [b"x"]}, '{"a":["eA=="]}'),
        (frozenset[int], frozenset((3,)), "[3]"),
        (dict[uuid.UUID, int], {uuid.UUID(int=1): 2}, '{"00000000-0000-0000-0000-000000000001":2}'),
        (dict[int, list[dict[Suit, int]]], {5: [{Suit.CLUBS: 1}]}, '{"5":[{"clubs":1}]}'),
        (Suit, Suit.CLUBS, '"clubs"'),
        (dict[str, dt.datetime], {"at": NOW}, '{"at":"2026-01-02T03:04:05.678901Z"}'),
        (dt.timedelta, dt.timedelta(days=1, seconds=2), '"P1DT2S"'),
        (Point, Point(3), "[3]"),
        (PointCodec(), Point(3), "[3]"),
        (json, {"a": 1.5}, '{"a": 1.5}'),
    ],
)
def test_a_value_is_written_and_read_again(kind: Any, value: Any, text: str) -> None:
    payload = made(kind)
    assert payload.checked("data", value) == text
    assert payload.read(text) == value
    assert payload.read(text.encode()) == value
    # The same wherever a type is given.
    assert read_as(text, kind) == value
    assert read_as(text, payload) == value
    job = prepare(QueueKeys.of("q"), NewJob("a", value), now_ms=1, data_type=kind)
    assert job.data_text == text
    assert JobRecord("1", {"data": text.encode(), "returnvalue": text.encode()}).data_as(kind) == value
    assert JobRecord("1", {"returnvalue": text.encode()}).returnvalue_as(payload) == value
    assert result_text(value, result_type=payload) == text


def test_no_type_is_any_json_value() -> None:
    assert payload_type("data_type", None) is None
    assert payload_type("data_type", Any) is None
    assert read_as(b'{"a":1}', None) == read_as(b'{"a":1}', Any) == {"a": 1}


@given(json_values())
def test_plain_data_are_written_alike_with_and_without_a_type(value: Any) -> None:
    payload = PLAIN
    assert payload.write("data", value) == json_text(value)


PLAIN = made(dict[str, Any] | list[Any] | str | int | float | bool | None)


@given(st.builds(Mail, to=st.text(st.characters(codec="utf-8")), sizes=st.lists(st.integers(-(2**53) + 1, 2**53 - 1))))
def test_models_come_back_equal(mail: Mail) -> None:
    payload = made(Mail)
    assert payload.read(payload.checked("data", mail).encode()) == mail
    assert payload.checked("data", mail) == json_text(mail) == json_text(mail.model_dump(mode="json", by_alias=True))


@given(
    st.builds(Note, st.text(st.characters(codec="utf-8")), st.binary(), st.sets(st.sampled_from("abc"))),
    st.builds(Call, st.text(st.characters(codec="utf-8")), st.integers(4, 2**53 - 1)),
    st.builds(Point, st.integers()),
)
def test_values_come_back_equal(note: Note, call: Call, point: Point) -> None:
    for value in (note, call, point):
        payload = made(type(value))
        assert payload.read(payload.checked("data", value)) == value


def test_a_model_writes_itself_where_no_type_is_given() -> None:
    mail = Mail(to="me", **{"from": "you"})
    text = '{"to":"me","sizes":[],"at":null,"price":null,"from":"you"}'
    assert json_text(mail) == text
    assert json_text([mail]) == f"[{text}]"
    assert json_text({"mail": mail}) == f'{{"mail":{text}}}'
    assert json_text(GenericHolder(mail)) == f'{{"value":{text}}}'
    assert result_text(mail) == text


class GenericHolder(msgspec.Struct):
    value: Any


def test_without_a_type_bytes_and_sets_are_refused_still() -> None:
    for value in (b"x", {"a": b"x"}, {1}, [frozenset("a")]):
        with pytest.raises(UsageError, match="JSON has no"):
            json_text(value)


# --- what does not fit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (Mail, 3, "does not fit the data type: Input should be an object - at `$`"),
        (Mail, {"to": 1}, "Input should be a valid string - at `$.to`"),
        (Mail, Mail.model_construct(to="x", sizes=[1, "a"]), "- at `$.sizes[1]`"),
        (
            MAILS,
            [{"to": 1, "sizes": ["a", "b", "c"]}, 3],
            "does not fit the data type: Input should be a valid string - at `$[0].to`; Input should be ",
        ),
        (
            MAILS,
            [{"to": 1, "sizes": ["a", "b", "c"]}, 3],
            "unable to parse string as an integer - at `$[0].sizes[1]`; and 2 more",
        ),
        (MAILS, [object()], "has no JSON form: PydanticSerializationError: Unable to serialize unknown type"),
        (Call, {"number": 1}, "Expected `str`, got `int` - at `$.number`"),
        (Call, {"number": "1", "length": 1}, "'length' must be > 3: 1"),
        (Visit, {"place": "x", "id": "y"}, "Invalid UUID - at `$.id`"),
        (Raising, {"x": 0}, "does not fit the data type: LookupError: no such x"),
        (bytes, "?", "Invalid base64 encoded string"),
        (dict[Any, int], {object(): 1}, "keys of objects must be strings"),
        (dict[Any, int], {(1,): 1}, "keys of objects must be strings"),
        (PointCodec(), 3, "is refused by dumps: AttributeError: 'int' object has no attribute 'dumps'"),
        (json, {1j: 2}, "is refused by dumps: TypeError: keys must be str"),
        (json, float("nan"), "does not fit the data type: invalid JSON: NaN is not JSON"),
        (pickle, 3, "dumps must return JSON in UTF-8"),
        (marshal, 3, "dumps must return JSON in UTF-8"),
        (Mail, Mail.model_construct(to="x", sizes=[2**53]), "JavaScript and the server hold integers exactly only"),
    ],
)
def test_what_does_not_fit_is_refused_before_it_is_sent(kind: Any, value: Any, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        prepare(QueueKeys.of("q"), NewJob("a", value), now_ms=1, data_type=kind)
    assert caught.value.field == "data"
    assert words in str(caught.value)


@pytest.mark.parametrize(("text", "words"), [(7, "not a int"), (None, "not a NoneType"), ("\ud800", "UTF-8")])
def test_dumps_has_to_return_text(text: Any, words: str) -> None:
    class Dumping:
        def dumps(self, value: object) -> Any:
            return text

        def loads(self, text: str) -> Any:
            raise AssertionError(text)

    with pytest.raises(UsageError, match=words):
        made(Dumping()).write("data", 1)


def test_data_of_a_type_are_not_left_out() -> None:
    with pytest.raises(UsageError, match=r"Field required - at `\$\.to`"):
        prepare(QueueKeys.of("q"), NewJob("a"), now_ms=1, data_type=Mail)
    assert prepare(QueueKeys.of("q"), NewJob("a"), now_ms=1, data_type=dict[str, int]).data_text == "{}"


def test_a_result_that_does_not_fit_names_the_result_type() -> None:
    with pytest.raises(UsageError, match="returnvalue: does not fit the result type: Expected `int`, got `str`"):
        result_text("x", result_type=made(int))
    with pytest.raises(UsageError, match="Expected `int`, got `null`"):
        result_text(None, result_type=made(int))
    with pytest.raises(UsageError, match="returnvalue: exceeds the limit 2 bytes"):
        result_text(100, Limits(max_result_bytes=2), made(int))


@pytest.mark.parametrize("kind", [Mail, MAILS, Note, PointCodec()])
@pytest.mark.parametrize("text", ["{", b"{", b'{"\xff"', "nothing"])
def test_what_is_no_json_is_no_mismatch(kind: Any, text: str | bytes) -> None:
    with pytest.raises(PayloadError) as caught:
        made(kind).read(text)
    assert type(caught.value) is PayloadError


@pytest.mark.parametrize(
    ("kind", "text"), [(Mail, '{"to":1}'), (MAILS, '[{"to":"\\ud800"}]'), (PointCodec(), "{}"), (Note, "[]")]
)
def test_json_of_another_type_is_a_mismatch(kind: Any, text: str) -> None:
    with pytest.raises(PayloadMismatch):
        made(kind).read(text)


def test_what_is_no_json_never_reaches_loads() -> None:
    class Running:
        def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
            return pytest.fail, ("it was loaded",)

    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(PayloadError, match="JSON"):
            made(pickle).read(pickle.dumps(Running(), protocol))


# --- what is no type --------------------------------------------------------------------------------------------------


class OnlyDumps:
    def dumps(self, value: object) -> str:
        return "1"


class OnlyLoads:
    def loads(self, text: str) -> object:
        return 1


class AsyncCodec(OnlyLoads):
    async def dumps(self, value: object) -> str:
        return "1"


class TwoArguments(OnlyLoads):
    def dumps(self, value: object, other: object) -> str:
        return "1"


class Hostile:
    @property
    def dumps(self) -> Any:
        raise RuntimeError


class HostileClass(type):
    @property
    def model_dump(cls) -> Any:
        raise RuntimeError


class OfHostile(metaclass=HostileClass):
    model_validate_json = len


class Incomplete(pydantic.BaseModel):
    x: "NotThere"  # type: ignore[name-defined]  # noqa: F821


class Old(pydantic.v1.BaseModel):
    x: int


@pydantic.dataclasses.dataclass
class Validated:
    x: int


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Mail(to="me"), "must be a type, and is an instance: give the class Mail"),
        (Note("x"), "must be a type, and is an instance: give the class Note"),
        (Visit("x", uuid.UUID(int=1)), "must be a type, and is an instance: give the class Visit"),
        (Call("1"), "must be a type, and is an instance: give the class Call"),
        (JobType("welcome", Mail), "must be a type, and is a JobType: queue.add and a Router take it as it is"),
        (typing, "must be a type, and is a module: give a class of it"),
        (json.dumps, "must be a type, and is a function: give an object with dumps and loads"),
        (print, "must be a type, and is a function"),
        (PointCodec().loads, "must be a type, and is a function"),
        (lambda text: text, "must be a type, and is a function"),
        (OnlyDumps(), "must be a type, or have dumps and loads: it has dumps, but no loads"),
        (OnlyDumps, "must be a type, or have dumps and loads: it has dumps, but no loads"),
        (OnlyLoads(), "must be a type, or have dumps and loads: it has loads, but no dumps"),
        (PointCodec, "must have a dumps that takes one argument: give an instance of the class"),
        (TwoArguments(), "must have a dumps that takes one argument: it takes more, or nothing"),
        (AsyncCodec(), "must not have an async dumps"),
        (pydantic.TypeAdapter, "must be a type: give TypeAdapter(X), not TypeAdapter"),
        (pydantic.TypeAdapter[int], "must be a type: give TypeAdapter(X), not TypeAdapter"),
        (pydantic.TypeAdapter("NotThere"), "must be fully defined: PydanticUndefinedAnnotation: name 'NotThere'"),
        (Incomplete, "must be fully defined: PydanticUndefinedAnnotation: name 'NotThere' is not defined"),
        (pydantic.BaseModel, "must be fully defined"),
        (Old, "must be a model of pydantic 2, and is one of pydantic 1"),
        (Validated, "is a dataclass of pydantic's: give TypeAdapter(Validated)"),
        (list[Mail], "must be a type that msgspec can decode, which Mail is not: take pydantic's TypeAdapter"),
        (Mail | None, "must be a type that msgspec can decode, which Mail is not: take pydantic's TypeAdapter"),
        (object(), "must be a type that msgspec can decode"),
        (Hostile(), "must be a type that msgspec can decode"),
        (OfHostile, "must be a type that msgspec can decode"),
        ("Mail", "must be a type that msgspec can decode"),
        (3, "must be a type that msgspec can decode"),
        ((int, str), "must be a type that msgspec can decode"),
        ({"to": str}, "must be a type that msgspec can decode"),
    ],
)
@pytest.mark.parametrize("field", ["data_type", "result_type"])
def test_what_is_no_type_is_refused(kind: Any, words: str, field: str) -> None:
    with pytest.raises(UsageError) as caught:
        payload_type(field, kind)
    assert caught.value.field == field
    assert caught.value.rule.startswith(words)


def test_a_type_that_can_be_completed_is_completed() -> None:
    class Tree(pydantic.BaseModel):
        below: "list[Leaf]"

    class Leaf(pydantic.BaseModel):
        x: int

    Tree.__pydantic_complete__ = False
    Tree.model_rebuild(_types_namespace={"Leaf": Leaf})
    assert made(Tree).read('{"below":[{"x":1}]}') == Tree(below=[Leaf(x=1)])


def test_methods_written_in_c_are_taken_at_their_word() -> None:
    class InC:
        dumps = staticmethod(max)
        loads = staticmethod(json.loads)

    assert made(InC()).read("[1]") == [1]
