"""The server model answers as our Lua does on a real server. `MODEL_SEQUENCES=10000` compares more."""

import os
from collections import Counter
from typing import Any

import pytest
import redis

from bullmq_protocol.command import Command
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.scripts._lua import SCRIPTS
from bullmq_protocol.testing.model import ServerModel
from tests.support.model_sequences import START, Sequence, comparable
from tests.support.servers import Server

_STEPS = 40


def _answer(client: Any, command: Command[Any]) -> Any:
    if command.name == "BZPOPMIN" and not client.execute_command("EXISTS", *command.keys):
        # it would wait for its whole time, which is a tenth of a second at least
        return None
    return client.execute_command(*command.wire())


@pytest.mark.timeout(3_600)
def test_the_model_answers_as_the_server_does(server: Server) -> None:
    sequences = int(os.environ.get("MODEL_SEQUENCES", "300"))
    seen: Counter[str] = Counter()
    with redis.Redis.from_url(server.url, protocol=2) as client:
        client.response_callbacks.clear()
        for script in SCRIPTS.values():
            client.script_load(script.source)
        for seed in range(sequences):
            keys = QueueKeys.of(f"model-{seed}")
            model, sequence = ServerModel(keys), Sequence(keys, seed)
            for step in range(_STEPS):
                command = sequence.next()
                real = _answer(client, command)
                modelled = model.answer(command, START + step)
                assert comparable(command, modelled) == comparable(command, real), (seed, step, command)
                sequence.reported(real)
                seen[command.name] += 1
            stored = client.lrange(keys.wait, 0, -1), client.lrange(keys.active, 0, -1)
            assert stored == ([i.encode() for i in model.wait], [i.encode() for i in model.active]), seed
            client.delete(*client.keys(f"{keys.base}*"))
    assert len(seen) >= 16
    assert seen["moveToActive"] > sequences
