"""Adding jobs: part 01 of the specification."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.oracle.calls import Call, P, Q, T, add, add_packed, pack
from tests.oracle.cases import ERROR, Case, Error, Has, Json, Ttl, case, job, meta, push, put, zadd

# fmt: off
BRANCHES = {
    "01#2.6": "first counted gaps overwrite large key-name-hash key-name-other key-name-free three-parts",
    "01#2.8": "zero positive low next full gap reused far fraction",
    "01#2.9": "counter wrap negative largest",
    "01#2.10": "paused maxed fraction replaces stale-one",
    "01#6.1": "missing found",
    "01#6.2": "1 2 2-empty 2-any-type 3 4 5-generated 5-custom 6 6-unlinked 7 duplicate-first",
    "01#6.3": "1 2 3 3-parent 3-rjk 3-rjk-empty 3-deid 4 text-delay link-nil",
    "01#3.5": "slash controls digits nil-array empty sparse nan order",
    "01#6.4": "A-free A-owned A-extend B-free B-owned C-free C-owned C-no-ttl D-free D-delayed D-not-delayed D-extend "
    "E-free E-delayed E-no-ttl F-free F-delayed F-not-delayed ttl-zero ttl-negative zero-is-on empty-is-on "
    "false-is-off no-id stale parent-link lock all-commands",
    "01#6.5": "no-parents new-parent same-parent parent-not-given other-parent other-parent-gone 1a 1b 1b-pending "
    "2 2-failed 3 ignores-dedup q-flow",
    "01#6.6": "1-missing 1-not-waiting 2 3 4 5-list 5-paused 5-prioritized 6",
    "01#6.7": "paused maxed open",
    "01#6.10": "link only-element-6",
    "01#7.2": "1 2 2-lifo 2-zero-is-lifo 3 4 5 6 delay-ignored reply-5 reply-7",
    "01#7.3": "1 2 3 4 5 6 lifo-priority-stored reply-5 reply-7",
    "01#7.4": "1 2 3 4 5 6 lifo-ignored paused reply-5 reply-7",
    "01#7.5": "1 2 3 4 exists reply-5 reply-7",
    "01#10": "head options options-delayed id-nil not-a-hash meta-type id-type ttl-type ttl-fraction ttl-fraction-F "
    "dedup-key-nil dedup-key-type nan sparse name-nil delay-type delay-text priority-text concurrency cap "
    "cap-duplicate cap-dedup cap-dedup-D release-concurrency no-returnvalue link-nil",
    "01#11": "pack scores states",
}

D = T * 4096
COMMANDS = ("addStandardJob", "addDelayedJob", "addPrioritizedJob", "addParentJob")
STANDARD = "addStandardJob"
CAP = {"opts.maxLenEvents": "10000"}
PLAIN = {"attempts": 0, "timestamp": T}


def standard(**given: Any) -> Call:
    return add(STANDARD, **given)


def delayed(delay: Any, **given: Any) -> Call:
    options = {"delay": delay, **given.pop("options", {})}
    return add("addDelayedJob", options=options, **given)


def prioritized(priority: Any, **given: Any) -> Call:
    options = {"priority": priority, **given.pop("options", {})}
    return add("addPrioritizedJob", options=options, **given)


def node(**given: Any) -> Call:
    return add("addParentJob", **given)


def dedup(command: str = STANDARD, *, id: Any = "", options: dict[str, Any] | None = None, **de: Any) -> Call:
    return add(command, id=id, options={**(options or {}), "de": {"id": "d", **de}})


def head(**changed: Any) -> list[Any]:
    """ARGV[1] of a plain add, with elements replaced by name."""
    names = ("base", "id", "name", "at", "key", "pending", "link", "rule", "dedup")
    values = dict(zip(names, (Q, "", "n", T, None, None, None, None, None), strict=True)) | changed
    return [values[name] for name in names]


def ids() -> list[Case]:
    big = 99_999_999_999_999
    return [
        case(
            "01#2.6 first; 01#11 states; 01#6.1 missing; 01#6.2 3 4 5-generated 7; 01#6.3 2 3 4; 01#7.2 1 2 3 4 6; "
            "01#6.7 open",
            "a plain job on an empty server",
            standard(options=PLAIN),
            reply="1",
            id="1",
            meta=CAP,
            wait=["1"],
            marker={"0": 0},
            events=["added jobId 1 name n", "waiting jobId 1"],
            after={
                "1": {
                    "name": "n",
                    "data": "{}",
                    "opts": Json('{"timestamp":1700000000000,"attempts":0}'),
                    "timestamp": str(T),
                    "delay": "0",
                    "priority": "0",
                }
            },
        ),
        case("01#2.6 counted gaps", "the counter grows with a custom id too", standard(id="A"), standard(), reply="2",
             id="2"),
        case(
            "01#2.6 overwrite",
            "a generated id whose hash exists: fields of the old job stay",
            job("1", returnvalue='"old"', parentKey="bull:q:P", name="old"),
            standard(),
            reply="1",
            after={"1": Has(name="n", returnvalue='"old"', parentKey="bull:q:P")},
        ),
        case(
            "01#2.6 large",
            "a counter of 10^14: key and reply in 14 digits, list and stream in 17",
            ("SET", f"{Q}id", big),
            standard(),
            reply="1e+14",
            wait=["100000000000000"],
            events=["added jobId 100000000000000 name n", "waiting jobId 100000000000000"],
            after={"1e+14": Has(name="n"), "100000000000000": None},
        ),
        case("01#2.6 key-name-hash", "the id `meta` counts as an existing job", standard(id="meta"), reply="meta"),
        case("01#2.6 key-name-other", "the id `id` is no hash", standard(id="id"), reply=Error("WRONGTYPE"), id="1"),
        case(
            "01#2.6 key-name-free",
            "the id `wait` on an empty queue: the hash is there, then the push fails",
            standard(id="wait"),
            reply=Error("WRONGTYPE"),
            wait=Has(name="n"),
        ),
        case("01#2.6 three-parts", "an id of three parts", standard(id="a:b:c"), reply="a:b:c", wait=["a:b:c"]),
        case("01#6.2 5-custom", "a custom id", standard(id="A"), reply="A", after={"A": Has(name="n")}, wait=["A"]),
    ]


def scores() -> list[Case]:
    full = [float(D + 4096 * 5 + 4095)]
    return [
        case(
            "01#2.8 low positive; 01#7.3 1 2 3 4 6; 01#11 scores",
            "delay 1000",
            delayed(1000),
            reply="1",
            delayed={"1": 6963200004096000},
            marker={"1": T + 1000},
            events=["added jobId 1 name n", "delayed jobId 1 delay 1700000001000"],
        ),
        case(
            "01#2.8 next; 01#11 scores",
            "a second one in the same millisecond",
            delayed(1000),
            delayed(1000),
            delayed={"1": 6963200004096000, "2": 6963200004096001},
        ),
        case(
            "01#2.8 full; 01#11 scores",
            "a millisecond that is full",
            zadd("delayed", {"x": full[0]}),
            delayed(5),
            delayed={"x": full[0], "1": full[0]},
        ),
        case(
            "01#2.8 gap",
            "a gap below the highest is not used",
            zadd("delayed", {"x": D + 4096 * 5 + 7}),
            delayed(5),
            delayed={"x": D + 4096 * 5 + 7, "1": D + 4096 * 5 + 8},
        ),
        case(
            "01#2.8 reused",
            "the number of a removed highest is used again",
            delayed(5),
            delayed(5),
            ("ZREM", f"{Q}delayed", "2"),
            delayed(5),
            delayed={"1": D + 4096 * 5, "3": D + 4096 * 5 + 1},
        ),
        case("01#2.8 zero", "delay 0 is due at its own time", delayed(0), delayed={"1": D}, marker={"1": T}),
        case("01#2.8 zero", "a negative delay is due at its own time", delayed(-5), delayed={"1": D}),
        case(
            "01#2.8 far; 01#11 scores",
            "beyond 2^41 the sequence is lost",
            delayed(10_000_000_000_001),
            delayed(10_000_000_000_001),
            delayed={"1": 47923200000004096, "2": 47923200000004096},
        ),
        case(
            "01#2.8 fraction; 01#2.10 fraction; 01#11 scores",
            "delay 0.1",
            delayed(0.1),
            delayed={"1": 6963200000000410},
            marker={"1": 1700000000000.1001},
            after={"1": Has(delay="0.10000000000000001")},
            shortest={"1": Has(delay="0.1")},
        ),
        case("01#2.8 fraction; 01#11 scores", "delay 1000.5", delayed(1000.5), delayed={"1": 6963200004098048}),
        case("01#2.9 counter; 01#7.4 1 2 3 4 6; 01#11 scores", "priority 3", prioritized(3), reply="1",
             prioritized={"1": 12884901889}, pc="1", marker={"0": 0},
             events=["added jobId 1 name n", "waiting jobId 1"]),
        case("01#2.9 counter; 01#11 scores", "priority 5", prioritized(5), prioritized={"1": 21474836481}),
        case(
            "01#2.9 wrap; 01#11 scores",
            "the counter passes 2^32",
            ("SET", f"{Q}pc", "4294967294"),
            prioritized(2),
            prioritized(2),
            prioritized(2),
            prioritized={"1": 12884901887, "2": 8589934592, "3": 8589934593},
        ),
        case("01#2.9 negative; 01#11 scores", "a negative priority", ("SET", f"{Q}pc", "1"), prioritized(-1),
             prioritized={"1": -4294967294}),
        case("01#2.9 largest; 01#11 scores", "the largest priority", ("SET", f"{Q}pc", "1"), prioritized(2097152),
             prioritized={"1": 9007199254740994}),
        case("01#2.10 replaces", "the marker follows the earliest entry, up or down",
             zadd("marker", {"1": 5}), delayed(1000), marker={"1": T + 1000}),
        case(
            "01#2.10 paused; 01#11 states; 01#6.7 paused; 01#7.4 paused",
            "a paused queue",
            meta(paused=1),
            standard(),
            standard(options={"lifo": True}),
            delayed(5),
            prioritized(5),
            reply="4",
            paused=["1", "2"],
            delayed={"3": 6963200000020480},
            prioritized={"4": 21474836481},
            marker={"1": T + 5},
            pc="1",
            events=[
                "added jobId 1 name n",
                "waiting jobId 1",
                "added jobId 2 name n",
                "waiting jobId 2",
                "added jobId 3 name n",
                "delayed jobId 3 delay 1700000000005",
                "added jobId 4 name n",
                "waiting jobId 4",
            ],
        ),
        case(
            "01#6.7 maxed; 01#11 states; 01#7.2 2-lifo",
            "a maxed queue",
            meta(concurrency=1),
            push("active", "x"),
            standard(),
            standard(options={"lifo": True}),
            prioritized(5),
            wait=["1", "2"],
            prioritized={"3": 21474836481},
            marker=None,
        ),
        case("01#2.10 maxed", "the delay marker in a maxed queue", meta(concurrency=0), delayed(5),
             marker={"1": T + 5}),
    ]


def opening() -> list[Case]:
    gone, to = ("bull:p:", "gone"), ("bull:p:", "P")
    found = [
        case("01#6.1 found", "the stored cap is used", meta(**{"opts.maxLenEvents": "7"}), standard(),
             meta={"opts.maxLenEvents": "7"}),
        case("01#6.2 2-empty", "an empty parent key never exists", add_packed(STANDARD, Q, head(key=""), PLAIN),
             reply=-5),
        case("01#6.2 2-any-type", "a parent key of any type exists", push("bull:p:P", "x"),
             standard(parent=to), reply="1", after={"bull:p:P:dependencies": {"bull:q:1"}}),
        case("01#6.2 6 6-unlinked", "a deduplicated job is not linked to its parent",
             job("P", P), ("SET", f"{Q}de:d", "9"),
             add(STANDARD, options={"de": {"id": "d"}}, parent=to), reply="9", after={"bull:p:P:dependencies": None}),
        case("01#6.2 duplicate-first; 01#6.5 ignores-dedup", "a duplicate id comes before deduplication",
             job("A"), ("SET", f"{Q}de:d", "9"), dedup(id="A"), reply="A", events=["duplicated jobId A"],
             after={"de:d": "9"}),
        case("01#6.10 link; 01#7.2 5", "linking to the parent", job("P", P),
             standard(parent=to, flags=["fpof", "idof"]),
             reply="1", after={"bull:p:P:dependencies": {"bull:q:1"}, "1": Has(parentKey="bull:p:P")}),
        case("01#6.10 only-element-6", "element 6 alone decides on the link",
             add_packed(STANDARD, Q, head(pending="bull:p:X:dependencies"), PLAIN),
             after={"bull:p:X:dependencies": {"bull:q:1"}, "1": Has(parentKey=None)}),
        case("01#6.3 link-nil", "a parent key without the parent object: the text null",
             job("P", P), add_packed(STANDARD, Q, head(key="bull:p:P"), PLAIN), after={"1": Has(parent="null")}),
    ]
    for command in COMMANDS:
        section = {STANDARD: "7.2", "addDelayedJob": "7.3", "addPrioritizedJob": "7.4", "addParentJob": "7.5"}[command]
        options = {"delay": 5, "priority": 3}
        link = {"addDelayedJob": "5", "addPrioritizedJob": "5", "addParentJob": "3"}.get(command, "5")
        found += [
            case(f"01#{section} reply-5; 01#6.2 2", f"{command}: the parent does not exist",
                 add(command, parent=gone, options=options), reply=-5, id=None, meta=None),
            case(f"01#{section} reply-7; 01#6.5 other-parent", f"{command}: the job has another parent",
                 job("P", P), job("P2", P), job("A", parentKey="bull:p:P"),
                 add(command, id="A", parent=(P, "P2"), options=options), reply=-7, id="1", meta=CAP, events=None),
            case(f"01#{section} {link}", f"{command}: a child", job("P", P), add(command, parent=to, options=options),
                 reply="1", after={"bull:p:P:dependencies": {"bull:q:1"}}),
            case("01#6.4 all-commands", f"{command}: deduplication",
                 add(command, options={**options, "de": {"id": "d"}}),
                 add(command, options={**options, "de": {"id": "d"}}), reply="1"),
            case("01#2.6 key-name-other", f"{command}: the id of a list", push("wait", "x"),
                 add(command, id="wait", options=options), reply=Error("WRONGTYPE")),
        ]
    return found


def hashes() -> list[Case]:
    text = {
        "attempts": 3,
        "backoff": {"type": "fixed", "delay": 1000},
        "jobId": "A",
        "parent": {"id": "P", "queue": "bull:q"},
        "fpof": True,
        "de": {"id": "d", "ttl": 5000},
        "timestamp": T,
    }
    written = (
        '{"jobId":"A","de":{"id":"d","ttl":5000},"fpof":true,"parent":{"id":"P","queue":"bull:q"},'
        '"timestamp":1700000000000,"backoff":{"delay":1000,"type":"fixed"},"attempts":3}'
    )

    def stored(options: dict[str, Any], expected: str, covers: str, title: str) -> Case:
        return case(f"01#3.5 {covers}; 01#6.3 1", title, standard(options=options), after={"1": Has(opts=expected)})

    return [
        case("01#3.5 order; 01#6.3 3-deid", "the example of 3.5", standard(options=text),
             after={"1": Has(opts=Json(written), deid="d")}),
        stored({"a": "x/y"}, '{"a":"x\\/y"}', "slash", "a slash is escaped"),
        stored({"a": "\x01\n\x7fü\u2028"}, '{"a":"\\u0001\\n\\u007fü\u2028"}', "controls", "controls are escaped"),
        stored({"a": 1 / 3}, '{"a":0.33333333333333}', "digits", "14 digits"),
        stored({"a": 1e14}, '{"a":1e+14}', "digits", "10^14"),
        stored({"a": 1e-7}, '{"a":1e-07}', "digits", "10^-7"),
        stored({"a": [1, None, 3]}, '{"a":[1,null,3]}', "nil-array", "a nil inside an array"),
        stored({"a": [1, None, None]}, '{"a":[1]}', "nil-array", "nils at the end of an array"),
        stored({"a": [None]}, '{"a":{}}', "nil-array", "an array of nils"),
        stored({"a": []}, '{"a":{}}', "empty", "an empty array"),
        stored({"a": None, "b": 1}, '{"b":1}', "nil-array", "a null option vanishes"),
        case("01#3.5 sparse; 01#10 sparse", "a sparse array",
             standard(options={"a": [None] * 11 + [1], "de": {"id": "d"}}),
             reply=ERROR, id="1", meta=CAP, after={"1": None, "de:d": "1"}),
        case("01#3.5 nan; 01#10 nan", "NaN in the options", standard(options={"a": float("nan"), "de": {"id": "d"}}),
             reply=ERROR, id="1", meta=CAP, events=None, after={"1": None, "de:d": "1"}),
        case("01#6.3 text-delay", "a textual delay is stored as such", delayed("1000"),
             after={"1": Has(delay="1000")}, delayed={"1": D + 4096 * 1000}),
        case("01#6.3 3-rjk", "the scheduler's id", standard(scheduler="rk"), after={"1": Has(rjk="rk")}),
        case("01#6.3 3-rjk-empty", "an empty scheduler's id", standard(scheduler=""), after={"1": Has(rjk="")}),
        case("01#6.3 3-rjk", "false counts as no scheduler", standard(scheduler=False), after={"1": Has(rjk=None)}),
        case("01#6.3 3-parent", "the parent's fields", job("P", P), standard(parent=(P, "P")),
             after={"1": Has(parentKey="bull:p:P", parent='{"id":"P","queueKey":"bull:p"}')}),
        case("01#6.3 3", "a shorter array, a uint64 time",
             add_packed(STANDARD, Q, pack([Q, "", "n", T]), PLAIN), after={"1": Has(timestamp=str(T))}),
        case("01#6.3 3", "empty data", standard(data=""), after={"1": Has(data="")}),
        case("01#11 pack", "ARGV[1] of a plain job, as upstream packs it",
             add_packed(STANDARD, Q, bytes.fromhex("99a762756c6c3a713aa0a16ecb4278bcfe56800000c0c0c0c0c0"),
                        bytes.fromhex("de0002a8617474656d70747300a974696d657374616d70cb4278bcfe56800000")),
             reply="1", after={"1": Has(opts=Json('{"timestamp":1700000000000,"attempts":0}'), timestamp=str(T))}),
        case("01#11 pack", "ARGV[1] with parent, flag and deduplication, as upstream packs it", job("P"),
             add_packed(
                 STANDARD, Q,
                 bytes.fromhex(
                     "99a762756c6c3a713aa141a16ecb4278bcfe56800000a862756c6c3a713a50b562756c6c3a713a503a646570656e646"
                     "56e"
                     "63696573de0003a26964a150a871756575654b6579a662756c6c3a71a466706f66c3c0ab62756c6c3a713a64653a64"),
                 {"de": {"id": "d"}}),
             reply="A",
             after={"A": Has(parentKey="bull:q:P", parent='{"id":"P","queueKey":"bull:q","fpof":true}', deid="d"),
                    "de:d": "A", "P:dependencies": {"bull:q:A"}}),
    ]


def deduplication() -> list[Case]:
    kept = ["debounced jobId 1 debounceId d", "deduplicated jobId 1 deduplicationId d deduplicatedJobId 2"]
    replaced = [
        "removed jobId 1 prev delayed",
        "debounced jobId 2 debounceId d",
        "deduplicated jobId 2 deduplicationId d deduplicatedJobId 1",
    ]
    first = ["added jobId 1 name n", "waiting jobId 1"]
    was_delayed = ["added jobId 1 name n", "delayed jobId 1 delay 1700000001000"]
    now = ["added jobId 2 name n", "waiting jobId 2"]
    slow = {"delay": 1000}

    def later(**de: Any) -> Call:
        return dedup("addDelayedJob", options=slow, **de)

    key = "de:d"
    return [
        case("01#6.4 A-free", "A: a free id", dedup(), reply="1", after={key: Ttl(None, "1"), "1": Has(deid="d")}),
        case("01#6.4 A-owned; 01#11 states", "A: an owned id, then with a custom id", dedup(), dedup(),
             dedup(id="cust"), reply="1",
             id="3", events=[*first, *kept, kept[0], "deduplicated jobId 1 deduplicationId d deduplicatedJobId cust"],
             after={"2": None, "cust": None}),
        case("01#6.4 A-extend", "A: extend without a ttl is ignored", dedup(extend=True), dedup(extend=True), reply="1",
             after={key: Ttl(None, "1")}),
        case("01#6.4 B-free", "B: a free id", dedup(ttl=500_000), reply="1", after={key: Ttl(500_000, "1")}),
        case("01#6.4 B-owned", "B: an owned id keeps its lifetime", dedup(ttl=500_000), dedup(ttl=900_000), reply="1",
             events=[*first, *kept], after={key: Ttl(500_000, "1")}),
        case("01#6.4 B-owned", "B: a key without lifetime stays so", dedup(), dedup(ttl=900_000), reply="1",
             after={key: Ttl(None, "1")}),
        case("01#6.4 C-free", "C: a free id", dedup(ttl=500_000, extend=True), reply="1",
             after={key: Ttl(500_000, "1")}),
        case("01#6.4 C-owned", "C: the lifetime starts anew", dedup(ttl=500_000), dedup(ttl=900_000, extend=True),
             reply="1",
             events=[*first, *kept], after={key: Ttl(900_000, "1")}),
        case("01#6.4 C-no-ttl", "C: a key without lifetime gets one", dedup(), dedup(ttl=900_000, extend=True),
             reply="1",
             after={key: Ttl(900_000, "1")}),
        case("01#6.4 D-free", "D: a free id", dedup(replace=True), reply="1", after={key: Ttl(None, "1")}),
        case("01#6.4 D-delayed", "D: a delayed owner is replaced, a lifetime dropped", later(ttl=500_000),
             dedup(replace=True),
             reply="2", events=[*was_delayed, *replaced, *now], delayed=None, after={key: Ttl(None, "2"), "1": None}),
        case("01#6.4 D-not-delayed", "D: an owner that is not delayed, silently", dedup(replace=True),
             dedup(replace=True),
             reply="1", events=first, after={key: Ttl(None, "1"), "2": None}),
        case("01#6.4 D-extend", "D: extend is ignored", later(), dedup(replace=True, extend=True), reply="2",
             after={key: Ttl(None, "2")}),
        case("01#6.4 E-free", "E: a free id", later(ttl=500_000, replace=True), reply="1",
             after={key: Ttl(500_000, "1")}),
        case("01#6.4 E-delayed; 01#11 states", "E: the lifetime is kept", later(ttl=500_000, replace=True),
             later(ttl=900_000, replace=True), reply="2", delayed={"2": 6963200004096000},
             events=[*was_delayed, *replaced, "added jobId 2 name n", "delayed jobId 2 delay 1700000001000"],
             after={key: Ttl(500_000, "2"), "1": None}),
        case("01#6.4 E-no-ttl", "E: a key without lifetime stays so", later(), dedup(ttl=900_000, replace=True),
             reply="2",
             after={key: Ttl(None, "2")}),
        case("01#6.4 E-no-ttl", "E: an owner that is not delayed", dedup(), dedup(ttl=900_000, replace=True), reply="1",
             events=first),
        case("01#6.4 F-free", "F: a free id", later(ttl=500_000, replace=True, extend=True), reply="1",
             after={key: Ttl(500_000, "1")}),
        case("01#6.4 F-delayed", "F: the lifetime starts anew", later(ttl=500_000),
             dedup(ttl=900_000, replace=True, extend=True), reply="2", events=[*was_delayed, *replaced, *now],
             after={key: Ttl(900_000, "2")}),
        case("01#6.4 F-not-delayed", "F: an owner that is not delayed", dedup(ttl=500_000),
             dedup(ttl=900_000, replace=True, extend=True), reply="1", events=first, after={key: Ttl(500_000, "1")}),
        case("01#6.4 ttl-zero", "ttl 0 is no ttl", dedup(ttl=0), reply="1", after={key: Ttl(None, "1")}),
        case("01#6.4 ttl-negative", "a negative ttl is no ttl", dedup(ttl=-5, extend=True), reply="1",
             after={key: Ttl(None, "1")}),
        case("01#6.4 zero-is-on", "replace 0 counts as on", later(), dedup(replace=0), reply="2"),
        case("01#6.4 empty-is-on", "extend '' counts as on", dedup(ttl=500_000), dedup(ttl=900_000, extend=""),
             after={key: Ttl(900_000, "1")}),
        case("01#6.4 false-is-off", "replace false is off, ttl false absent", later(), dedup(replace=False, ttl=False),
             reply="1"),
        case("01#6.4 no-id", "no id: nothing happens", standard(options={"de": {"ttl": 5000}}), reply="1",
             after={"1": Has(deid=None)}),
        case("01#6.4 no-id", "an empty id counts", add_packed(STANDARD, Q, head(dedup=f"{Q}de:"), {"de": {"id": ""}}),
             reply="1", after={"de:": "1"}),
        case("01#6.4 stale", "a stale key gives the id of a job that is not there", ("SET", f"{Q}de:d", "77"), dedup(),
             reply="77", after={"77": None}),
        case("01#6.4 parent-link lock; 01#2.10 stale-one",
             "a replaced child stays in its parent's dependencies, its lock stays",
             job("P", P), add("addDelayedJob", options={**slow, "de": {"id": "d"}}, parent=(P, "P")),
             ("SET", f"{Q}1:lock", "tk"), push("1:logs", "row"), dedup(replace=True), reply="2",
             marker={"0": 0, "1": T + 1000},
             after={"bull:p:P:dependencies": {"bull:q:1"}, "1:lock": "tk", "1:logs": None, "1": None}),
    ]


def duplicates() -> list[Case]:
    done = [job("A", returnvalue='{"x":1}'), zadd("completed", {"A": T})]
    waiting = [job("P", P), zadd(f"{P}waiting-children", {"P": 1})]
    to = (P, "P")
    link = '{"id":"P","queueKey":"bull:p"}'
    said = ["duplicated jobId A"]
    pending = "bull:p:P:dependencies"
    return [
        case("01#6.5 no-parents", "no parent before, none now", job("A"), standard(id="A", data="new"), reply="A",
             events=said,
             wait=None, id="1", after={"A": Has(data="{}")}),
        case("01#6.5 parent-not-given", "a parent before, none now", job("A", parentKey="bull:p:P"), standard(id="A"),
             reply="A", events=said, after={"A": Has(parentKey="bull:p:P")}),
        case("01#6.5 new-parent 2 3", "none before, one now", job("P", P), job("A"),
             standard(id="A", parent=to, flags=["fpof"]),
             reply="A", events=said,
             after={pending: {"bull:q:A"},
                    "A": Has(parentKey="bull:p:P", parent=link[:-1] + ',"fpof":true}', opts="{}")}),
        case("01#6.5 same-parent", "the same parent", job("P", P), job("A", parentKey="bull:p:P"),
             standard(id="A", parent=to),
             reply="A", events=said, after={pending: {"bull:q:A"}}),
        case("01#6.5 other-parent-gone; 01#11 states", "another parent, the old one is gone", job("P", P),
             job("A", parentKey="bull:p:old"), standard(id="A", parent=to), reply="A", events=said,
             after={pending: None, "A": Has(parentKey="bull:p:old")}),
        case("01#6.5 2-failed", "a failed child is linked as pending", job("P", P), job("A"), zadd("failed", {"A": 1}),
             standard(id="A", parent=to), reply="A", after={pending: {"bull:q:A"}}),
        case("01#6.5 1a 1b; 01#6.6 2 3 5-list 6", "a completed child releases the parent", done, waiting,
             standard(id="A", parent=to), reply="A", events=said,
             after={"bull:p:P:processed": {"bull:q:A": '{"x":1}'}, pending: None, "bull:p:wait": ["P"],
                    "bull:p:waiting-children": None, "bull:p:marker": {"0": 0},
                    "bull:p:events": ["waiting jobId P prev waiting-children"],
                    "A": Has(parentKey="bull:p:P", parent=link)}),
        case("01#6.5 1b-pending", "a completed child while others are pending", done, waiting,
             ("SADD", pending, "bull:q:B"),
             standard(id="A", parent=to), after={"bull:p:wait": None, "bull:p:waiting-children": {"P": 1}}),
        case("01#6.6 1-not-waiting", "the parent is not waiting for children", done, job("P", P),
             standard(id="A", parent=to),
             reply="A", after={"bull:p:wait": None, "bull:p:P:processed": {"bull:q:A": '{"x":1}'}}),
        case("01#6.6 1-missing", "a parent without hash: -5 comes first", done, zadd(f"{P}waiting-children", {"P": 1}),
             standard(id="A", parent=to), reply=-5),
        case("01#6.6 1-missing", "the link names a parent that does not exist", done, job("P", P),
             zadd(f"{P}waiting-children", {"X": 1}),
             add_packed(STANDARD, Q, head(id="A", key="bull:p:P", pending=pending,
                                          link={"id": "X", "queueKey": "bull:p"}), {}),
             reply="A", after={"bull:p:waiting-children": None}),
        case("01#6.6 4; 01#11 scores", "a released parent with a delay", done, job("P", P, delay=5000, priority=3),
             zadd(f"{P}waiting-children", {"P": 1}), standard(id="A", parent=to, at=T + 1), reply="A",
             after={"bull:p:delayed": {"P": 6963200020484096}, "bull:p:marker": {"1": 1700000005001},
                    "bull:p:events": ["delayed jobId P delay 1700000005001"], "bull:p:P": Has(delay="5000")}),
        case("01#6.6 5-prioritized", "a released parent with a priority", done, job("P", P, priority=4),
             zadd(f"{P}waiting-children", {"P": 1}), standard(id="A", parent=to),
             after={"bull:p:prioritized": {"P": 17179869185}, "bull:p:pc": "1", "bull:p:marker": {"0": 0},
                    "bull:p:events": ["waiting jobId P prev waiting-children"]}),
        case("01#6.6 5-prioritized", "a released parent with a priority in a maxed queue", done,
             job("P", P, priority=4),
             meta(P, concurrency=0), zadd(f"{P}waiting-children", {"P": 1}), standard(id="A", parent=to),
             after={"bull:p:prioritized": {"P": 17179869185}, "bull:p:marker": None}),
        case("01#6.6 5-paused", "a released parent of a paused queue", done, waiting, meta(P, paused=""),
             push(f"{P}paused", "x"),
             standard(id="A", parent=to), after={"bull:p:paused": ["x", "P"], "bull:p:marker": None}),
        case("01#6.6 5-list", "a released parent runs next, though maxed", done, waiting, meta(P, concurrency=1),
             push(f"{P}active", "x"), push(f"{P}wait", "w"), standard(id="A", parent=to),
             after={"bull:p:wait": ["w", "P"], "bull:p:marker": None}),
        case("01#6.5 q-flow; 01#11 states; 01#7.5 1 2 4", "flow R(A, B), A completed: released too early", done,
             node(id="R"), standard(id="A", parent=(Q, "R")), standard(id="B", parent=(Q, "R")), wait=["B", "R"],
             events=["added jobId R name n", "waiting-children jobId R", "waiting jobId R prev waiting-children",
                     "duplicated jobId A", "added jobId B name n", "waiting jobId B"],
             after={"R:processed": {"bull:q:A": '{"x":1}'}, "R:dependencies": {"bull:q:B"},
                    "A": Has(parentKey="bull:q:R", parent='{"id":"R","queueKey":"bull:q"}')}),
        case("01#6.5 q-flow; 01#11 states", "flow R(B, A), A completed: the parent stays", done,
             node(id="R"), standard(id="B", parent=(Q, "R")), standard(id="A", parent=(Q, "R")), wait=["B"],
             events=["added jobId R name n", "waiting-children jobId R", "added jobId B name n", "waiting jobId B",
                     "duplicated jobId A"],
             after={"waiting-children": {"R": T}, "R:dependencies": {"bull:q:B"},
                    "R:processed": {"bull:q:A": '{"x":1}'}}),
        case("01#7.5 exists", "an existing job is no parent that waits", job("R"), push("wait", "R"), node(id="R"),
             reply="R",
             after={"waiting-children": None}, events=["duplicated jobId R"]),
        case("01#7.2 2-zero-is-lifo", "lifo 0 counts as true", push("wait", "x"), standard(options={"lifo": 0}),
             wait=["x", "1"]),
        case("01#7.2 2-lifo", "lifo with deduplication", push("wait", "x"),
             standard(options={"lifo": True, "de": {"id": "d"}}), wait=["x", "1"], after={"de:d": "1"}),
        case("01#7.2 2-zero-is-lifo", "lifo '' counts as true", push("wait", "x"), standard(options={"lifo": ""}),
             wait=["x", "1"]),
        case("01#7.2 2", "lifo false is fifo", push("wait", "x"), standard(options={"lifo": False}), wait=["1", "x"]),
        case("01#7.2 delay-ignored", "a delay of a standard job is only stored", standard(options={"delay": -5}),
             wait=["1"],
             after={"1": Has(delay="-5")}),
        case("01#7.3 lifo-priority-stored", "lifo and priority of a delayed job are only stored",
             delayed(5, options={"lifo": True, "priority": 3}), prioritized=None, wait=None,
             after={"1": Has(priority="3")}),
        case("01#7.4 lifo-ignored", "lifo of a prioritized job", prioritized(3, options={"lifo": True}), wait=None),
        case("01#7.4 2", "no priority is priority 0", add("addPrioritizedJob"), prioritized={"1": 1}),
        case("01#2.10 stale-one", "an older delay marker stays", zadd("marker", {"1": 7}), standard(),
             marker={"0": 0, "1": 7}),
    ]

BAD_TTLS: tuple[Any, ...] = ("5000", True, {})
BAD_OPTIONS: tuple[dict[str, Any], ...] = ({"delay": True}, {"priority": {}}, {"de": {"id": True}})


def failures() -> list[Case]:
    half: dict[str, Any] = {"id": "1", "meta": CAP}
    bad = pack({"when": msgspec.Raw(b"\xc4\x01a")})
    found = [
        case("01#10 head", "ARGV[1] does not decode", add_packed(STANDARD, Q, b"\x99\xa7", PLAIN), reply=ERROR,
             id=None),
        case("01#10 options-delayed; 01#6.2 1", "addDelayedJob decodes its options later",
             add_packed("addDelayedJob", Q, head(), bad),
             reply=ERROR, **half),
        case("01#10 id-nil", "a null id", add_packed(STANDARD, Q, head(id=None), PLAIN), reply=ERROR, **half),
        case("01#10 not-a-hash", "the custom id of a list", push("A", "x"), standard(id="A"), reply=Error("WRONGTYPE"),
             **half),
        case("01#10 meta-type", "meta is no hash", push("meta", "x"), standard(), reply=Error("WRONGTYPE"), id="1",
             wait=None),
        case("01#10 id-type", "the counter is no integer", ("SET", f"{Q}id", "x"), standard(), reply=ERROR, meta=None),
        case("01#10 ttl-fraction", "ttl with a fraction", dedup(ttl=500.5), reply=ERROR, **half, after={"de:d": None}),
        case("01#10 ttl-fraction", "ttl of 10^17", dedup(ttl=1e17), reply=ERROR, **half,
             shortest={"reply": "1", "de:d": "1"}, after={"de:d": None}),
        case("01#10 ttl-fraction", "C: ttl with a fraction and an owner", ("SET", f"{Q}de:d", "1"),
             dedup(ttl=5.5, extend=True),
             reply=ERROR, after={"de:d": Ttl(None, "1")}),
        case("01#10 ttl-fraction", "E: a fraction goes unnoticed with an owner", ("SET", f"{Q}de:d", "9"), job("9"),
             zadd("delayed", {"9": 1}), dedup(ttl=5.5, replace=True), reply="1", after={"de:d": "1"}),
        case("01#10 ttl-fraction-F", "F: the replaced job is gone by then", ("SET", f"{Q}de:d", "9"), job("9"),
             zadd("delayed", {"9": 1}), dedup(ttl=5.5, replace=True, extend=True), reply=ERROR,
             events=["removed jobId 9 prev delayed", "debounced jobId 1 debounceId d",
                     "deduplicated jobId 1 deduplicationId d deduplicatedJobId 9"],
             after={"de:d": "9", "9": None}),
        case("01#10 dedup-key-nil", "no key for the id", add_packed(STANDARD, Q, head(), {"de": {"id": "d"}}),
             reply=ERROR, **half),
        case("01#10 dedup-key-type", "the key is a list", push("de:d", "x"), dedup(replace=True),
             reply=Error("WRONGTYPE"), **half),
        case("01#10 name-nil", "no name", add_packed(STANDARD, Q, head(name=None), PLAIN), reply=ERROR, **half,
             wait=None),
        case("01#10 name-nil", "no time", add_packed(STANDARD, Q, head(at=None), PLAIN), reply=ERROR, **half,
             wait=None),
        case("01#10 delay-text", "a delay that is no number: an orphan", delayed("abc"), reply=ERROR, delayed=None,
             events=["added jobId 1 name n"], after={"1": Has(delay="abc")}),
        case("01#10 priority-text", "a priority that is no number: an orphan", prioritized("abc"), reply=ERROR,
             prioritized=None, pc="1", events=["added jobId 1 name n"], after={"1": Has(priority="abc")}),
        case("01#10 concurrency", "concurrency is no number: an orphan", meta(concurrency="x"), prioritized(3),
             reply=ERROR,
             pc=None, prioritized=None, events=["added jobId 1 name n"]),
        case("01#10 concurrency", "concurrency is no number, standard", meta(concurrency="x"), standard(), reply=ERROR,
             wait=None),
        case("01#10 concurrency", "concurrency is no number, but paused", meta(concurrency="x", paused=1), standard(),
             reply="1",
             paused=["1"]),
        case("01#10 cap-duplicate", "a bad cap on a duplicate: the link is made", meta(**{"opts.maxLenEvents": "x"}),
             job("P", P),
             job("A"), standard(id="A", parent=(P, "P")), reply=ERROR, events=None,
             after={"bull:p:P:dependencies": {"bull:q:A"}}),
        case("01#10 cap-dedup", "a bad cap and an owner", meta(**{"opts.maxLenEvents": "-1"}), ("SET", f"{Q}de:d", "9"),
             dedup(ttl=900_000, extend=True), reply=ERROR, events=None, after={"de:d": Ttl(900_000, "9")}),
        case("01#10 cap-dedup-D", "a bad cap when replacing", meta(**{"opts.maxLenEvents": "1.5"}),
             ("SET", f"{Q}de:d", "9"),
             job("9"), zadd("delayed", {"9": 1}), dedup(replace=True), reply=ERROR,
             events=["removed jobId 9 prev delayed"],
             after={"de:d": "9", "9": None}),
        case("01#10 release-concurrency", "a released parent whose queue has a bad concurrency",
             job("A", returnvalue="1"),
             zadd("completed", {"A": 1}), job("P", P), zadd(f"{P}waiting-children", {"P": 1}), meta(P, concurrency="x"),
             standard(id="A", parent=(P, "P")), reply=ERROR, events=None,
             after={"bull:p:waiting-children": None, "bull:p:P:processed": {"bull:q:A": "1"},
                    "A": Has(parentKey=None)}),
        case("01#10 no-returnvalue", "a completed job without value", job("A"), zadd("completed", {"A": 1}),
             job("P", P),
             standard(id="A", parent=(P, "P")), reply=ERROR,
             after={"bull:p:P:processed": None, "A": Has(parentKey=None)}),
        case("01#10 link-nil", "no parent object for a completed job", job("A", returnvalue="1"),
             zadd("completed", {"A": 1}),
             job("P", P), add_packed(STANDARD, Q, head(id="A", key="bull:p:P", pending="bull:p:P:dependencies"), {}),
             reply=ERROR),
    ]
    found += [
        case("01#10 options; 01#6.2 1", f"{command}: the options do not decode",
             add_packed(command, Q, head(), bad), reply=ERROR, id=None, meta=None)
        for command in (STANDARD, "addPrioritizedJob", "addParentJob")
    ]
    found += [
        case("01#10 ttl-type", f"ttl {ttl!r}", dedup(ttl=ttl), reply=ERROR, **half, after={"de:d": None})
        for ttl in BAD_TTLS
    ]
    found += [
        case("01#10 delay-type", f"options {options}", add_packed(STANDARD, Q, head(dedup=f"{Q}de:true"), options),
             reply=ERROR, **half, wait=None)
        for options in BAD_OPTIONS
    ]
    found += [
        case("01#10 cap", f"{command}: a cap that is no number",
             meta(**{"opts.maxLenEvents": "abc"}), put("bull:p:P", name="p"),
             add(command, options={"delay": 5, "priority": 3}, parent=(P, "P")), reply=ERROR,
             events=["added jobId 1 name n"], marker=None if command in ("addDelayedJob", "addParentJob") else {"0": 0},
             after={"bull:p:P:dependencies": None, held: ["1"] if held == "wait" else Has({"1": {
                 "delayed": D + 4096 * 5, "prioritized": 3 * 2**32 + 1, "waiting-children": T}[held]})})
        for command, held in ((STANDARD, "wait"), ("addDelayedJob", "delayed"), ("addPrioritizedJob", "prioritized"),
                              ("addParentJob", "waiting-children"))
    ]
    return found


CASES = [*ids(), *scores(), *opening(), *hashes(), *deduplication(), *duplicates(), *failures()]
