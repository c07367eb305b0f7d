"""From `module:object` to workers."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Iterable
from typing import Any, cast

ADAPTERS = ("bullmq_anyio", "bullmq_sync")


class TargetError(Exception):
    """What was named gives no workers. Its text says why."""


def adapter_of(found: object) -> str | None:
    """Return the package that an object is a worker of, without importing the other."""
    for kind in type(found).__mro__:
        package = kind.__module__.partition(".")[0]
        if kind.__name__ == "Worker" and package in ADAPTERS:
            return package
    return None


def load(target: str) -> tuple[str, list[Any]]:
    """Return the adapter, and the workers that `module:object` names: one, several, or a function that returns them.

    Modules are looked for in the current directory, too. Raises `TargetError`.
    """
    module_name, colon, path = target.partition(":")
    if not (module_name and colon and path):
        raise TargetError(f"{target!r} must be module:object, such as app.jobs:worker")
    if "/" in module_name or module_name.endswith(".py"):
        dotted = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise TargetError(f"{target}: {module_name} is a path: name the module, {dotted}:{path}")
    found: Any = _module(module_name)
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise TargetError(f"{target}: {_kind(found)} has no attribute {name!r}") from None
    # A router is a function, too, and makes no workers.
    is_ours = type(found).__module__.partition(".")[0] in ADAPTERS
    if callable(found) and not is_ours and not isinstance(found, type):
        found = _called(target, found)
    return _checked(target, found)


def _module(name: str) -> Any:
    here = os.getcwd()
    if sys.path[:1] != [here]:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise TargetError(f"there is no module {name!r} (looked in {here} first)") from None
        raise TargetError(f"{name} could not be imported:\n{_from_their_code(error)}") from None
    except (Exception, SystemExit) as error:
        raise TargetError(f"{name} could not be imported:\n{_from_their_code(error)}") from None


def _from_their_code(error: BaseException) -> str:
    """Return a traceback without the steps of ours, and of the import itself."""
    trace = error.__traceback__
    while trace is not None and (
        trace.tb_frame.f_code.co_filename.startswith("<frozen") or trace.tb_frame.f_globals.get("__name__") in _OURS
    ):
        trace = trace.tb_next
    return "".join(traceback.format_exception(error.with_traceback(trace))).rstrip()


_OURS = (__name__, "importlib")


def _called(target: str, function: Any) -> Any:
    if inspect.iscoroutinefunction(function):
        raise TargetError(f"{target}: must be a plain function, no async one: no event loop runs when it is called")
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise TargetError(f"{target}: must be a function that takes no argument: {error}") from None
    except ValueError:
        pass
    try:
        return function()
    except (Exception, SystemExit) as error:
        raise TargetError(f"{target} failed:\n{_from_their_code(error)}") from None


def _checked(target: str, found: Any) -> tuple[str, list[Any]]:
    several = adapter_of(found) is None and isinstance(found, Iterable) and not isinstance(found, str | bytes)
    workers: list[Any] = list(cast("Iterable[Any]", found)) if several else [found]
    if not workers:
        raise TargetError(f"{target}: there are no workers in it")
    adapters: list[str] = []
    for each in workers:
        adapter = adapter_of(each)
        if adapter is None:
            raise TargetError(f"{target}: {_kind(each)} is no worker of {' or '.join(ADAPTERS)}")
        adapters.append(adapter)
    if len(set(adapters)) > 1:
        raise TargetError(f"{target}: workers of both {' and '.join(ADAPTERS)}: start a program for each")
    return adapters[0], workers


def _kind(found: object) -> str:
    """Name an object without its value, which may hold a secret."""
    name = getattr(found, "__name__", None)
    kind = type(found).__name__
    return f"{kind} {name!r}" if isinstance(name, str) else f"an object of type {kind!r}"
