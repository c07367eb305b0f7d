"""Jobs that neither client would store: what becomes of each on Node, and here. See specs/05, section 5.11."""

from typing import NamedTuple

import pytest
import redis

from tests.support.programs import ADAPTERS, Program, until, worker
from tests.support.servers import Server

_MAX = "1.7976931348623157e+308"


class Case(NamedTuple):
    title: str
    fields: dict[str, str | bytes]
    node: str
    ours: str | None = None
    """None: as on Node."""


def options(text: str, **fields: str | bytes) -> dict[str, str | bytes]:
    return {"opts": text, **fields}


FAILS = '{"fails":5}'
CASES = (
    Case("no JSON", options("{bad"), "active", "completed"),
    Case("no JSON, with a scheduler", options("{bad", rjk="s"), "active", "delayed"),
    Case("null", options("null"), "active", "completed"),
    Case("an array", options("[1]"), "completed"),
    Case("an array, with a scheduler", options("[1]", rjk="s"), "delayed"),
    Case("attempts 1e16", options('{"attempts":10000000000000000}'), "completed"),
    Case("attempts MAX_VALUE", options(f'{{"attempts":{_MAX}}}'), "completed"),
    Case(
        "attempts MAX_VALUE, a scheduler",
        options(f'{{"attempts":{_MAX},"repeat":{{"every":9}}}}', rjk="s"),
        "completed",
    ),
    Case("removeOnComplete MAX_VALUE", options(f'{{"removeOnComplete":{_MAX}}}'), "completed"),
    Case("removeOnComplete 1e16", options('{"removeOnComplete":1e16}'), "completed"),
    Case("removeOnComplete -5", options('{"removeOnComplete":-5}'), "completed"),
    Case("removeOnComplete null", options('{"removeOnComplete":null}'), "active", "completed"),
    Case("an age of 1e300", options('{"removeOnComplete":{"age":1e300}}'), "completed"),
    Case("an age of 1e300, fails", options('{"removeOnFail":{"age":1e300}}', data='{"fatal":"f"}'), "failed"),
    Case("backoff 1e300", options('{"attempts":3,"backoff":1e300}', data=FAILS), "delayed"),
    Case("backoff of a text", options('{"attempts":2,"backoff":"x"}', data=FAILS), "active", "failed"),
    Case(
        "jitter 1e308",
        options('{"attempts":1,"backoff":{"type":"fixed","delay":9,"jitter":1e308}}', data=FAILS),
        "failed",
    ),
    Case(
        "a cap of ours",
        options('{"attempts":2,"backoff":{"type":"fixed","delay":1e7,"maxDelay":1e6}}', data=FAILS),
        "delayed",
    ),
    Case("data no JSON", {"data": "{bad"}, "active", "failed"),
    Case("defa no UTF-8", {"defa": b"bad \xff\xfe"}, "failed"),
    Case(
        "stack traces of any kind",
        {"stacktrace": '[1e300,null,{"a":[]},99999999999999999999]', "data": FAILS},
        "failed",
    ),
    Case("every 1e300", options('{"repeat":{"every":1e300,"key":"k"}}'), "completed"),
    Case("a scheduler, no rule", {"rjk": b"\xff"}, "delayed"),
    Case("an id of its own", {"id": "other"}, "active"),
)


def state_of(raw: "redis.Redis[bytes]", queue: str, job_id: str) -> str:
    for state in ("completed", "failed", "delayed"):
        if raw.zscore(f"bull:{queue}:{state}", job_id) is not None:
            return state
    for state in ("wait", "active"):
        if job_id.encode() in raw.lrange(f"bull:{queue}:{state}", 0, -1):
            return state
    return "nowhere"


@pytest.mark.parametrize("side", ["node", *ADAPTERS])
def test_a_good_job_behind_them_completes(
    home: Server, node: Program, raw: "redis.Redis[bytes]", queue: str, side: str
) -> None:
    for number, case in enumerate(CASES):
        base: dict[str, str | bytes] = {"name": "x", "data": "{}", "opts": "{}", "timestamp": "1"}
        raw.hset(f"bull:{queue}:h{number}", mapping={**base, **case.fields})  # type: ignore[arg-type]
        raw.lpush(f"bull:{queue}:wait", f"h{number}")
    for_ever, good = node.call(
        "add",
        queue=queue,
        jobs=[{"name": "x", "data": {}, "opts": {"delay": float(_MAX)}}, {"name": "x", "data": {}, "opts": {}}],
    )
    raw.zadd(f"bull:{queue}:marker", {"1": float("inf")})
    expected = {case.title: case.node if side == "node" else case.ours or case.node for case in CASES}
    with worker(side, home, queue, stalledInterval=600_000):
        until(lambda: raw.zscore(f"bull:{queue}:completed", good) is not None, True)
        # Two markers later: the one without end stops nobody.
        (soon,) = node.call("add", queue=queue, jobs=[{"name": "x", "data": {}, "opts": {"delay": 200}}])
        until(lambda: raw.zscore(f"bull:{queue}:completed", soon) is not None, True)
        until(lambda: {case.title: state_of(raw, queue, f"h{n}") for n, case in enumerate(CASES)}, expected)
    assert state_of(raw, queue, for_ever) == "delayed"
    reason = raw.hget(f"bull:{queue}:h{[case.title for case in CASES].index('defa no UTF-8')}", "failedReason")
    assert reason == "bad ��".encode()
    delay = raw.hget(f"bull:{queue}:h{[case.title for case in CASES].index('a cap of ours')}", "delay")
    assert delay == (b"10000000" if side == "node" else b"1000000")
