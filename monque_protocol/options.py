"""Options of a scheduler, and the checks of what callers give, with Monque's limits.

Source: specs/monque.md#sec-9
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from bullmq_protocol.common.units import Duration, Millis, check_flag, check_whole, to_ms
from bullmq_protocol.errors import UsageError
from monque_protocol.errors import InvalidJobIdentifierError, PayloadTooLargeError

MAX_NAME: Final = 255
MAX_KEY: Final = 1024
DEFAULT_COLLECTION: Final = "monque_jobs"
_FAR: Final[Millis] = 2**53
# White space of JavaScript, which is not quite that of Python.
_BLANKS: Final = frozenset(
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f"
    "\u3000\ufeff"
)


class JobRetention(Struct, frozen=True, kw_only=True):
    """When completed and failed jobs are deleted.

    Args:
        completed: How long completed jobs are kept: milliseconds, or a `timedelta`; 0 deletes all. By default, None,
            they are kept for ever.
        failed: The same for failed jobs; None by default.
        interval: How often it is looked for them: milliseconds, or a `timedelta`; an hour by default.

    Source: specs/monque.md#sec-5-14

    Examples:
        >>> JobRetention(completed=86_400_000).interval
        3600000
    """

    completed: Duration | None = None
    failed: Duration | None = None
    interval: Duration = 3_600_000


class SchedulerOptions(Struct, frozen=True, kw_only=True):
    """Monque's options, by its names; durations in milliseconds, or as a `timedelta`.

    Args:
        collection_name: The collection of the jobs, `monque_jobs` by default.
        poll_interval: How often due jobs are looked for; 1,000 milliseconds by default.
        safety_poll_interval: The same while a change stream reports new jobs; 30,000 milliseconds by default.
        max_retries: After how many runs a job has failed for good; 10 by default, the first run included.
        base_retry_interval: Half the delay before the second run, doubled for each further one; 1,000 milliseconds by
            default.
        max_backoff_delay: The longest such delay, 86,400,000 milliseconds by default; None: no bound.
        shutdown_timeout: How long `stop` waits for running jobs; 30,000 milliseconds by default.
        worker_concurrency: How many jobs of a name run concurrently unless its handler says otherwise; 5 by default.
        instance_concurrency: How many jobs of all names run concurrently; by default, None, there is no bound.
        lock_timeout: How long a job may be locked before a scheduler that starts takes it from its owner; 1,800,000
            milliseconds by default.
        recover_stale_jobs: Whether this one does so when it starts; True by default.
        scheduler_instance_id: The owner's name in the jobs that this scheduler runs; by default, None, a random UUID.
        heartbeat_interval: How often running jobs get a sign of life; 30,000 milliseconds by default.
        job_retention: When completed and failed jobs are deleted; never by default, None.
        skip_index_creation: Whether somebody else makes the indexes; False by default.
        max_payload_size: The largest payload in bytes of BSON; by default, None, what the server takes.
        stats_cache_ttl: How long counts are kept; 5,000 milliseconds by default, 0: not at all.
        change_streams: Whether change streams are tried as a hint to look for jobs; True by default.
        change_stream_retry: How long after its failure a change stream is opened again, doubled for each further
            attempt of three; 1,000 milliseconds by default.

    Source: specs/monque.md#sec-9-1

    Examples:
        >>> SchedulerOptions(max_retries=3).poll_interval
        1000
    """

    collection_name: str = DEFAULT_COLLECTION
    poll_interval: Duration = 1_000
    safety_poll_interval: Duration = 30_000
    max_retries: int = 10
    base_retry_interval: Duration = 1_000
    max_backoff_delay: Duration | None = 86_400_000
    shutdown_timeout: Duration = 30_000
    worker_concurrency: int = 5
    instance_concurrency: int | None = None
    lock_timeout: Duration = 1_800_000
    recover_stale_jobs: bool = True
    scheduler_instance_id: str | None = None
    heartbeat_interval: Duration = 30_000
    job_retention: JobRetention | None = None
    skip_index_creation: bool = False
    max_payload_size: int | None = None
    stats_cache_ttl: Duration = 5_000
    change_streams: bool = True
    change_stream_retry: Duration = 1_000


class Settings(Struct, frozen=True, kw_only=True):
    """Options that were checked; durations are whole milliseconds, and `me` is the owner's name."""

    collection: str
    poll_ms: Millis
    safety_poll_ms: Millis
    max_retries: int
    base_retry_ms: Millis
    max_backoff_ms: Millis | None
    shutdown_ms: Millis
    concurrency: int
    instance_concurrency: int | None
    lock_ms: Millis
    recovers: bool
    me: str
    heartbeat_ms: Millis
    retains: bool
    keep_completed_ms: Millis | None
    keep_failed_ms: Millis | None
    retention_ms: Millis
    makes_indexes: bool
    max_payload: int | None
    stats_ms: Millis
    change_streams: bool
    stream_retry_ms: Millis


def settings_of(options: SchedulerOptions, *, random_id: str) -> Settings:
    """Check the options; `random_id` is the owner's name where they have none.

    Raises `UsageError`, which names the option, its value and the rule.

    Source: specs/monque.md#sec-9-1
    """
    retention = options.job_retention
    if retention is not None and not isinstance(retention, JobRetention):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError("job_retention", retention, "must be a JobRetention")
    keep = retention or JobRetention()
    me = options.scheduler_instance_id
    return Settings(
        collection=_text("collection_name", options.collection_name),
        poll_ms=_duration("poll_interval", options.poll_interval, least=1),
        safety_poll_ms=_duration("safety_poll_interval", options.safety_poll_interval, least=1),
        max_retries=check_whole("max_retries", options.max_retries, least=0),
        base_retry_ms=_duration("base_retry_interval", options.base_retry_interval),
        max_backoff_ms=_optional("max_backoff_delay", options.max_backoff_delay),
        shutdown_ms=_duration("shutdown_timeout", options.shutdown_timeout),
        concurrency=check_concurrency("worker_concurrency", options.worker_concurrency),
        instance_concurrency=None
        if options.instance_concurrency is None
        else check_concurrency("instance_concurrency", options.instance_concurrency),
        lock_ms=_duration("lock_timeout", options.lock_timeout, least=1),
        recovers=check_flag("recover_stale_jobs", options.recover_stale_jobs),
        me=random_id if me is None else _text("scheduler_instance_id", me),
        heartbeat_ms=_duration("heartbeat_interval", options.heartbeat_interval, least=1),
        retains=retention is not None,
        keep_completed_ms=_optional("job_retention.completed", keep.completed),
        keep_failed_ms=_optional("job_retention.failed", keep.failed),
        retention_ms=_duration("job_retention.interval", keep.interval, least=1),
        makes_indexes=not check_flag("skip_index_creation", options.skip_index_creation),
        max_payload=None
        if options.max_payload_size is None
        else check_whole("max_payload_size", options.max_payload_size, least=1),
        stats_ms=_duration("stats_cache_ttl", options.stats_cache_ttl),
        change_streams=check_flag("change_streams", options.change_streams),
        stream_retry_ms=_duration("change_stream_retry", options.change_stream_retry, least=1),
    )


def check_concurrency(field: str, value: object) -> int:
    """Return how many jobs run concurrently: from 0 on, where 0 never claims. Raises `UsageError`."""
    return check_whole(field, value, least=0)


def _duration(field: str, value: object, *, least: Millis = 0) -> Millis:
    return check_whole(field, to_ms(field, value), least=least, most=_FAR)


def _optional(field: str, value: object) -> Millis | None:
    return None if value is None else _duration(field, value)


def _text(field: str, value: object) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise UsageError(field, value, "must be text, not empty, without NUL")
    return value


def check_name(name: object) -> str:
    """Return the name of a job, or raise `InvalidJobIdentifierError` (`UsageError` for what is no text).

    Source: specs/monque.md#sec-9-2
    """
    text = _identifier("name", "Job name", MAX_NAME, name)
    if any(letter in _BLANKS or _is_control(letter) for letter in text):
        raise InvalidJobIdentifierError("name", name, "Job name cannot contain whitespace or control characters.")
    return text


def check_key(key: object) -> str:
    """Return a unique key, or raise `InvalidJobIdentifierError` (`UsageError` for what is no text).

    Source: specs/monque.md#sec-9-2
    """
    text = _identifier("unique_key", "Unique key", MAX_KEY, key)
    if any(_is_control(letter) for letter in text):
        raise InvalidJobIdentifierError("unique_key", key, "Unique key cannot contain control characters.")
    return text


def _identifier(field: str, what: str, most: int, value: object) -> str:
    if not isinstance(value, str):
        raise UsageError(field, value, "must be text")
    if all(letter in _BLANKS for letter in value):
        raise InvalidJobIdentifierError(field, value, f"{what} cannot be empty or whitespace only.")
    # JavaScript counts in UTF-16.
    if len(value) + sum(letter > "\uffff" for letter in value) > most:
        raise InvalidJobIdentifierError(field, value, f"{what} cannot exceed {most} characters.")
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise UsageError(field, value, "must be such that UTF-8 can hold it: no lone surrogates")
    return value


def _is_control(letter: str) -> bool:
    return unicodedata.category(letter) == "Cc"


def check_payload(size: int, settings: Settings) -> None:
    """Refuse a payload whose BSON document `{data: ...}` has more bytes than allowed.

    Raises `PayloadTooLargeError`.

    Source: specs/monque.md#sec-9-1
    """
    if settings.max_payload is not None and size > settings.max_payload:
        raise PayloadTooLargeError(size, settings.max_payload)


def options_from(options: SchedulerOptions | None, given: Mapping[str, Any]) -> SchedulerOptions:
    """Return the options of a scheduler, as a struct or as keywords, not as both.

    Raises `UsageError`.
    """
    if options is None:
        known = frozenset(SchedulerOptions.__struct_fields__)
        for name, value in given.items():
            if name not in known:
                raise UsageError(name, value, "is no option of a scheduler")
        return SchedulerOptions(**given)
    if not isinstance(options, SchedulerOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError("options", options, "must be SchedulerOptions")
    if given:
        raise UsageError("options", options, "must not stand beside options by keywords")
    return options
