"""Every difference that was ever found, as a named case with what was wrong; they run first."""

from __future__ import annotations

from tests.oracle.calls import Q, T, move_to_finished, update_scheduler
from tests.oracle.cases import ERROR, Case, case, job, push, put, zadd

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
