"""Write `docs/conformance-results.md` from what was measured: `python tools/conformance_page.py [--check]`.

`make conformance` measures, and records it in `conformance/results.json`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bullmq_conformance import search
from bullmq_conformance.scripts import Case, shown
from bullmq_conformance.search import Found
from bullmq_conformance.steps import Request

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "conformance" / "results.json"
TARGET = ROOT / "docs" / "conformance-results.md"

HEAD = """\
<!-- Written by tools/conformance_page.py from conformance/results.json, which `make conformance` measures. -->

# Conformance results

How the scripts and clients below differ from a given version of BullMQ, as measured by the
[conformance run](conformance.md). These are facts about the sequences that were run, not a verdict: a difference may
be a fault, a choice, or something that a later version fixed.

"""
SCRIPTS = """\
## Scripts

Each case is a [golden vector](../specs/README.md#golden-vectors): a state, a call, and the state afterwards.

"""
CLIENTS = """\
## Clients

Client and reference carried out the same random sequences of requests, each on its own database; after each request
the answers and all keys were compared. The reference is BullMQ on Node in the version named; for BullMQ on Node itself,
it is this library on threads.

"""
FLEET = "fleet"
_LONG = 160


class ScriptsRow(msgspec.Struct):
    """How a set of scripts did."""

    name: str
    label: str
    version: str
    commands: int
    cases: int
    differing: list[Case]
    seconds: int


class ClientRow(msgspec.Struct):
    """How a client did."""

    name: str
    seconds: int
    report: search.Report


class Measured(msgspec.Struct):
    """When and on what it was measured."""

    date: str = ""
    server: str = ""
    node: str = ""
    python: str = ""
    cores: int = 0
    seconds: int = 0


class Results(msgspec.Struct):
    """All that was measured."""

    measured: Measured = msgspec.field(default_factory=Measured)
    scripts: list[ScriptsRow] = []
    clients: list[ClientRow] = []


def must_agree(row: ClientRow) -> bool:
    """Tell whether a client claims to do what the version does that it was compared with."""
    return not row.name.startswith(("port-", f"{FLEET}-"))


def read() -> Results:
    """Return what was recorded, nothing if nothing was."""
    return msgspec.json.decode(RECORD.read_bytes(), type=Results) if RECORD.exists() else Results()


def write(results: Results) -> None:
    """Record what was measured, and write the page."""
    plain = msgspec.to_builtins(results)
    RECORD.write_text(json.dumps(plain, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    TARGET.write_text(text_of(results), encoding="utf-8")


def text_of(results: Results) -> str:
    """Return the page."""
    return HEAD + "".join(_page(results))


def _page(results: Results) -> Iterator[str]:
    on = results.measured
    yield (
        f"Measured on {on.date} with `make conformance` on {on.server}, Node {on.node.removeprefix('v')} and Python "
        f"{on.python}; it took {round(on.seconds / 60)} minutes on {on.cores} cores.\n\n"
    )
    yield SCRIPTS
    yield "| Scripts | Against BullMQ | Commands | Cases | Differ |\n|---|---|---|---|---|\n"
    for row in results.scripts:
        yield _row(row.label, row.version, f"{row.commands}", f"{row.cases:,}", f"{len(row.differing)}")
    for row in results.scripts:
        if row.differing:
            yield from _cases(row)
    yield "\n" + CLIENTS
    yield _row("Client", "Against BullMQ", "Compared with", "Sequences", "Requests", "Differences", "Not supported")
    yield "|---|---|---|---|---|---|---|\n"
    for each in results.clients:
        found = each.report
        counts = (f"{found.sequences:,}", f"{found.total:,}", f"{len(found.found)}")
        yield _row(_title(each), found.version, found.reference, *counts, _left_out(found))
    for each in results.clients:
        if each.report.found:
            yield from _facts(each)


def _title(row: ClientRow) -> str:
    found = row.report
    profile = f", profile `{FLEET}`" if row.name.startswith(f"{FLEET}-") else ""
    return f"{found.client} {found.client_version}{profile}"


def _left_out(found: search.Report) -> str:
    if len(found.left_out) > len(found.requests):
        return "all but " + ", ".join(f"`{each}`" for each in found.requests if each != "open")
    return ", ".join(f"`{each}`" for each in found.left_out) or "–"


def _cases(row: ScriptsRow) -> Iterator[str]:
    yield f"\n### Scripts: {row.label} against {row.version}\n\n"
    yield "| Command | Case | Subject | Differs in |\n|---|---|---|---|\n"
    for case in row.differing:
        places = [case.problem] if case.problem is not None else [f"`{each.place}`" for each in case.differences]
        yield _row(case.command, f"`{case.name}`", _cell(case.title), ", ".join(places))


def _facts(row: ClientRow) -> Iterator[str]:
    found = row.report
    kinds = by_kind(found)
    yield f"\n### {_title(row)} against {found.version}\n\n"
    count = "1 kind" if len(kinds) == 1 else f"{len(kinds)} kinds"
    yield f"{count} of difference, each with the shortest sequence that was found for it.\n"
    for kind, several in sorted(kinds.items()):
        calls = ", ".join(f"`{each.signature.partition(': ')[0]}`" for each in several)
        case = several[0]
        yield f"\n#### `{kind}`\n\nAfter {calls}"
        yield ".\n" if case.repeated else ", only once: not when the sequence was run again.\n"
        lines = [_line(each) for each in case.requests if each["call"] != "open"]
        yield "\n```text\n" + "\n".join(lines) + "\n```\n"
        if case.differences:
            yield "\n| Where | Expected | Got |\n|---|---|---|\n"
            for one in case.differences:
                yield _row(_code(one.place), _code(shown(one.expected)), _code(shown(one.got)))


def by_kind(found: search.Report) -> dict[str, list[Found]]:
    """Return the differences by what they are, whatever request they are seen after; the shortest sequence first."""
    kinds: dict[str, list[Found]] = {}
    for each in sorted(found.found, key=_length):
        kinds.setdefault(each.signature.partition(": ")[2], []).append(each)
    return kinds


def _length(case: Found) -> tuple[bool, int, int]:
    return not case.repeated, len(case.requests), sum(len(_line(each)) for each in case.requests)


def _line(each: Request) -> str:
    return f"{each['call']} {json.dumps(each['args'], ensure_ascii=False)}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def _code(text: str) -> str:
    """Return a text as code, cut where it is long. A part of JSON has no backtick in these sequences."""
    return f"`{_cell(text if len(text) <= _LONG else text[:_LONG] + ' ...')}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(arguments: Sequence[str]) -> int:
    """Write the page, or tell that it is stale; return the exit status."""
    if list(arguments) not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    text = text_of(read())
    if not arguments:
        TARGET.write_text(text, encoding="utf-8")
    elif not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
        print(
            f"tools/conformance_page.py: {TARGET.name} is stale, run python tools/conformance_page.py", file=sys.stderr
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
