"""Exceptions as they may be logged: those whose texts may not be shown as they are have stand-ins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from bullmq_protocol.model.categories import members_of, name_of, text_of

_MOST: Final = 100
"""How many exceptions of a chain are looked at: no more are shown."""


def redacted(exc: BaseException, show: Callable[[str], str]) -> BaseException:
    """Return an exception for the log: itself, or where `show` makes something else of a text of it or of its causes,
    one of the same name, traceback and causes that has those texts. One that cannot be looked at has neither causes
    nor notes. It never raises, whatever the exception holds (but for Ctrl-C, which comes where it comes)."""
    try:
        return _redacted(exc, show)
    except KeyboardInterrupt:
        raise
    except BaseException:
        made = type(name_of(exc), (Exception,), {})
        return cast("BaseException", made(show(text_of(exc)))).with_traceback(_traceback_of(exc))


_traceback_of: Callable[[BaseException], Any] = BaseException.__dict__["__traceback__"].__get__


def _redacted(exc: BaseException, show: Callable[[str], str]) -> BaseException:
    chain: list[BaseException] = []
    rest = [exc]
    known: set[int] = set()
    while rest and len(chain) < _MOST:
        each = rest.pop()
        if id(each) not in known:
            known.add(id(each))
            chain.append(each)
            rest += [*_causes(each), *members_of(each)]
    if all(show(text) == text for each in chain for text in (text_of(each), *_notes(each))):
        return exc
    made = {id(each): _stand_in(each, show) for each in reversed(chain) if not members_of(each)}
    for each in reversed(chain):
        members = [made[id(inner)] for inner in members_of(each) if id(inner) in made]
        if id(each) not in made:
            made[id(each)] = _stand_in(each, show, members)
    for each in chain:
        shown = made[id(each)]
        cause, context = each.__cause__, each.__context__
        shown.__cause__ = None if cause is None else made.get(id(cause))
        shown.__context__ = None if context is None else made.get(id(context))
        shown.__suppress_context__ = each.__suppress_context__
    return made[id(exc)]


def _causes(exc: BaseException) -> list[BaseException]:
    return [each for each in (exc.__cause__, exc.__context__) if each is not None]


def _notes(exc: BaseException) -> list[str]:
    notes = getattr(exc, "__notes__", None)
    return [each for each in cast("Any", notes) if isinstance(each, str)] if isinstance(notes, list) else []


def _stand_in(
    exc: BaseException, show: Callable[[str], str], members: list[BaseException] | None = None
) -> BaseException:
    kind = type(exc)
    is_exception = isinstance(exc, Exception)
    if members:
        base: Any = ExceptionGroup if is_exception else BaseExceptionGroup
    else:
        base = Exception if is_exception else BaseException
    made = type(name_of(exc), (base,), {"__module__": kind.__module__, "__qualname__": kind.__qualname__})
    # A group adds to its own words how many exceptions are in it.
    text = show(str(cast("Any", exc).message) if members else text_of(exc))
    shown = cast("BaseException", made(text, members) if members else made(text))
    for note in _notes(exc):
        shown.add_note(show(note))
    return shown.with_traceback(exc.__traceback__)
