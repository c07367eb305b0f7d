"""What the end of a `with` block closes."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self


class Closable:
    """Closed by the end of a `with` block. A subclass knows how."""

    if TYPE_CHECKING:

        async def aclose(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
