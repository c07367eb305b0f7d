"""The directed cases of part 06, section 11, for each pinned version, and those of what `fleet` alone does.

A case says what is there afterwards in its version; a step or a reply of a section is a branch,
as in the modules of parts
01 to 04. What stays the same in all versions is in those.
"""

from __future__ import annotations

from types import MappingProxyType

from tests.oracle.cases import Case
from tests.oracle.directed.later import (
    attaching,
    deduplicating,
    fleet,
    lining_up,
    putting_off,
    reading,
    requeueing,
    schedules,
    stalling,
)
from tests.oracle.directed.later.versions import Version
from tests.oracle.layouts import VERSIONS

MODULES = (deduplicating, requeueing, lining_up, attaching, putting_off, stalling, schedules, reading)
CASES = MappingProxyType(
    {name: tuple(case for module in MODULES for case in module.cases(Version(name))) for name in VERSIONS}
)
"""The cases of each version."""

FLEET: tuple[Case, ...] = fleet.CASES
"""Those that run on our side alone."""

BRANCHES = {
    f"{section} {name}"
    for module in (*MODULES, fleet)
    for section, names in module.BRANCHES.items()
    for name in names.split()
}

_ADDED = "text -5 -7 error"
REPLIES = MappingProxyType(
    {
        **dict.fromkeys(("addStandardJob", "addDelayedJob", "addPrioritizedJob"), _ADDED),
        "addParentJob": "text -5 -7 error",
        "moveToActive": "job limited none error",
        "moveToFinished": "job 0 error",
        "moveToDelayed": "job 0 -1 -2 -3 -6 error",
        "moveStalledJobsToWait": "list error",
        "reprocessJob": "1 -1 -3",
        "moveJobsToWait": "0",
        "changePriority": "0",
        "obliterate": "0 1",
        "addJobScheduler": "list -10 -11 error",
        "updateJobScheduler": "text",
        "getCounts": "list",
        "getCountsPerPriority": "list",
        "getJobs": "list empty error",
        "removeOrphanedJobs": "0 1 2",
        "removeDeduplicationKey": "0 1 error",
    }
)
"""The kinds of reply that the cases of 5.81.5 and 6.7.0 give."""

REPLIES_OF_6_7 = MappingProxyType({"pause": "0 1", "releaseParentIfNoPendingDependencies": "nil error"})
"""Those of 6.7.0 alone."""


def missing(version: str, replies: set[tuple[str, str]]) -> list[str]:
    """Return the branches that no case has, and the kinds of reply that those of a version did not give."""
    listed = [*FLEET, *(case for cases in CASES.values() for case in cases)]
    covered: set[str] = set().union(*(case.branches() for case in listed))
    found = [f"no directed case for branch {name}" for name in sorted(BRANCHES - covered)]
    found += [f"a directed case names {name}, which no module lists" for name in sorted(covered - BRANCHES)]
    kinds = {**REPLIES, **(REPLIES_OF_6_7 if version == "6.7.0" else {"pause": "nil"})}
    wanted = {(name, kind) for name, each in kinds.items() for kind in each.split()}
    return [*found, *(f"no directed case makes {name} reply {kind}" for name, kind in sorted(wanted - replies))]
