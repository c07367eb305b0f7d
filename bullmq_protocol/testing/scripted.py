"""Transports that follow a script: the next command expected, and its reply. For both adapters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from bullmq_protocol.command import Batch, Command
from bullmq_protocol.errors import Closed

Sent: TypeAlias = Command[Any] | Batch
Expected: TypeAlias = Command[Any] | Batch | str | Callable[[Sent], bool] | None
"""An equal step, the name of a command (for a batch: those of its commands, joined by blanks), a test, or None: any."""
Exchange: TypeAlias = tuple[Expected, Any]
"""The expected command, and the raw reply; a reply that is an exception is raised."""


class OutOfScript(AssertionError):
    """A step came that the script does not foresee, or steps are left over."""


class _Script:
    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        self._left = list(exchanges)
        self.sent: list[Sent] = []
        self.client_names: list[str | None] = []
        self.closed = False

    def answer(self, step: Sent) -> Any:
        if self.closed:
            raise Closed
        self.sent.append(step)
        if not self._left:
            raise OutOfScript(f"step {len(self.sent)} is one too many: {step!r}")
        expected, reply = self._left.pop(0)
        if not _fits(expected, step):
            raise OutOfScript(f"step {len(self.sent)} should be {expected!r}, is {step!r}")
        if isinstance(reply, BaseException):
            raise reply
        return reply

    def check_done(self) -> None:
        if self._left:
            raise OutOfScript(f"{len(self._left)} steps were not asked for, next: {self._left[0][0]!r}")


def _fits(expected: Expected, step: Sent) -> bool:
    if expected is None:
        return True
    if isinstance(expected, str):
        return expected == _name(step)
    if isinstance(expected, (Command, Batch)):
        return expected == step
    return expected(step)


def _name(step: Sent) -> str:
    return " ".join(command.name for command in step.commands) if isinstance(step, Batch) else step.name


class ScriptedTransport:
    """A blocking transport that answers from a script. Dedicated connections are itself: one script, one order.

    Raises `OutOfScript` (an `AssertionError`) when another step comes, and from `check_done` when steps are left.
    """

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        self._script = _Script(exchanges)

    @property
    def sent(self) -> list[Sent]:
        """All steps that came, in order."""
        return self._script.sent

    @property
    def client_names(self) -> list[str | None]:
        """The names of the dedicated connections that were asked for."""
        return self._script.client_names

    @property
    def closed(self) -> bool:
        return self._script.closed

    def check_done(self) -> None:
        """Raise `OutOfScript` if steps of the script are left."""
        self._script.check_done()

    def perform(self, step: Command[Any] | Batch, /) -> Any:
        return self._script.answer(step)

    def dedicated(self, *, client_name: str | None = None) -> ScriptedTransport:
        self._script.client_names.append(client_name)
        return self

    def interrupt(self) -> None:
        """Do nothing: a script never blocks."""

    def close(self) -> None:
        self._script.closed = True


class AsyncScriptedTransport:
    """The asynchronous twin of `ScriptedTransport`. It never waits, so it runs on any event loop."""

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        self._script = _Script(exchanges)

    @property
    def sent(self) -> list[Sent]:
        """All steps that came, in order."""
        return self._script.sent

    @property
    def client_names(self) -> list[str | None]:
        """The names of the dedicated connections that were asked for."""
        return self._script.client_names

    @property
    def closed(self) -> bool:
        return self._script.closed

    def check_done(self) -> None:
        """Raise `OutOfScript` if steps of the script are left."""
        self._script.check_done()

    async def perform(self, step: Command[Any] | Batch, /) -> Any:
        return self._script.answer(step)

    def dedicated(self, *, client_name: str | None = None) -> AsyncScriptedTransport:
        self._script.client_names.append(client_name)
        return self

    async def aclose(self) -> None:
        self._script.closed = True
