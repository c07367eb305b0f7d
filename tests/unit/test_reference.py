"""The reference pages are those that the table and the schemas give, and a stale one is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import vectors
from tools import reference

pytestmark = pytest.mark.any_python


def test_the_pages_are_not_stale() -> None:
    assert reference.main(["--check"]) == 0


def test_a_stale_page_is_reported_and_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reference, "TARGET", tmp_path / "reference")
    assert reference.main(["--check"]) == 1
    assert "docs/reference/commands.md is stale" in capsys.readouterr().err
    assert reference.main([]) == 0
    assert reference.main(["--check"]) == 0
    assert reference.main(["--other"]) == 2


def test_every_command_is_on_the_page() -> None:
    page = reference.pages()["commands.md"]
    for name, row in vectors.table().items():
        assert (f"### {name}\n" if row["kind"] != "plain" else f"[{name}](") in page
