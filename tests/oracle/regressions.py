"""Every difference that was ever found, as a named case with what was wrong; they run first."""

from __future__ import annotations

from tests.oracle.calls import Q, T, move_to_finished, update_scheduler
from tests.oracle.cases import ERROR, Case, Error, case, job, push, put, zadd

CASES: tuple[Case, ...] = (
    # Ours did not look at the offset where it has no use; BullMQ rounds it in any case (state 2/7018).
    case(
        "04#1.3 offset-bad",
        "an offset that is no number, not needed for the slot, the producer is not the current job",
        zadd("repeat", {"s": T}),
        put("repeat:s", name="sj", offset=""),
        update_scheduler(options={"repeat": {"every": 60_000}}, producer=f"repeat:s:{T} "),
        reply=ERROR,
    ),
    # Ours looked into the options before it read the record (state 1/2221).
    case(
        "04#3.2 2",
        "a record of another type and `repeat` true: the record comes first",
        zadd("repeat", {"s": T}),
        ("SADD", f"{Q}repeat:s", "m"),
        update_scheduler(options={"repeat": True}, producer=f"repeat:s:{T}"),
        reply=Error("WRONGTYPE"),
    ),
    # Ours decoded the options only when the scheduler existed (state 77/77).
    case(
        "04#3.2 1-decode",
        "options that do not decode, no scheduler",
        update_scheduler(options=b"\xc1", producer=f"repeat:s:{T}"),
        reply=ERROR,
    ),
    case(
        "04#3.2 1-decode",
        "empty options, no scheduler",
        update_scheduler(options=b"", producer=f"repeat:s:{T}"),
        reply=None,
    ),
    # The prototype took the id for a text before it was needed (state 2/7095).
    case(
        "02#5 8",
        "a parent object whose id is a number, the job is not active",
        job("1", parentKey="x:", parent='{"id":0,"queueKey":"bull:q","rdof":true}'),
        ("SET", f"{Q}1:lock", "tk"),
        move_to_finished(outcome="failed"),
        reply=-3,
    ),
    case(
        "02#W20 3",
        "a parent object whose id is a number, completed",
        job("1", parentKey="bull:q:0", parent='{"id":0,"queueKey":"bull:q"}'),
        job("0"),
        push("active", "1"),
        ("SADD", f"{Q}0:dependencies", f"{Q}1"),
        zadd("waiting-children", {"0": 1}),
        ("SET", f"{Q}1:lock", "tk"),
        move_to_finished(),
        reply=0,
        wait=["0"],
    ),
)
