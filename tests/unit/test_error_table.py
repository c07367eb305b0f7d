"""docs/errors.md is the page that the rules give, and a stale one is reported."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullmq_protocol.errors import BullMQError
from bullmq_protocol.model.categories import RULE_GROUPS
from monque_protocol.errors import MonqueError
from tools import error_table
from tools.public_names import TIERS, Names
from tools.troubles import ROOTS, TROUBLES

pytestmark = pytest.mark.any_python


def test_the_page_is_not_stale() -> None:
    assert error_table.main(["--check"]) == 0


def test_a_stale_page_is_reported_and_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "errors.md"
    monkeypatch.setattr(error_table, "TARGET", target)
    monkeypatch.setattr(error_table, "TROUBLESHOOTING", tmp_path / "troubleshooting.md")
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


# --- by message ---


def errors() -> Iterator[type[BullMQError]]:
    """Yield every error that a public module of ours defines."""
    names = Names()
    for patterns in TIERS.values():
        for module in (each for pattern in patterns for each in names.modules(pattern)):
            for name, value in vars(importlib.import_module(module)).items():
                if isinstance(value, type) and issubclass(value, BullMQError) and not name.startswith("_"):
                    yield value


def test_every_error_is_on_the_page() -> None:
    found = set(errors())
    assert {BullMQError, MonqueError} < found
    assert found == TROUBLES.keys() | ROOTS.keys()
    page = error_table.troubleshooting()
    assert [kind.__name__ for kind in TROUBLES if f"\n## {kind.__name__}\n" not in page] == []


def test_an_example_is_of_its_class_and_has_a_message() -> None:
    assert [kind.__name__ for kind, trouble in TROUBLES.items() if type(trouble.example) is not kind] == []
    assert [kind.__name__ for kind, trouble in TROUBLES.items() if not str(trouble.example)] == []


def test_a_message_stands_in_a_table_whatever_it_holds() -> None:
    assert error_table._cell("a | b") == r"`a \| b`"
    assert error_table._cell("a `b`") == "`` a `b` ``"
