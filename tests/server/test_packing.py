"""What we pack, unpacked by the server's own decoder, and what its JSON encoder makes of it."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from bullmq_protocol.common.codec import MAX_SAFE_INTEGER, json_text, pack, parse_json
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.model.backoff import Backoff
from bullmq_protocol.model.job import NewJob, prepare
from bullmq_protocol.model.options import Deduplication, JobOptions, KeepJobs, ParentRef, Telemetry, stored
from tests.support.servers import Server

AS_JSON = "return cjson.encode(cmsgpack.unpack(ARGV[1]))"
AS_TEXTS = (
    "local out = {} for i, v in ipairs(cmsgpack.unpack(ARGV[1])) do out[i] = string.format('%.17g', v) end return out"
)


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    with redis.Redis(host=server.host, port=server.port) as made:
        yield made


def test_the_specifications_example_of_stored_options(client: redis.Redis, server: Server) -> None:
    options = {
        "attempts": 3,
        "backoff": {"type": "fixed", "delay": 1000},
        "jobId": "A",
        "parent": {"id": "P", "queue": "bull:q"},
        "fpof": True,
        "de": {"id": "d", "ttl": 5000},
        "timestamp": 1700000000000,
    }
    text = client.eval(AS_JSON, 0, pack(options))
    assert parse_json(text) == options
    if server.kind.startswith("redis"):
        # Valkey's Lua iterates its tables in another order.
        assert text == (
            b'{"jobId":"A","de":{"id":"d","ttl":5000},"fpof":true,"parent":{"id":"P","queue":"bull:q"},'
            b'"timestamp":1700000000000,"backoff":{"delay":1000,"type":"fixed"},"attempts":3}'
        )


def test_options_survive_the_server(client: redis.Redis) -> None:
    options = JobOptions(
        attempts=3,
        backoff=Backoff("exponential", 1000, 0.5),
        delay=5,
        priority=7,
        lifo=False,
        timestamp=1700000000000,
        job_id="ä😀\x00/",
        parent=ParentRef("P", "bull:q"),
        remove_on_complete=KeepJobs(1, 2.5),
        remove_on_fail=True,
        keep_logs=3,
        deduplication=Deduplication("d", 5000, extend=True),
        fail_parent_on_failure=True,
        telemetry=Telemetry("context", True),
        extra={"later": [1, "x"]},
    )
    text = client.eval(AS_JSON, 0, pack(stored(options)))
    assert parse_json(text) == stored(options)


def test_numbers_survive_the_server(client: redis.Redis) -> None:
    numbers = [
        0,
        -1,
        127,
        255,
        65_536,
        2**31,
        2**32,
        MAX_SAFE_INTEGER,
        -MAX_SAFE_INTEGER,
        0.1,
        1.5e300,
        1700000000000.5,
    ]
    texts: Any = client.eval(AS_TEXTS, 0, pack(numbers))
    assert [float(text) for text in texts] == numbers


def test_the_head_survives_the_server(client: redis.Redis) -> None:
    job = prepare(
        QueueKeys.of("q"), NewJob("n", None, JobOptions(parent=ParentRef("P", "bull:p"))), now_ms=1700000000000
    )
    text = client.eval(AS_JSON, 0, job.head)
    parent = {"id": "P", "queueKey": "bull:p"}
    assert parse_json(text) == ["bull:q:", "", "n", 1700000000000, "bull:p:P", "bull:p:P:dependencies", parent]


@pytest.mark.parametrize("size", [0, 31, 32, 255, 256, 65_535, 65_536])
def test_texts_and_lists_of_every_header_survive_the_server(client: redis.Redis, size: int) -> None:
    value = ["x" * size, {"a": ["y"] * size} if size else 1]
    assert client.eval(AS_JSON, 0, pack(value)) == json_text(value).encode()
