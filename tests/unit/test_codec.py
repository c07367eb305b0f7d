"""JSON and MessagePack: what goes on the wire, byte for byte, and what is refused."""

import dataclasses
import enum
import json
import math
import random
import struct
import subprocess
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest
from msgspec import UNSET

from bullmq_protocol.common.codec import (
    MAX_SAFE_INTEGER,
    check_text,
    clean_text,
    double,
    json_text,
    listed,
    number_text,
    pack,
    parse_json,
)
from bullmq_protocol.errors import PayloadMismatch, UsageError


class Colour(enum.Enum):
    RED = "red"


class Tone(str, enum.Enum):  # noqa: UP042 - the older form prints otherwise, so it is tested
    LOW = "low"


class Level(enum.IntEnum):
    HIGH = 3


class Ratio(float):
    pass


class Point(NamedTuple):
    x: int
    y: int


class Mail(msgspec.Struct):
    to: str
    ratio: float = 1.0
    body: bytes = b"x"
    tags: frozenset[str] = frozenset()
    cc: str | msgspec.UnsetType = UNSET


@dataclasses.dataclass
class Order:
    number: int
    at: datetime


MOMENT = datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)

WRITTEN: list[tuple[Any, str]] = [
    (None, "null"),
    (True, "true"),
    (False, "false"),
    (0, "0"),
    (MAX_SAFE_INTEGER, "9007199254740991"),
    (-MAX_SAFE_INTEGER, "-9007199254740991"),
    (1.0, "1"),
    (-1.0, "-1"),
    (-0.0, "0"),
    (0.1, "0.1"),
    (1.5e300, "1.5e+300"),
    (1e15, "1000000000000000"),
    (1e16, "10000000000000000"),
    (1e20, "100000000000000000000"),
    (-1e20, "-100000000000000000000"),
    (123456789012345683968.0, "123456789012345680000"),
    (1e21, "1e+21"),
    (-1.5e21, "-1.5e+21"),
    (0.0001, "0.0001"),
    (0.00001, "0.00001"),
    (-0.000012, "-0.000012"),
    (0.000001, "0.000001"),
    (1e-7, "1e-7"),
    (1.5e-7, "1.5e-7"),
    (5e-324, "5e-324"),
    (1.7976931348623157e308, "1.7976931348623157e+308"),
    ("", '""'),
    ('"\\/', '"\\"\\\\/"'),
    ("\b\t\n\f\r\x00\x1f\x7f", '"\\b\\t\\n\\f\\r\\u0000\\u001f\x7f"'),
    ("\u2028\u2029ö", '"\u2028\u2029ö"'),
    ([], "[]"),
    ({}, "{}"),
    ([1, [2.0, "a"]], '[1,[2,"a"]]'),
    ((1, (2,)), "[1,[2]]"),
    ({"b": 1, "a": {"c": []}}, '{"b":1,"a":{"c":[]}}'),
    ({"b": 1, "10": 2, "2": 3, "01": 4, "-1": 5}, '{"2":3,"10":2,"b":1,"01":4,"-1":5}'),
    ({"4294967295": 1, "4294967294": 2}, '{"4294967294":2,"4294967295":1}'),
    ({"a": 1, "4294967295": 2, "4294967294": 3, "0": 4}, '{"0":4,"4294967294":3,"a":1,"4294967295":2}'),
    ({"a": UNSET, "b": 1}, '{"b":1}'),
    ({"a": UNSET}, "{}"),
    ([UNSET, 1], "[null,1]"),
    (UNSET, "null"),
    (MOMENT, '"2023-11-14T22:13:20.123Z"'),
    (MOMENT.replace(microsecond=123_456), '"2023-11-14T22:13:20.123456Z"'),
    ([MOMENT.astimezone(timezone(timedelta(hours=2)))], '["2023-11-14T22:13:20.123Z"]'),
    (date(2023, 11, 14), '"2023-11-14"'),
    (Decimal("1.50"), '"1.50"'),
    (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
    (Colour.RED, '"red"'),
    (Tone.LOW, '"low"'),
    ({Tone.LOW: Level.HIGH}, '{"low":3}'),
    (Ratio(1.0), "1"),
    (Point(1, 2), "[1,2]"),
    (Mail("a@b.c"), '{"to":"a@b.c","ratio":1,"body":"eA==","tags":[]}'),
    (Order(1, MOMENT), '{"number":1,"at":"2023-11-14T22:13:20.123Z"}'),
]


@pytest.mark.parametrize(("value", "text"), WRITTEN, ids=[repr(value)[:40] for value, _ in WRITTEN])
def test_json_is_what_javascript_writes(value: object, text: str) -> None:
    assert json_text(value) == text


def test_emoji_nul_and_lone_surrogates_in_data() -> None:
    data = {"emoji": "😀", "nul": "a\x00b", "high": "\ud83d", "low": "\ude00 text", "\udfff": 1}
    text = json_text(data)
    assert text == '{"emoji":"😀","nul":"a\\u0000b","high":"\\ud83d","low":"\\ude00 text","\\udfff":1}'
    assert text.encode()
    assert parse_json(text) == data
    assert parse_json(text.encode()) == data


def test_surrogates_side_by_side_are_one_character() -> None:
    assert json_text("\ud83d\ude00") == '"😀"'


def cyclic_list() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def cyclic_dict() -> dict[str, Any]:
    value: dict[str, Any] = {"1": 1.0}
    value["again"] = value
    return value


def cyclic_struct() -> Any:
    node = Order(1, MOMENT)
    node.number = [node]  # type: ignore[assignment]
    return node


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (math.nan, "NaN"),
        (math.inf, "infinities"),
        ([-math.inf], "infinities"),
        (MAX_SAFE_INTEGER + 1, "2**53"),
        (-MAX_SAFE_INTEGER - 1, "2**53"),
        ({"a": [2**70]}, "2**53"),
        ({"a": -(2**53)}, "2**53"),
        ({1: 2}, "keys of objects must be strings"),
        ({None: 2}, "keys of objects must be strings"),
        (datetime(2023, 11, 14), "time zone"),
        (b"bytes", "no bytes"),
        (bytearray(b"bytes"), "no bytearray"),
        (memoryview(b"bytes"), "no memoryview"),
        ({"a": {1}}, "no set"),
        (frozenset({1}), "no frozenset"),
        (object(), "no JSON form"),
        (1 + 2j, "no JSON form"),
        (len, "no JSON form"),
        (cyclic_list(), "cyclic"),
        (cyclic_dict(), "cyclic"),
        (cyclic_struct(), "cyclic"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_unserialisable_data_is_refused(value: object, rule: str) -> None:
    with pytest.raises(UsageError) as caught:
        json_text(value)
    assert caught.value.field == "data"
    assert rule in caught.value.rule


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (' {\r\n"a" :\t[ 1 , null ] } ', {"a": [1, None]}),
        (r'"\/\u00e4\ud83d\ude00"', "/ä😀"),
        (r'"\ud800"', "\ud800"),
        (r'["\udc00\ud800a"]', ["\udc00\ud800a"]),
        ('{"a":1,"a":2}', {"a": 2}),
        (r'{"a":"\ud800","a":2}', {"a": 2}),
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ("1e400", math.inf),
        ("-0.5e-1", -0.05),
        (b'"\xc3\xa4"', "ä"),
        (b'"\xed\xa0\x80"', "\ud800"),
    ],
)
def test_any_valid_json_is_read(text: str | bytes, value: object) -> None:
    assert parse_json(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "[1", "{'a':1}", "NaN", "-Infinity", '"\x01"', "[1,]", b'"\xff"', "\ufeff1", "[" * 100_000, "1" * 5000, "01"],
    ids=lambda text: repr(text)[:12],
)
def test_invalid_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        parse_json(text)


def test_json_too_deep_for_the_lenient_reader_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError, match="nested too deeply"):
        parse_json(r'["\ud800",' + "[" * 100_000)


def test_json_is_read_into_a_type() -> None:
    assert parse_json('{"to":"a","ratio":2}', Mail) == Mail("a", 2.0)
    assert parse_json(r'{"to":"\ud800"}', Mail) == Mail("\ud800")
    with pytest.raises(msgspec.ValidationError, match="Expected `str`, got `int`"):
        parse_json('{"to":1}', Mail)
    with pytest.raises(msgspec.ValidationError, match=r"Expected `str`, got `array` - at `\$\.to`"):
        parse_json(r'{"to":["\ud800"]}', Mail)
    for text, kind in ((r'"\ud800"', int), (r'[1,"\ud800"]', list[int])):
        with pytest.raises(PayloadMismatch, match="lone surrogate"):
            parse_json(text, kind)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (-5, "-5"),
        (MAX_SAFE_INTEGER, "9007199254740991"),
        (Level.HIGH, "3"),
        (1.0, "1"),
        (-0.0, "0"),
        (0.5, "0.5"),
        (1e21, "1e+21"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (math.nan, "NaN"),
        (1700000000000.5, "1700000000000.5"),
    ],
)
def test_plain_numbers_are_what_javascript_prints(number: float, text: str) -> None:
    assert number_text(number) == text


def test_whole_numbers_stay_whole_as_long_as_javascript_holds_them() -> None:
    for number in (MAX_SAFE_INTEGER, -MAX_SAFE_INTEGER, 0):
        assert type(double(number)) is int
    for number in (MAX_SAFE_INTEGER + 1, -MAX_SAFE_INTEGER - 1):
        assert type(double(number)) is float
    assert (double(10**400), double(-(10**400))) == (math.inf, -math.inf)


@pytest.mark.parametrize("number", [MAX_SAFE_INTEGER + 1, -(2**60), True, "1", None])
def test_what_is_no_exact_number_is_refused(number: Any) -> None:
    with pytest.raises(UsageError):
        number_text(number)


def test_packed_head_and_options_equal_the_specifications() -> None:
    head = pack(["bull:q:", "", "n", 1700000000000.0, None, None, None, None, None])
    assert head.hex() == "99a762756c6c3a713aa0a16ecb4278bcfe56800000c0c0c0c0c0"
    assert pack({"attempts": 0})[1:].hex() == "a8617474656d70747300"


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        MAX_SAFE_INTEGER,
        -MAX_SAFE_INTEGER,
        0.1,
        1e300,
        "ä😀\x00",
        "x" * 70_000,
        {"a": [1, {"b": None}], "c": 0.5},
        (1, 2),
        [],
        {},
    ],
    ids=lambda value: repr(value)[:20],
)
def test_packed_values_come_back(value: Any) -> None:
    expected = list(value) if isinstance(value, tuple) else value
    assert msgspec.msgpack.decode(pack(value)) == expected


def test_text_is_never_packed_as_bytes_and_fractions_never_as_float32() -> None:
    assert pack("ab")[0] == 0xA2
    assert pack("x" * 300)[0] == 0xDA
    assert pack(0.5) == b"\xcb" + struct.pack(">d", 0.5)


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (b"bytes", "must be text"),
        ([bytearray(b"b")], "must be text"),
        (datetime(2023, 11, 14, tzinfo=UTC), "must be text"),
        ({"a": {1}}, "must be text"),
        (UNSET, "must be text"),
        (2**53, "2**53"),
        ([-(2**53)], "2**53"),
        (math.nan, "finite"),
        ({"a": math.inf}, "finite"),
        ({1: 2}, "keys of objects must be strings"),
        ("\ud800", "UTF-8"),
        ({"a": ["\udfff"]}, "UTF-8"),
        (cyclic_list(), "cyclic"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_the_server_cannot_unpack_is_refused(value: object, rule: str) -> None:
    with pytest.raises(UsageError) as caught:
        pack(value)
    assert rule in caught.value.rule
    assert caught.value.field.startswith("options")
    assert caught.value.value is not None


def test_the_error_of_a_packed_value_names_its_place() -> None:
    with pytest.raises(UsageError) as caught:
        pack({"backoff": {"delay": math.nan}})
    assert caught.value.field == "options.backoff.delay"


def test_text_is_checked() -> None:
    assert check_text("name", "ä") == "ä"
    for wrong in (1, b"x", None, "\ud800"):
        with pytest.raises(UsageError, match="name"):
            check_text("name", wrong)


# --- the same as Node ---

_NODE_JSON = """
const lines = require("fs").readFileSync(0, "utf8").split("\\n").filter(Boolean);
for (const line of lines) {
  const value = JSON.parse(line);
  // Again as an escaped string, so that no character gets lost on the way.
  process.stdout.write(JSON.stringify(JSON.stringify(value)).replace(/[\\u007f-\\uffff]/g,
    (c) => "\\\\u" + c.charCodeAt(0).toString(16).padStart(4, "0")) + "\\n");
}
"""


def random_double(dice: random.Random) -> float:
    while True:
        kind = dice.randrange(4)
        if kind == 0:
            (number,) = struct.unpack(">d", dice.randbytes(8))
        elif kind == 1:
            number = dice.uniform(-1, 1) * 10.0 ** dice.randint(-12, 25)
        elif kind == 2:
            number = float(dice.randint(-(10**6), 10**6))
        else:
            number = round(dice.uniform(-1000, 1000), dice.randint(0, 5))
        if math.isfinite(number):
            return number


def random_text(dice: random.Random) -> str:
    ranges = [(0, 0x7F), (0x20, 0x7E), (0x80, 0x7FF), (0x2000, 0x2030), (0xD7F0, 0xE010), (0x1F600, 0x1F64F)]
    return "".join(chr(dice.randint(*dice.choice(ranges))) for _ in range(dice.randrange(8)))


def random_value(dice: random.Random, depth: int = 0) -> Any:
    kind = dice.randrange(5 if depth > 3 else 8)
    if kind == 0:
        return dice.choice([None, True, False])
    if kind == 1:
        return dice.randint(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER)
    if kind in (2, 3):
        return random_double(dice)
    if kind == 4:
        return random_text(dice)
    if kind == 5:
        return [random_value(dice, depth + 1) for _ in range(dice.randrange(4))]
    keys = [random_text(dice) if dice.random() < 0.6 else str(dice.randint(0, 2**33)) for _ in range(dice.randrange(5))]
    return {key: random_value(dice, depth + 1) for key in keys}


@pytest.mark.slow
@pytest.mark.node
def test_json_equals_what_node_writes() -> None:
    dice = random.Random(20_231_114)
    values = [random_value(dice) for _ in range(4000)]
    lines = "\n".join(json.dumps(value) for value in values)
    done = subprocess.run(["node", "-e", _NODE_JSON], input=lines, capture_output=True, text=True, check=True)
    written = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(written) == len(values)
    for value, theirs in zip(values, written, strict=True):
        assert json_text(value) == theirs


def test_a_type_is_looked_at_beside_lone_surrogates() -> None:
    assert parse_json('["\\ud800",[1]]', list[str | list[int]]) == ["\ud800", [1]]
    with pytest.raises(PayloadMismatch, match="Expected"):
        parse_json('["\\ud800",{"a":1}]', list[str | list[int]])


@pytest.mark.parametrize("given", [[1, 2], (1, 2), iter([1, 2]), (each for each in (1, 2))])
def test_listed(given: Any) -> None:
    assert listed("jobs", given) == [1, 2]


@pytest.mark.parametrize("given", [None, 1, "ab", b"ab", {"a": 1}])
def test_what_is_no_list(given: Any) -> None:
    with pytest.raises(UsageError, match="jobs: must be a list"):
        listed("jobs", given)


def test_the_text_of_a_subclass_is_plain() -> None:
    class Text(str):
        __slots__ = ()

        def isascii(self) -> bool:
            raise LookupError("not asked")

    for text in ("ab", "é\ud800"):
        cleaned = clean_text(Text(text))
        assert type(cleaned) is str
        assert cleaned == text.replace("\ud800", "�")
