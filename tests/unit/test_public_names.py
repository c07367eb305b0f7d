"""What others may use is on record: a name or signature that changes shows in `public_names.txt`, and in a review."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from tools import public_names

_ROOT = Path(__file__).parents[2]
_PAGE = (_ROOT / "docs" / "stability.md").read_text(encoding="utf-8")
_NAMES = public_names.Names()
_MODULES = {
    tier: [module for pattern in patterns for module in _NAMES.modules(pattern)]
    for tier, patterns in public_names.TIERS.items()
}


@pytest.mark.slow
def test_the_recorded_names_are_those_of_the_code() -> None:
    assert public_names.listed() == public_names.TARGET.read_text(encoding="utf-8"), "python tools/public_names.py"


def test_every_line_of_a_tier_names_modules() -> None:
    for patterns in public_names.TIERS.values():
        assert [pattern for pattern in patterns if not _NAMES.modules(pattern)] == []


@pytest.mark.parametrize("tier", public_names.TIERS)
def test_the_page_has_the_modules_of_each_tier(tier: str) -> None:
    section = re.search(rf"^## {tier.capitalize()}\n(.*?)(?=^## |\Z)", _PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None
    rows = [line.split("|")[1] for line in section[1].splitlines() if line.startswith("| `")]
    assert [name for row in rows for name in re.findall(r"`([\w.*]+)`", row)] == list(public_names.TIERS[tier])


@pytest.mark.parametrize("module", _MODULES["stable"])
def test_the_list_has_what_a_program_finds(module: str) -> None:
    # The list is read from the text of the modules: here they are imported.
    found = importlib.import_module(module)
    names: list[str] = getattr(found, "__all__", None) or [
        name
        for name, value in vars(found).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module
    ]
    recorded = {line.removeprefix(f"{module}.").partition(":")[0].partition(" =")[0] for line in _NAMES.of(module)}
    assert set(names) <= recorded
    assert not {line for line in _NAMES.of(module) if line.endswith("from elsewhere")}


def test_examples_use_public_names_alone() -> None:
    public = {module for modules in _MODULES.values() for module in modules}
    wrong = [
        f"{file.name}:{node.lineno} {node.module}"
        for file in sorted((_ROOT / "examples").glob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bullmq_") and node.module not in public
    ]
    assert wrong == []


def test_a_changed_signature_or_member_changes_the_list(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "base.py").write_text("class _Base:\n    def inherited(self) -> int: ...\n    def _hidden(self): ...\n")
    module = package / "__init__.py"
    text = (
        "from package.base import _Base\n__all__ = ['Thing', 'LIMIT']\nLIMIT: int = 3\nleft = 1\n"
        "class Thing(_Base):\n    size: int = 0\n    @property\n    def name(self) -> str: ...\n"
        "    async def add(self, data: bytes, *, delay: int = 0) -> None: ...\n"
    )
    module.write_text(text)
    assert public_names.Names(tmp_path, ("package",)).of("package") == [
        "package.LIMIT: int = 3",
        "package.Thing: class(_Base)",
        "package.Thing.add: async (self, data: bytes, *, delay: int=0) -> None",
        "package.Thing.inherited: (self) -> int",
        "package.Thing.name: str",
        "package.Thing.size: int = 0",
    ]
    module.write_text(text.replace("delay: int = 0", "delay_ms: int = 0"))
    assert "package.Thing.add: async (self, data: bytes, *, delay_ms: int=0) -> None" in public_names.Names(
        tmp_path, ("package",)
    ).of("package")


def test_a_stale_list_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(public_names, "TARGET", tmp_path / "names.txt")
    monkeypatch.setattr(public_names, "listed", lambda: "# stable\n")
    assert public_names.main(["--check"]) == 1
    assert "is stale" in capsys.readouterr().err
    assert public_names.main([]) == 0
    assert public_names.main(["--check"]) == 0
    assert public_names.main(["--other"]) == 2
