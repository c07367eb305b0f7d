"""Stack texts are Python's own, the first time and the next."""

from __future__ import annotations

import gc
import linecache
import traceback
import weakref
from collections.abc import Callable
from functools import partial
from types import CodeType, SimpleNamespace, TracebackType
from typing import Any

import pytest

import bullmq_protocol.observability.stack
from bullmq_protocol.observability.stack import StackTexts
from tests.support.raising import raised


def fails() -> None:
    raise ValueError("boom")


def fails_deeper() -> None:
    (lambda: [fails() for _ in range(1)])()


def with_cause() -> None:
    try:
        fails()
    except ValueError as error:
        raise RuntimeError("again") from error


def with_context() -> None:
    try:
        fails()
    finally:
        raise RuntimeError("again")


def without_context() -> None:
    try:
        fails()
    except ValueError:
        raise RuntimeError("again") from None


def with_notes() -> None:
    error = ValueError("two\nlines")
    error.add_note("a note\nof two lines")
    raise error


def in_a_group() -> None:
    try:
        fails()
    except ValueError as error:
        raise ExceptionGroup("several", [error, KeyError("x")]) from None


def recurring(depth: int = 10) -> None:
    if depth:
        recurring(depth - 1)
    fails()


def alternating(depth: int = 300) -> None:
    if not depth:
        fails()
    if depth % 2:
        alternating(depth - 1)
    else:
        alternating(depth - 1)


def recurring_deeply() -> None:
    recurring(600)


def recurring_twice() -> None:
    recurring(2)


def recurring_thrice() -> None:
    # Python leaves nothing out yet.
    recurring(3)


def recurring_four_times() -> None:
    recurring(4)


def no_such_name() -> None:
    return falis()  # type: ignore[name-defined]  # noqa: F821


def no_such_attribute() -> None:
    SimpleNamespace(colour=1).color  # noqa: B018


def bad_syntax() -> None:
    compile("a = (1,\nb = 2", "some file", "exec")


def in_generated_code() -> None:
    exec(compile("def f():\n  raise OSError(2, 'no file')\nf()", "<generated>", "exec"), {})


def exits() -> None:
    raise SystemExit(3)


CASES: list[Callable[[], object]] = [
    fails,
    fails_deeper,
    with_cause,
    with_context,
    without_context,
    with_notes,
    in_a_group,
    recurring,
    recurring_deeply,
    recurring_twice,
    recurring_thrice,
    recurring_four_times,
    alternating,
    no_such_name,
    no_such_attribute,
    bad_syntax,
    in_generated_code,
    exits,
]


def pythons(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("call", CASES)
def test_text_is_pythons_own(call: Callable[[], object]) -> None:
    texts = StackTexts()
    for _ in range(2):
        error = raised(call)
        assert texts.of(error) == pythons(error)


def test_texts_are_kept_apart() -> None:
    texts = StackTexts()
    errors = [raised(call) for call in CASES]
    for error in errors * 2:
        assert texts.of(error) == pythons(error)


def through_the_library(call: Callable[[], object]) -> Callable[[], object]:
    """Return what calls it from frames of the library, which calls it from others."""
    code = "def serve(call): process(call)\ndef process(call): call()"
    for module in (
        "bullmq_protocol.common.codec",
        "bullmq_sync.worker",
        "bullmq_anyio.worker",
        "bullmq_django.running",
    ):
        space: dict[str, Any] = {"__name__": module}
        exec(compile(code, "library.py", "exec"), space)
        call = partial(space["serve"], call)
    return call


def caught(call: Callable[[], object]) -> BaseException:
    """Return what it raises, without the frame of this function."""
    error = raised(call)
    assert error.__traceback__ is not None
    return error.with_traceback(error.__traceback__.tb_next)


@pytest.mark.parametrize("call", CASES)
def test_text_begins_with_the_users_frames(call: Callable[[], object]) -> None:
    texts = StackTexts()
    for _ in range(2):
        assert texts.of(caught(through_the_library(call))) == texts.of(caught(call))


def test_frames_of_the_library_below_the_users_stay() -> None:
    def users() -> None:
        through_the_library(fails)()

    text = StackTexts().of(caught(through_the_library(users)))
    assert text.count("library.py") == 8
    assert text.index("in users") < text.index("library.py")


def test_error_of_the_library_alone_has_no_frames() -> None:
    space: dict[str, Any] = {"__name__": "bullmq_anyio"}
    exec("def decode(): raise ValueError('does not fit')", space)
    assert StackTexts().of(caught(space["decode"])) == "ValueError: does not fit\n"


class _Says(Exception):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __str__(self) -> str:
        raise self.error


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), ValueError(3)])
def test_whatever_an_exception_raises_when_it_is_asked(error: BaseException) -> None:
    assert "_Says" in StackTexts().of(_Says(error))


class _Stumbling:
    """Stands for `traceback`, and raises whatever it is asked."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __getattr__(self, name: str) -> Any:
        raise self.error


def test_ctrl_c_ends_the_text_and_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt = KeyboardInterrupt()
    for error, text in ((ValueError("boom"), "ValueError: boom"), (_Says(SystemExit()), "_Says")):
        monkeypatch.setattr(bullmq_protocol.observability.stack, "traceback", _Stumbling(SystemExit(3)))
        assert StackTexts().of(error) == text
        monkeypatch.setattr(bullmq_protocol.observability.stack, "traceback", _Stumbling(interrupt))
        with pytest.raises(KeyboardInterrupt):
            StackTexts().of(error)
    monkeypatch.setattr(bullmq_protocol.observability.stack, "traceback", _Stumbling(SystemExit(3)))
    with pytest.raises(KeyboardInterrupt):
        StackTexts().of(_Says(interrupt))


def test_exception_that_was_never_raised() -> None:
    assert StackTexts().of(ValueError("boom")) == "ValueError: boom\n"


def test_stack_that_another_library_made() -> None:
    error = raised(fails)
    assert error.__traceback__ is not None
    texts = StackTexts()
    for line in (2, 7):
        made = TracebackType(None, error.__traceback__.tb_frame, error.__traceback__.tb_lasti, line)
        assert texts.of(error.with_traceback(made)) == pythons(error)


def test_places_are_formatted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    format_tb = traceback.format_tb

    def counted(*args: Any, **kwargs: Any) -> list[str]:
        calls.append(args)
        return format_tb(*args, **kwargs)

    monkeypatch.setattr(traceback, "format_tb", counted)
    texts = StackTexts()
    for _ in range(5):
        assert texts.of(raised(fails_deeper)).endswith("ValueError: boom\n")
    assert len(calls) in (4, 5)  # Python 3.12 has no frame for the comprehension


@pytest.mark.parametrize("call", [recurring_deeply, alternating])
def test_deep_stacks_are_not_left_to_python(monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> None:
    # It formats each frame anew, and takes up to a second.
    error = raised(call)
    text = pythons(error)
    monkeypatch.delattr(traceback, "format_exception")
    assert StackTexts().of(error) == text


def test_number_of_places_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bullmq_protocol.observability.stack, "_MOST_PLACES", 3)
    texts = StackTexts()
    for call in CASES * 2:
        error = raised(call)
        assert texts.of(error) == pythons(error)
        assert len(texts._places) <= 3


def test_code_whose_id_is_used_again_is_another() -> None:
    texts = StackTexts()
    for number in range(50):
        name = f"<made {number}>"
        source = f"raise ValueError({number})"
        linecache.cache[name] = (len(source), None, [source], name)
        error = raised(lambda name=name, source=source: exec(compile(source, name, "exec"), {}))  # type: ignore[misc]
        text = texts.of(error)
        assert text == pythons(error)
        assert source in text
        del linecache.cache[name], error


def test_code_is_not_kept() -> None:
    texts = StackTexts()

    def fail() -> weakref.ref[CodeType]:
        code = compile("raise ValueError('x')", "<gone>", "exec")
        error = raised(lambda: exec(code))
        assert texts.of(error) == pythons(error)
        return weakref.ref(code)

    known = fail()
    gc.collect()
    assert known() is None


class Unprintable(Exception):
    """Raises when its attributes are looked at, as some clients' errors do."""

    def __getattr__(self, name: str) -> object:
        raise KeyError(name)

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Unreadable(Exception):
    __traceback__ = property(lambda self: 1 / 0)  # type: ignore[assignment]


def test_exceptions_that_cannot_be_printed() -> None:
    texts = StackTexts()
    for error in (Unprintable(), raised(lambda: (_ for _ in ()).throw(Unprintable())), Unreadable("boom")):
        assert type(error).__name__ in texts.of(error)
    odd: Any = ("f", "x", "y", "z")
    assert "SyntaxError" in texts.of(SyntaxError("odd", odd))
