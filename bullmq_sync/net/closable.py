"""What the end of a `with` block closes."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self


class Closable:
    """Closed by the end of a `with` block. A subclass knows how."""

    if TYPE_CHECKING:

        def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
