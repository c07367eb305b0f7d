"""Calls for several jobs, of which a server applies a part and later the whole: see docs/connection-loss.md#torn."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
import redis

from bullmq_protocol import NewJob
from bullmq_protocol.command import Command
from bullmq_protocol.commands.batches import fetch_many, finish_many
from bullmq_protocol.commands.finishing import FinishOptions, move_to_finished
from bullmq_protocol.common.keys import QueueKeys
from bullmq_sync import Connection, Queue
from tests.support.servers import Server

_TAKEN = 6
_READS = frozenset(("EXISTS", "GET", "HGETALL", "HMGET", "LLEN", "LRANGE", "MGET", "ZRANGEBYSCORE"))
_CUTS = frozenset(("LTRIM", "RPUSH"))


def _fetch(keys: QueueKeys, now: int) -> Command[Any]:
    return fetch_many(keys, tokens=[f"t:{number}" for number in range(_TAKEN)], lock_ms=60_000, now=now)


def _finish(keys: QueueKeys, now: int, *places: int) -> Command[Any]:
    """End the jobs that were taken at these places, each with the next one."""
    return finish_many(
        keys,
        [
            move_to_finished(
                keys,
                str(place + 1),
                outcome="completed",
                value="1",
                now=now,
                options=FinishOptions(token=f"t:{place}", keep_jobs={"count": -1}, lock_ms=60_000, attempts=1),
                fetch_next=True,
            )
            for place in places
        ],
    )


def _effects(client: Any, call: Callable[[], object]) -> list[list[str]]:
    """Return what the script of this call writes, in its order."""
    with client.monitor() as monitor:
        call()
        client.echo("over")
        found: list[list[str]] = []
        for each in monitor.listen():
            words = each["command"].split(" ")
            if words[0].upper() == "ECHO":
                return found
            if each["client_type"] == "lua" and words[0].upper() not in _READS:
                found.append([words[0].upper(), *words[1:]])
    raise AssertionError("unreachable")


@pytest.mark.parametrize("places", [(), (0, 1, 2), (1, 3)], ids=["fetch", "finish", "finish from the middle"])
def test_no_job_is_lost_when_a_part_of_a_call_comes_before_the_whole(
    server: Server, name: str, places: tuple[int, ...]
) -> None:
    client: Any = redis.Redis.from_url(server.url, decode_responses=True)
    raw: Any = redis.Redis.from_url(server.url)
    with client, raw, closing(Connection(server.url)) as connection, Queue[int](name, connection) as queue:
        queue.add_bulk([NewJob("job", number) for number in range(3 * _TAKEN)])
        keys = queue.keys
        now = 2_000_000_000_000
        if places:
            connection.perform(_fetch(keys, now))
        before = {key: raw.dump(key) for key in raw.scan_iter(f"{keys.base}*", 1000)}
        command = _finish(keys, now, *places) if places else _fetch(keys, now)
        effects = _effects(client, lambda: connection.perform(command))
        names = [words[0] for words in effects]
        cut = names.index("LTRIM")
        # Nothing is needed after the lists are cut, so that but a few bytes are left in which a tear loses jobs.
        assert set(names[cut:]) <= _CUTS
        assert "LPUSH" in names[:cut]
        for torn in range(cut + 1):
            with raw.pipeline(transaction=False) as pipe:
                pipe.delete(*raw.keys(f"{keys.base}*"))
                for key, dump in before.items():
                    pipe.restore(key, 0, dump)
                for words in (*effects[:torn], *effects):
                    pipe.execute_command(*words)
                pipe.execute()
            held = {*client.lrange(keys.wait, 0, -1), *client.lrange(keys.active, 0, -1)}
            held.update(client.zrange(keys.completed, 0, -1))
            assert held == {str(number + 1) for number in range(3 * _TAKEN)}
        queue.obliterate(force=True)
