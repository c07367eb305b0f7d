"""Properties of the values: what is written comes back, and anything at all is read, or refused clearly."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullmq_protocol.command import Batch, Command
from bullmq_protocol.common.codec import json_text, number_text, pack, parse_json
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.reply import as_bool, as_fields, as_int, as_text, as_texts
from bullmq_protocol.errors import UnexpectedReply, UsageError
from bullmq_protocol.events.stream import decode_entry
from bullmq_protocol.model.backoff import Backoff, backoff_delay, custom_type
from bullmq_protocol.model.failure import Fail, Failure, Retry, RetryPolicy, failure_of, stacktrace_json
from bullmq_protocol.model.job import JobRecord, NewJob, prepare
from bullmq_protocol.model.options import JobOptions, check_job_id, merge, stored, stored_options_from, validate
from bullmq_protocol.testing import strategies as values
from tests.support.decisions import decided

KEYS = QueueKeys.of("q")
rolls = st.floats(0, 1, exclude_max=True)
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.just(object())),
    lambda inner: st.one_of(
        st.lists(inner), st.sets(st.integers()), st.dictionaries(st.one_of(st.text(), st.integers()), inner)
    ),
    max_leaves=8,
)


def without_flags(options: JobOptions) -> JobOptions:
    # Two good sets of options may exclude each other by these.
    names = [name for name in JobOptions.__struct_fields__ if name.endswith("_on_failure")]
    return msgspec.structs.replace(options, **dict.fromkeys(names, msgspec.UNSET))


@given(values.json_values())
def test_json_comes_back(value: Any) -> None:
    text = json_text(value)
    text.encode()
    assert parse_json(text) == value == parse_json(text.encode())
    assert json.loads(text) == value


@given(values.json_values(surrogates=False))
def test_json_is_stable(value: Any) -> None:
    text = json_text(value)
    assert json_text(parse_json(text)) == text


@given(anything)
def test_any_value_is_written_or_refused(value: object) -> None:
    for write, kind in ((json_text, str), (pack, bytes)):
        try:
            assert isinstance(write(value), kind)
        except UsageError as error:
            assert error.rule  # noqa: PT017 - a refusal is one of the two good answers


@given(st.one_of(st.text(), st.binary()))
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    try:
        value = parse_json(text)
    except msgspec.DecodeError:
        value = None
    # JSON text has at least one character, and only `null` reads as None.
    assert value is None or text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_read_back(number: float) -> None:
    text = number_text(number)
    assert float(text) == number
    assert json_text(number) == text
    assert "E" not in text
    assert not text.endswith(".0")


@given(values.json_values(surrogates=False))
def test_packed_values_come_back(value: Any) -> None:
    assert msgspec.msgpack.decode(pack(value)) == value


@given(values.job_options())
def test_good_options_are_stored_and_read_back(options: JobOptions) -> None:
    validate(options)
    mapping = stored(options)
    assert "attempts" in mapping
    assert next(iter(mapping)) == "attempts"
    assert stored(stored_options_from(mapping)) == mapping
    assert stored(stored_options_from(parse_json(json_text(mapping)))) == parse_json(json_text(mapping))


@given(
    st.dictionaries(
        st.one_of(st.sampled_from([*sorted(stored(JobOptions())), "de", "backoff", "parent", "tm"]), st.text()),
        values.json_values(surrogates=False, max_leaves=5),
    )
)
def test_any_stored_options_are_read_and_kept(mapping: dict[str, Any]) -> None:
    kept = {name: value for name, value in mapping.items() if value is not None}
    again = stored(stored_options_from(mapping))
    if isinstance(kept.get("backoff"), (int, float)) and not isinstance(kept["backoff"], bool):
        kept["backoff"] = {"type": "fixed", "delay": kept["backoff"]}
    assert again == {"attempts": 0, **kept}


@given(values.job_options(), values.job_options())
def test_merging_keeps_what_the_call_says(defaults: JobOptions, call: JobOptions) -> None:
    both = merge(defaults, call)
    for field in JobOptions.__struct_fields__:
        said = getattr(call, field)
        if field == "job_id":
            assert both.job_id == call.job_id
        elif field != "extra" and said is not msgspec.UNSET:
            assert getattr(both, field) == said


@given(values.new_jobs(), values.job_options(job_id=False, parent=False).map(without_flags))
def test_prepared_jobs_unpack_to_what_was_asked(new_job: NewJob, defaults: JobOptions) -> None:
    job = prepare(KEYS, new_job, defaults=defaults, now_ms=5)
    base, job_id, name, timestamp, *rest = msgspec.msgpack.decode(job.head)
    assert (base, job_id, name, timestamp) == (KEYS.base, job.job_id, new_job.name, job.timestamp)
    parent = [job.parent_key, job.parent_dependencies_key, job.parent]
    assert rest == [*parent, job.repeat_job_key, job.deduplication_key]
    assert msgspec.msgpack.decode(job.packed_options) == stored(job.options)
    if new_job.data is not msgspec.UNSET:
        assert parse_json(job.data_text) == new_job.data


@given(values.job_ids())
def test_job_ids_are_no_integers_and_no_keys_of_the_queue(job_id: str) -> None:
    check_job_id("job_id", job_id)
    assert not job_id.startswith("0:")
    assert KEYS.job(job_id) not in (KEYS.meta, KEYS.wait, KEYS.id, KEYS.events)
    with pytest.raises(UsageError):
        check_job_id("job_id", f"{job_id}:")


@given(values.job_records())
def test_records_read_every_field(job: JobRecord) -> None:
    for name in dir(JobRecord):
        if not name.startswith("_") and isinstance(getattr(JobRecord, name), property):
            getattr(job, name)
    assert job.data == parse_json(job.fields["data"])
    assert stored(job.opts) == parse_json(job.fields["opts"])
    assert set(job.unknown) <= {"x-other"}


@given(st.dictionaries(st.sampled_from(["name", "opts", "atm", "stacktrace", "returnvalue", "delay"]), st.binary()))
def test_records_of_any_bytes_give_what_a_worker_needs(fields: dict[str, bytes]) -> None:
    job = JobRecord.from_fields("1", fields)
    decision = decided(job, Failure(message="x"), roll=0.5)
    assert isinstance(decision, Retry | Fail)
    assert isinstance(job.name, str)
    assert job.stacktrace is not None
    assert job.returnvalue is None or "returnvalue" in fields


@given(values.backoffs(), st.integers(1, 20_000), rolls, st.one_of(st.none(), st.integers(0, 10**9)))
def test_delays_are_bounded(backoff: Any, attempt: int, roll: float, cap: int | None) -> None:
    if custom_type(backoff) is not None:
        return
    delay = backoff_delay(backoff, attempt, roll=roll, max_delay_ms=cap, extra_jitter=0.2)
    assert delay is not None
    assert 0 <= delay <= (2**53 if cap is None else cap)


@given(st.integers(1, 10**6), st.integers(1, 30), st.floats(0.01, 1), rolls)
def test_jitter_stays_below_the_full_delay(base: int, attempt: int, jitter: float, roll: float) -> None:
    full = backoff_delay(Backoff("exponential", base), attempt, roll=roll, max_delay_ms=None)
    less = backoff_delay(Backoff("exponential", base, jitter), attempt, roll=roll, max_delay_ms=None)
    assert full is not None
    assert less is not None
    assert full * (1 - jitter) - 1 <= less <= full


@given(values.job_records(), st.sampled_from(RetryPolicy), rolls, st.one_of(st.none(), st.floats()))
def test_every_failure_is_decided(job: JobRecord, policy: RetryPolicy, roll: float, answer: float | None) -> None:
    failure = failure_of(TimeoutError("x"))
    decision = decided(job, failure, policy=policy, roll=roll, strategy_delay_ms=answer)
    if job.attempts_made + 1 >= job.attempts:
        assert decision == Fail("x", permanent=False, exhausted=True)
    elif isinstance(decision, Retry):
        assert decision.delay_ms <= 3_600_000


@given(
    st.one_of(st.none(), st.text(), st.lists(st.text()).map(json_text)),
    values.texts(surrogates=True),
    st.one_of(st.none(), st.integers(-5, 5)),
)
def test_stack_traces_are_always_an_array(old: str | None, stack: str, limit: int | None) -> None:
    rows = json.loads(stacktrace_json(old, stack, limit))
    assert isinstance(rows, list)
    if limit is not None and limit >= 0:
        assert len(rows) <= limit


@given(st.dictionaries(st.one_of(st.sampled_from(["event", "jobId", "delay", "count"]), st.text()), st.binary()))
def test_any_stream_entry_is_an_event(fields: dict[str, bytes]) -> None:
    event = decode_entry("5-0", fields)
    assert event.entry_id == "5-0"


@given(values.replies())
def test_any_reply_is_read_or_refused(reply: Any) -> None:
    readers = ((as_int, int), (as_bool, bool), (as_text, str), (as_texts, list), (as_fields, dict))
    for read, kind in readers:
        try:
            assert isinstance(read(reply), kind)
        except UnexpectedReply as error:
            assert str(error).startswith("expected ")  # noqa: PT017 - a refusal is one of the two good answers


@given(st.lists(values.texts(), min_size=1, max_size=3))
def test_batches_answer_one_value_for_each_command(names: list[str]) -> None:
    batch = Batch(tuple(Command(name, (), (), as_text) for name in names))
    assert batch.decode([name.encode() for name in names]) == names
