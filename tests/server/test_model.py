"""The server model answers as our Lua does on a real server. `MODEL_SEQUENCES=10000` compares more."""

import os
from collections import Counter

import redis

from bullmq_protocol._lua import SCRIPTS
from bullmq_protocol.keys import QueueKeys
from bullmq_protocol.testing.model import ServerModel
from tests.support.model_sequences import START, Sequence, comparable
from tests.support.servers import Server

_STEPS = 40


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
                real = client.execute_command(*command.wire())
                modelled = model.answer(command, START + step)
                assert comparable(command, modelled) == comparable(command, real), (seed, step, command)
                sequence.told(real)
                seen[command.name] += 1
            stored = client.lrange(keys.wait, 0, -1), client.lrange(keys.active, 0, -1)
            assert stored == ([i.encode() for i in model.wait], [i.encode() for i in model.active]), seed
            client.delete(*client.keys(f"{keys.base}*"))
    assert len(seen) >= 16
    assert seen["moveToActive"] > sequences
