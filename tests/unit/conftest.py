"""What holds in every unit test."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from bullmq_protocol.errors import UnexpectedReply, UsageError
from tests.support.refusals import parts


@pytest.fixture(autouse=True, scope="session")
def _errors_say_all() -> Iterator[None]:
    """A refusal says which field, what value and what rule, wherever it is raised: tests look at one of them.

    So does an unexpected reply: what was expected, and what came.
    """
    patch = pytest.MonkeyPatch()
    usual = UsageError.__init__

    def checked(self: UsageError, field: str, value: object, rule: str) -> None:
        assert isinstance(field, str) and field
        assert isinstance(rule, str) and rule
        if value is None and not rule.startswith("must be given"):
            given = sys._getframe(1).f_locals.values()
            assert any(part is None for each in given for part in parts(each)), "the refusal does not show the value"
        usual(self, field, value, rule)

    usual_reply = UnexpectedReply.__init__

    def checked_reply(self: UnexpectedReply, expected: str, reply: object) -> None:
        assert isinstance(expected, str) and expected
        if reply is None:
            given = sys._getframe(1).f_locals.values()
            assert any(part is None for each in given for part in parts(each)), "the error does not show the reply"
        usual_reply(self, expected, reply)

    patch.setattr(UsageError, "__init__", checked)
    patch.setattr(UnexpectedReply, "__init__", checked_reply)
    yield
    patch.undo()
