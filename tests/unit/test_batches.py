"""Several jobs in one call: what goes on the wire, and how replies are read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bullmq_protocol.command import Command, Merge, Repeat
from bullmq_protocol.commands._merging import ADDS
from bullmq_protocol.commands.adding import add_job, release_parent
from bullmq_protocol.commands.batches import (
    MOST_BYTES,
    MOST_JOBS,
    MOST_OUTCOME_BYTES,
    add_many,
    fetch_many,
    finish_many,
)
from bullmq_protocol.commands.fetching import Fetched, Limiter
from bullmq_protocol.commands.finishing import FinishOptions, move_to_finished, retry_job
from bullmq_protocol.commands.queues import ping
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import JobNotFound, ServerError, UnexpectedReply, UsageError
from bullmq_protocol.model.job import NewJob, prepare
from bullmq_protocol.model.options import Deduplication, JobOptions
from bullmq_protocol.net.merge import as_shares, cut, fitting, merged
from bullmq_protocol.scripts._lua import ADD_MANY, ADD_STANDARD_JOB, FETCH_MANY, FINISH_MANY

K = QueueKeys.of("q")
unpack = msgspec.msgpack.decode


def finish(job_id: str, token: str, **changes: Any) -> Command[Fetched]:
    given: dict[str, Any] = {"outcome": "completed", "value": "null", "now": 5, "fetch_next": True}
    options = FinishOptions(token=token, keep_jobs={"count": changes.pop("keep", -1)}, lock_ms=30000)
    return move_to_finished(K, job_id, options=options, **(given | changes))


def add(options: JobOptions = JobOptions()) -> Command[str]:  # noqa: B008
    return add_job(K, prepare(K, NewJob("n", {"a": 1}, options), now_ms=7))


def test_adds_go_side_by_side() -> None:
    above = add_job(K, prepare(K, NewJob("n", {"a": 1}), now_ms=7, has_children=True))
    adds = [add(), add(JobOptions(delay=5)), add(JobOptions(priority=3)), above]
    command = add_many(K, adds)
    assert command.script is ADD_MANY
    names = (K.wait, K.paused, K.meta, K.id, K.completed, K.delayed, K.active, K.events, K.marker, K.prioritized, K.pc)
    names = (*names, K.waiting_children)
    assert command.keys == names == K.of_many_adds
    assert ADD_MANY.keys == len(names)
    merges = [each.merge for each in adds if each.merge is not None]
    assert [(each.into, each.queue, each.size) for each in merges] == [(ADDS, K.base, 7)] * 4
    assert merged(adds) == command
    # Not the payload, which is long and may be secret.
    assert repr(merges[0]) == "Merge('adds', queue='bull:q:', size=7)"
    assert repr(ADDS) == "Merger('adds')"
    assert command.args == ("0", *adds[0].args, "1", *adds[1].args, "2", *adds[2].args, "3", *adds[3].args)
    assert command.repeat is Repeat.UNSAFE


def test_a_release_goes_with_the_adds_before_it() -> None:
    release = release_parent("bull:q", "p", now=9)
    assert merged([add(), release]).args == ("0", *add().args, "4", "bull:q", "p", 9)
    assert release.merge == Merge(ADDS, K.base, 0, ("4",))
    assert merged([release]).decode([None]) == [None]


def test_a_deduplicated_job_with_children_goes_alone() -> None:
    """Versions differ in how they judge it: specs/06-later-versions.md#sec-8-3, `deduplication_in_families`."""
    given = JobOptions(deduplication=Deduplication("d"))
    assert add_job(K, prepare(K, NewJob("n", None, given), now_ms=7, has_children=True)).merge is None
    assert add(given).merge is not None


def test_adds_with_ids_are_guarded() -> None:
    adds = [add(JobOptions(job_id="a")), add(JobOptions(job_id="b"))]
    assert add_many(K, adds).repeat is Repeat.GUARDED
    assert add_many(K, [*adds, add()]).repeat is Repeat.UNSAFE


def test_what_is_no_add_is_refused() -> None:
    other = retry_job(K, "1", token="t", now=1)
    assert other.merge is None
    assert ping().merge is None
    with pytest.raises(UsageError, match="go together"):
        merged([other])
    with pytest.raises(UsageError, match="must be a command that adds a job"):
        add_many(K, [other])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="must be moveToFinished"):
        finish_many(K, [other])  # type: ignore[list-item]


@pytest.mark.parametrize("count", [0, MOST_JOBS + 1])
def test_the_number_of_jobs_is_bounded(count: int) -> None:
    with pytest.raises(UsageError, match="adds: must be 1 to 50"):
        add_many(K, [add()] * count)
    with pytest.raises(UsageError, match="finishes: must be 1 to 50"):
        finish_many(K, [finish("1", "t")] * count)
    with pytest.raises(UsageError, match="tokens: must be 1 to 50"):
        fetch_many(K, tokens=["t"] * count, lock_ms=1, now=1)


@pytest.mark.parametrize("size", [0, 1, 31, 32, 255, 256, 65535, 65536])
def test_tokens_of_any_length_are_taken_out_of_the_options(size: int) -> None:
    command = finish_many(K, [finish("1", "ü" * (size // 2) + "x" * (size % 2))])
    assert unpack(command.args[2])[1] == "ü" * (size // 2) + "x" * (size % 2)  # type: ignore[arg-type]
    (options,) = unpack(command.args[1])  # type: ignore[arg-type]
    whole = FinishOptions(token="t", keep_jobs={"count": -1}, lock_ms=30000).packed()
    assert {"token": "t", **options} == unpack(whole)


def test_equal_options_go_once() -> None:
    fields = ("failedReason", "no")
    command = finish_many(
        K,
        [
            finish("1", "a"),
            finish("2", "b", keep=0, fetch_next=False),
            finish("3", "c", outcome="failed", value="no", fields=fields, now=6),
        ],
    )
    assert command.script is FINISH_MANY
    assert len(command.keys) == FINISH_MANY.keys
    assert command.repeat is Repeat.GUARDED
    base, options, heads, *values = command.args
    assert base == "bull:q:"
    assert [each["keepJobs"] for each in unpack(options)] == [{"count": -1}, {"count": 0}]  # type: ignore[arg-type]
    assert unpack(heads) == [*("1", "a", "5", 0, 1, 1, 1), *("2", "b", "5", 0, 0, 2, 1), *("3", "c", "6", 1, 1, 1, 2)]  # type: ignore[arg-type]
    assert values == ["null", "", "no", msgspec.msgpack.encode(fields)]


def test_an_id_that_is_no_utf_8_goes_as_it_came() -> None:
    command = finish_many(K, [finish("\udcff", "a"), finish("2", "b")])
    heads = command.args[2]
    assert isinstance(heads, bytes)
    assert heads == b"\xdd\0\0\0\x0e" + b"".join(
        [
            *(b"\xdb\0\0\0\1" + each for each in (b"\xff", b"a", b"5")),
            b"\0\1\1\1",
            *(b"\xdb\0\0\0\1" + each for each in (b"2", b"b", b"5")),
            b"\0\1\1\1",
        ]
    )


def test_each_reply_is_read_by_its_single_command() -> None:
    singles = [finish("1", "a"), finish("2", "b"), finish("3", "c"), finish("4", "d")]
    raw = [[[b"name", b"n"], b"9", 0, 0], -1, 0, [b"WRONGTYPE Operation"]]
    replies = finish_many(K, singles).decode(raw)
    first = singles[0].decode(replies[0])  # type: ignore[arg-type]
    assert first.job is not None
    assert first.job.id == "9"
    with pytest.raises(JobNotFound, match="for job 2"):
        singles[1].decode(replies[1])  # type: ignore[arg-type]
    assert singles[2].decode(replies[2]) == Fetched()  # type: ignore[arg-type]
    assert isinstance(replies[3], ServerError)
    assert replies[3].code == "WRONGTYPE"


def test_a_wrong_number_of_replies_is_refused() -> None:
    finishes, adds = finish_many(K, [finish("1", "a"), finish("2", "b")]), add_many(K, [add(), add()])
    assert finishes.decode([0]) == [0]
    assert adds.decode([b"1", b"2"]) == [b"1", b"2"]
    for command, raw in ((finishes, []), (finishes, [0, 0, 0]), (adds, [b"1"]), (adds, [b"1", b"2", b"3"])):
        with pytest.raises(UnexpectedReply):
            command.decode(raw)


def test_a_reply_is_shared_out() -> None:
    one, two = as_shares([b"1", [b"WRONGTYPE it"]], 2)
    assert one == b"1"
    assert isinstance(two, ServerError)
    assert as_shares([b"1"], 2) == [[b"1"], [b"1"]]
    assert as_shares(None, 2) == [None, None]


def test_adds_are_cut_by_number_and_size() -> None:
    alone = JobOptions(deduplication=Deduplication("d"))
    small, flow = add(), add_job(K, prepare(K, NewJob("n", None, alone), now_ms=7, has_children=True))
    large = add_job(K, prepare(K, NewJob("n", "x" * 600_000), now_ms=7))
    assert list(cut([])) == []
    assert list(cut([small])) == [[small]]
    assert [len(part) for part in cut([small] * 120)] == [50, 50, 20]
    assert [len(part) for part in cut([small, large, small, large, small])] == [3, 2]
    half = add_job(K, prepare(K, NewJob("n", "x" * (MOST_BYTES // 2 - 2)), now_ms=7))
    assert [len(part) for part in cut([half] * 3)] == [2, 1]
    assert [len(part) for part in cut([small, flow, flow, small, small])] == [1, 1, 1, 2]
    theirs = msgspec.structs.replace(
        small, script=msgspec.structs.replace(ADD_STANDARD_JOB, source="return 1"), merge=None
    )
    assert [len(part) for part in cut([small, theirs, theirs])] == [1, 1, 1]


def test_fetches_of_several_jobs() -> None:
    command = fetch_many(
        K, tokens=("a", "b"), lock_ms=30000, now=5, limiter=Limiter(max=3, duration=1000), worker_name="w"
    )
    assert command.script is FETCH_MANY
    assert len(command.keys) == FETCH_MANY.keys
    assert command.repeat is Repeat.UNSAFE
    base, now, options, tokens = command.args
    assert (base, now, unpack(tokens)) == ("bull:q:", 5, ["a", "b"])  # type: ignore[arg-type]
    limiter = {"max": 3, "duration": 1000}
    assert unpack(options) == {"lockDuration": 30000, "limiter": limiter, "name": "w"}  # type: ignore[arg-type]
    answers = command.decode([[[b"name", b"n"], b"9", 0, 0], [0, 0, 0, 77]])
    assert [answer.job and answer.job.id for answer in answers] == ["9", None]
    assert answers[1].next_due_at == 77
    plain = fetch_many(K, tokens=["a"], lock_ms=1, now=1)
    assert unpack(plain.args[2])["limiter"] is None  # type: ignore[arg-type]
    with pytest.raises(UnexpectedReply):
        plain.decode([])


VALUES = [b"n", b'{"a":1}', b"{}", b"7", b"0", b"0"]


@pytest.mark.parametrize("texts", [[*VALUES, b"9"], [*(value.decode() for value in VALUES), "9"]])
def test_a_short_answer_is_that_of_a_first_attempt(texts: list[Any]) -> None:
    whole = [b"name", b"n", b"data", b'{"a":1}', b"opts", b"{}", b"timestamp", b"7", b"delay", b"0", b"priority", b"0"]
    answer = [[*whole, b"processedOn", b"5", b"ats", b"1"], b"9", 0, 0]
    one, other = finish("1", "t"), finish("2", "t", now=6)
    both = finish_many(K, [one, other])
    first, second = both.decode([texts, texts])
    assert one.decode(first) == one.decode(answer)  # type: ignore[arg-type]
    job = other.decode(second).job  # type: ignore[arg-type]
    assert job is not None and (job.id, job.processed_on, job.attempts_started, job.data) == ("9", 6, 1, {"a": 1})
    fetch = fetch_many(K, tokens=["t"], lock_ms=1, now=5)
    assert fetch.decode([texts]) == fetch.decode([answer])


@pytest.mark.parametrize("broken", [[*VALUES, 9], [5, *VALUES[1:], b"9"], [*VALUES[:5], None, b"9"], [[], *VALUES]])
def test_a_short_answer_that_is_none_is_refused(broken: list[Any]) -> None:
    for decode in (finish("1", "t").decode, fetch_many(K, tokens=["t"], lock_ms=1, now=5).decode):
        with pytest.raises(UnexpectedReply):
            decode([broken] if decode.__class__.__name__ == "Answers" else broken)


def test_outcomes_are_bounded_in_bytes() -> None:
    small, large = finish("1", "a"), finish("2", "b", value="x" * (MOST_OUTCOME_BYTES // 2))
    failure = finish("3", "c", outcome="failed", value="no", fields=("stacktrace", "y" * MOST_OUTCOME_BYTES))
    assert fitting([]) == 0
    assert fitting([small] * (MOST_JOBS + 1)) == MOST_JOBS
    assert fitting([large, large, small]) == 2
    assert fitting([small, large, large]) == 2
    assert fitting([small, failure]) == 1
    assert fitting([failure, small]) == 1


def test_a_token_that_utf_8_cannot_hold_is_refused() -> None:
    with pytest.raises(UsageError, match="lone surrogates"):
        finish("1", "\ud800")
