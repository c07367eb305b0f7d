"""What a reader types: the commands of this library in README.md and docs exist, with their options."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from bullmq_cli import command
from bullmq_cli.ctl import entry
from bullmq_doctor import __main__ as doctor

pytestmark = pytest.mark.any_python

_ROOT = Path(__file__).parents[2]
_PROGRAMS: dict[str, click.Command] = {
    "bullmq-worker": command.main,
    "bullmq-ctl": entry.ctl,
    "bullmq-doctor": doctor.main,
}
_SHELL = re.compile(r"^```(sh|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Environment variables may stand before it.
_COMMAND = re.compile(r"^(?: *\w+=\S+)* *(bullmq-(?:worker|ctl|doctor)\b[^)]*)")
_INLINE = re.compile(r"`(bullmq-(?:worker|ctl|doctor) [^`]+)`")


def lines() -> list[tuple[str, str]]:
    """Return each command line of a page that names one of the programs, with its page."""
    found = []
    for page in [_ROOT / "README.md", *sorted((_ROOT / "docs").rglob("*.md"))]:
        text = page.read_text("utf-8")
        typed = [line for kind, block in _SHELL.findall(text) for line in typed_in(kind, block)]
        found += [
            (page.name, command[1])
            for line in [*typed, *_INLINE.findall(text)]
            for part in re.split(r"[|;&]|\$\(", line)
            if (command := _COMMAND.match(part))
        ]
    return found


def typed_in(kind: str, block: str) -> list[str]:
    shown = [line.removeprefix("$ ") for line in block.splitlines() if kind == "sh" or line.startswith("$ ")]
    return [line.partition(" #")[0] for line in shown]


def wrong_in(line: str) -> list[str]:
    """Return what a command line has that its program does not know."""
    name, *words = shlex.split(line)
    program = _PROGRAMS[name]
    context = click.Context(program)
    known = {option for each in program.get_params(context) for option in each.opts}
    if isinstance(program, click.Group):
        commands = [word for word in words if word in program.commands]
        named = [word for word in words if not word.startswith("-")]
        if not commands:
            return [] if not named or named[0].isupper() else [named[0]]
        known |= {option for each in program.commands[commands[0]].get_params(context) for option in each.opts}
    options = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    return [option for option in options if option not in {*known, "--help"}]


def test_the_commands_of_pages_exist_with_their_options() -> None:
    found = lines()
    assert {line.split()[0] for _, line in found} == _PROGRAMS.keys()
    assert [(page, line, wrong) for page, line in found if (wrong := wrong_in(line))] == []


def test_a_wrong_command_or_option_is_noticed() -> None:
    assert wrong_in("bullmq-ctl ad mail") == ["ad"]
    assert wrong_in("bullmq-ctl add mail --attempt 3") == ["--attempt"]
    assert wrong_in("bullmq-worker app:worker --processess 3") == ["--processess"]
    assert wrong_in("bullmq-ctl COMMAND --help") == []
