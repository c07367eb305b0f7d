"""The figures of a run: kept in a file as they come, shown as tables."""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, cast

from bench.scenarios import LATENCY, MEMORY_MB, PERCENTILES, REQUIRED, REQUIRED_LATENCIES, SCENARIOS, RequiredLatency
from bench.sides import BEST_PEER, KEEP_PROMISE, NAMES, OURS
from tests.support.port import PEERS

Sample = dict[str, float]
FORMAT = 2
"""Of the file: a run with another one is not resumed."""
SPREAD = 0.2
"""A row whose quartiles lie further apart than this share of its median decides nothing."""
_PER_JOB = (("cpu_seconds", "cpu_us", 1e6), ("server_seconds", "server_us", 1e6), ("server_bytes", "server_bytes", 1))


_ORDER = {each.name: place for place, each in enumerate(chain.from_iterable(SCENARIOS.values()))}


class OtherRunError(Exception):
    """The file holds the figures of a run that was asked for something else, or no figures at all."""


@dataclass
class Figures:
    """What was measured so far. Each change is in the file before the next measurement begins."""

    file: Path
    about: dict[str, Any]
    """Machine, versions and numbers of jobs and rounds: what makes figures comparable."""
    rates: dict[str, Any] = field(default_factory=dict)
    latency: dict[str, Any] = field(default_factory=dict)
    scripts: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """The error of each side that did not get through a scenario, by both names."""

    is_written: bool = False
    """Whether the file holds all of it. A file that cannot be written ends no run."""
    _is_ours: bool = False

    _KINDS = ("rates", "latency", "scripts", "memory", "failed")

    def try_file(self) -> None:
        """Raise OSError if the file cannot be written. What it holds stays as it is."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        if self.file.is_dir():
            raise IsADirectoryError(f"{self.file} is a folder")
        self._beside.touch()
        self._beside.unlink()

    def resume(self) -> None:
        """Take over what the file holds. `OtherRunError`: it is another run's."""
        self._is_ours = True
        if not self.file.exists():
            return
        found = read(self.file)
        for key, value in self.about.items():
            if found.get(key) != value:
                raise OtherRunError(f"{self.file}: {key} is {found.get(key)!r} there, and {value!r} now")
        for kind in self._KINDS:
            setattr(self, kind, found.get(kind, {}))

    def note_failed(self, scenario: str, side: str, error: BaseException) -> None:
        self.failed[_key(scenario, side)] = f"{type(error).__name__}: {error}"
        print(f"\n{scenario}: {NAMES.get(side, side)} failed: {error!r}", flush=True)
        self.save()

    def lacks(self, scenario: str, row: dict[str, Any], sides: Sequence[str]) -> bool:
        """Tell whether one of the sides has not been measured in a scenario, or failed there."""
        return any(side not in row or _key(scenario, side) in self.failed for side in sides)

    def forget_failed(self, scenario: str, sides: Sequence[str]) -> None:
        """Sides are about to be measured again."""
        for side in sides:
            self.failed.pop(_key(scenario, side), None)

    def save(self) -> None:
        """Write all to the file; a reader finds the old figures or the new ones. An error is printed.

        Without figures nothing is written. What another run left there is kept in a file beside it.
        """
        if not any(getattr(self, kind) for kind in self._KINDS):
            return
        try:
            self._write()
        except OSError as error:
            self.is_written = False
            print(f"\nnot written to {self.file}: {error}", flush=True)
        else:
            self.is_written = True

    @property
    def _beside(self) -> Path:
        return self.file.with_name(f"{self.file.name}.part")

    def _write(self) -> None:
        # What is measured again comes last.
        self.rates = dict(sorted(self.rates.items(), key=lambda each: _ORDER[each[0]]))
        self.file.parent.mkdir(parents=True, exist_ok=True)
        kinds = {kind: getattr(self, kind) for kind in self._KINDS}
        found = {**self.about, **kinds, "required": self.required()}
        found |= {"against_peers": (against := self.against_peers()), "against_best_peer": against_best_peer(against)}
        self._beside.write_text(json.dumps(found, indent=2) + "\n")
        if not self._is_ours and self.file.exists():
            self.file.replace(before := self.file.with_suffix(".before.json"))
            print(f"\nkept the figures of the run before in {before}", flush=True)
        self._is_ours = True
        self._beside.replace(self.file)

    def required(self) -> list[dict[str, Any]]:
        """Say for each ratio that is asked for what was measured; None where a side did not take part."""
        rows = []
        for each in REQUIRED:
            found = self.rates.get(each.scenario, {})
            other = _other(each.other, {side: row["jobs_per_s"] for side, row in found.items()}, max)
            both = [found[side] for side in (each.side, other) if side in found]
            ratio = round(both[0]["jobs_per_s"] / both[1]["jobs_per_s"], 2) if len(both) == 2 else None
            what = f"{each.scenario}: {NAMES[each.side]} against {NAMES[each.other]}"
            row = {"what": what, "measured": ratio, "least": each.least, "decided": _decided(both), "other": other}
            rows.append(row)
        for asked in REQUIRED_LATENCIES:
            ms = {side: row[asked.percentile] for side, row in self.latency.items()}
            other = _other(asked.other, ms, min)
            ratio = round(ms[asked.side] / ms[other], 2) if {asked.side, other} <= ms.keys() else None
            what = f"latency {asked.percentile.removesuffix('_ms')}: {NAMES[asked.side]} against {NAMES[asked.other]}"
            spreads = [self.latency[side]["spread"][asked.percentile] for side in (asked.side, other) if side in ms]
            decided = all(map(_is_decided, spreads))
            rows.append({"what": what, "measured": ratio, "most": asked.most, "decided": decided, "other": other})
        for side in OURS:
            grown = self.memory.get(side)
            grown = None if grown is None else round(grown["late_mb"] - grown["early_mb"], 1)
            what = f"growth of memory in MB: {NAMES[side]}"
            rows.append({"what": what, "measured": grown, "most": MEMORY_MB, "decided": True})
        return rows

    def against_peers(self) -> dict[str, dict[str, dict[str, float]]]:
        """Return ratios of each of ours to each of the other queues, by scenario: how many times as fast we are."""
        speeds = {
            scenario: {side: row["jobs_per_s"] for side, row in found.items()} for scenario, found in self.rates.items()
        }
        speeds[LATENCY] = {side: 1 / row["p50_ms"] for side, row in self.latency.items()}
        return {
            scenario: {
                ours: {peer: round(found[ours] / found[peer], 2) for peer in PEERS if peer in found}
                for ours in OURS
                if ours in found
            }
            for scenario, found in speeds.items()
            if any(peer in found for peer in PEERS)
        }


def read(file: Path) -> dict[str, Any]:
    """Return what a file of the bench holds. Raises `OtherRunError`."""
    try:
        found = json.loads(file.read_text())
    except ValueError as error:
        raise OtherRunError(f"{file} is no file of the bench: {error}") from error
    if not isinstance(found, dict):
        raise OtherRunError(f"{file} is no file of the bench: it holds no object")
    return cast("dict[str, Any]", found)


def _key(scenario: str, side: str) -> str:
    return f"{scenario}: {side}"


def against_best_peer(against: dict[str, dict[str, dict[str, float]]]) -> dict[str, dict[str, Any]]:
    """Return for each scenario the best of the other queues that keep the promise, and our ratios to it."""
    found: dict[str, dict[str, Any]] = {}
    for scenario, ours in against.items():
        able = [peer for peer in next(iter(ours.values()), {}) if peer in KEEP_PROMISE]
        if able:
            best = min(able, key=next(iter(ours.values())).__getitem__)
            found[scenario] = {"best": best, **{side: ratios[best] for side, ratios in ours.items()}}
    return found


def _other(side: str, found: dict[str, float], best: Callable[..., str]) -> str:
    """Return the side that a row compares with: for the best of the peers, that one where any took part."""
    able = {peer: value for peer, value in found.items() if peer in KEEP_PROMISE}
    return best(able, key=able.__getitem__) if side == BEST_PEER and able else side


def _decided(rows: Sequence[dict[str, Any]]) -> bool:
    return all(_is_decided(row["spread"]) for row in rows)


def _is_decided(spread: float | None) -> bool:
    return spread is None or spread <= SPREAD


def rates(found: dict[str, list[Sample]]) -> dict[str, Any]:
    """Take medians and quartiles of the rounds, per job."""
    result: dict[str, Any] = {}
    for side, rounds in found.items():
        speeds = [each["jobs"] / each["seconds"] for each in rounds]
        middle, quartiles, spread = _spread(speeds)
        result[side] = {
            "jobs_per_s": round(middle),
            "rounds": [round(each) for each in speeds],
            "quartiles": None if quartiles is None else [round(each) for each in quartiles],
            "spread": spread,
        }
        for key, name, unit in _PER_JOB:
            if all(key in each for each in rounds):
                per_job = statistics.median(each[key] / each["jobs"] for each in rounds) * unit
                result[side][f"{name}_per_job"] = round(per_job, 1)
    return result


def undecided(row: dict[str, Any]) -> list[str]:
    """Return the sides of a scenario whose rounds lie too far apart."""
    return [side for side, each in row.items() if not _decided([each])]


def latencies(found: dict[str, list[Sample]]) -> dict[str, Any]:
    """Take medians and quartiles of the rounds' percentiles."""
    result: dict[str, Any] = {side: {"rounds": {}, "quartiles": {}, "spread": {}} for side in found}
    for side, rounds in found.items():
        for key in PERCENTILES:
            values = [round(each[key], 3) for each in rounds]
            middle, quartiles, spread = _spread(values)
            result[side][key] = round(middle, 3)
            result[side]["rounds"][key] = values
            result[side]["quartiles"][key] = None if quartiles is None else [round(each, 3) for each in quartiles]
            result[side]["spread"][key] = spread
    return result


def undecided_latencies(row: dict[str, Any]) -> list[str]:
    """Return the sides whose rounds lie too far apart, in a percentile for which a ratio is required."""
    asked = [each for each in REQUIRED_LATENCIES if each.side in row]
    pairs = {(side, each.percentile) for each in asked for side in _both(each, row)}
    return sorted({side for side, key in pairs if not _is_decided(row[side]["spread"][key])})


def _both(asked: RequiredLatency, row: dict[str, Any]) -> set[str]:
    others = set(PEERS) if asked.other == BEST_PEER else {asked.other}
    return {asked.side, *others} & row.keys()


def _spread(values: Sequence[float]) -> tuple[float, tuple[float, float] | None, float | None]:
    """Return the median, the outer quartiles, and how far apart these are as a share of the median."""
    middle = statistics.median(values)
    if len(values) == 1:
        return middle, None, None
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, (low, high), round((high - low) / middle, 3)


def show_rates(name: str, found: dict[str, Any]) -> None:
    node = found.get("node-5", {}).get("jobs_per_s")
    columns = f"{'jobs/s':>10}{'quartiles':>18}{'x Node':>8}{'CPU us':>9}{'server us':>11}{'bytes':>13}"
    print(f"\n{name:<42}{columns}")
    for side, each in found.items():
        ratio = "" if node is None else f"{each['jobs_per_s'] / node:.2f}"
        quartiles = "" if each["quartiles"] is None else "{:,} - {:,}".format(*each["quartiles"])
        cells = [each.get(key, "") for key in ("cpu_us_per_job", "server_us_per_job", "server_bytes_per_job")]
        mark = "" if _decided([each]) else "  not decided"
        print(
            f"  {NAMES[side]:<40}{each['jobs_per_s']:>10,}{quartiles:>18}{ratio:>8}{cells[0]:>9}{cells[1]:>11}"
            f"{cells[2]:>13}{mark}",
            flush=True,
        )


def show_latencies(name: str, found: dict[str, Any]) -> None:
    heads = "".join(f"{key.removesuffix('_ms') + ', ms':>10}{'quartiles':>16}" for key in PERCENTILES)
    print(f"\n{name:<42}{heads}")
    for side, each in found.items():
        cells = ""
        for key in PERCENTILES:
            quartiles = each["quartiles"][key]
            cells += f"{each[key]:>10.2f}" + f"{'' if quartiles is None else '{:.2f} - {:.2f}'.format(*quartiles):>16}"
        far = [key.removesuffix("_ms") for key in PERCENTILES if not _is_decided(each["spread"][key])]
        print(f"  {NAMES[side]:<40}{cells}{'  not decided: ' + ', '.join(far) if far else ''}")


def show(name: str, found: dict[str, Any], names: dict[str, str] = NAMES) -> None:
    print(f"\n{name}")
    for row, cells in found.items():
        print(f"  {names.get(row, row):<40}" + "  ".join(f"{key} {round(cell, 2):g}" for key, cell in cells.items()))


def show_against_peers(found: dict[str, dict[str, dict[str, float]]]) -> None:
    """Print how many times as fast ours are as each of the other queues; * marks those that keep the same promise."""
    for scenario, ours in found.items():
        peers = list(next(iter(ours.values()), {}))
        print(f"\n{f'times as fast: {scenario}':<42}" + "".join(f"{_marked(peer):>10}" for peer in peers))
        for side, ratios in ours.items():
            print(f"  {NAMES[side]:<40}" + "".join(f"{ratio:>10.2f}" for ratio in ratios.values()))


def show_against_best_peer(found: dict[str, dict[str, Any]]) -> None:
    """Print how many times as fast ours are as the best of the other queues that keep the promise."""
    if found:
        print(
            f"\n{'times as fast as ' + NAMES[BEST_PEER]:<60}" + "".join(f"{side:>10}" for side in OURS) + "    which is"
        )
    for scenario, row in found.items():
        cells = (f"{row[side]:>10.2f}" if side in row else f"{'-':>10}" for side in OURS)
        print(f"  {scenario:<58}{''.join(cells)}    {NAMES[row['best']]}")


def _marked(peer: str) -> str:
    return f"{peer}*" if peer in KEEP_PROMISE else peer


def show_required(rows: Sequence[dict[str, Any]]) -> None:
    width = max((len(row["what"]) for row in rows), default=0)
    print(f"\n{'required':<{width + 2}}{'measured':>10}{'':>4}bound")
    for row in rows:
        bound = f"at least {row['least']:g}" if "least" in row else f"at most {row['most']:g}"
        measured = "-" if row["measured"] is None else f"{row['measured']:g}"
        mark = "" if row["decided"] else ", not decided"
        missed = row["measured"] is not None and (
            row["measured"] < row["least"] if "least" in row else row["measured"] > row["most"]
        )
        best = f", {NAMES[row['other']]}" if row.get("other") in PEERS else ""
        print(f"{'!' if missed else ' '} {row['what']:<{width}}{measured:>10}    {bound}{mark}{best}")
