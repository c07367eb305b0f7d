"""Every difference that was ever found, as a named case with what was wrong; they run first."""

from __future__ import annotations

from tests.oracle.calls import (
    Q,
    T,
    add_packed,
    add_repeatable,
    add_scheduler,
    get_metrics,
    move_to_finished,
    paginate,
    update_scheduler,
)
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
    # Ours decoded all maps first; the schedule's turn is after the score (upserting state 1/227).
    case(
        "04#3.1 decode",
        "a schedule of another type: the cap is stored",
        add_scheduler(schedule=5, options={"repeat": {}}),
        reply=ERROR,
        meta={"opts.maxLenEvents": "10000"},
    ),
    # Ours read the stored offset and count together (upserting state 2/9301).
    case(
        "04#1.4 nan",
        "a record of another type and NaN in the template",
        push("repeat:s", "x"),
        add_scheduler(schedule={"name": "n", "every": 5}, template={"n": float("nan")}, options={}),
        reply=Error("ERR"),
    ),
    # Ours decoded the schedule first (repeating state 2/3255).
    case(
        "04#6.2 decode",
        "a schedule that does not decode, no member",
        add_repeatable(schedule=b"\xc1"),
        reply=ERROR,
        repeat={"m": T},
    ),
    # Ours passed the range on as text (paging state 1/283).
    case(
        "03#9.7 range", "a range in scientific notation", get_metrics(start="-3", end="1e2"), reply=[[None] * 3, [], 0]
    ),
    # Ours looked at the number of scans before the cursor (paging state 1/223).
    case(
        "03#9.9 4",
        "a number of scans that is none, one scan is enough",
        ("SADD", f"{Q}s", "m"),
        paginate(f"{Q}s", "0", "-1", "0", "0", "abc"),
        reply=["0", 1, ["m"], 1, []],
    ),
    # Ours looked at the first element only when it had one (paging state 1/2760).
    case(
        "03#9.9 2",
        "a first element that is no number, nothing scanned",
        ("SADD", f"{Q}s", "m"),
        paginate(f"{Q}s", "abc", "1", "0", "5"),
        reply=ERROR,
    ),
    # Ours looked into the options before it counted (adding state 826925/2102).
    *(
        case(
            f"01#{section} 3",
            f"options that are {what}",
            add_packed(command, Q, [Q, "", "n", T, None, None, None, None, None], options),
            reply=ERROR,
            id="1",
            meta={"opts.maxLenEvents": "10000"},
        )
        for section, command in (("7.2", "addStandardJob"), ("7.4", "addPrioritizedJob"))
        for what, options in (("no map", True), ("nothing", b""))
    ),
)
