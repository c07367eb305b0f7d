"""Cron patterns: what a pattern means, and the first moment after another at which it is due.

The rules are those of cron-parser 4.9.0, and those of its versions 5.5 and 5.10 where they differ. Nothing here reads
a clock or a file: the moment and the zone are arguments.

Source: specs/04-schedulers-flows-events.md#sec-5, specs/06-later-versions.md#sec-4-6-7, specs/monque.md#sec-7
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone, tzinfo
from itertools import pairwise
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import msgspec

from bullmq_protocol.common.codec import double, number_text
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import BullMQError, UsageError
from bullmq_protocol.lazy import lazy_pattern

Zones: TypeAlias = Callable[[str], tzinfo | None]
"""Finds a zone by its IANA name, or `local` (that of the process); None: there is no such zone."""

Dialect: TypeAlias = Literal["4.9", "common", "5.10", "either", "5.5"]
"""Whose patterns: those of cron-parser 4.9 (BullMQ 5), of 5.10 (BullMQ 6), what both read alike, or what one of them
reads: 4.9 if it can; those of 5.5 (Monque)."""
_Rules: TypeAlias = Literal["4.9", "5.5", "5.10"]

LOCAL: Final = "local"
MAX_ROUNDS: Final = 10_000
SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000
EPOCH_DAY: Final = date(1970, 1, 1).toordinal()

_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "@yearly": "0 0 1 1 *",
        "@monthly": "0 0 1 * *",
        "@weekly": "0 0 * * 0",
        "@daily": "0 0 * * *",
        "@hourly": "0 * * * *",
    }
)
_LATER_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **_WORDS,
        "@annually": "0 0 1 1 *",
        "@minutely": "* * * * *",
        "@secondly": "* * * * * *",
        "@weekdays": "0 0 * * 1-5",
        "@weekends": "0 0 * * 0,6",
    }
)
_PROFILES: Final[Mapping[str, _Rules]] = MappingProxyType({"STRICT": "4.9", "V6_7": "5.10"})
"""The profiles that take whatever one version of cron-parser reads."""
_CHANCE: Final = "H stands for a value of chance, another one each time"
_MONTH_NAMES: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAY_NAMES: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS: Final[Mapping[str, int]] = MappingProxyType({name: number for number, name in enumerate(_MONTH_NAMES, 1)})
_WEEKDAYS: Final[Mapping[str, int]] = MappingProxyType({name: number for number, name in enumerate(_WEEKDAY_NAMES)})
_NO_NAMES: Final[Mapping[str, int]] = MappingProxyType({})
_MONTH_DAYS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
# White space of JavaScript, which is not quite that of Python.
_BLANKS: Final = "\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_PARTS: Final = lazy_pattern(f"[^{_BLANKS}]+")
_NAME: Final = lazy_pattern("[A-Za-z]{3}")
_INTEGER: Final = lazy_pattern("-?[0-9]+")
_NUMBER: Final = lazy_pattern(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BASED: Final = lazy_pattern("0(?:[xX][0-9a-fA-F]+|[oO][0-7]+|[bB][01]+)")
_RANDOM: Final = lazy_pattern(r"(?<![A-Za-z])H(?![A-Za-z])")
_ANY: Final = ("*", "?")
_FIXED: Final = lazy_pattern(r"utc(?:([+-])([0-9]{1,2})(?::([0-9]{2}))?)?", re.IGNORECASE)


class CronError(UsageError):
    """A cron pattern that cannot be read.

    Args:
        pattern: The pattern; `value` keeps it.
        part: The part of the pattern that is wrong; None: the whole.
        reason: The fault, in cron-parser's words.
    """

    def __init__(self, pattern: str, part: str | None, reason: str) -> None:
        super().__init__("pattern", pattern, reason if part is None else f"{part}: {reason}")
        self.part = part
        self.reason = reason


class NoNextRun(BullMQError):
    """The pattern is never due again, as far as it was looked for, or not before the end."""


def _days_in(year: int, month: int) -> int:
    is_short = month == 2 and (year % 4 != 0 or (year % 100 == 0 and year % 400 != 0))
    return 28 if is_short else _MONTH_DAYS[month - 1]


class _Wrong(Exception):
    """Describes the fault in one part."""


class _Part(msgspec.Struct, frozen=True):
    name: str
    least: int
    most: int
    allowed: re.Pattern[str]
    default: str = "*"
    names: Mapping[str, int] = _NO_NAMES
    takes_last: bool = False

    @property
    def span(self) -> str:
        return f"expected range {self.least}-{self.most}"


_PLAIN: Final = lazy_pattern("[0-9,*/-]+")
_PARTS_IN_ORDER: Final = (
    _Part("second", 0, 59, _PLAIN, "0"),
    _Part("minute", 0, 59, _PLAIN),
    _Part("hour", 0, 23, _PLAIN),
    _Part("day of month", 1, 31, lazy_pattern("[0-9,*/?L-]+"), takes_last=True),
    _Part("month", 1, 12, _PLAIN, names=_MONTHS),
    _Part("day of week", 0, 7, lazy_pattern("[0-9,*/?L#-]+"), names=_WEEKDAYS, takes_last=True),
)


class Cron(msgspec.Struct, frozen=True, kw_only=True):
    """A pattern that was read: the values of each part, in order and with duplicates (they count).

    `last_days` and `last_weekdays` are the texts with an `L`; `nth` is the occurrence within the month (`#`). From 5.5
    on `any_day` and `any_weekday` tell whether the part is `*` or `?`; in 4.9 the number of values says so, and they
    are None.

    Source: specs/04-schedulers-flows-events.md#sec-5-4, specs/06-later-versions.md#sec-4-6-7
    """

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    last_days: tuple[str, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    last_weekdays: tuple[str, ...]
    nth: float | None = None
    any_day: bool | None = None
    any_weekday: bool | None = None
    rules: str = "4.9"


def parse_cron(pattern: str, *, nth: float | None = None, dialect: Dialect = "4.9") -> Cron:
    """Read a pattern of up to six parts: second, minute, hour, day of month, month, day of week; the last ones count.

    `nth` is BullMQ's option `nthDayOfWeek`, which 5.10 does not know. Raises `CronError`, which names the part and the
    rule.

    Source: specs/04-schedulers-flows-events.md#sec-5-2, specs/06-later-versions.md#sec-4-6-7
    """
    if dialect in ("5.5", "5.10"):
        return _parse(pattern, None, dialect)
    try:
        cron = _parse(pattern, nth, "4.9")
    except CronError as error:
        if dialect == "4.9":
            raise
        later = _tried(pattern, "5.10")
        if isinstance(later, CronError):
            raise error from None
        if dialect == "either":
            return later
        raise CronError(pattern, error.part, f"BullMQ 5 refuses it ({error.reason})") from None
    if dialect == "common":
        why = _difference(cron, _tried(pattern, "5.10"))
        if why is not None:
            raise CronError(pattern, None, why)
    return cron


def check_pattern(pattern: str, *, dialect: Dialect) -> None:
    """Read a pattern that a user gives. Raises `CronError`, which names the profiles that would take it.

    Source: specs/06-later-versions.md#sec-4-6-7
    """
    try:
        parse_cron(pattern, dialect=dialect)
    except CronError as error:
        profiles = [name for name, rules in _PROFILES.items() if isinstance(_tried(pattern, rules), Cron)]
        if not profiles:
            raise
        names = " and ".join(profiles)
        takes = f"the profile {names} takes it" if len(profiles) == 1 else f"the profiles {names} take it"
        raise CronError(pattern, error.part, f"{error.reason}; {takes}") from None


def read_differently(pattern: str) -> str | None:
    """Return why BullMQ 5 and 6 do not read a pattern alike, as a clause; None where they do, or both refuse it.

    Source: specs/06-later-versions.md#sec-4-6-7
    """
    old, new = _tried(pattern, "4.9"), _tried(pattern, "5.10")
    if isinstance(old, Cron):
        return _difference(old, new)
    if isinstance(new, Cron):
        return f"BullMQ 5 refuses it: {old.rule}"
    return f"BullMQ 5 refuses it, and for BullMQ 6 {_CHANCE}" if new.reason == _CHANCE else None


def _difference(old: Cron, new: Cron | CronError) -> str | None:
    """Return in what a pattern that 4.9 reads means something else in 5.10."""
    if isinstance(new, CronError):
        return f"BullMQ 6 refuses it: {new.rule}"
    weekdays = {day % 7 for day in old.weekdays}
    if weekdays != {day % 7 for day in new.weekdays} or old.last_days != new.last_days:
        return "BullMQ 5 and BullMQ 6 take it for other days"
    all_weekdays = len(old.weekdays) + len(old.last_weekdays) == 8
    full = {len(old.days) + len(old.last_days) >= _MONTH_DAYS[month - 1] for month in old.months}
    same = (
        (all_weekdays and new.any_weekday)
        or (new.any_day and full == {True})
        or (not all_weekdays and not new.any_weekday and full == {False} and old.nth is None)
    )
    return None if same else "BullMQ 5 and BullMQ 6 combine its days and days of the week in two ways"


def _tried(pattern: str, rules: _Rules) -> Cron | CronError:
    try:
        return _parse(pattern, None, rules)
    except CronError as error:
        return error


def _parse(pattern: str, nth: float | None, rules: _Rules) -> Cron:
    later = rules != "4.9"
    texts = _PARTS.findall((_LATER_WORDS if later else _WORDS).get(pattern, pattern))
    if len(texts) > len(_PARTS_IN_ORDER):
        raise CronError(pattern, None, "Invalid cron expression" + (", too many fields" if rules == "5.5" else ""))
    defaults = [part.default for part in _PARTS_IN_ORDER]
    if rules == "5.5" and texts:
        # Whichever part comes last of those that are missing begins at 0.
        defaults = [*["*"] * (len(_PARTS_IN_ORDER) - len(texts) - 1), "0"]
    texts = defaults[: len(_PARTS_IN_ORDER) - len(texts)] + texts
    numbers: list[tuple[int, ...]] = []
    lasts: list[tuple[str, ...]] = []
    for part, text in zip(_PARTS_IN_ORDER, texts, strict=True):
        try:
            if part.names is _WEEKDAYS and "#" in text:
                text, nth = _occurrence(text)
            found = _values(part, text, rules)
        except _Wrong as wrong:
            raise CronError(pattern, part.name, str(wrong)) from None
        numbers.append(tuple(sorted(value for value in found if isinstance(value, int))))
        lasts.append(tuple(sorted(value for value in found if isinstance(value, str))))
    seconds, minutes, hours, days, months, weekdays = numbers
    last_days = lasts[3]
    any_day, any_weekday = (texts[3] in _ANY, texts[5] in _ANY) if later else (None, None)
    if len(months) == 1:
        most = _MONTH_DAYS[months[0] - 1]
        refused = not later or (not last_days and (any_weekday or rules == "5.5"))
        if days and days[0] > most and refused:
            raise CronError(pattern, "day of month", "Invalid explicit day of month definition")
        days = tuple(day for day in days if day <= most)
        if not later:
            last_days = tuple(text for text in last_days if text == "L")
    return Cron(
        seconds=seconds,
        minutes=minutes,
        hours=hours,
        days=days,
        last_days=last_days,
        months=months,
        weekdays=weekdays,
        last_weekdays=lasts[5],
        nth=nth,
        any_day=any_day,
        any_weekday=any_weekday,
        rules=rules,
    )


def next_run(cron: Cron, after: Millis, zone: tzinfo, *, end: float | None = None) -> Millis:
    """Return the first moment after `after` at which the pattern is due in `zone`, not later than `end`.

    Raises `NoNextRun`. Far dates are looked for day by day, at most 10,000 steps: some 50 ms.

    Source: specs/04-schedulers-flows-events.md#sec-5-6
    """
    try:
        return _Search(cron, zone).run(after, end)
    except (OverflowError, OSError, ValueError):
        raise NoNextRun("Invalid expression, the calendar ends") from None


def fixed_zone(name: str) -> tzinfo | None:
    """Return the zone that a name like `utc`, `UTC+3` or `UTC-03:30` stands for, None for other names."""
    match = _FIXED.fullmatch(name)
    if match is None:
        return None
    minutes = int(match[2] or 0) * 60 + int(match[3] or 0)
    try:
        return timezone(timedelta(minutes=-minutes if match[1] == "-" else minutes))
    except ValueError:
        return None


# --- reading --------------------------------------------------------------------------------------------------------


def _occurrence(text: str) -> tuple[str, float]:
    for character in ",/-":
        if character in text:
            raise _Wrong(
                f"Constraint error, invalid dayOfWeek `#` and `{character}` special characters are incompatible"
            )
    weekday, *occurrences = text.split("#")
    nth = _number(occurrences[-1])
    if len(occurrences) > 1 or not 1 <= nth <= 5:
        raise _Wrong("Constraint error, invalid dayOfWeek occurrence number (#)")
    return weekday, nth


def _values(part: _Part, text: str, rules: _Rules) -> list[int | str]:
    later = rules != "4.9"
    if later and _RANDOM.search(text):
        raise _Wrong(_CHANCE)
    if part.names:

        def number_of(match: re.Match[str]) -> str:
            name = match[0].lower()
            if name not in part.names:
                raise _Wrong(f'Validation error, cannot resolve alias "{name}"')
            return str(part.names[name])

        text = _NAME.sub(number_of, text)
    if later:
        text = text.replace("?", "*")
    if not part.allowed.fullmatch(text):
        raise _Wrong(f"Invalid characters, got value: {text}")
    every = f"{part.least}-{part.most}"
    text = text.replace("*", every) if "*" in text else text.replace("?", every)
    items = text.split(",")
    if "" in items:
        raise _Wrong("Invalid list value format")
    found = [_item(part, item, rules) for item in items]
    if rules == "5.10":
        _refuse_twice(part, found)
    elif rules == "5.5":
        _refuse_first_twice(part, found)
    return [value for values in found for value in values]


def _refuse_first_twice(part: _Part, found: Sequence[Sequence[int | str]]) -> None:
    """Refuse what 5.5 refuses: the least value that comes twice, unless that is 0."""
    numbers = sorted(value for values in found for value in values if isinstance(value, int))
    texts = sorted(value for values in found for value in values if isinstance(value, str))
    for values in (numbers, texts):
        twice = next((value for value, following in pairwise(values) if value == following), None)
        if twice == 0:
            return
        if twice is not None:
            kind = "".join(word.capitalize() for word in part.name.split())
            raise _Wrong(f"Cron{kind} Validation error, duplicate values found: {twice}")


def _refuse_twice(part: _Part, found: Sequence[Sequence[int | str]]) -> None:
    """Refuse what 5.10 refuses: a value that two items of a part have."""
    seen: set[int | str] = set()
    for values in found:
        own = {value % 7 if part.names is _WEEKDAYS and isinstance(value, int) else value for value in values}
        if part.names is _WEEKDAYS and "L" in own:
            raise _Wrong("L needs a day of the week in front of it")
        twice = seen & own
        if twice:
            raise _Wrong(f"{min(map(str, twice))} comes twice")
        seen |= own


def _item(part: _Part, item: str, rules: _Rules) -> list[int | str]:
    span, *steps = item.split("/")
    if len(steps) > 1:
        raise _Wrong(f"Invalid repeat: {item}")
    step = _number(steps[0]) if steps else 1
    if steps and (span == "" or _INTEGER.fullmatch(span)):
        span = f"{span}-{part.most}"
    pieces = span.split("-")
    if len(pieces) > 1:
        if pieces[0] != "":
            return _range(part, span, _number(pieces[0]), _number(pieces[1]), step, rules)
        if pieces[1] == "":
            raise _Wrong(f"Invalid range: {span}")
    elif part.takes_last and "L" in span:
        return [span]
    value = _number(span)
    if not part.least <= value <= part.most:
        shown = span if math.isnan(value) and len(pieces) == 1 else number_text(value)
        raise _Wrong(f"Constraint error, got value {shown} {part.span}")
    return [int(value) % 7 if part.names is _WEEKDAYS else int(value)]


def _range(part: _Part, span: str, first: float, last: float, step: float, rules: _Rules) -> list[int | str]:
    if math.isnan(first) or math.isnan(last) or first < part.least or last > part.most:
        raise _Wrong(f"Constraint error, got range {number_text(first)}-{number_text(last)} {part.span}")
    if first > last:
        raise _Wrong(f"Invalid range: {span}")
    if not step > 0:
        raise _Wrong(f"Constraint error, cannot repeat at every {number_text(step)} time.")
    values: list[int | str] = [*range(int(first), int(last) + 1, int(min(step, 100)))]
    if part.names is _WEEKDAYS and last in (0, 7) and 0 not in values and (7 in values or rules != "5.10"):
        values.append(0)
    return values


def _number(text: str) -> float:
    """Read a number as JavaScript does; NaN if it is not one."""
    if text == "":
        return 0.0
    if _NUMBER.fullmatch(text):
        return float(text)
    return float(double(int(text, 0))) if _BASED.fullmatch(text) else math.nan


# --- searching ------------------------------------------------------------------------------------------------------


class _Search:
    """One search. All moments are milliseconds; "wall" is what the clock on the wall shows, as if it were UTC."""

    def __init__(self, cron: Cron, zone: tzinfo) -> None:
        self._cron = cron
        self._zone = zone
        # Hours that the clock jumped to, or shows again.
        self._gap = -1
        self._repeated = -1

    def run(self, start: Millis, end: float | None) -> Millis:
        cron = self._cron
        at = start
        for _ in range(1, MAX_ROUNDS):
            if end is not None and end < at:
                raise NoNextRun("Out of the timespan range")
            day, time = divmod(at + self._offset(at), DAY_MS)
            today = date.fromordinal(EPOCH_DAY + day)
            hour = time // HOUR_MS
            if not self._is_day(today):
                at = self._next_day(at)
            elif today.month not in cron.months:
                at = self._next_month(at)
            elif not self._is_hour(hour):
                at = self._next_hour(at, hour)
            elif time // MINUTE_MS % 60 not in cron.minutes:
                at = self._advance(at, MINUTE_MS)
            elif time // SECOND_MS % 60 not in cron.seconds or at == start:
                at = self._advance(at, SECOND_MS)
            else:
                return at
        raise NoNextRun("Invalid expression, loop limit exceeded")

    def _is_hour(self, hour: int) -> bool:
        if hour in self._cron.hours and not (self._cron.rules == "5.5" and hour == self._gap):
            return hour != self._repeated
        # The hour after a jump stands in for the one that was jumped over.
        return hour == self._gap and hour - 1 in self._cron.hours

    def _next_hour(self, at: Millis, hour: int) -> Millis:
        if hour in self._cron.hours:
            self._repeated = -1
        elif hour == self._gap:
            return self._advance(at, HOUR_MS, track=False)
        else:
            self._gap = -1
        return self._advance(at, HOUR_MS)

    def _is_day(self, today: date) -> bool:
        cron = self._cron
        most = _days_in(today.year, today.month)
        weekday = today.isoweekday() % 7
        by_day = today.day in cron.days or (today.day == most and bool(cron.last_days))
        by_weekday = weekday in cron.weekdays or self._is_last_weekday(today, weekday, most)
        nth = cron.nth
        is_nth = nth is None or not nth > 0 or (nth < 6 and (today.day - 1) // 7 + 1 == nth)
        if cron.any_day is not None:
            if cron.rules == "5.5" and not is_nth:
                # Of the days of the month, too, those in another week are left out.
                return False
            by_weekday = by_weekday and is_nth
            if cron.any_day:
                return by_weekday
            return by_day if cron.any_weekday else by_day or by_weekday
        all_days = len(cron.days) + len(cron.last_days) >= _MONTH_DAYS[today.month - 1]
        all_weekdays = len(cron.weekdays) + len(cron.last_weekdays) == 8
        if not (by_day or (by_weekday and not all_weekdays)) or (all_days and not all_weekdays and not by_weekday):
            return False
        return is_nth

    def _is_last_weekday(self, today: date, weekday: int, most: int) -> bool:
        for text in self._cron.last_weekdays:
            if not text[0].isdigit():
                raise NoNextRun(f"Invalid last weekday of the month expression: {text}")
            if int(text[0]) % 7 == weekday and today.day + 7 > most:
                return True
        return False

    def _advance(self, at: Millis, unit: Millis, *, track: bool = True) -> Millis:
        """Advance to the start of the next hour, minute or second, and note whether the clock was changed."""
        before = (at + self._offset(at)) % DAY_MS // HOUR_MS
        later = at + unit
        offset = self._offset(later)
        wall = later + offset
        cut = self._moment(wall - wall % unit, offset)
        found = cut if cut > at else cut + unit
        if track and len(self._cron.hours) != 24:
            time = (found + self._offset(found)) % DAY_MS
            hours = time // HOUR_MS - before
            if hours == 2:
                self._gap = time // HOUR_MS
            elif hours == 0 and time % HOUR_MS < SECOND_MS:
                self._repeated = time // HOUR_MS
        return found

    def _next_day(self, at: Millis) -> Millis:
        offset = self._offset(at)
        wall = at + offset + DAY_MS
        return self._start_of_day(wall - wall % DAY_MS, wall, offset)

    def _next_month(self, at: Millis) -> Millis:
        offset = self._offset(at)
        day, time = divmod(at + offset, DAY_MS)
        today = date.fromordinal(EPOCH_DAY + day)
        year, month = (today.year + 1, 1) if today.month == 12 else (today.year, today.month + 1)
        first = (date(year, month, 1).toordinal() - EPOCH_DAY) * DAY_MS
        same_day = first + (min(today.day, _days_in(year, month)) - 1) * DAY_MS + time
        return self._start_of_day(first, same_day, offset)

    def _start_of_day(self, midnight: Millis, same_time: Millis, offset: Millis) -> Millis:
        """Return local midnight; of two, the one with the offset of the same time on the next day (or month)."""
        return self._moment(midnight, self._offset(self._moment(same_time, offset)))

    def _moment(self, wall: Millis, like: Millis) -> Millis:
        """Return when the wall clock shows this; of two moments the one with the offset `like`, else the first.

        A time that the clock skips is moved forward by the length of the jump.
        """
        if self._offset(wall - like) == like:
            return wall - like
        offsets = {self._offset(wall - DAY_MS), self._offset(wall), self._offset(wall + DAY_MS)}
        moments = [wall - offset for offset in offsets if self._offset(wall - offset) == offset]
        return min(moments, default=wall - self._offset(wall - DAY_MS))

    def _offset(self, at: Millis) -> Millis:
        offset = datetime.fromtimestamp(at // SECOND_MS, self._zone).utcoffset()
        return 0 if offset is None else (offset.days * 86_400 + offset.seconds) * SECOND_MS
