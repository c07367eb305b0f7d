"""Run all clients through the conformance run, and write what they do otherwise into docs/conformance.md.

`python -m tools.conformance [--sequences N] [--seed N] [NAME ...]`; the reports go to `.cache/conformance`, too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bullmq_conformance import report, scripts, search, vectors
from bullmq_conformance.__main__ import compare
from bullmq_conformance.program import Program
from tests.support import servers
from tests.support.node import FOLDERS
from tests.support.port import port_python

ROOT = Path(__file__).parents[1]
ADAPTERS = ROOT / "conformance" / "adapters"
PAGE = ROOT / "docs" / "conformance.md"
REPORTS = ROOT / ".cache" / "conformance"
MARKS = ("<!-- results -->\n", "<!-- end of results -->\n")
DATABASE = 14

Command = Callable[[], Sequence[object]]


def clients() -> Iterator[tuple[str, str, Command]]:
    """Yield a name, the version to compare with, and what makes the command of each client."""
    for backend in ("asyncio", "trio", "threads"):
        for version in vectors.VERSIONS:
            command = (sys.executable, ADAPTERS / "ours.py", backend, version)
            yield f"{backend}-{version}", version, lambda command=command: command
    for version in vectors.VERSIONS:
        yield f"node-{version}", version, lambda version=version: ("node", ADAPTERS / "bullmq.js", FOLDERS[version]())
    for version in vectors.VERSIONS:
        yield f"port-{version}", version, lambda: (port_python(), ADAPTERS / "port.py")
    yield "minimal-5.62.0", "5.62.0", minimal


def minimal() -> Sequence[object]:
    folder = Path(tempfile.mkdtemp(prefix="conformance-"))
    scripts.write_scripts(folder, "5.62.0")
    return "sh", ADAPTERS.with_name("minimal") / "client.sh", folder


def row(found: search.Report) -> str:
    cells = (f"{found.client} {found.client_version}", found.version, f"{found.sequences:,}", f"{found.total:,}")
    left_out = ", ".join(f"`{each}`" for each in found.left_out)
    if len(found.left_out) > len(found.requests):
        left_out = "all but " + ", ".join(f"`{each}`" for each in found.requests if each != "open")
    return f"| {' | '.join(cells)} | {len(found.found)} | {left_out or '–'} |\n"


def lists(found: search.Report) -> str:
    """Return each kind of difference of a client with what shows it."""
    text = f"\n### {found.client} {found.client_version} against {found.version}\n\n"
    text += "| After | Differs | Shown by | Expected | Got |\n|---|---|---|---|---|\n"
    for each in found.found:
        call, _, kind = each.signature.partition(": ")
        one = each.differences[0] if each.differences else None
        shown = ("", "") if one is None else (_cell(one.expected), _cell(one.got))
        calls = ", ".join(f"`{step['call']}`" for step in each.requests if step["call"] != "open")
        text += f"| `{call}` | {kind.replace('<', '&lt;')} | {calls} | {shown[0]} | {shown[1]} |\n"
    return text


def _cell(value: object) -> str:
    text = scripts.shown(value).replace("|", "\\|")
    return f"`{text if len(text) <= 70 else text[:67] + '...'}`"


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools.conformance")
    parser.add_argument("--sequences", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shrinking", type=int, default=search.SHRINKING, help="see bullmq-conformance client")
    parser.add_argument("names", nargs="*", help="clients, such as node-5.62.0; all by default, which writes the page")
    given = parser.parse_args()
    REPORTS.mkdir(parents=True, exist_ok=True)
    rows, parts = "", ""
    with servers.start() as server:
        for name, version, command in clients():
            if given.names and name not in given.names:
                continue
            client = Program(list(map(str, command())), {"PYTHONPATH": str(ROOT)})
            try:
                found = compare(
                    client,
                    version,
                    f"{server.url}/{DATABASE}",
                    seed=given.seed,
                    count=given.sequences,
                    shrinking=given.shrinking,
                )
            finally:
                client.close()
            (REPORTS / f"{name}.json").write_text(report.as_json(found))
            (REPORTS / f"{name}.html").write_text(report.client_html(found))
            (REPORTS / f"{name}.txt").write_text(report.client_text(found))
            print(
                f"{name}: {found.sequences} sequences, {found.total} requests, {len(found.found)} differences",
                flush=True,
            )
            rows += row(found)
            parts += lists(found) if found.found else ""
        kind = server.kind
    if not given.names:
        head = "| Client | Against BullMQ | Sequences | Requests | Differences | Requests that it cannot do |\n"
        head += "|---|---|---|---|---|---|\n"
        text = PAGE.read_text()
        before, _, rest = text.partition(MARKS[0])
        after = rest.partition(MARKS[1])[2]
        note = f"Measured with `make conformance SEQUENCES={given.sequences} SEED={given.seed}` on {kind}.\n\n"
        PAGE.write_text(before + MARKS[0] + note + head + rows + parts + MARKS[1] + after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
