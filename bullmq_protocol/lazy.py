"""What is made when it is first asked for, so that importing is quick: modules, patterns, the names of a package."""

import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, AnyStr, cast

METHODS = ("finditer", "findall", "fullmatch", "match", "search", "sub")
"""What such a pattern has."""


def lazy_module(name: str) -> Any:
    """Return a module, which is imported now if it was not before."""
    return import_module(name)


class _Pattern:
    """A pattern that is compiled when one of its methods is first asked for: that takes longer than many a module."""

    def __init__(self, text: Any, flags: int) -> None:
        self._source = text, flags

    def __getattr__(self, name: str) -> Any:
        if name not in METHODS:
            raise AttributeError(f"a lazy pattern has no attribute {name!r}")
        text, flags = self._source
        compiled: re.Pattern[Any] = re.compile(text, flags)
        # From now on they are found at once.
        vars(self).update({each: getattr(compiled, each) for each in METHODS})
        return vars(self)[name]


def lazy_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what `re.compile` does, as far as `METHODS` goes."""
    return cast("re.Pattern[AnyStr]", _Pattern(text, flags))


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions `__getattr__` and `__dir__` of a package whose names are those of other modules.

    `homes` has the names by module, which is imported when one of its names is first asked for.
    """
    home_of = {name: home for home, those in homes.items() for name in those}

    def find(name: str) -> Any:
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(home), name)
        setattr(import_module(package), name, found)
        return found

    def listed() -> list[str]:
        return sorted({*vars(import_module(package)), *home_of})

    return find, listed
