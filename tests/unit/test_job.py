"""Jobs as read from their hashes, and as prepared for adding."""

import copy
import json
import pickle
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.backoff import Backoff
from bullmq_protocol.model.job import JobRecord, NewJob, ParentInfo, PreparedJob, check_options, prepare, template_of
from bullmq_protocol.model.options import Deduplication, JobOptions, Limits, ParentRef, Telemetry

KEYS = QueueKeys.of("q")
T = 1_700_000_000_000


def record(**fields: str) -> JobRecord:
    return JobRecord.from_fields("1", {name: text.encode() for name, text in fields.items()})


def prepared(name: str = "n", data: Any = UNSET, *, limits: Limits = Limits(), **options: Any) -> PreparedJob:  # noqa: B008
    return prepare(KEYS, NewJob(name, data, JobOptions(**options)), now_ms=T, limits=limits)


# --- reading ---


def test_a_job_is_read_from_its_hash() -> None:
    job = record(
        name="mail",
        data='{"to":"ä"}',
        opts='{"attempts":3,"kl":7,"new":[1],"parent":{"id":"P","queue":"bull:p"},"fpof":true}',
        timestamp=str(T),
        delay="500",
        priority="2",
        parentKey="bull:p:P",
        parent='{"id":"P","queueKey":"bull:p","fpof":true}',
        rjk="scheduler",
        deid="d",
        nrjid="repeat:s:5",
        progress="50",
        processedOn=str(T + 1),
        pb="worker",
        ats="4",
        atm="2",
        stc="1",
        defa="child failed",
        failedReason="no",
        stacktrace='["a","b"]',
        returnvalue="[1,null]",
        finishedOn=str(T + 2),
        tm="context",
        other="x",
    )
    assert job.id == "1"
    assert job.name == "mail"
    assert job.data_text == '{"to":"ä"}'
    assert job.data == {"to": "ä"}
    assert job.opts == JobOptions(
        attempts=3,
        keep_logs=7,
        parent=ParentRef("P", "bull:p"),
        fail_parent_on_failure=True,
        extra={"new": [1]},
    )
    assert job.attempts == 3
    assert (job.timestamp, job.delay, job.priority) == (T, 500, 2)
    assert (job.processed_on, job.finished_on) == (T + 1, T + 2)
    assert (job.attempts_started, job.attempts_made, job.stalled_counter) == (4, 2, 1)
    assert job.progress == 50
    assert job.returnvalue == [1, None]
    assert job.failed_reason == "no"
    assert job.stacktrace == ["a", "b"]
    assert job.stacktrace_text == '["a","b"]'
    assert job.deferred_failure == "child failed"
    assert job.parent_key == "bull:p:P"
    assert job.parent == ParentInfo(id="P", queue_key="bull:p", fail_parent_on_failure=True)
    assert job.repeat_job_key == "scheduler"
    assert job.deduplication_id == "d"
    assert job.processed_by == "worker"
    assert job.next_repeatable_job_id == "repeat:s:5"
    assert job.telemetry_metadata == "context"
    assert job.unknown == {"other": b"x"}


def test_an_empty_hash_reads_as_the_specification_says() -> None:
    job = record()
    assert job.name == ""
    assert (job.data, job.data_text) == ({}, "{}")
    assert job.opts == JobOptions(attempts=0)
    assert job.attempts == 0
    assert (job.timestamp, job.delay, job.priority, job.processed_on, job.finished_on) == (None,) * 5
    assert (job.attempts_started, job.attempts_made, job.stalled_counter, job.progress) == (0, 0, 0, 0)
    assert job.stacktrace == []
    assert (job.returnvalue, job.failed_reason, job.deferred_failure, job.stacktrace_text) == (None,) * 4
    assert (job.parent_key, job.parent, job.repeat_job_key, job.deduplication_id) == (None,) * 4
    assert (job.processed_by, job.next_repeatable_job_id, job.telemetry_metadata) == (None,) * 3
    assert job.unknown == {}


def test_empty_fields_read_as_missing_ones() -> None:
    names = ("name", "data", "opts", "timestamp", "atm", "attemptsMade", "progress", "returnvalue", "stacktrace")
    more = ("parent", "parentKey", "rjk", "deid", "failedReason", "defa", "pb", "nrjid", "finishedOn")
    job = record(**dict.fromkeys(names + more, ""))
    assert (job.data, job.progress, job.returnvalue, job.stacktrace) == ({}, 0, None, [])
    assert (job.parent, job.parent_key, job.repeat_job_key, job.deduplication_id) == (None,) * 4
    assert (job.attempts_made, job.timestamp, job.finished_on) == (0, None, None)


@pytest.mark.parametrize(
    ("text", "number"),
    [("77", 77), ("77.5", 77), (" -3x", -3), ("+5", 5), ("1e21", 1), ("abc", None), ("-", None), ("٣", None)],
)
def test_numbers_are_read_as_javascript_parses_integers(text: str, number: int | None) -> None:
    assert record(delay=text).delay == number


def test_the_id_in_the_hash_counts() -> None:
    assert record(id="other").id == "other"
    assert JobRecord.from_fields("x", {}).id == "x"


def test_any_mapping_will_do() -> None:
    job = JobRecord.from_fields("1", MappingProxyType({"name": b"n"}))
    assert job == record(name="n")
    assert type(job.fields) is dict


def test_the_attempts_of_old_versions_win() -> None:
    assert record(attemptsMade="5", atm="2").attempts_made == 5
    assert record(attemptsMade="", atm="2").attempts_made == 2


def test_a_cut_parent_link_reappears_from_the_options() -> None:
    job = record(opts='{"parent":{"id":"P","queue":"bull:p"},"fpof":true,"rdof":true,"idof":true,"cpof":true}')
    assert job.parent_key == "bull:p:P"
    assert job.parent == ParentInfo(
        id="P",
        queue_key="bull:p",
        fail_parent_on_failure=True,
        remove_dependency_on_failure=True,
        ignore_dependency_on_failure=True,
        continue_parent_on_failure=True,
    )


def test_the_deduplication_id_comes_from_the_options_too() -> None:
    assert record(opts='{"de":{"id":"d"}}').deduplication_id == "d"


def test_texts_that_are_not_what_they_should_be() -> None:
    assert record(stacktrace="no json").stacktrace == []
    assert record(stacktrace='{"a":1}').stacktrace == []
    assert record(returnvalue="no json").returnvalue is None
    assert record(parent="[]").parent is None
    assert record(parent="{}").parent == ParentInfo(id="", queue_key="")
    assert record(opts="5").opts == record(opts="no json").opts == JobOptions(attempts=0)
    assert record(opts='{"attempts":"3"}').attempts == 0
    with pytest.raises(msgspec.DecodeError):
        _ = record(data="no json").data


def test_data_and_return_value_decode_into_types() -> None:
    job = record(data='{"a":1}', returnvalue='{"a":2}')
    assert job.data_as(dict[str, int]) == {"a": 1}
    assert job.returnvalue_as(dict[str, int]) == {"a": 2}
    assert record(returnvalue="no json").returnvalue_as(int) is None
    with pytest.raises(msgspec.ValidationError):
        job.data_as(list[int])
    with pytest.raises(msgspec.ValidationError):
        job.returnvalue_as(list[int])


def test_data_is_decoded_once() -> None:
    job = record(data='{"a":1}')
    assert job.data is job.data
    assert job.opts is job.opts


def test_records_can_be_compared_pickled_copied_and_traced() -> None:
    job = record(name="n", data='{"a":1}')
    assert job.data == {"a": 1}
    assert pickle.loads(pickle.dumps(job)) == job == copy.deepcopy(job)
    line = msgspec.json.encode(job)
    assert line == b'{"id":"1","fields":{"name":"bg==","data":"eyJhIjoxfQ=="}}'
    assert msgspec.json.decode(line, type=JobRecord) == job


def test_text_that_is_not_utf8_survives() -> None:
    assert JobRecord.from_fields("1", {"name": b"\xff"}).name == "\udcff"


# --- adding ---


def test_a_plain_job() -> None:
    job = prepared()
    assert job.command == "addStandardJob"
    assert (job.name, job.job_id, job.timestamp, job.data_text) == ("n", "", T, "{}")
    assert job.options == JobOptions()
    assert msgspec.msgpack.decode(job.head) == ["bull:q:", "", "n", T, None, None, None, None, None]
    assert msgspec.msgpack.decode(job.packed_options) == {"attempts": 0}
    assert (job.parent_key, job.parent_dependencies_key, job.parent, job.deduplication_key) == (None,) * 4
    assert (job.repeat_job_key, job.warnings) == (None, ())


def test_a_job_with_everything() -> None:
    job = prepared(
        "n",
        {"b": 1.0, "1": None},
        job_id="A",
        timestamp=5,
        parent=ParentRef("P", "bull:q"),
        fail_parent_on_failure=True,
        deduplication=Deduplication("d"),
        repeat_job_key="s",
        backoff=Backoff("fixed", 4_000_000),
        telemetry=Telemetry("ctx"),
    )
    assert job.data_text == '{"1":null,"b":1}'
    parent = {"id": "P", "queueKey": "bull:q", "fpof": True}
    assert job.parent == parent
    assert list(job.parent) == ["id", "queueKey", "fpof"]
    assert msgspec.msgpack.decode(job.head) == [
        "bull:q:",
        "A",
        "n",
        5,
        "bull:q:P",
        "bull:q:P:dependencies",
        parent,
        "s",
        "bull:q:de:d",
    ]
    assert msgspec.msgpack.decode(job.packed_options) == {
        "attempts": 0,
        "backoff": {"type": "fixed", "delay": 4_000_000},
        "timestamp": 5,
        "jobId": "A",
        "parent": {"id": "P", "queue": "bull:q"},
        "de": {"id": "d"},
        "fpof": True,
        "tm": "ctx",
    }
    assert job.parent_key == "bull:q:P"
    assert job.parent_dependencies_key == "bull:q:P:dependencies"
    assert job.deduplication_key == "bull:q:de:d"
    assert job.repeat_job_key == "s"
    assert len(job.warnings) == 1


def test_packed_head_equals_the_specifications_vector() -> None:
    options: dict[str, Any] = {
        "job_id": "A",
        "parent": ParentRef("P", "bull:q"),
        "fail_parent_on_failure": True,
        "deduplication": Deduplication("d"),
    }
    expected = bytes.fromhex(
        "99a762756c6c3a713aa141a16ecb4278bcfe56800000a862756c6c3a713a50b562756c6c3a713a503a646570656e64656e63696573"
        "de0003a26964a150a871756575654b6579a662756c6c3a71a466706f66c3c0ab62756c6c3a713a64653a64"
    )
    ours = msgspec.msgpack.decode(prepared(**options).head)
    assert ours == msgspec.msgpack.decode(expected)
    assert list(ours[6]) == list(msgspec.msgpack.decode(expected)[6])


@pytest.mark.parametrize(
    ("options", "has_children", "command"),
    [
        ({}, False, "addStandardJob"),
        ({"lifo": True}, False, "addStandardJob"),
        ({"delay": 0}, False, "addStandardJob"),
        ({"delay": timedelta(0)}, False, "addStandardJob"),
        ({"priority": 0}, False, "addStandardJob"),
        ({"priority": 1}, False, "addPrioritizedJob"),
        ({"delay": 1}, False, "addDelayedJob"),
        ({"delay": timedelta(seconds=1), "priority": 1}, False, "addDelayedJob"),
        ({"delay": 1, "priority": 1}, True, "addParentJob"),
        ({}, True, "addParentJob"),
    ],
)
def test_the_options_choose_the_command(options: dict[str, Any], has_children: bool, command: str) -> None:
    job = prepare(KEYS, NewJob("n", None, JobOptions(**options)), now_ms=T, has_children=has_children)
    assert job.command == command


def test_a_job_that_was_sent_shows_what_it_belongs_to() -> None:
    sent = prepared(parent=ParentRef("9", "bull:up"), repeat_job_key="s")
    assert (sent.shown["parentKey"], sent.shown["rjk"]) == (b"bull:up:9", b"s")
    assert json.loads(prepared(attempts=3).shown["opts"])["attempts"] == 3


def test_a_template_is_for_jobs_without_children() -> None:
    template = template_of(KEYS, "n", check_options(JobOptions(), JobOptions()))
    assert template.prepare({}, T).command == "addStandardJob"


def test_defaults_come_first_in_the_stored_options() -> None:
    new_job = NewJob("n", None, JobOptions(attempts=2, delay=5, lifo=False))
    job = prepare(KEYS, new_job, defaults=JobOptions(lifo=True, keep_logs=1, job_id="X"), now_ms=T)
    assert msgspec.msgpack.decode(job.packed_options) == {"attempts": 2, "lifo": False, "kl": 1, "delay": 5}
    assert list(msgspec.msgpack.decode(job.packed_options)) == ["attempts", "lifo", "kl", "delay"]
    assert job.job_id == ""


def test_an_id_made_by_the_caller_is_sent_but_not_stored() -> None:
    job = prepare(KEYS, NewJob("n"), now_ms=T, generated_id="0b1c")
    assert job.job_id == "0b1c"
    assert msgspec.msgpack.decode(job.packed_options) == {"attempts": 0}
    own = prepare(KEYS, NewJob("n", options=JobOptions(job_id="own")), now_ms=T, generated_id="0b1c")
    assert own.job_id == "own"


@pytest.mark.parametrize(("data", "text"), [(UNSET, "{}"), (None, "null"), ("", '""'), (0, "0"), ([], "[]")])
def test_missing_data_is_an_empty_object_and_none_is_null(data: object, text: str) -> None:
    assert prepared("n", data).data_text == text


def test_10_mb_refused() -> None:
    most = 10 * 2**20
    fits = "x" * (most - 2 - len(prepared().packed_options))
    assert len(prepared("n", fits).data_text) + len(prepared().packed_options) == most
    with pytest.raises(UsageError, match=f"exceed the limit {most} bytes, have {most + 1}") as caught:
        prepared("n", fits + "x")
    assert caught.value.field == "data"
    assert len(str(caught.value)) < 200


def test_the_size_counts_bytes_of_utf8_and_the_options() -> None:
    limits = Limits(max_payload_bytes=30)
    size = len(prepared().packed_options)
    assert prepared("n", "ä" * ((28 - size) // 2), limits=limits).data_text.startswith('"ä')
    with pytest.raises(UsageError, match="exceed the limit 30 bytes"):
        prepared("n", "ä" * 14, limits=limits)
    with pytest.raises(UsageError, match="exceed the limit 30 bytes"):
        prepared("n", "", limits=limits, telemetry=Telemetry("x" * 30))
    lifted = Limits(max_payload_bytes=None, max_name_length=None)
    assert len(prepared("n" * 300, "x" * (11 * 2**20), limits=lifted).name) == 300


def test_the_jobs_own_size_limit_counts_the_data_alone() -> None:
    assert prepared("n", "äb", size_limit=5).data_text == '"äb"'
    with pytest.raises(UsageError, match="the size of job n exceeds the limit 4 bytes"):
        prepared("n", "äb", size_limit=4)


@pytest.mark.parametrize("name", ["", "x" * 256, "\ud800", None, 5])
def test_wrong_names_are_refused(name: Any) -> None:
    with pytest.raises(UsageError) as caught:
        prepared(name)
    assert caught.value.field == "name"


def test_data_must_fit_the_queues_type() -> None:
    class Mail(msgspec.Struct):
        to: str

    assert prepare(KEYS, NewJob("n", Mail("a")), now_ms=T, data_type=Mail).data_text == '{"to":"a"}'
    with pytest.raises(UsageError, match="data: does not fit the data type: Expected `str`, got `int`"):
        prepare(KEYS, NewJob("n", {"to": 5}), now_ms=T, data_type=Mail)
    with pytest.raises(UsageError, match="does not fit"):
        prepare(KEYS, NewJob("n"), now_ms=T, data_type=Mail)


def test_unserialisable_data_and_options_are_refused() -> None:
    with pytest.raises(UsageError) as caught:
        prepared("n", {"a": object()})
    assert caught.value.field == "data"
    with pytest.raises(UsageError) as caught:
        prepared("n", None, extra={"later": b"x"})
    assert caught.value.field == "options.later"


@pytest.mark.parametrize("job", [{"name": "n"}, ("n", {}), "n", None])
def test_only_new_jobs_are_prepared(job: Any) -> None:
    with pytest.raises(UsageError, match="NewJob"):
        prepare(QueueKeys.of("q"), job, now_ms=1)


def test_options_in_the_place_of_the_data_are_refused() -> None:
    with pytest.raises(UsageError, match="after the data"):
        prepare(QueueKeys.of("q"), NewJob("n", JobOptions(delay=5)), now_ms=1)


def test_options_must_be_job_options() -> None:
    with pytest.raises(UsageError, match="JobOptions"):
        prepare(QueueKeys.of("q"), NewJob("n", {}, {"delay": 1}), now_ms=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("limits", [{"max_payload_bytes": 20}, {}])
def test_data_that_is_too_large_is_named_by_its_job(limits: dict[str, int]) -> None:
    with pytest.raises(UsageError) as caught:
        prepared("mail", "x" * 50, limits=Limits(**limits), **({} if limits else {"size_limit": 30}))
    assert (caught.value.field, caught.value.value) == ("data", "mail")


def test_a_template_lasts_while_nothing_in_it_can_be_changed() -> None:
    def lasting(**options: Any) -> bool:
        return template_of(KEYS, "n", check_options(JobOptions(), JobOptions(**options))).lasting

    assert lasting()
    assert lasting(delay=5, attempts=3)
    assert not lasting(extra={"mine": 1})
    assert not lasting(delay=5, extra={"mine": 1})


def test_a_record_without_its_parent_is_the_same_job() -> None:
    cut = record(parentKey="bull:p:1", opts='{"attempts":2,"parent":{"id":"1","queue":"bull:p"}}').without_parent()
    assert (cut.id, cut.parent_key, cut.parent, cut.opts.attempts) == (record().id, None, None, 2)
