"""Both packages offer the same names and signatures, but for `await`, `aclose` and what only one adapter can have."""

import inspect
import re
from typing import Any

import pytest

import bullmq_anyio
import bullmq_protocol
import bullmq_sync
from tools import twin

BOTH = {name: (getattr(bullmq_anyio, name), getattr(bullmq_sync, name)) for name in bullmq_anyio.__all__}
PAIRS = {name: both for name, both in BOTH.items() if isinstance(both[0], type)}
FUNCTIONS = sorted(BOTH.keys() - PAIRS.keys() - {"__version__"})
ONLY_SYNC = {"RedisPyTransport", "Cancellation"}
ONLY_SYNC_MEMBERS = {("Job", "cancelled"), ("Connection", "interrupt")}
# Where the adapters differ by nature.
_NAMES = {
    "aclose": "close",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
}
_TYPES = (
    (r"Awaitable\[(\w+(?:\[\w+\])?)\]", r"\1"),
    (r"\bAsyncTransport\b", "Transport"),
    (r"\bbullmq_anyio\b", "bullmq_sync"),
    (r"\bAbstractAsyncContextManager\b", "AbstractContextManager"),
    (r"^bool \| None$", "None"),
    (r"^SharedConnection$", "Connection"),
)


def members(kind: type) -> dict[str, Any]:
    return {
        name: member
        for owner in reversed(kind.__mro__)
        if owner.__module__.startswith("bullmq_")
        for name, member in vars(owner).items()
        if not name.startswith("_") or (name.startswith("__a") and name in _NAMES) or name in _NAMES.values()
    }


def shape(member: Any) -> Any:
    if isinstance(member, property):
        return ("property", shape(member.fget), None if member.fset is None else shape(member.fset))
    if not callable(member):
        return type(member).__name__
    signature = inspect.signature(member)
    parameters = [
        (parameter.name, parameter.kind, plain(parameter.annotation), repr(parameter.default))
        for parameter in signature.parameters.values()
    ]
    return parameters, plain(signature.return_annotation)


def plain(annotation: Any) -> str:
    text = str(annotation)
    for pattern, replacement in _TYPES:
        text = re.sub(pattern, replacement, text)
    return text


@pytest.mark.slow
@pytest.mark.any_python
def test_the_blocking_twins_are_not_stale() -> None:
    assert twin.main(["--check"]) == 0


def test_both_packages_offer_the_same_names() -> None:
    assert set(bullmq_anyio.__all__) == set(bullmq_sync.__all__) - ONLY_SYNC


@pytest.mark.parametrize("name", PAIRS)
def test_both_classes_have_the_same_members(name: str) -> None:
    asynchronous, blocking = PAIRS[name]
    renamed = {_NAMES.get(member, member) for member in members(asynchronous)}
    only_sync = {member for kind, member in ONLY_SYNC_MEMBERS if kind == name}
    assert renamed == set(members(blocking)) - only_sync


@pytest.mark.parametrize(
    ("name", "member"), [(name, member) for name, (kind, _) in PAIRS.items() for member in members(kind)]
)
def test_members_have_the_same_signature(name: str, member: str) -> None:
    asynchronous, blocking = PAIRS[name]
    twin = members(blocking)[_NAMES.get(member, member)]
    assert shape(members(asynchronous)[member]) == shape(twin)


@pytest.mark.parametrize("name", PAIRS)
def test_classes_are_made_alike(name: str) -> None:
    asynchronous, blocking = PAIRS[name]
    assert shape(asynchronous) == shape(blocking)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_the_same_signature(name: str) -> None:
    asynchronous, blocking = BOTH[name]
    names = [list(inspect.signature(function).parameters) for function in (asynchronous, blocking)]
    assert names[0] == names[1]


def test_the_version_is_the_same() -> None:
    assert bullmq_anyio.__version__ == bullmq_sync.__version__ == bullmq_protocol.__version__
