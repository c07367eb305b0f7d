"""The versions that the cases of this folder are written for: what the columns of 06 §11 say."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

T_ = TypeVar("T_")


class Version(NamedTuple):
    """A pinned version."""

    name: str

    @property
    def later(self) -> bool:
        """Whether it is 5.81.5 or 6.7.0."""
        return self.name != "5.62.0"

    @property
    def six(self) -> bool:
        """Whether it is 6.7.0."""
        return self.name == "6.7.0"

    def of(self, first: T_, second: T_, third: T_) -> T_:
        """Return what holds in this version, of 5.62.0, 5.81.5 and 6.7.0."""
        return third if self.six else second if self.later else first

    def since(self, before: T_, after: T_) -> T_:
        """Return the second in 5.81.5 and 6.7.0."""
        return after if self.later else before

    def in_six(self, before: T_, after: T_) -> T_:
        """Return the second in 6.7.0."""
        return after if self.six else before

    def only_later(self, value: T_) -> T_ | None:
        """Return what is there in 5.81.5 and 6.7.0 alone."""
        return value if self.later else None

    def deduplicated(self, job: str, other: str, dedup_id: str = "d") -> list[str]:
        """Return the events of a deduplicated add."""
        before = [f"debounced jobId {job} debounceId {dedup_id}"] if not self.six else []
        return [*before, f"deduplicated jobId {job} deduplicationId {dedup_id} deduplicatedJobId {other}"]
