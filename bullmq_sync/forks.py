"""What the child of a fork must renew: locks that a thread of the parent may have held, which is not there any more."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from types import MethodType
from typing import Any, cast

_known: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()
"""Changed by single calls of `dict`, each of which is whole: a fork happens between two of them."""


def in_child(renew: Callable[[], None]) -> None:
    """Call a method in the child of every fork, as long as its object lives; one for an object. It must take no lock
    that it has not made."""
    method = cast("MethodType", renew)
    _known[method.__self__] = method.__func__


def _after_fork() -> None:
    for owner, renew in list(_known.items()):
        renew(owner)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
