"""Exceptions that raise another one whatever they are asked."""

from __future__ import annotations

from typing import Any


class NoClass(Exception):
    @property
    def __class__(self) -> type:
        raise SystemExit("__class__")

    @__class__.setter
    def __class__(self, kind: type) -> None:
        raise SystemExit("__class__")


class NoAttributes(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise SystemExit(name)

    def __repr__(self) -> str:
        raise SystemExit("repr")


class Silent(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__name__", "__qualname__", "__module__"):
            raise ValueError(name)
        return super().__getattribute__(name)


class OfSilent(Exception, metaclass=Silent):
    """Does not tell the name of its class."""
