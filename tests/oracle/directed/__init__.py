"""The directed cases of every section, and the branches they must reach.

A branch is a reply code, a numbered step or a quirk of a command's section, as its module lists them, and a mark in our
Lua. One of either kind that no case reaches fails the run.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.oracle.cases import Case
from tests.oracle.directed import adding, administering, edges, fetching, finishing, held, moving, scheduling, upset

MODULES = (adding, fetching, finishing, moving, scheduling, administering, edges, held, upset)
CASES: tuple[Case, ...] = tuple(case for module in MODULES for case in module.CASES)
BRANCHES = {
    f"{section} {name}" for module in MODULES for section, names in module.BRANCHES.items() for name in names.split()
}
REPLIES = {
    **dict.fromkeys(("addStandardJob", "addDelayedJob", "addPrioritizedJob", "addParentJob"), "text -5 -7 error"),
    "moveToActive": "job limited next none error",
    "moveToFinished": "job limited next none 0 -1 -2 -3 -4 -6 -9 error",
    "moveStalledJobsToWait": "list empty error",
    "extendLock": "0 1",
    "extendLocks": "list empty error",
    "releaseLock": "0 1",
    "getRateLimitTtl": "0 number -1 -2",
    "isMaxed": "1 nil error",
    "moveToDelayed": "0 -1 -2 -3 -6 error",
    "moveJobFromActiveToWait": "0 number -1 -2 -6",
    "retryJob": "0 -1 -2 -3 -6",
    "updateData": "0 -1",
    "updateProgress": "0 -1 error",
    "addLog": "number -1 2 error",
    "saveStacktrace": "0 -1",
    "pause": "nil",
    "removeJob": "1 0 -8 error",
    "obliterate": "0 1 -1 -2 error",
    "getCounts": "list empty error",
    **dict.fromkeys(
        ("getState", "getStateV2"),
        "completed failed delayed prioritized active waiting waiting-children unknown",
    ),
    "isFinished": "-1 0 1 2 [-1] [0] [1] [2]",
    "updateJobScheduler": "text nil error",
    "addJobScheduler": "list -10 -11 error",
    "removeJobScheduler": "0 1",
    "getJobScheduler": "list empty",
    "addRepeatableJob": "text error",
    "updateRepeatableJobMillis": "text error",
    "removeRepeatable": "0 1",
    "moveToWaitingChildren": "0 1 -1 -2 -3 -6 -9",
    "moveJobsToWait": "0 1",
    "reprocessJob": "1 -1 -3 error",
    "changeDelay": "0 -1 -3",
    "changePriority": "0 -1 error",
    "promote": "0 -3",
    "drain": "nil",
    "cleanJobsInSet": "list empty",
    "removeChildDependency": "0 1 -1 -5",
    "removeUnprocessedChildren": "nil",
    "isJobInList": "1 nil",
    "getCountsPerPriority": "list error",
    **dict.fromkeys(("getRanges", "getMetrics", "getDependencyCounts"), "list"),
    "paginate": "list error",
}
"""The kinds of reply that every command must have given."""


def missing(cases: Sequence[Case], replies: set[tuple[str, str]], marks: set[str], reached: set[str]) -> list[str]:
    """Return the branches, kinds of reply and marks that were not reached, and branches that no module lists."""
    covered: set[str] = set().union(*(case.branches() for case in cases))
    found = [f"no directed case for branch {name}" for name in sorted(BRANCHES - covered)]
    found += [f"a directed case names {name}, which no module lists" for name in sorted(covered - BRANCHES)]
    wanted = {(name, kind) for name, kinds in REPLIES.items() for kind in kinds.split()}
    found += [f"no directed case makes {name} reply {kind}" for name, kind in sorted(wanted - replies)]
    found += [f"no directed case reaches mark {mark}" for mark in sorted(marks - reached)]
    return found
