"""Reports as text, JSON and one HTML page without anything from elsewhere."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable

import msgspec

from bullmq_conformance import scripts, search
from bullmq_conformance.scripts import shown
from bullmq_conformance.steps import Request

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 }
td, th { border: 1px solid #8886; padding: .3rem .5rem; text-align: left; vertical-align: top; overflow-wrap: anywhere }
code, pre { font: 13px/1.4 ui-monospace, monospace; white-space: pre-wrap }
details { margin: .5rem 0 }
summary { cursor: pointer }
.good { color: #080 } .bad { color: #b00 }
@media (prefers-color-scheme: dark) { .good { color: #6d6 } .bad { color: #f88 } }
"""

Row = tuple[str, ...]


def as_json(report: scripts.Report | search.Report) -> str:
    """Return a report as JSON."""
    plain = msgspec.to_builtins(report)
    return json.dumps(plain, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


# --- scripts ----------------------------------------------------------------------------------------------------------


def scripts_text(report: scripts.Report) -> str:
    """Return the report of a folder of scripts, its differing cases in full."""
    lines = [f"{report.folder} against BullMQ {report.version}"]
    for case in report.cases:
        if case.passed:
            continue
        lines.append(f"\n{case.command}, {case.name} ({case.section}): {case.title}")
        lines += [f"  {case.problem}"] if case.problem is not None else []
        for each in case.differences:
            lines += [f"  {each.place}", f"    expected {shown(each.expected)}", f"    got      {shown(each.got)}"]
    passed, count = sum(case.passed for case in report.cases), len(report.cases)
    return "\n".join([*lines, f"\n{passed} of {count} cases as expected, {count - passed} differ", ""])


def scripts_html(report: scripts.Report) -> str:
    """Return the report of a folder of scripts as a page."""
    passed, count = sum(case.passed for case in report.cases), len(report.cases)
    rows = [
        (command, f"{good} of {all_}", "" if good == all_ else f"{all_ - good} differ")
        for command, (good, all_) in scripts.summary(report.cases).items()
    ]
    body = [f"<p>{_count(passed, count, 'cases')}</p>", _table(("command", "as expected", ""), rows)]
    for case in report.cases:
        rows = [(each.place, shown(each.expected), shown(each.got)) for each in case.differences]
        content = (
            _table(("where", "expected", "got"), rows) if rows else f"<p>{_text(case.problem or 'as expected')}</p>"
        )
        title = f"{_mark(case.passed)} {_text(case.command)} <code>{_text(case.name)}</code> {_text(case.title)}"
        body.append(f"<details{'' if case.passed else ' open'}><summary>{title}</summary>{content}</details>")
    return _page(f"{report.folder} against BullMQ {report.version}", body)


# --- clients ----------------------------------------------------------------------------------------------------------


def client_text(report: search.Report) -> str:
    """Return the report of a client: what was compared, and each difference with the shortest sequence."""
    lines = [
        f"{report.client} {report.client_version} against BullMQ {report.version}",
        f"compared with {report.reference}",
        f"seed {report.seed}, {report.sequences} sequences, {report.total} requests",
        "requests: " + ", ".join(f"{name} {count}" for name, count in sorted(report.requests.items())),
    ]
    if report.left_out:
        lines.append("not in this client: " + ", ".join(report.left_out))
    for found in report.found:
        lines.append(f"\n{found.signature}{'' if found.repeated else ' (once, not when it was run again)'}")
        lines += [f"  {number:2} {_line(each)}" for number, each in enumerate(found.requests, 1)]
        for one in found.differences:
            lines += [
                f"     {one.place}",
                f"       expected {shown(one.expected)}",
                f"       got      {shown(one.got)}",
            ]
    count = len(report.found)
    return "\n".join([*lines, f"\n{count} difference{'' if count == 1 else 's'}", ""])


def client_html(report: search.Report) -> str:
    """Return the report of a client as a page."""
    counts = [(name, str(count)) for name, count in sorted(report.requests.items())]
    good = not report.found
    body = [
        f'<p class="{"good" if good else "bad"}">{len(report.found)} differences</p>',
        f"<p>Compared with {_text(report.reference)}.</p>",
        f"<p>Seed {report.seed}, {report.sequences} sequences, {report.total} requests.</p>",
        f"<p>Not in this client: {_text(', '.join(report.left_out))}.</p>" if report.left_out else "",
        f"<details><summary>Requests</summary>{_table(('request', 'count'), counts)}</details>",
    ]
    for found in report.found:
        lines = [f"{number:2} {_line(each)}" for number, each in enumerate(found.requests, 1)]
        rows = [(one.place, shown(one.expected), shown(one.got)) for one in found.differences]
        note = "" if found.repeated else " (once, not when it was run again)"
        body.append(f"<h2>{_text(found.signature + note)}</h2><pre>{_text(chr(10).join(lines))}</pre>")
        body.append(_table(("where", "expected", "got"), rows))
    return _page(f"{report.client} {report.client_version} against BullMQ {report.version}", body)


def _line(each: Request) -> str:
    return f"{each['call']} {json.dumps(each['args'], ensure_ascii=False)}"


# --- pages ------------------------------------------------------------------------------------------------------------


def _text(value: str) -> str:
    return html.escape(value)


def _mark(good: bool) -> str:
    return f'<span class="{"good" if good else "bad"}">{"✓" if good else "✗"}</span>'


def _count(good: int, count: int, what: str) -> str:
    return f'<span class="{"good" if good == count else "bad"}">{good} of {count} {what} as expected</span>'


def _table(head: Row, rows: Iterable[Row]) -> str:
    cells = "".join(f"<th>{_text(each)}</th>" for each in head)
    body = "".join("<tr>" + "".join(f"<td>{_text(each)}</td>" for each in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def _page(title: str, body: Iterable[str]) -> str:
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{_text(title)}</title>'
    parts = "\n".join(each for each in body if each)
    shown = f"<body><h1>{_text(title)}</h1>\n{parts}\n</body>"
    return f'<!doctype html>\n<html lang="en"><head>{head}<style>{_STYLE}</style></head>\n{shown}</html>\n'
