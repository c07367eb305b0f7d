"""`bullmq-ctl` without a server: what is shown, what is refused, and that every command is described."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from bullmq_cli.ctl import asking, program, show
from bullmq_cli.ctl.about_jobs import options_of
from bullmq_cli.ctl.about_queues import fitting
from bullmq_cli.ctl.entry import COMMANDS
from bullmq_cli.ctl.frame import COUNTED, RATED, Look, rates
from bullmq_cli.ctl.program import SPAN, ctl
from bullmq_cli.ctl.show import age, sparkline, table
from bullmq_cli.ctl.top import columns
from bullmq_cli.text import json_line, visible
from bullmq_protocol import JobOptions
from bullmq_protocol.events.stream import RawEntry
from bullmq_protocol.model.backoff import Backoff
from bullmq_protocol.model.options import KeepJobs

_ROOT = Path(__file__).parents[2]
_DOCS = (_ROOT / "docs" / "ctl.md").read_text(encoding="utf-8")


def run(*arguments: str, **more: Any) -> Result:
    return CliRunner().invoke(ctl, arguments, **more)


# --- texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("grün [red]x", "grün [red]x"),
        ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x9b31m\x7f", "\\x9b31m\\x7f"),
        ("abc\u202edcb\u2066", "abc\\u202edcb\\u2066"),
        ("\u2028", "\\u2028"),
        (b"\xff\xfe".decode("utf-8", "surrogateescape"), "\\xff\\xfe"),
        ("\ud800", "\\ud800"),
    ],
)
def test_nothing_steers_the_terminal(text: str, seen: str) -> None:
    assert visible(text) == seen


def test_lines_stay_where_they_belong() -> None:
    assert visible("a\n\tb\r\x1b", lines=True) == "a\n\tb\\r\\x1b"
    assert visible("abcdef", 4) == "abc…"


def test_json_is_ascii_whatever_is_in_it() -> None:
    line = json_line({"grün": "\x9b\x7f\ud800", "n": float("inf"), "d": [1, {"x": float("nan")}]})
    assert line.isascii() and "\x7f" not in line
    assert json.loads(line) == {"grün": "\x9b\x7f\ud800", "n": None, "d": [1, {"x": None}]}
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    assert "..." in json_line(deep)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "-"),
        (-5, "0 ms"),
        (999, "999 ms"),
        (1000, "1 s"),
        (59_999, "59 s"),
        (90_000, "1.5 min"),
        (3_600_000, "1.0 h"),
        (36_000_000, "10 h"),
        (172_800_000, "2.0 d"),
    ],
)
def test_spans_in_their_largest_unit(ms: float | None, text: str) -> None:
    assert age(ms) == text


def test_a_bar_for_each_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "draws", lambda: True)
    assert sparkline([0, 1, 50, 100]) == " ▁▄█"
    assert sparkline([]) == "" and sparkline([0, 0]) == "  "
    monkeypatch.setattr(show, "draws", lambda: False)
    assert sparkline([0, 1, 50, 100]) == " ..@".replace("..", ".=")


def test_what_draws() -> None:
    assert show.draws(io.TextIOWrapper(io.BytesIO(), "utf-8"))
    assert not show.draws(io.TextIOWrapper(io.BytesIO(), "latin-1"))
    assert not show.draws(io.StringIO())


@pytest.mark.parametrize(
    ("text", "ms"),
    [("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000), ("1d", 86_400_000), ("250ms", 250), ("1.5", 1500)],
)
def test_spans_that_are_given(text: str, ms: int) -> None:
    assert SPAN.convert(text, None, None) == ms


@pytest.mark.parametrize("text", ["", "5 weeks", "-1s", "s", "1e400d", "nan"])
def test_spans_that_are_none(text: str) -> None:
    with pytest.raises(click.UsageError, match="no span of time"):
        SPAN.convert(text, None, None)


def test_options_under_both_names() -> None:
    found = options_of({"removeOnComplete": {"count": 5}, "backoff": {"type": "fixed", "delay": 9}, "job_id": "a"})
    assert found == JobOptions(remove_on_complete=KeepJobs(count=5), backoff=Backoff("fixed", 9), job_id="a")
    with pytest.raises(click.UsageError, match="'parent' must be one of attempts, "):
        options_of({"parent": {}})
    with pytest.raises(click.UsageError, match="backoff"):
        options_of({"backoff": {"tpye": "fixed"}})


def _entry(ms: int, kind: str) -> RawEntry:
    return RawEntry(f"{ms}-0", [b"event", kind.encode(), b"jobId", b"1"])


def test_rates_come_from_the_newest_events() -> None:
    now = 100_000
    entries = [
        _entry(99_000, "completed"),
        _entry(96_000, "added"),
        _entry(95_500, "waiting"),
        _entry(94_000, "failed"),
    ]
    assert rates(entries, now, 5000) == {"added": 0.2, "completed": 0.2, "failed": 0.0}
    assert rates([], now, 5000) == {"added": 0.0, "completed": 0.0, "failed": 0.0}
    # A thousand in the last 100 ms: what was before them is not known.
    assert rates([_entry(99_900, "completed")] * 1000, now, 5000)["completed"] == 10_000


def _look(queue: str) -> Look:
    return Look(
        queue=queue,
        is_paused=False,
        counts=dict.fromkeys(COUNTED, 1),
        rates=dict.fromkeys(RATED, 0.0),
        oldest_ms=None,
        workers=0,
    )


@pytest.mark.parametrize(("width", "last"), [(200, 12), (100, 8), (80, 7), (60, 5), (20, 5)])
def test_columns_give_way_where_it_is_narrow(width: int, last: int) -> None:
    chosen = [heading for heading, _, _ in columns([_look("mail"), _look("x" * 300)], width)]
    assert (len(chosen), chosen[:3]) == (last, ["queue", "waiting", "active"])
    assert _look("mail").ready == 3


@pytest.mark.parametrize(("width", "count"), [(2000, 9), (80, 9), (70, 8), (60, 7), (50, 5), (10, 5)])
def test_columns_of_queues_give_way(width: int, count: int) -> None:
    shown = fitting(width)
    assert (len(shown), shown[:3], shown[-1]) == (count, [0, 1, 2], 8)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["redis://me:hunter2@h", "queues"],
        ["--url", "http://me:hunter2@h", "queues"],
        ["--url", "redis://me:hunter2@h:x", "queues"],
        ["--url=redis://:hunter2@h", "--profile", "redis://:hunter2@h", "queues"],
        ["queues", "redis://me:hunter2@h"],
        ["job", "mail", "1", "redis://me:hunter2@h"],
        ["--prefix", "redis://me:hunter2@h", "queues", "mail"],
        ["retry", "redis://me:hunter2@h:1"],
        ["--hunter=redis://:hunter2@h", "queues"],
    ],
)
def test_a_login_in_the_wrong_place_is_not_shown(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BULLMQ_URL", "redis://:hunter2@127.0.0.1:1")
    result = run(*arguments)
    assert result.exit_code in (2, 3) and result.stderr
    assert "hunter2" not in result.output


def test_nobody_listens() -> None:
    for arguments in (("queues",), ("pause", "mail"), ("top",), ("events", "mail"), ("exporter", "--once")):
        result = run("--url", "redis://:hunter2@127.0.0.1:1", *arguments)
        assert (result.exit_code, result.stdout) == (3, "")
        assert "the server cannot be used" in result.stderr and "hunter2" not in result.stderr
    assert run("--url", "redis://127.0.0.1:1", "doctor").exit_code == 4
    for url in (
        "unix:///nowhere.sock",
        f"redis://{'a' * 300}",
        "redis+sentinel://127.0.0.1:1/jobs",
        "redis+cluster://127.0.0.1:1",
    ):
        for arguments in (("queues",), ("pause", "mail")):
            result = run("--url", url, *arguments)
            assert (result.exit_code, "Traceback" in result.output, "redis.client" in result.output) == (
                3,
                False,
                False,
            )


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["jobs"],
        ["jobs", "a:b"],
        ["jobs", ""],
        ["jobs", "mail", "--state", "nowhere"],
        ["clean", "mail"],
        ["clean", "mail", "--older-than", "x"],
        ["add", "mail", "welcome", "{not json"],
        ["add", "mail", "welcome", "-", "--job-id", "x"],
        ["add", "mail", "welcome", "--options", "5"],
        ["add", "mail", "welcome", "--options", '{"typo": 1}'],
        ["wait", "mail", "1", "--timeout", "0"],
        ["retry", "mail"],
        ["retry", "mail", "1", "--all"],
        ["promote", "mail"],
        ["events", "mail", "--count", "0"],
        ["--profile", "9.9", "queues"],
    ],
)
def test_wrong_usage(arguments: list[str]) -> None:
    result = run("--url", "redis://127.0.0.1:1", *arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert "bullmq-ctl: " in result.stderr and "Traceback" not in result.stderr


def test_who_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asking.ask("Destroy it?", yes=True)
    with pytest.raises(click.ClickException, match="--yes"):
        asking.ask("Destroy it?", yes=False)
    monkeypatch.setattr(asking, "is_somebody_there", lambda: True)
    answers = iter([True, False])
    monkeypatch.setattr(click, "confirm", lambda *_, **__: next(answers))
    asking.ask("Destroy it?", yes=False)
    with pytest.raises(asking.Declined):
        asking.ask("Destroy it?", yes=False)


# --- what is described ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(ctl.commands))
def test_every_command_has_an_example_and_json(name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0
    assert re.search(rf"^  (.*\s)?bullmq-ctl (--url \S+ )?{name}\b", result.output, re.MULTILINE), result.output
    assert "--json" in result.output
    assert "JSON: " in result.output or name == "doctor"
    short = ctl.commands[name].get_short_help_str(60)
    assert not short.endswith("..."), short
    assert f"`{name}`" in _DOCS


def test_what_destroys_asks_and_can_be_tried() -> None:
    for name in ("remove", "clean", "drain", "obliterate", "schedulers"):
        options = {each.name for each in ctl.commands[name].params}
        assert {"yes", "dry_run"} <= options, name


def test_exit_codes_are_those_of_the_docs() -> None:
    codes = {
        value for name, value in vars(program).items() if name.isupper() and isinstance(value, int) and name[0] != "_"
    }
    table_of_docs = _DOCS[_DOCS.index("| Exit code |") :].split("\n\n")[0]
    assert {int(code) for code in re.findall(r"^\| ([0-9]+) \|", table_of_docs, re.MULTILINE)} == codes
    assert len(COMMANDS) == 5


def test_cells_are_no_markup() -> None:
    shown = show.PipedConsole(file=io.StringIO(), markup=False, highlight=False, width=40)
    shown.print(table(("a",), [("[red]x\x1b[2J",)]))
    assert shown.file.getvalue().splitlines()[1].rstrip() == "[red]x\\x1b[2J"  # type: ignore[attr-defined]
