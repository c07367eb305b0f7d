"""`bullmq_django` in a real Django project: Django 6 where Python allows it, else 5.2 with `django-tasks`."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from bullmq_protocol import JobOptions, TransportError, UsageError, WorkerOptions
from bullmq_sync import Queue
from tests.support.servers import Server, closed_port

pytestmark = pytest.mark.any_server

_HEAD = "Traceback (most recent call last):"
_MODULE = "tests.support.django_tasks_of_tests"


class Site:
    """The project with a backend on the test's server, and its tasks."""

    def __init__(self, server: Server, prefix: str) -> None:
        self.framework = importlib.import_module("bullmq_django.framework")
        self.tasks = importlib.import_module(_MODULE)
        self.tasks.CALLS.clear()
        self.tasks.BOUND.clear()
        self.server, self.prefix = server, prefix

    @property
    def backend(self) -> Any:
        return self.framework.task_backends["default"]

    def queue(self, name: str) -> Queue[Any]:
        return self.backend.queue(name)

    def work(self, *queues: str) -> None:
        """Run the workers of these queues until nothing is left to do."""
        for worker in importlib.import_module("bullmq_django.workers").workers_of("default", list(queues)):
            worker.run(until="idle")


@contextmanager
def configured(server: Server, base: str, /, **options: Any) -> Iterator[Site]:
    override_settings = importlib.import_module("django.test").override_settings
    shared = importlib.import_module("bullmq_django.queues").SHARED
    backend = {
        "BACKEND": "bullmq_django.BullMQBackend",
        "QUEUES": ["first", "second"],
        "OPTIONS": {"connection": server.url, "prefix": base, **options},
    }
    if "queues" in options:
        backend["QUEUES"] = backend["OPTIONS"].pop("queues")
    with override_settings(TASKS={"default": backend}):
        try:
            yield Site(server, base)
        finally:
            shared.close()


@pytest.fixture
def site(project: object, server: Server, name: str) -> Iterator[Site]:
    with configured(server, name) as found:
        yield found


def received(signal: Any, into: list[Any]) -> Callable[..., None]:
    """Note the results that a signal brings; the receiver lives as long as what is returned."""

    def receive(sender: object, task_result: Any, **_: object) -> None:
        into.append(task_result)

    signal.connect(receive)
    return receive


# --- adding ---------------------------------------------------------------------------------------------------------


def test_a_task_is_a_job_that_every_client_can_read(site: Site) -> None:
    before = datetime.now(UTC)
    result = site.tasks.double.using(priority=20).enqueue(21, times=3)
    queue, _, job_id = result.id.partition(":")
    assert queue == "first" and len(job_id) == 22 and len(result.id) < 64
    assert (result.status, result.args, result.kwargs) == ("READY", [21], {"times": 3})
    assert (result.attempts, result.errors, result.started_at, result.finished_at) == (0, [], None, None)
    assert before - timedelta(milliseconds=1) <= result.enqueued_at <= datetime.now(UTC)
    with redis.Redis.from_url(site.server.url, decode_responses=True) as raw:
        fields: Any = raw.hgetall(f"{site.prefix}:first:{job_id}")
        assert raw.zcard(f"{site.prefix}:first:prioritized") == 1
    assert fields["name"] == f"{_MODULE}.double"
    assert json.loads(fields["data"]) == {"args": [21], "kwargs": {"times": 3}}
    assert fields["priority"] == "81"
    kept = {"removeOnComplete": {"age": 86_400}, "removeOnFail": {"age": 7 * 86_400}}
    assert {name: value for name, value in json.loads(fields["opts"]).items() if name in kept} == kept


def test_more_urgent_tasks_run_first(site: Site) -> None:
    for priority in (0, -100, 100, 1):
        site.tasks.double.using(priority=priority).enqueue(priority)
    site.work("first")
    assert [number for number, _ in site.tasks.CALLS] == [100, 1, 0, -100]


def test_without_priorities_jobs_stand_in_one_line(project: object, server: Server, name: str) -> None:
    with configured(server, name, priorities=False) as site:
        result = site.tasks.double.enqueue(1)
        assert site.queue("first").get_waiting_count() == 1
        assert site.backend.get_result(result.id).task.priority == 0
        with pytest.raises(site.framework.InvalidTask, match="priority"):
            site.tasks.double.using(priority=1)


def test_a_deferred_task_waits_and_one_of_the_past_does_not(site: Site) -> None:
    later = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    deferred = site.tasks.double.using(run_after=later).enqueue(1)
    due = site.tasks.double.using(run_after=later - timedelta(days=1)).enqueue(2)
    site.work("first")
    assert site.tasks.CALLS == [(2, 2)]
    found = site.backend.get_result(deferred.id)
    assert found.status == "READY" and abs(found.task.run_after - later) < timedelta(milliseconds=50)
    assert site.backend.get_result(due.id).return_value == 4


@pytest.mark.parametrize("argument", [datetime.now(UTC), {1, 2}, object()])
def test_what_is_no_json_is_refused_before_anything_is_sent(site: Site, argument: object) -> None:
    with pytest.raises(TypeError):
        site.tasks.double.enqueue(argument)
    assert site.queue("first").count() == 0


def test_a_lost_reply_adds_no_second_job(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    add, lost = Queue.add, [True]

    def losing(self: Any, *arguments: Any) -> Any:
        job = add(self, *arguments)
        if lost.pop():
            lost.append(False)
            raise TransportError("connection reset", maybe_applied=True)
        return job

    monkeypatch.setattr(Queue, "add", losing)
    result = site.tasks.double.enqueue(1)
    assert site.queue("first").get_job_counts("prioritized") == {"prioritized": 1}
    site.work("first")
    assert site.backend.get_result(result.id).return_value == 2


def test_a_call_that_was_never_sent_is_an_error(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Any, *arguments: Any) -> Any:
        raise TransportError("connection refused", maybe_applied=False)

    monkeypatch.setattr(Queue, "add", refused)
    with pytest.raises(TransportError, match="refused"):
        site.tasks.double.enqueue(1)


def test_all_threads_share_the_connection(site: Site) -> None:
    queues: list[Any] = []
    threads = [threading.Thread(target=lambda: queues.append(site.queue("first"))) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(queues) == 5 and len({id(queue) for queue in queues}) == 1


def test_other_settings_get_another_queue(site: Site, name: str) -> None:
    first = site.queue("first")
    with configured(site.server, f"{name}-b") as other:
        assert other.queue("first") is not first
        assert other.queue("first").keys.prefix == f"{name}-b"


# --- running --------------------------------------------------------------------------------------------------------


def test_a_result_has_what_the_task_returned(site: Site) -> None:
    started, finished = [], []
    kept = [received(site.framework.task_started, started), received(site.framework.task_finished, finished)]
    result = site.tasks.double.enqueue(4)
    site.work("first")
    found = site.tasks.double.get_result(result.id)
    assert (found.status, found.return_value, found.attempts, found.errors) == ("SUCCESSFUL", 8, 1, [])
    assert result.enqueued_at == found.enqueued_at <= found.started_at <= found.finished_at
    assert found.last_attempted_at == found.started_at and found.worker_ids[0]
    assert [(each.id, each.status) for each in started] == [(result.id, "RUNNING")]
    assert [(each.id, each.status, each.return_value) for each in finished] == [(result.id, "SUCCESSFUL", 8)]
    assert finished[0].finished_at is not None and kept
    result.refresh()
    assert result.return_value == 8


def test_async_callers_and_async_tasks(site: Site) -> None:
    enqueued: list[Any] = []
    kept = received(site.framework.task_enqueued, enqueued)

    async def add() -> Any:
        return await site.tasks.triple.aenqueue(5)

    result = asyncio.run(add())
    site.work("first")
    found = asyncio.run(site.tasks.triple.aget_result(result.id))
    assert (found.return_value, [each.id for each in enqueued]) == (15, [result.id]) and kept


def test_a_task_is_tried_again_and_knows_its_attempt(project: object, server: Server, name: str) -> None:
    with configured(server, name, job_options=JobOptions(attempts=3)) as site:
        finished: list[Any] = []
        kept = received(site.framework.task_finished, finished)
        result = site.tasks.flaky.enqueue(3)
        site.work("first")
        assert site.tasks.CALLS == [1, 2, 3]
        found = site.backend.get_result(result.id)
        assert found.return_value == [result.id, "RUNNING", [3], 3]
        # Of earlier attempts the server keeps no worker.
        assert found.attempts == 3 and found.worker_ids[:2] == ["", ""] and found.worker_ids[2]
        assert [error.exception_class for error in found.errors] == [ConnectionError, ConnectionError]
        assert len(finished) == 1 and kept


def test_a_task_that_fails_for_good(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    finished: list[Any] = []
    kept = received(site.framework.task_finished, finished)
    result = site.tasks.flaky.enqueue(2)
    with caplog.at_level(logging.ERROR):
        site.work("first")
    found = site.backend.get_result(result.id)
    assert (found.status, found.attempts, found.is_finished) == ("FAILED", 1, True)
    assert [error.exception_class for error in found.errors] == [ConnectionError]
    # The first frame is not this package's.
    assert "bullmq_" not in found.errors[0].traceback.splitlines()[1]
    with pytest.raises(ValueError, match="ailed"):
        _ = found.return_value
    assert [(each.status, each.errors[0].exception_class) for each in finished] == [("FAILED", ConnectionError)]
    assert kept
    logged = [record for record in caplog.records if record.name.startswith(("django.tasks", "django_tasks"))]
    assert [record.exc_info[0] for record in logged if record.exc_info] == [ConnectionError]


def test_a_result_that_is_no_json_fails_the_task(site: Site) -> None:
    result = site.tasks.unserialisable.enqueue()
    site.work("second")
    assert site.backend.get_result(result.id).errors[0].exception_class is TypeError


@pytest.mark.parametrize(
    ("name_of_job", "data", "reason"),
    [
        ("no.such.module", {}, "no task of this program"),
        ("confirm", {}, "jobs that are no tasks need a queue of their own, and a worker for it"),
        (f"{_MODULE}.NO_TASK", {}, "an object of type 'str'; jobs that are no tasks need"),
        (f"{_MODULE}.double", {"args": 3}, "args"),
    ],
)
def test_a_job_that_is_no_task_fails_for_good(
    site: Site, name_of_job: str, data: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    finished: list[Any] = []
    kept = received(site.framework.task_finished, finished)
    job = site.queue("first").add(name_of_job, data, JobOptions(attempts=5))
    with caplog.at_level(logging.CRITICAL):
        site.work("first")
    job.refresh()
    assert job.get_state() == "failed" and reason in str(job.failed_reason) and job.attempts_made == 1
    assert finished == [] and kept


def test_connections_to_databases_are_closed_around_each_job(site: Site) -> None:
    results = [site.tasks.uses_database.enqueue() for _ in range(4)]
    site.work("second")
    threads = {site.backend.get_result(result.id).return_value for result in results}
    # One thread ran them all, and each found none: CONN_MAX_AGE is 0.
    assert len(threads) == 1 and site.tasks.BOUND == [False] * 4


def test_nothing_is_left_open_after_an_attempt_that_is_retried(project: object, server: Server, name: str) -> None:
    signals = importlib.import_module("django.db.backends.signals")
    made: list[Any] = []

    def note(connection: Any, **_: object) -> None:
        made.append(connection)

    signals.connection_created.connect(note)
    try:
        with configured(server, name, job_options=JobOptions(attempts=2, backoff=3_600_000)) as site:
            site.tasks.fails_with_database.enqueue()
            site.work("second")
            assert site.queue("second").get_delayed_count() == 1
    finally:
        signals.connection_created.disconnect(note)
    assert len(made) == 1 and made[0].connection is None


def test_what_receives_the_end_of_a_task_leaves_no_connection_open(site: Site) -> None:
    connections = importlib.import_module("django.db").connections
    made: list[Any] = []

    def receive(sender: object, task_result: Any, **_: object) -> None:
        connections["default"].ensure_connection()
        made.append(connections["default"])

    site.framework.task_finished.connect(receive)
    try:
        site.tasks.double.enqueue(1)
        site.work("first")
    finally:
        site.framework.task_finished.disconnect(receive)
    assert len(made) == 1 and made[0].connection is None


# --- results --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("result_id", ["first:none", "first:", "first", "", "elsewhere:1", "a:b:c"])
def test_a_result_that_is_not_there(site: Site, result_id: str) -> None:
    with pytest.raises(site.framework.TaskResultDoesNotExist):
        site.backend.get_result(result_id)


def test_a_result_of_a_queue_that_is_none_of_the_backends(project: object, server: Server, name: str) -> None:
    with configured(server, name) as site:
        found = site.tasks.double.enqueue(1).id
        assert found.startswith("first:") and site.backend.get_result(found).id == found
    with configured(server, name, queues=["second"]) as site, pytest.raises(site.framework.TaskResultDoesNotExist):
        site.backend.get_result(found)


@pytest.mark.parametrize(
    ("name_of_job", "data", "words"),
    [
        ("image.resize", {"width": 3}, "no task of this program"),
        (f"{_MODULE}.double", {"args": 3}, "the payload is not that of a task"),
        (f"{_MODULE}.double", [1], "the payload is not that of a task"),
    ],
)
def test_a_job_of_others_has_no_result(site: Site, name_of_job: str, data: Any, words: str) -> None:
    job = site.queue("first").add(name_of_job, data)
    with pytest.raises(site.framework.TaskResultDoesNotExist, match=words):
        site.backend.get_result(f"first:{job.id}")


def test_a_task_that_node_added(site: Site) -> None:
    # Without a priority it is BullMQ's most urgent, and Django's default is none of that.
    job = site.queue("first").add(f"{_MODULE}.double", {"args": [6]})
    assert site.backend.get_result(f"first:{job.id}").task.priority == 0
    least = site.queue("first").add(f"{_MODULE}.double", {"args": [6]}, JobOptions(priority=2_000))
    assert site.backend.get_result(f"first:{least.id}").task.priority == -100
    site.work("first")
    assert site.backend.get_result(f"first:{job.id}").return_value == 12


def test_moments_without_zones(site: Site) -> None:
    override_settings = importlib.import_module("django.test").override_settings
    with override_settings(USE_TZ=False):
        later = datetime.now().replace(microsecond=0) + timedelta(hours=1)
        result = site.tasks.double.using(run_after=later).enqueue(1)
        assert result.enqueued_at.tzinfo is None
        assert abs(site.backend.get_result(result.id).task.run_after - later) < timedelta(milliseconds=50)
        delay = site.queue("first").get_delayed()[0].delay
    assert 3_590_000 < delay <= 3_600_000


def test_a_job_is_added_when_the_transaction_is_over(project: object, server: Server, name: str) -> None:
    transaction = importlib.import_module("django.db").transaction
    client = importlib.import_module("django.test").Client()
    with configured(server, name, queues=["shop-orders", "shop-mail"]) as site:
        queue = site.queue("shop-orders")

        def order() -> Any:
            return client.post("/orders", {"address": "ada@example.org"}, content_type="application/json")

        with transaction.atomic():
            assert order().status_code == 202
            transaction.set_rollback(True)
        assert queue.count() == 0
        with transaction.atomic():
            number = order().json()["order"]
            assert queue.count() == 0
        assert [job.data for job in queue.get_prioritized()] == [{"args": [number], "kwargs": {}}]
        site.work()
        assert client.get(f"/orders/{number}").json()["state"] in ("confirmed", "written")
        site.work("shop-mail")
        assert client.get(f"/orders/{number}").json()["state"] == "written"


def test_a_job_that_ends_between_two_looks_is_seen_whole(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    result = site.tasks.double.enqueue(3)
    look, answers = Queue.get_job_state, ["active"]

    def late(self: Any, job_id: str) -> str:
        if answers:
            site.work("first")
            return answers.pop()
        return look(self, job_id)

    monkeypatch.setattr(Queue, "get_job_state", late)
    found = site.backend.get_result(result.id)
    assert (found.status, found.return_value) == ("SUCCESSFUL", 6)


def test_any_queue_where_queues_is_empty(project: object, server: Server, name: str) -> None:
    with configured(server, name, queues=[]) as site:
        result = site.tasks.double.using(queue_name="third").enqueue(2)
        assert site.backend.get_result(result.id).status == "READY"
        with pytest.raises(site.framework.TaskResultDoesNotExist):
            site.backend.get_result("a{:1")
        with pytest.raises(site.framework.InvalidTask, match="at most 40 characters"):
            site.tasks.double.using(queue_name="q" * 41)


def test_a_stalled_job_has_an_error_without_an_exception(site: Site) -> None:
    results = importlib.import_module("bullmq_django.results")
    job = site.queue("first").add(f"{_MODULE}.double", {"args": [1]})
    job.record.fields["failedReason"] = b"job stalled more than allowable limit"
    found = results.result_of(job.record, "first", "default", "failed")
    assert [error.traceback for error in found.errors] == ["job stalled more than allowable limit"]
    assert issubclass(found.errors[0].exception_class, Exception)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (f"{_HEAD}\n  File 'a', line 1, in f\n    g()\nKeyError: 'x'\n", "builtins.KeyError"),
        (f"{_HEAD}\n  File 'a'\nshop.errors.Refused: a\nb: c\n", "shop.errors.Refused"),
        (f"{_HEAD}\n  File 'a'\nKeyError: 1\n\nThe above\n\n{_HEAD}\n  File 'b'\nzlib.error\n", "zlib.error"),
        ("Error: boom\n    at f (a.js:1)", "builtins.Error"),
        ("", "builtins."),
    ],
)
def test_the_exception_of_a_stack_trace(project: object, text: str, path: str) -> None:
    assert importlib.import_module("bullmq_django.results").class_path(text) == path


# --- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"url": "redis://a"}, r"\['url'\] is no option: there are connection, prefix"),
        ({"job_options": {"attempts": 3}}, r"\['job_options'\] must be a JobOptions, is a dict"),
        ({"worker_options": 3}, r"\['worker_options'\] must be a WorkerOptions, is a int"),
        ({"priorities": "no"}, r"\['priorities'\] must be a bool"),
        ({"job_options": JobOptions(delay=1)}, "must leave delay to the tasks"),
        ({"job_options": JobOptions(job_id="a")}, "must leave job_id to the tasks"),
    ],
)
def test_wrong_options_are_named(
    project: object, server: Server, name: str, options: dict[str, Any], words: str
) -> None:
    improper = importlib.import_module("django.core.exceptions").ImproperlyConfigured
    with configured(server, name, **options) as site, pytest.raises(improper, match=words):
        _ = site.backend


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queues": ["q" * 41]}, "at most 40 characters"),
        ({"queues": ["a:b"]}, "name"),
        ({"prefix": 3}, "prefix"),
        ({"connection": "http://a"}, "url"),
    ],
)
def test_checks_without_the_server(
    project: object, server: Server, name: str, options: dict[str, Any], words: str
) -> None:
    with configured(server, name, **options) as site:
        found = site.backend.check()
        assert len(found) == 1 and words in found[0].msg and found[0].id.startswith("bullmq.E00")
    with configured(server, name) as site:
        assert site.backend.check() == []


def test_checks_of_the_doctor(site: Site) -> None:
    run_checks = importlib.import_module("django.core.checks").run_checks
    site.tasks.double.enqueue(1)
    found = {message.id: message for message in run_checks(tags=["bullmq"], include_deployment_checks=True)}
    assert found["bullmq.persistence"].hint and "TASKS['default']" in str(found["bullmq.persistence"])
    assert "second" in found["bullmq.no-queue"].msg
    # They ask the server, which other commands do not wait for.
    assert run_checks(tags=["bullmq"]) == []


def test_a_server_that_is_away_is_an_error_of_the_checks(project: object, server: Server, name: str) -> None:
    check_servers = importlib.import_module("bullmq_django.checks").check_servers
    with closed_port() as port, configured(server, name, connection=f"redis://127.0.0.1:{port}"):
        found = check_servers()
    assert [message.id for message in found] == ["bullmq.unreachable"]
    with configured(server, name, connection=importlib.import_module("bullmq_sync").connect(server.url)):
        assert [message.id for message in check_servers()] == ["bullmq.not-examined"]


def test_workers_are_named_and_take_the_options(project: object, server: Server, name: str) -> None:
    workers_of = importlib.import_module("bullmq_django.workers").workers_of
    improper = importlib.import_module("django.core.exceptions").ImproperlyConfigured
    with configured(server, name, worker_options=WorkerOptions(concurrency=7, name="bee")) as site:
        workers = workers_of("default", [])
        assert [(worker.name, worker.concurrency) for worker in workers] == [("first", 7), ("second", 7)]
        result = site.tasks.double.enqueue(1)
        workers[0].run(until="idle")
        assert site.backend.get_result(result.id).worker_ids == ["bee"]
        with pytest.raises(improper, match="no queue 'third': there are first, second"):
            workers_of("default", ["third"])
        with pytest.raises(improper, match=r"TASKS has no backend 'nope': there are default$"):
            workers_of("nope", [])
    with configured(server, name, queues=[]), pytest.raises(improper, match="name those to work on"):
        workers_of("default", [])
    override_settings = importlib.import_module("django.test").override_settings
    kind = "django_tasks" if importlib.util.find_spec("django.tasks") is None else "django.tasks"
    dummy = {"default": {"BACKEND": f"{kind}.backends.dummy.DummyBackend"}}
    with override_settings(TASKS=dummy), pytest.raises(improper, match="no BullMQBackend, but a DummyBackend"):
        workers_of("default", [])


def test_a_prefix_of_the_wrong_kind_is_refused_before_anything_is_sent(
    project: object, server: Server, name: str
) -> None:
    with configured(server, name, prefix=3) as site, pytest.raises(UsageError):
        site.tasks.double.enqueue(1)


def test_the_command_refuses_what_bullmq_worker_does(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    call_command = importlib.import_module("django.core.management").call_command
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        with pytest.raises(SystemExit) as ended:
            call_command("bullmqworker", concurrency="none")
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
        for variable in ("BULLMQ_DJANGO_BACKEND", "BULLMQ_DJANGO_QUEUES"):
            del os.environ[variable]
    assert ended.value.code == 2 and "'none' is not a valid integer" in capsys.readouterr().err


def test_the_command_wants_the_main_thread(site: Site) -> None:
    management = importlib.import_module("django.core.management")
    raised: list[BaseException] = []

    def call() -> None:
        try:
            management.call_command("bullmqworker")
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    for variable in ("BULLMQ_DJANGO_BACKEND", "BULLMQ_DJANGO_QUEUES"):
        del os.environ[variable]
    assert [type(error) for error in raised] == [management.CommandError] and "main thread" in str(raised[0])
