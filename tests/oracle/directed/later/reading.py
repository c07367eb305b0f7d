"""Reading and sweeping: part 06, sections 4.11, 4.12 and 11.17."""

from __future__ import annotations

from typing import Any

from tests.oracle.calls import Q, T
from tests.oracle.cases import ERROR, Case, Has, case, job, push, put, zadd
from tests.oracle.directed.later.versions import Version
from tests.oracle.later_calls import due_counts, get_jobs, remove_orphans

# fmt: off
BRANCHES = {
    "06#11.17": "cut cut-text cut-exponent cut-hex cut-spaces cut-none cut-negative cut-twice cut-fraction",
    "06#4.11": "list set ascending descending old-marker old-marker-alone old-marker-other empty negative "
    "negative-start gone "
    "refill rounds rounds-none rounds-bad window zero-length minus-zero bad several types active-type nothing "
    "ascending-late",
    "06#4.12": "list set stream found gone parts several none other-types order metrics count-zero",
}


def counts(v: Version) -> list[Case]:
    """`getCounts` with a cut-off, which 6.7.0 has alone: the others are sent the states."""
    made = [zadd("delayed", {"1": T * 4096, "2": T * 4096 + 4095, "3": (T + 1) * 4096, "4": (T + 9) * 4096}),
            push("wait", "a", "b")]

    def counted(covers: str, title: str, cut: str, due: int) -> Case:
        return case(f"06#11.17 {covers}", title, made, due_counts(cut, Q, "delayed", "wait"),
                    reply=[v.in_six(4, due), 2])

    return [
        counted("cut", "what is due before a moment", str(T + 1), 2),
        counted("cut", "what is due before this one", str(T), 0),
        counted("cut-fraction", "before a part of a millisecond", f"{T}.5", 1),
        counted("cut-exponent", "in another notation", "1.700000000005e12", 3),
        counted("cut-hex", "in hexadecimal", hex(T + 1), 2)
        if v.six else
        case("06#11.17 cut-hex", "the waiting alone", made, due_counts(str(T), Q, "wait"), reply=[2]),
        counted("cut-spaces", "with spaces around", f" {T + 1} ", 2),
        counted("cut-negative", "long ago", "-5", 0),
        case("06#11.17 cut-none", "no moment", made, due_counts("wait", Q, "delayed"), reply=[2, 4]),
        case("06#11.17 cut-twice", "twice the same state", made, due_counts(str(T + 1), Q, "delayed", "delayed"),
             reply=v.in_six([4, 4], [2, 2])),
        case("06#11.17 cut-text", "a word is a state", made, due_counts("x", Q, "delayed"), reply=[0, 4]),
    ]


def jobs(v: Version) -> list[Case]:
    """`getJobs`."""
    if not v.later:
        return []
    five = [job(str(n), name=f"n{n}") for n in range(1, 6)]
    in_list = [*five, push("wait", "5", "4", "3", "2", "1")]
    in_set = [*five, zadd("completed", {str(n): T + n for n in range(1, 6)})]

    def ids(*groups: str) -> Any:
        """Expect these ids per state, each with its hash."""
        def check(reply: Any) -> bool:
            if not isinstance(reply, list):
                return False
            found = []
            for group in reply:
                found.append("".join(each[0].decode() for each in group))
                for id, fields in group:
                    pairs = dict(zip(fields[::2], fields[1::2], strict=True))
                    if pairs.get(b"name") not in (b"n", b"n" + id):
                        return False
            return found == list(groups)
        return check

    def read(covers: str, title: str, made: Any, call: Any, *groups: str, **after: Any) -> Case:
        return case(f"06#4.11 {covers}", title, made, call, reply=ids(*groups), **after)

    holes = [*five[:1], *five[3:], push("wait", "5", "4", "3", "2", "1")]
    sparse = [job(str(n)) for n in (1, 9)]
    return [
        read("list descending", "a list, the newest first", in_list, get_jobs(Q, "0", "2", "wait"), "543"),
        read("list ascending", "a list, the oldest first", in_list, get_jobs(Q, "0", "2", "wait", ascending="1"),
             "123"),
        read("ascending minus-zero", "a list, the oldest alone", in_list,
             get_jobs(Q, "0", "0", "wait", ascending="1"), "1"),
        read("window", "from the second on", in_list, get_jobs(Q, "1", "2", "wait", ascending="1"), "23"),
        read("ascending-late", "from beyond the end on", in_list, get_jobs(Q, "5", "9", "wait", ascending="1"), ""),
        read("ascending-late", "from beyond the end on, newest first", in_list, get_jobs(Q, "5", "9", "wait"), ""),
        read("set descending", "a sorted set, the highest first", in_set, get_jobs(Q, "0", "1", "completed"), "54"),
        read("set ascending", "a sorted set, the lowest first", in_set,
             get_jobs(Q, "0", "1", "completed", ascending="1"), "12"),
        read("negative", "all", in_set, get_jobs(Q, "0", "-1", "completed"), "54321"),
        read("negative", "all of a list, the oldest first", in_list, get_jobs(Q, "0", "-1", "wait", ascending="1"),
             "12345"),
        read("negative-start", "the last two", in_set, get_jobs(Q, "-2", "-1", "completed"), "21"),
        read("negative-start", "the last two of a list, the oldest first", in_list,
             get_jobs(Q, "-2", "-1", "wait", ascending="1"), "45"),
        read("negative gone", "all, some of them gone", holes, get_jobs(Q, "0", "-1", "wait"), "541"),
        read("gone refill", "three, with more in the place of those that are gone", holes,
             get_jobs(Q, "0", "2", "wait"), "541"),
        read("refill", "two, the oldest first", holes, get_jobs(Q, "0", "1", "wait", ascending="1"), "14"),
        read("refill", "two, with more than are needed in the second round",
             [*[job(n) for n in "2345"], push("wait", "5", "4", "3", "2", "1")],
             get_jobs(Q, "0", "1", "wait", ascending="1"), "23"),
        read("rounds", "one round", holes, get_jobs(Q, "0", "2", "wait", rounds="1"), "54"),
        read("rounds", "two rounds, a long way", [*sparse, push("wait", "1", "2", "3", "4", "5", "9")],
             get_jobs(Q, "0", "1", "wait", rounds="2"), "1"),
        read("rounds", "three", [*sparse, push("wait", "1", "2", "3", "4", "5", "9")],
             get_jobs(Q, "0", "1", "wait", rounds="3"), "19"),
        read("rounds-none", "no round", in_list, get_jobs(Q, "0", "2", "wait", rounds="0"), ""),
        case("06#4.11 rounds-bad", "rounds that are no number", in_list, get_jobs(Q, "0", "2", "wait", rounds="x"),
             reply=ERROR),
        read("rounds-bad", "the same, and nothing to read", in_list, get_jobs(Q, "2", "0", "wait", rounds="x"), ""),
        read("zero-length", "an end before the start", in_set, get_jobs(Q, "3", "1", "completed"), ""),
        read("empty", "nothing is there", [], get_jobs(Q, "0", "9", "wait", "completed"), "", ""),
        read("nothing", "no state is asked for", in_list, get_jobs(Q, "0", "9")),
        read("several", "two states", [*in_list, zadd("failed", {"1": 1})], get_jobs(Q, "0", "1", "failed", "wait"),
             "1", "54"),
        read("old-marker", "an old marker is taken off", [*in_list, push("wait", "0:7")],
             get_jobs(Q, "0", "9", "wait", ascending="1"), "12345", wait=["5", "4", "3", "2", "1"]),
        read("old-marker", "the same of the other list", [*five, push("paused", "1", "0:7")],
             get_jobs(Q, "0", "9", "paused"), "1", paused=["1"]),
        read("old-marker-alone", "an old marker alone stays", push("wait", "0:7"),
             get_jobs(Q, "0", "9", "wait", ascending="1"), "", wait=["0:7"]),
        *(read("old-marker-alone", f"an old marker alone that is a job, from {start} to {end}, {way}",
               [job("0:7"), push("wait", "0:7")], get_jobs(Q, start, end, "wait", ascending=way), found)
          for start, end, way, found in (("0", "0", "1", ""), ("0", "9", "1", ""), ("0", "-1", "1", "0:7"),
                                         ("-1", "0", "1", "0:7"), ("0", "0", "0", "0:7"))),
        read("old-marker-other", "of the active nothing is taken off", [*five, push("active", "1", "0:7")],
             get_jobs(Q, "0", "9", "active"), "1", active=["1", "0:7"]),
        case("06#4.11 bad", "a start that is no number", in_list, get_jobs(Q, "x", "1", "wait"), reply=ERROR),
        case("06#4.11 types", "a state of another type", ("SET", f"{Q}completed", "x"), get_jobs(Q, "0", "1",
             "completed"),
             reply=ERROR),
        case("06#4.11 active-type", "`active` of another type", ("SET", f"{Q}active", "x"),
             get_jobs(Q, "0", "1", "active", ascending="1"), reply=ERROR),
        case("06#4.11 types", "a job that is no hash", push("wait", "1"), ("SET", f"{Q}1", "x"),
             get_jobs(Q, "0", "1", "wait"), reply=ERROR),
    ]


def orphans(v: Version) -> list[Case]:
    """`removeOrphanedJobs`."""
    if not v.later:
        return []
    states = ("wait", "completed", "stalled")
    parts = ("logs", "lock")
    made = [*[job(id) for id in "1234"], push("1:logs", "row"), push("4:logs", "row"), ("SET", f"{Q}4:lock", "tk"),
            push("wait", "1"), zadd("completed", {"2": T}), ("SADD", f"{Q}stalled", "3")]
    there = Has(name="n")
    return [
        case("06#4.12 list set found gone parts several", "four ids, of which one is nowhere", made,
             remove_orphans(Q, states, parts, "1", "2", "3", "4"), reply=1,
             after={"1": there, "2": there, "3": there, "4": None, "4:logs": None, "4:lock": None,
                    "1:logs": ["row"]}),
        case("06#4.12 none", "no id", made, remove_orphans(Q, states, parts), reply=0),
        case("06#4.12 gone", "an id of which nothing is there counts", remove_orphans(Q, states, parts, "x"), reply=1),
        case("06#4.12 count-zero", "no states: everything goes", made, remove_orphans(Q, (), (), "1"), reply=1,
             after={"1": None, "1:logs": ["row"]}),
        case("06#4.12 stream other-types", "keys of other types are not looked at", made,
             ("XADD", f"{Q}events", "*", "event", "4"), put("meta", **{"4": 1}), ("SET", f"{Q}id", "4"),
             remove_orphans(Q, (*states, "events", "meta", "id"), parts, "4"), reply=1, after={"4": None}),
        case("06#4.12 order", "the same id twice", made, remove_orphans(Q, states, parts, "4", "4"), reply=2),
        case("06#4.12 parts", "the number of states is no state", job("9"), push("2", "9"), put("1", x=1),
             remove_orphans(Q, ("wait", "completed"), parts, "9"), reply=1, after={"9": None}),
        case("06#4.12 metrics", "a key of the queue that looks like one of a job", put("metrics:failed", count=1),
             remove_orphans(Q, states, ("failed",), "metrics"), reply=1, after={"metrics:failed": None}),
    ]


def cases(v: Version) -> list[Case]:
    """All of them."""
    return [each for make in (counts, jobs, orphans) for each in make(v)]
