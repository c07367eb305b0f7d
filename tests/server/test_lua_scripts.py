"""Every server takes the packaged Lua, and dropping comments changes nothing that it does."""

from typing import Any

import msgspec
import pytest
import redis

from bullmq_protocol.scripts._lua import SCRIPTS
from lua import build
from tests.support.servers import Server

pytestmark = pytest.mark.every_server

_ADDED_AT = 1_700_000_000_000
_KEYS = ("wait", "paused", "meta", "id", "completed", "delayed", "active", "events", "marker")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_server_takes_the_script_under_its_sha(server: Server, name: str) -> None:
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        assert client.script_load(SCRIPTS[name].source) == SCRIPTS[name].sha1
        assert client.script_load(build.instrumented(name, "coverage")) != SCRIPTS[name].sha1


def _whole_text(name: str) -> str:
    """Return the files of a command one after the other, with every comment."""
    return _texts("", name, {})


def _texts(folder: str, name: str, files: dict[str, str]) -> str:
    lines: list[str] = []
    for line in (build.ROOT / folder / f"{name}.lua").read_text().splitlines():
        lines.append(line)
        if line.startswith("--- include ") and (included := line.removeprefix("--- include ")) not in files:
            _texts("includes", included, files)
        elif line.startswith("--- lazy "):
            included, _, functions = line.removeprefix("--- lazy ").partition(": ")
            known = {**files, name: ""}
            inner = _texts("includes", included, known).removeprefix("\n".join([*files.values(), ""]) + "\n")
            lines += [f"local function load_{included}()", inner, f"return {functions}", "end"]
    files[name] = "\n".join(lines)
    return "\n".join(files.values())


def _state_after(client: Any, script: str, base: str) -> list[Any]:
    """Run one call of each outcome on a queue of its own; return the replies and what is stored."""
    options = msgspec.msgpack.encode({"attempts": 0, "de": {"id": "once"}})
    replies = []
    for job_id, parent in (("", None), ("again", None), ("orphan", f"{base}nobody")):
        head = msgspec.msgpack.encode([base, job_id, "-- name", _ADDED_AT, parent, None, None, None, f"{base}de:once"])
        replies.append(client.eval(script, len(_KEYS), *(base + key for key in _KEYS), head, '{"--@a":"[["}', options))
    entries = [fields for _, fields in client.xrange(f"{base}events")]
    return [replies, client.hgetall(f"{base}1"), client.lrange(f"{base}wait", 0, -1), entries]


def test_dropping_comments_and_counting_marks_changes_nothing(server: Server) -> None:
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        packed = _state_after(client, build.packaged("addStandardJob"), "lua:packed:")
        whole = _state_after(client, _whole_text("addStandardJob"), "lua:whole:")
        counted = _state_after(client, build.instrumented("addStandardJob", "lua:coverage"), "lua:counted:")
        assert packed[0] == ["1", "1", -5]
        assert packed == whole == counted
        reached = client.hgetall("lua:coverage")
        assert reached["add_standard:fifo"] == reached["add_job:no-parent"] == reached["deduplicate:kept"] == "1"
        assert set(reached) <= set(build.marks("addStandardJob"))
