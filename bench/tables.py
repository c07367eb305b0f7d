"""The tables of docs/bench.md from the figures of a run: `python -m bench.tables .cache/bench.json`."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.report import FORMAT, SPREAD, OtherRunError, read
from bench.scenarios import LATENCY, PERCENTILES
from bench.sides import NAMES, SIDES

Cells = Sequence[str]


def table(head: Cells, rows: Sequence[Cells]) -> Iterator[str]:
    """Return the lines of a table in Markdown."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for cells in rows:
        yield f"| {' | '.join(cells)} |"


def _rate(row: dict[str, Any], key: str = "jobs_per_s") -> str:
    if key not in row:
        return ""
    is_far = row["spread"] is not None and row["spread"] > SPREAD
    return f"{row[key]:,}{' (not decided)' if is_far and key == 'jobs_per_s' else ''}"


def by_scenario(rates: dict[str, Any], key: str) -> Iterator[str]:
    """Return a table with a row for each scenario, and a column for each side that took part in any."""
    sides = [side for side in SIDES if any(side in row for row in rates.values())]
    rows = [[name, *(_rate(row.get(side, {}), key) for side in sides)] for name, row in rates.items()]
    return table(["", *(NAMES[side] for side in sides)], rows)


def of_latencies(latency: dict[str, Any]) -> Iterator[str]:
    """Return a table of the percentiles, with quartiles of the rounds."""
    rows = []
    for side, each in latency.items():
        cells = [NAMES[side]]
        for key in PERCENTILES:
            quartiles = each["quartiles"][key]
            cells.append(f"{each[key]:.2f}" + ("" if quartiles is None else " ({:.2f}, {:.2f})".format(*quartiles)))
        rows.append(cells)
    return table([LATENCY, "p50, ms (quartiles)", "p99, ms (quartiles)"], rows)


def of_required(required: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Return a table of the ratios that were measured; one that is missed is printed in bold."""
    rows = []
    for row in required:
        if (measured := row["measured"]) is None:
            continue
        is_missed = measured < row["least"] if "least" in row else measured > row["most"]
        what = row["what"] + (f" ({NAMES[row['other']]})" if "best" in row["what"] else "")
        bound = f"{row['least']:g}" if "least" in row else f"at most {row['most']:g}"
        shown = f"**{measured:g}**" if is_missed else f"{measured:g}"
        rows.append([what, shown + ("" if row["decided"] else " (not decided)"), bound])
    return table(["Required of this library", "measured", "required"], rows)


def of_best_peers(found: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Return a table of the ratios to the best of the other queues that keep the promise."""
    sides = [side for side in SIDES if any(side in row for row in found.values())]
    rows = [
        [name, *(f"{row[side]:g}" if side in row else "" for side in sides), NAMES[row["best"]]]
        for name, row in found.items()
    ]
    return table(
        ["times as fast as the best that keeps the promise", *(NAMES[side] for side in sides), "which is"], rows
    )


def tables(found: dict[str, Any]) -> Iterator[str]:
    """Return the lines of all tables."""
    about = ", ".join(f"{key} {value}" for key, value in found.items() if not isinstance(value, dict | list))
    yield from (about, "", "Jobs per second:", "", *by_scenario(found["rates"], "jobs_per_s"))
    yield from ("", "CPU time of the client in µs per job:", "", *by_scenario(found["rates"], "cpu_us_per_job"))
    yield from ("", "CPU time of the server in µs per job:", "", *by_scenario(found["rates"], "server_us_per_job"))
    memory = [
        [NAMES[side], f"{each['early_mb']:.1f}", f"{each['late_mb']:.1f}"] for side, each in found["memory"].items()
    ]
    yield from ("", *table(["resident memory, MB", "early", "at the end"], memory))
    yield from ("", *of_latencies(found["latency"]))
    yield from ("", *of_best_peers(found["against_best_peer"]))
    yield from ("", *of_required(found["required"]))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.tables", description=__doc__)
    parser.add_argument("file", type=Path)
    file: Path = parser.parse_args(arguments).file
    try:
        found = read(file)
    except (OSError, OtherRunError) as error:
        parser.error(str(error))
    if found.get("format") != FORMAT:
        parser.error(f"{file}: format is {found.get('format')!r} there, and {FORMAT} now")
    sys.stdout.writelines(f"{line}\n" for line in tables(found))


if __name__ == "__main__":
    main(sys.argv[1:])
