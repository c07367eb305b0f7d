"""The type variables of jobs. For type checkers, two of them have a default: `Job[Mail]` is `Job[Mail, Any, Any]`."""

from __future__ import annotations

from types import GenericAlias
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    R = TypeVar("R", default=Any)
    """The result of a job."""
    S = TypeVar("S", default=Any)
    """What the worker's lifespan yields."""
else:
    from typing import TypeVar

    R = TypeVar("R")
    S = TypeVar("S")


class Defaulted:
    """A generic class whose later parameters may be left out, at runtime, too: Python 3.11 knows no defaults."""

    if not TYPE_CHECKING:

        def __class_getitem__(cls, parameters: Any) -> GenericAlias:
            return GenericAlias(cls, parameters)
