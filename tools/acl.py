"""Write the ACL rules of `docs/security.md` from what the commands of each role send: `python tools/acl.py [--check]`.

A command is a row of `specs/commands.json`; one that is a script needs what the packed script calls.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bullmq_protocol.scripts.profile import FLEET, STRICT, V6_7

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "security.md"
TABLE = ROOT / "specs" / "commands.json"

_CALL = re.compile(r"""(?:redis\.p?call|(?<![A-Za-z_.])call)\(\s*(?:['"]([A-Za-z]+)['"]|([^,]+))""")
_BLOCK = re.compile(r"```acl\nACL SETUSER (\w+) .*?```", re.DOTALL)

CONNECTION = ("select", "client|setname", "info", "ping", "multi", "exec", "eval", "evalsha")
"""What every connection needs."""

_READING = """
isMaxed, getRateLimitTtl, getCounts, getCountsPerPriority, getRanges, getState, getStateV2, isFinished,
isJobInList, getMetrics, getDependencyCounts, paginate, getJobScheduler, getVersion, getGlobalConcurrency,
getGlobalRateLimit, isPaused, getDeduplicationJobId, getJob, getJobLogs, is in set, is in list,
getChildrenValues, getIgnoredChildrenFailures, getDependencies, getDependencies processed, getDependencies
unprocessed, getDependencies ignored, getDependencies failed, getJobSchedulers, read scheduler,
getJobSchedulersCount, count finished, ping, getJobs
"""
_PRODUCING = """
addStandardJob, addDelayedJob, addPrioritizedJob, addParentJob, addMany, addJobScheduler, removeJobScheduler,
set meta, last event id, read events, read events back, wait for events, publishEvent, removeDeduplicationKey,
removeOwnDeduplicationKey, releaseParentIfNoPendingDependencies
"""
_WORKING = """
moveToActive, moveToFinished, fetchMany, finishMany, moveStalledJobsToWait, extendLock, extendLocks,
releaseLock, moveToDelayed, moveToWaitingChildren, moveJobFromActiveToWait, retryJob, changeDelay,
changePriority, promote, reprocessJob, updateData, updateProgress, addLog, clearLogs, saveStacktrace, removeJob,
removeUnprocessedChildren, removeChildDependency, updateJobScheduler, addRepeatableJob,
updateRepeatableJobMillis, wait for marker, put marker, stalled check ttl, pause
"""
ROLES: Mapping[str, str] = {"producer": f"{_PRODUCING},{_READING}", "worker": f"{_WORKING},{_READING}"}
"""The commands of each role, by their names in `specs/commands.json`."""

_SCRIPTS: Mapping[str, str] = {"removeOwnDeduplicationKey": "removeDeduplicationKey"}
"""Rows that have another name than their script."""

# What a script calls by a name that it was given or has worked out.
_NAMED_LATER: Mapping[tuple[str, str], Sequence[str]] = {
    ("getJobs", "ascending and 'ZRANGE' or 'ZREVRANGE'"): ("zrange", "zrevrange"),
    ("paginate", "scan"): ("hscan", "sscan"),
    ("reprocessJob", "ARGV[2]"): ("lpush", "rpush"),
    ("retryJob", "ARGV[3]"): ("lpush", "rpush"),
}

# EXISTS and GET tell whether a job was added, HGET whether a child of a flow was linked.
_BESIDE: Mapping[str, Sequence[str]] = {"producer": ("exists", "get", "hget"), "worker": ()}


def rows() -> Mapping[str, Mapping[str, Any]]:
    """Return the rows of the command table by name."""
    return {row["name"]: row for row in json.loads(TABLE.read_text(encoding="utf-8"))["commands"]}


def called(script: str) -> set[str]:
    """Return the server's commands that a script calls, in any profile; `KeyError` for a name not listed here."""
    found: set[str] = set()
    scripts = [profile.scripts.get(_SCRIPTS.get(script, script)) for profile in (STRICT, FLEET, V6_7)]
    for source in [each.source for each in scripts if each is not None]:
        for name, expression in _CALL.findall(source):
            found |= {name.lower()} if name else set(_NAMED_LATER[script, expression])
    return found


def commands(role: str) -> list[str]:
    """Return the server's commands that a role needs, but for those of every connection."""
    table = rows()
    found = set(_BESIDE[role])
    for name in map(str.strip, " ".join(ROLES[role].split()).split(",")):
        row = table[name]
        if row["kind"] == "plain":
            found |= {each.partition(" ")[0].lower() for each in row["redis"]}
        else:
            found |= called(name)
    return sorted(found - set(CONNECTION))


def rule(role: str) -> str:
    """Return the rule of a role as a block of the page."""
    lines = [f"ACL SETUSER {role} on >password resetkeys ~bull:* resetchannels -@all"]
    for words in (CONNECTION, commands(role)):
        text = " ".join(f"+{word}" for word in words)
        lines += textwrap.wrap(text, 118, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    return "```acl\n" + "\n".join(lines) + "\n```"


def written(page: str) -> str:
    """Return the page with the rules as they should be."""
    return _BLOCK.sub(lambda found: rule(found[1]) if found[1] in ROLES else found[0], page)


def main(arguments: Sequence[str]) -> int:
    """Write the page; with `--check` only say whether it is stale."""
    page = PAGE.read_text(encoding="utf-8")
    right = written(page)
    if "--check" in arguments:
        if page != right:
            print("docs/security.md: the ACL rules are stale: run python tools/acl.py")
            return 1
        return 0
    PAGE.write_text(right, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
