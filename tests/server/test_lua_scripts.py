"""Every server takes the packaged Lua, and counting its branches changes nothing that it does."""

from typing import Any

import msgspec
import pytest
import redis

from bullmq_protocol.scripts._lua import SCRIPTS
from lua import build
from tests.support.servers import Server

pytestmark = [pytest.mark.every_server, pytest.mark.any_python]

_ADDED_AT = 1_700_000_000_000
_KEYS = ("wait", "paused", "meta", "id", "completed", "delayed", "active", "events", "marker")


def test_a_server_takes_the_scripts_under_their_sha(server: Server) -> None:
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        for name, script in SCRIPTS.items():
            assert client.script_load(script.source) == script.sha1, name
            assert client.script_load(build.instrumented(name, "coverage")) != script.sha1, name


def _state_after(client: Any, script: str, base: str) -> list[Any]:
    """Run one call of each outcome on a queue of its own; return the replies and what is stored."""
    options = msgspec.msgpack.encode({"attempts": 0, "de": {"id": "once"}})
    replies = []
    for job_id, parent in (("", None), ("again", None), ("orphan", f"{base}nobody")):
        head = msgspec.msgpack.encode([base, job_id, "-- name", _ADDED_AT, parent, None, None, None, f"{base}de:once"])
        replies.append(client.eval(script, len(_KEYS), *(base + key for key in _KEYS), head, '{"--@a":"[["}', options))
    entries = [fields for _, fields in client.xrange(f"{base}events")]
    return [replies, client.hgetall(f"{base}1"), client.lrange(f"{base}wait", 0, -1), entries]


def test_the_packaged_text_has_no_comments_and_counting_marks_changes_nothing(server: Server) -> None:
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        text = build.packaged("addStandardJob")
        assert not [line for line in text.splitlines() if line.lstrip().startswith("--") or not line.strip()]
        packed = _state_after(client, text, "lua:packed:")
        counted = _state_after(client, build.instrumented("addStandardJob", "lua:coverage"), "lua:counted:")
        assert packed[0] == ["1", "1", -5]
        assert packed == counted
        reached = client.hgetall("lua:coverage")
        assert (
            reached["add_standard:push_job-fifo"] == reached["add_job:no-parent"] == reached["deduplicate:kept"] == "1"
        )
        assert set(reached) <= set(build.marks("addStandardJob"))
