"""Exceptions as they may be logged."""

import traceback
from typing import Any

import pytest

from bullmq_protocol.errors import without_login
from bullmq_protocol.observability.redacted import redacted

SECRET = "redis://:hunter2@host/0"


def without_logins(exc: BaseException) -> BaseException:
    return redacted(exc, without_login)


def raised(make: Any) -> BaseException:
    try:
        make()
    except BaseException as error:
        return error
    raise AssertionError


def text_of(exc: BaseException) -> str:
    return "".join(traceback.format_exception(exc))


def plain() -> None:
    try:
        raise LookupError("inner")
    except LookupError as error:
        raise ValueError("outer") from error


def in_message() -> None:
    raise ConnectionError(f"cannot reach {SECRET}")


def in_cause() -> None:
    try:
        in_message()
    except ConnectionError as error:
        raise ValueError("outer") from error


def in_context() -> None:
    try:
        in_message()
    finally:
        raise ValueError("outer")


def suppressed() -> None:
    try:
        in_message()
    except ConnectionError:
        raise ValueError("outer") from None


def in_note() -> None:
    error = ValueError("outer")
    error.add_note("seen at " + SECRET)
    error.add_note("and again")
    raise error


def in_group() -> None:
    raise ExceptionGroup("some", [ValueError("one"), ExceptionGroup("inner", [raised(in_message)])])  # type: ignore[list-item]


def in_exit() -> None:
    raise SystemExit("at " + SECRET)


def test_what_holds_no_login_is_itself() -> None:
    error = raised(plain)
    assert without_logins(error) is error


@pytest.mark.parametrize(
    "make", [in_message, in_cause, in_context, suppressed, in_note, in_group, in_exit], ids=lambda each: each.__name__
)
def test_a_stand_in_shows_all_but_the_login(make: Any) -> None:
    error = raised(make)
    shown = without_logins(error)
    assert shown is not error
    assert type(shown).__name__ == type(error).__name__
    assert type(shown).__module__ == type(error).__module__
    assert isinstance(shown, Exception) is isinstance(error, Exception)
    before, after = text_of(error), text_of(shown)
    assert "hunter2" not in after
    assert "hunter2" in before or make is suppressed
    assert after.count("Traceback") == before.count("Traceback")
    assert after.count("  File ") == before.count("  File ")
    assert ("outer" in after) is ("outer" in before)
    assert shown.__traceback__ is error.__traceback__


def test_circles_and_long_chains_end() -> None:
    first, second = ValueError(SECRET), ValueError("two")
    first.__cause__, second.__cause__ = second, first
    shown = without_logins(first)
    assert shown.__cause__ is not None
    assert shown.__cause__.__cause__ is shown
    error: BaseException = ValueError(SECRET)
    for _ in range(300):
        outer = ValueError("outer")
        outer.__context__ = error
        error = outer
    assert without_logins(error) is error


def test_what_cannot_be_looked_at_has_a_bare_stand_in() -> None:
    class Unprintable(Exception):
        @property
        def __notes__(self) -> Any:
            raise LookupError

    error = raised(lambda: (_ for _ in ()).throw(Unprintable("own words")))
    shown = without_logins(error)
    assert type(shown).__name__ == "Unprintable"
    assert str(shown) == "own words"
    assert shown.__traceback__ is error.__traceback__

    class Interrupting(Exception):
        @property
        def __notes__(self) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        without_logins(Interrupting())


def test_what_cannot_say_anything_does_no_harm() -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise SystemExit

    silent = Silent()
    silent.__notes__ = [3]  # type: ignore[list-item]
    outer = ValueError(SECRET)
    outer.__context__ = silent
    assert without_logins(silent) is silent
    assert type(without_logins(outer).__context__).__name__ == "Silent"
    group = BaseExceptionGroup("some " + SECRET, [silent])
    assert [type(each).__name__ for each in without_logins(group).exceptions] == ["Silent"]  # type: ignore[attr-defined]
