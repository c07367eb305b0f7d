"""What holds in every unit test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bullmq_protocol.errors import UsageError


@pytest.fixture(autouse=True, scope="session")
def _refusals_name_field_and_rule() -> Iterator[None]:
    """A refusal says which field and what rule, wherever it is raised: tests of bad input look at one of them."""
    patch = pytest.MonkeyPatch()
    usual = UsageError.__init__

    def checked(self: UsageError, field: str, value: object, rule: str) -> None:
        assert isinstance(field, str) and field
        assert isinstance(rule, str) and rule
        usual(self, field, value, rule)

    patch.setattr(UsageError, "__init__", checked)
    yield
    patch.undo()
