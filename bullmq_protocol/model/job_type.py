"""A kind of job as a value that producers and workers share: its name, payload, result and options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from bullmq_protocol.common.keys import check_name
from bullmq_protocol.common.payloads import DataType, payload_type
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.options import JobOptions, merged

P = TypeVar("P")
R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")

_NO_OPTIONS = JobOptions()


@dataclass(frozen=True, init=False, slots=True)
class JobType(Generic[P, R]):
    """A kind of job: the types of its payload and its result, and the options of its jobs. A frozen value.

    `queue.add(WELCOME, Welcome(...))` adds such a job, `@router(WELCOME)` handles it, and type checkers know both
    types.

    Args:
        name: The name of its jobs: any text that is not empty.
        data_type: The type that the payload is checked against and read into, as in `Queue(data_type=...)`. None, the
            default: JSON values.
        result: The type of the handler's result, in the same way. None, the default: any JSON value.
        options: The options of its jobs, which override the queue's `default_job_options`; those given to `add`
            override both. None are set by default.

    Source: specs/01-data-model-and-adding.md#sec-8-1

    Examples:
        >>> WELCOME = JobType("welcome", dict[str, str], result=str, options=JobOptions(attempts=3))
        >>> WELCOME.name, WELCOME.options.attempts
        ('welcome', 3)
    """

    name: str
    data_type: Any
    result_type: Any
    options: JobOptions

    @overload
    def __init__(
        self: JobType[Any, Any], name: str, data_type: None = None, *, result: None = None, options: JobOptions = ...
    ) -> None: ...
    @overload
    def __init__(
        self: JobType[Any, B],
        name: str,
        data_type: None = None,
        *,
        result: DataType[B],
        options: JobOptions = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: JobType[A, Any],
        name: str,
        data_type: DataType[A],
        *,
        result: None = None,
        options: JobOptions = ...,
    ) -> None: ...
    @overload
    def __init__(
        self, name: str, data_type: DataType[P], *, result: DataType[R], options: JobOptions = ...
    ) -> None: ...

    def __init__(
        self, name: str, data_type: Any = None, *, result: Any = None, options: JobOptions = _NO_OPTIONS
    ) -> None:
        payload_type("data_type", data_type)
        payload_type("result", result)
        if not isinstance(options, JobOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("options", options, "must be a JobOptions, such as JobOptions(attempts=3)")
        fields = {
            "name": check_name("name", name, max_length=None),
            "data_type": Any if data_type is None else data_type,
            "result_type": Any if result is None else result,
            "options": options,
        }
        for field, value in fields.items():
            object.__setattr__(self, field, value)

    def __hash__(self) -> int:
        # Options hold what has no hash.
        return hash(self.name)

    def with_options(self, options: JobOptions | None) -> JobOptions:
        """Return the options of one job: these on top of its own; None adds nothing. Raises `UsageError`."""
        if options is None or options == _NO_OPTIONS:
            # The same object for all of them: what was made of it is remembered by that.
            return self.options
        try:
            return JobOptions(**merged(self.options, options))
        except TypeError:
            if isinstance(options, JobOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise
            raise UsageError("options", options, "must be a JobOptions, such as JobOptions(delay=1000)") from None
