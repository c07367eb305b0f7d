"""The server model, on its own; tests/server/test_model.py compares it with real servers."""

from typing import Any

import pytest

from bullmq_protocol.command import Command
from bullmq_protocol.commands.adding import add_job
from bullmq_protocol.commands.fetching import Limiter, move_to_active, stalled_check_ttl
from bullmq_protocol.commands.finishing import (
    FinishOptions,
    move_job_from_active_to_wait,
    move_to_delayed,
    move_to_finished,
    retry_job,
)
from bullmq_protocol.commands.locks import extend_locks, move_stalled_jobs_to_wait
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.job import NewJob, prepare
from bullmq_protocol.model.options import JobOptions
from bullmq_protocol.testing.model import STALLED_REASON, ServerModel
from tests.support.model_sequences import START, Sequence

KEYS = QueueKeys.of("q")


def _model(*options: JobOptions) -> ServerModel:
    model = ServerModel(KEYS)
    for each in options:
        model.answer(add_job(KEYS, prepare(KEYS, NewJob("n", 1, each), now_ms=START)), START)
    return model


def _fetch(model: ServerModel, token: str, at: int, limiter: Limiter | None = None) -> Any:
    return model.answer(move_to_active(KEYS, token=token, lock_ms=1_000, now=at, limiter=limiter), at)


def test_every_job_is_in_one_place_after_any_sequence() -> None:
    for seed in range(60):
        model, sequence = ServerModel(KEYS), Sequence(KEYS, seed)
        for step in range(60):
            sequence.reported(model.answer(sequence.next(), START + step))
            places = [*model.wait, *model.paused, *model.active]
            for scored in (model.prioritized, model.delayed, *model.finished.values()):
                places += [job_id for _, job_id in scored]
            assert sorted(places) == sorted(model.jobs), (seed, step)


def test_a_lock_expires_and_the_check_finds_its_job_in_the_second_round() -> None:
    model = _model(JobOptions(job_id="own"))
    assert _fetch(model, "a:1", START)[1] == b"own"
    check = move_stalled_jobs_to_wait(KEYS, max_stalled_count=0, now=START, interval_ms=100)
    assert model.answer(check, START) == []
    assert model.answer(stalled_check_ttl(KEYS), START + 40) == 60
    assert model.answer(check, START + 99) == []
    assert model.answer(check, START + 500) == [], "its lock lives"
    assert model.lock_owner("own", START + 999) == "a:1"
    assert model.lock_owner("own", START + 1_000) is None
    assert model.answer(check, START + 1_000) == [b"own"]
    assert model.jobs["own"]["defa"] == STALLED_REASON
    renewal = extend_locks(KEYS, job_ids=["own"], tokens=["a:1"], lock_ms=1_000)
    assert model.answer(renewal, START + 1_001) == [b"own"]


def test_a_known_id_is_answered_and_not_stored_again() -> None:
    model = _model(JobOptions(job_id="own"), JobOptions(job_id="own", delay=5))
    assert (model.wait, model.delayed) == (["own"], [])


def test_a_job_that_holds_a_lock_but_is_not_active_is_refused() -> None:
    model = _model(JobOptions())
    _fetch(model, "a:1", START)
    options = FinishOptions(token="a:1", keep_jobs={})
    for command in (
        move_to_finished(KEYS, "1", outcome="completed", value="1", now=START, options=options, fetch_next=False),
        retry_job(KEYS, "1", token="a:1", now=START),
        move_to_delayed(KEYS, "1", token="a:1", now=START, delay=1, count_attempt=True),
    ):
        model.active.clear()
        model.values[KEYS.lock("1")] = ("a:1", None)
        assert model.answer(stalled_check_ttl(KEYS), START) == -2
        assert model.answer(command, START) == -3
    model.values[KEYS.lock("1")] = ("a:1", None)
    assert model.answer(move_job_from_active_to_wait(KEYS, "1", token="a:1"), START) == 0
    assert model.wait == []


def test_a_window_of_the_rate_limit_ends() -> None:
    model = _model(JobOptions(), JobOptions())
    limiter = Limiter(max=1, duration=300)
    assert _fetch(model, "a:1", START, limiter)[1] == b"1"
    assert _fetch(model, "a:2", START + 100, limiter) == [0, 0, 200, 0]
    assert _fetch(model, "a:2", START + 300, limiter)[1] == b"2"


def test_a_key_without_expiry_has_no_time() -> None:
    model = _model()
    model.values[KEYS.stalled_check] = ("1", None)
    assert model.answer(stalled_check_ttl(KEYS), START) == -1


def test_an_unknown_command_is_refused() -> None:
    with pytest.raises(UsageError, match="not modelled"):
        _model().answer(Command("FLUSHALL", (), (), lambda reply: reply), START)
