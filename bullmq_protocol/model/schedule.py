"""When jobs repeat: the rule as a user gives it and as it is stored, the next slot, and the options of the next job.

A rule is stored in BullMQ's words (`every`, `pattern`, `tz`, `startDate`, ...), which is how it is handled here.

Source: specs/04-schedulers-flows-events.md#sec-4
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any, Final, TypeAlias, cast

import msgspec
from msgspec import UNSET, UnsetType

from bullmq_protocol.common.codec import double, plain
from bullmq_protocol.common.keys import QueueKeys, check_name
from bullmq_protocol.common.switches import STRICT_SWITCHES, Switches
from bullmq_protocol.common.units import Duration, Millis, check_flag, check_whole, to_ms
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.backoff import Backoff, duration_number
from bullmq_protocol.model.cron import (
    LOCAL,
    Dialect,
    NoNextRun,
    Zones,
    check_pattern,
    fixed_zone,
    next_run,
    parse_cron,
)
from bullmq_protocol.model.job import NewJob, prepare, resolved
from bullmq_protocol.model.options import DEFAULT_LIMITS, JobOptions, Limits, given, merged, stored_of

MAX_ID_COLONS: Final = 3
"""Workers take an id with more colons for that of a very old repeatable job."""

Moment: TypeAlias = Millis | datetime
"""What callers may pass for a moment: milliseconds since the epoch, or a `datetime` with a time zone."""

_LOCAL_NAMES: Final = frozenset((LOCAL, "system", "default"))
_HALF_HOURS: Final = ("australia/lord_howe", "australia/lhi")
_MONTH_S: Final = 30 * 86_400
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# What the scheduler itself decides, or what would have no effect in a job that it makes.
_NOT_IN_TEMPLATES: Final = ("job_id", "delay", "repeat", "deduplication", "parent", "prev_millis", "repeat_job_key")


class RepeatOptions(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """When the jobs of a scheduler are due: at an interval (`every`), or by a cron `pattern`. Give exactly one of the
    two.

    Times are in milliseconds since the epoch, or a `datetime` with a time zone.

    Args:
        every: The time between two jobs, in milliseconds or as a `timedelta`.
        pattern: A cron pattern of five parts, or of six with seconds in front.
        tz: The time zone of the pattern: an IANA name, `utc`, `UTC+3` or `local`. By default that of this process,
            stored by name; with the profiles `STRICT` and `V6_7`, the zone of whichever process reads the pattern.
        limit: How many jobs to add; no limit by default.
        offset: How far into each period of `every` the jobs are due, in milliseconds or as a `timedelta`; 0 by default.
            With the profile `STRICT`, and with a pattern, it is accepted and has no effect, as in BullMQ.
        start_date: No job is due before this time; none by default.
        end_date: No job is added after this time; none by default.
        immediately: True: the first job of a pattern is due now. False by default.

    Source: specs/04-schedulers-flows-events.md#sec-4-1

    Examples:
        >>> RepeatOptions(pattern="0 6 * * 1-5", tz="Europe/Paris", limit=10)
        RepeatOptions(pattern='0 6 * * 1-5', tz='Europe/Paris', limit=10)
    """

    every: Duration | UnsetType = UNSET
    pattern: str | UnsetType = UNSET
    tz: str | UnsetType = UNSET
    limit: int | UnsetType = UNSET
    offset: Duration | UnsetType = UNSET
    start_date: Moment | UnsetType = UNSET
    end_date: Moment | UnsetType = UNSET
    immediately: bool = False


class Due(msgspec.Struct, frozen=True):
    """The next job of a rule: its number, and its slot; no slot where the script computes it (`every`)."""

    iteration: int
    next_at: Millis | None = None


class PreparedScheduler(msgspec.Struct, frozen=True, kw_only=True):
    """A checked scheduler with its first job: `template` are the options it keeps, `options` those of the job.

    Source: specs/04-schedulers-flows-events.md#sec-4-4
    """

    scheduler_id: str
    name: str
    data_text: str
    rule: dict[str, Any]
    template: dict[str, Any]
    options: dict[str, Any]
    next_at: Millis | None
    now: Millis
    warnings: tuple[str, ...] = ()


def no_zones(_: str) -> tzinfo | None:
    """Know no zone but those that need no data."""
    return None


def check_scheduler_id(value: object, limits: Limits = DEFAULT_LIMITS) -> str:
    """Return a scheduler's id: not empty, and with three colons at most.

    Raises `UsageError`.

    Source: specs/04-schedulers-flows-events.md#sec-4-2
    """
    scheduler_id = check_name("scheduler_id", value, max_length=limits.max_name_length)
    if scheduler_id.count(":") > MAX_ID_COLONS:
        raise UsageError("scheduler_id", scheduler_id, "must not contain four or more colons")
    return scheduler_id


def rule_of(
    repeat: RepeatOptions, *, now: Millis, zones: Zones, switches: Switches = STRICT_SWITCHES
) -> dict[str, Any]:
    """Check a user's rule, and return it as it is stored, without `immediately`.

    Raises `UsageError` (`CronError` for the pattern), naming field, value and rule.

    Source: specs/04-schedulers-flows-events.md#sec-4-2, specs/06-later-versions.md#sec-4-6-7
    """
    if not isinstance(repeat, RepeatOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError("repeat", repeat, "must be a RepeatOptions")
    rule: dict[str, Any] = {}
    start = None if repeat.start_date is UNSET else given_moment("start_date", repeat.start_date)
    end = None if repeat.end_date is UNSET else given_moment("end_date", repeat.end_date)
    if end is not None and end < now:
        raise UsageError("end_date", repeat.end_date, "must be greater than the current timestamp")
    if end is not None and start is not None and end < start:
        raise UsageError("end_date", repeat.end_date, "must not be before start_date")
    if repeat.every is not UNSET:
        if repeat.pattern is not UNSET:
            raise UsageError("every", repeat.every, "must not be given together with pattern")
        rule["every"] = check_whole("every", to_ms("every", repeat.every), least=1)
    elif repeat.pattern is UNSET:
        raise UsageError("pattern", None, "must be given, or every")
    else:
        rule["pattern"] = check_name("pattern", repeat.pattern, max_length=None)
        check_pattern(rule["pattern"], dialect=switches.cron)
    if check_flag("immediately", repeat.immediately) and start is not None:
        raise UsageError("immediately", True, "must not be given together with start_date")
    if repeat.tz is not UNSET:
        if not isinstance(repeat.tz, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("tz", repeat.tz, _NO_NAME)
        rule["tz"] = plain(repeat.tz)
        find_zone(rule["tz"], zones)
    if switches.cron == "common" and "pattern" in rule:
        rule["tz"] = _zone_for_all(rule.get("tz", LOCAL), now, zones)
    if repeat.limit is not UNSET:
        rule["limit"] = check_whole("limit", repeat.limit, least=1)
    if repeat.offset is not UNSET:
        offset = check_whole("offset", to_ms("offset", repeat.offset), least=0)
        rule["offset"] = offset if "every" in rule and switches.scheduler_rules != "5.62" else None
    if start is not None:
        rule["startDate"] = start
    if end is not None:
        rule["endDate"] = end
    return rule


def _zone_for_all(name: str, now: Millis, zones: Zones) -> str:
    """Return a zone by a name that every process takes for the same one. Raises `UsageError`."""
    zone = find_zone(name, zones)
    own = str(getattr(zone, "key", name))
    if own.lower() in _HALF_HOURS:
        rule = f"changes its clock by half an hour, which BullMQ 5 and 6 follow in two ways; {_TAKE_ANY_ZONE}"
        raise UsageError("tz", own, rule)
    if own.lower() not in _LOCAL_NAMES:
        return own
    moments = [datetime.fromtimestamp(now // 1000 + months * _MONTH_S, zone) for months in (0, 3, 6, 9)]
    if any(moment.utcoffset() for moment in moments):
        rule = f"must be an IANA name: other processes have local zones of their own; {_TAKE_ANY_ZONE}"
        raise UsageError("tz", name, rule)
    return "UTC"


_TAKE_ANY_ZONE: Final = "the profiles STRICT and V6_7 take it"
_NO_NAME: Final = "must be a string: an IANA name, utc, UTC+3 or local; leave it out for the local zone"
_UNKNOWN_ZONE: Final = (
    "is no known time zone: an IANA name, utc, UTC+3 or local"
    " (a system without zone data needs pip install 'bullmq-protocol[cron]')"
)


def find_zone(name: object, zones: Zones) -> tzinfo:
    """Return the zone of this name.

    Raises `UsageError` where it is not known.

    Source: specs/04-schedulers-flows-events.md#sec-5-1
    """
    found = None
    if isinstance(name, str):
        found = zones(LOCAL) if name.lower() in _LOCAL_NAMES else fixed_zone(name) or zones(name)
    if found is None:
        raise UsageError("tz", name, _UNKNOWN_ZONE)
    return found


def next_due(
    rule: Mapping[str, Any], *, now: Millis, previous: object = None, zones: Zones, dialect: Dialect = "4.9"
) -> Due | None:
    """Return the job that follows by a stored rule, or None where the rule has come to its end.

    `previous` is the slot of the job before (`prevMillis`), `dialect` that of a pattern. Raises `UsageError` for a rule
    that cannot be followed.

    Source: specs/04-schedulers-flows-events.md#sec-4-3
    """
    pattern, every = rule.get("pattern"), rule.get("every")
    if pattern and every:
        raise UsageError("every", every, "must not be given together with pattern")
    if not (pattern or every):
        raise UsageError("pattern", pattern, "must be given, or every")
    start, end = stored_moment("startDate", rule, zones), stored_moment("endDate", rule, zones)
    if rule.get("immediately") and start is not None:
        raise UsageError("immediately", True, "must not be given together with startDate")
    iteration = next_iteration(rule, now=now, end=end)
    if iteration is None or not pattern:
        return None if iteration is None else Due(iteration)
    reference = max(now, number_of(previous) or 0)
    next_at = next_slot(rule, pattern, reference, now=now, start=start, end=end, zones=zones, dialect=dialect)
    return None if next_at is None else Due(iteration, max(next_at, math.floor(reference)))


def next_iteration(rule: Mapping[str, Any], *, now: Millis, end: float | None) -> int | None:
    """Return the number of the next job, None beyond the limit or the end."""
    iteration = cast("int", double(math.floor(number_of(rule.get("count")) or 0) + 1))
    limit = number_of(rule.get("limit"))
    return None if (limit is not None and iteration > limit) or (end is not None and now > end) else iteration


def next_slot(
    rule: Mapping[str, Any],
    pattern: object,
    reference: float,
    *,
    now: Millis,
    start: float | None,
    end: float | None,
    zones: Zones,
    dialect: Dialect = "4.9",
) -> Millis | None:
    """Return the first match of the rule's pattern after the reference time, and after its start; None without one."""
    if not isinstance(pattern, str):
        raise UsageError("pattern", pattern, "must be a string")
    cron = parse_cron(pattern, nth=number_of(rule.get("nthDayOfWeek")), dialect=dialect)
    zone = UTC if rule.get("utc") else find_zone(LOCAL if rule.get("tz") is None else rule["tz"], zones)
    if rule.get("immediately"):
        return now
    try:
        return next_run(cron, math.floor(max(reference, start or 0)), zone, end=end)
    except NoNextRun:
        return None


def stored_moment(field: str, rule: Mapping[str, Any], zones: Zones) -> float | None:
    """Return a date of a stored rule in milliseconds: a number, or text as JavaScript reads it; None without one."""
    value = rule.get(field)
    if isinstance(value, str) and value:
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            raise UsageError(field, value, "must be a date in ISO 8601") from None
        if found.tzinfo is None:
            # A date alone is in UTC, a time without a zone in that of the process.
            found = found.replace(tzinfo=UTC if _is_date(value) else find_zone(LOCAL, zones))
        return _ms(found)
    return number_of(value) or None


def number_of(value: object) -> float | None:
    """Return a finite number of a stored rule; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    number = double(value)
    return number if math.isfinite(number) else None


def options_of_next(
    base: Mapping[str, Any],
    rule: Mapping[str, Any],
    scheduler_id: str,
    due: Due,
    *,
    now: Millis,
    zones: Zones,
    switches: Switches = STRICT_SWITCHES,
) -> dict[str, Any]:
    """Lay what belongs to the next job over its other options (`base`), and return all in the order of BullMQ.

    Source: specs/04-schedulers-flows-events.md#sec-4-4
    """
    options = {name: value for name, value in base.items() if name != "repeatJobKey"}
    options["repeat"] = {
        **{name: value for name, value in rule.items() if name != "immediately"},
        "offset": None if switches.scheduler_rules == "5.62" else number_of(rule.get("offset")),
        "count": due.iteration,
        "startDate": stored_moment("startDate", rule, zones),
        "endDate": stored_moment("endDate", rule, zones),
    }
    next_at = due.next_at
    options["jobId"] = f"repeat:{scheduler_id}:{'undefined' if next_at is None else next_at}"
    options["delay"] = 0 if next_at is None else max(0, next_at - now)
    options["timestamp"] = now
    options["prevMillis"] = next_at
    if next_at is None:
        del options["prevMillis"]
    options["repeatJobKey"] = scheduler_id
    return options


def prepare_scheduler(
    keys: QueueKeys,
    scheduler_id: str,
    repeat: RepeatOptions,
    template: NewJob,
    *,
    defaults: JobOptions = JobOptions(),  # noqa: B008
    limits: Limits = DEFAULT_LIMITS,
    now_ms: Millis,
    zones: Zones,
    data_type: Any = Any,
    metadata: str | None = None,
) -> PreparedScheduler | None:
    """Check and serialise a scheduler and its first job; None when it would have no run.

    `metadata` is a trace context for its jobs, unless the template has one or omits it.

    Raises `UsageError`, naming field, value and rule.

    Source: specs/04-schedulers-flows-events.md#sec-4-2
    """
    scheduler_id = check_scheduler_id(scheduler_id, limits)
    switches = keys.switches
    rule = rule_of(repeat, now=now_ms, zones=zones, switches=switches)
    name, data, options, data_type = resolved(template, data_type)
    for field in given(options):
        if field in _NOT_IN_TEMPLATES:
            raise UsageError(field, getattr(options, field), "has no place in a scheduler's template")
    template = NewJob(name, UNSET if data is None else data, options)
    defaults = msgspec.structs.replace(defaults, **dict.fromkeys(_NOT_IN_TEMPLATES, UNSET))
    job = prepare(keys, template, defaults=defaults, limits=limits, now_ms=now_ms, data_type=data_type)
    warnings = job.warnings
    if repeat.immediately and repeat.every is not UNSET:
        warnings += ("immediately has no effect together with every: the first job is due now anyway",)
    due = next_due({**rule, "immediately": repeat.immediately}, now=now_ms, zones=zones, dialect=switches.cron)
    if due is None:
        return None
    base = _template(merged(defaults, options))
    first = base if metadata is None or base.get("tm") or base.get("omc") else {**base, "tm": metadata}
    return PreparedScheduler(
        scheduler_id=scheduler_id,
        name=job.name,
        data_text=job.data_text,
        rule=rule,
        template=base,
        options=options_of_next(first, rule, scheduler_id, due, now=now_ms, zones=zones, switches=switches),
        next_at=due.next_at,
        now=now_ms,
        warnings=warnings,
    )


def _template(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a record keeps: as those of a job, but nothing is filled in, and all keeps its order."""
    template: dict[str, Any] = {}
    for field, value in found.items():
        if field == "backoff" and not isinstance(value, Backoff):
            template["backoff"] = duration_number(value)
            continue
        stored = stored_of({field: value})
        if field != "attempts" and "attempts" not in found.get("extra", ()):
            del stored["attempts"]
        template.update(stored)
    return template


def given_moment(field: str, value: object) -> Millis:
    """Return a user's moment in milliseconds. Raises `UsageError`."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise UsageError(field, value, "must have a time zone")
        return _ms(value)
    if type(value) is not int:
        raise UsageError(field, value, "must be milliseconds since the epoch, or a datetime with a time zone")
    return check_whole(field, value, least=1)


def _ms(moment: datetime) -> Millis:
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
