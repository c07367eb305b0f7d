"""docs/errors.md is the page that the rules give, and a stale one is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from bullmq_protocol.model.categories import RULE_GROUPS
from tools import error_table

pytestmark = pytest.mark.any_python


def test_the_page_is_not_stale() -> None:
    assert error_table.main(["--check"]) == 0


def test_a_stale_page_is_reported_and_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "errors.md"
    monkeypatch.setattr(error_table, "TARGET", target)
    assert error_table.main(["--check"]) == 1
    assert "docs/errors.md is stale" in capsys.readouterr().err
    assert error_table.main([]) == 0
    assert error_table.main(["--check"]) == 0
    target.write_text(target.read_text().replace("| permanent |", "| transient |", 1))
    assert error_table.main(["--check"]) == 1
    assert error_table.main(["--other"]) == 2


def test_every_rule_is_on_the_page() -> None:
    page = error_table.page()
    assert [name for rules in RULE_GROUPS.values() for name in rules if f"| `{name}` | " not in page] == []
