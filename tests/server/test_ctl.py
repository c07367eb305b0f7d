"""`bullmq-ctl` on real servers: each command, its JSON and its exit codes."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import prometheus_client.core
import pytest
from click.testing import CliRunner, Result

from bullmq_cli.ctl import asking
from bullmq_cli.ctl.entry import ctl
from bullmq_cli.ctl.exporter import Queues
from bullmq_cli.ctl.frame import COUNTED
from bullmq_cli.ctl.session import Session
from bullmq_cli.ctl.show import JOB_KEYS, console, sparkline
from bullmq_cli.ctl.top import Watch, put_look
from bullmq_doctor.__main__ import main as doctor
from bullmq_protocol import FlowNode, JobOptions, NewJob, RepeatOptions, UnrecoverableError, WorkerOptions
from bullmq_protocol.command import Command
from bullmq_protocol.common.reply import as_int, as_text
from bullmq_sync import FlowProducer, Queue, QueueEvents, Worker, clock
from tests.support import servers, topology
from tests.support.servers import Server

pytestmark = [pytest.mark.any_python]

_ROOT = Path(__file__).parents[2]
Run = Callable[..., Result]


@pytest.fixture
def queue(server: Server, name: str) -> Iterator[Queue[Any]]:
    with Queue[Any](name, server.url) as queue:
        yield queue
        queue.obliterate(force=True)


@pytest.fixture
def run(server: Server) -> Run:
    def invoke(*arguments: str, **more: Any) -> Result:
        return CliRunner().invoke(ctl, ["--url", server.url, *arguments], **more)

    return invoke


def parsed(result: Result, code: int = 0) -> Any:
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def process(job: Any) -> Any:
    if job.name == "bad":
        raise UnrecoverableError("no such \x1b[31maddress")
    job.log("looked it up")
    return {"sent": job.data}


def work(queue: Queue[Any], server: Server) -> None:
    """Let a worker process all that is due."""
    options = WorkerOptions(metrics_max_data_points=60, drain_delay=10)
    Worker[Any](queue.name, process, server.url, options=options).run(until="idle")


# --- looking at queues ------------------------------------------------------------------------------------------------


def test_queues(queue: Queue[Any], run: Run, server: Server, name: str) -> None:
    missing = run("queues", name)
    assert (missing.exit_code, name in missing.stderr) == (4, True)
    queue.add("a")
    queue.add("later", options=JobOptions(delay=60_000))
    (row,) = parsed(run("queues", name, "--json"))
    assert list(row) == ["queue", "is_paused", "workers", *COUNTED]
    assert row == {
        **dict.fromkeys(COUNTED, 0),
        "queue": name,
        "is_paused": False,
        "workers": 0,
        "waiting": 1,
        "delayed": 1,
    }
    assert name in [each["queue"] for each in parsed(run("queues", "--json"))]
    (line,) = (line for line in run("queues").stdout.splitlines() if line.startswith(name))
    assert line.split() == [name, *"10100000"]
    assert parsed(run("--prefix", "none-of-it", "queues", "--json")) == []
    assert "no queues" in run("--prefix", "none-of-it", "queues").stdout
    # Looking makes no queue.
    assert run("jobs", f"{name}-typo").exit_code == 4
    assert f"{name}-typo" not in [each["queue"] for each in parsed(run("queues", "--json"))]


def test_workers_are_listed_and_counted(queue: Queue[Any], run: Run, server: Server, name: str) -> None:
    queue.add("a")
    assert parsed(run("workers", name, "--json")) == []
    assert "no worker" in run("workers", name).stdout
    worker = Worker[Any](name, process, server.url, options=WorkerOptions(name="anna"))
    with QueueEvents(name, server.url) as events, worker:
        queue.add("b").wait_until_finished(events, 10_000)
        (row,) = parsed(run("workers", name, "--json"))
        assert list(row) == ["name", "address", "connected_s", "idle_s", "library"]
        assert row["name"] == "anna"
        assert parsed(run("queues", name, "--json"))[0]["workers"] == 1
        assert "anna" in run("workers", name).stdout


def test_pause_and_resume(queue: Queue[Any], run: Run, name: str) -> None:
    queue.add("a")
    assert parsed(run("pause", name, "--json")) == {"queue": name, "is_paused": True}
    assert queue.is_paused()
    assert "paused" in run("queues", name).stdout
    assert run("resume", name).stdout == f"{name} runs\n"
    assert not queue.is_paused()
    assert run("pause", f"{name}-typo").exit_code == 4


def test_metrics(queue: Queue[Any], run: Run, server: Server, name: str) -> None:
    queue.add("a")
    assert "no worker" in run("metrics", name).stdout
    queue.add("bad")
    work(queue, server)
    found = parsed(run("metrics", name, "--json"))
    assert list(found) == ["queue", "completed", "failed"]
    assert (found["completed"]["total"], found["failed"]["total"]) == (1, 1)
    assert list(found["failed"]) == ["total", "per_minute"]
    assert "completed" in run("metrics", name).stdout
    # The server keeps the newest minute first; it is shown at the right.
    queue.call(Command("RPUSH", (f"{queue.keys.base}metrics:completed:data",), ("9", "4", "1"), as_int))
    shown = run("metrics", name).stdout
    assert sparkline([1, 4, 9]) in shown and "9" in shown


def test_schedulers(queue: Queue[Any], run: Run, name: str) -> None:
    queue.add("a")
    assert parsed(run("schedulers", name, "--json")) == []
    queue.upsert_job_scheduler("nightly", RepeatOptions(pattern="0 3 * * *", tz="utc"), "report", {"of": 1})
    queue.upsert_job_scheduler("often", RepeatOptions(every=60_000))
    found = parsed(run("schedulers", name, "--json"))
    assert {each["key"] for each in found} == {"nightly", "often"}
    assert list(found[0]) == [
        *("key", "name", "pattern", "tz", "every", "next_at", "iteration_count", "limit", "start_date", "end_date"),
        *("offset", "data"),
    ]
    assert "0 3 * * *" in run("schedulers", name).stdout
    assert "and 1 more" in run("schedulers", name, "--limit", "1").stdout
    assert run("schedulers", name, "--remove", "often").exit_code == 2
    assert parsed(run("schedulers", name, "--remove", "often", "--dry-run", "--json"))["removed"] == 1
    assert queue.get_job_scheduler("often") is not None
    assert run("schedulers", name, "--remove", "often", "--yes").exit_code == 0
    assert queue.get_job_scheduler("often") is None
    assert run("schedulers", name, "--remove", "often", "--yes").exit_code == 4


def test_doctor(queue: Queue[Any], run: Run, name: str) -> None:
    queue.add("a")
    result = run("doctor", name, "--json")
    assert result.exit_code == 3
    assert "no-workers" in {each["check"] for each in json.loads(result.stdout)}
    assert "no worker that waits" in re.sub(r"[\s│]+", " ", run("doctor", name).stdout)


# --- jobs -------------------------------------------------------------------------------------------------------------


def test_add_and_look(queue: Queue[Any], run: Run, server: Server, name: str) -> None:
    added = parsed(run("add", name, "mail", '{"to": "ada"}', "--attempts", "3", "--json"))
    assert added == {"queue": name, "added": 1, "existing": 0, "first_id": "1", "last_id": "1"}
    assert run("add", name, "mail", "--job-id", "mine").stdout == f"added 1 job to {name} (id mine)\n"
    assert "1 there already" in run("add", name, "mail", "--job-id", "mine").stdout
    more = ("--delay", "5m", "--priority", "2", "--options", '{"removeOnFail": true}', "--json")
    last = parsed(run("add", name, "mail", "7", *more))["last_id"]
    found = parsed(run("job", name, "1", "--json"))
    assert tuple(found) == JOB_KEYS
    assert (found["data"], found["state"], found["opts"]["attempts"]) == ({"to": "ada"}, "waiting", 3)
    later = parsed(run("job", name, last, "--json"))
    assert (later["data"], later["delay"], later["priority"], later["opts"]["removeOnFail"]) == (7, 300_000, 2, True)
    assert "ada" in run("job", name, "1").stdout
    assert run("job", name, "nobody").exit_code == 4
    lines = [
        json.loads(line) for line in run("jobs", name, "--state", "waiting", "--asc", "--json").stdout.splitlines()
    ]
    assert [(each["id"], tuple(each) == JOB_KEYS) for each in lines] == [("1", True), ("mine", True)]
    shown = run("jobs", name, "--limit", "1").stdout
    assert "the first 1: --limit 0 shows all" in shown
    assert "no failed jobs" in run("jobs", name, "--state", "failed").stdout


def test_adding_keeps_the_description_of_a_queue(run: Run, server: Server, name: str) -> None:
    with Queue[Any](name, server.url, max_len_events=777) as queue:
        queue.add("a")
        run("add", name, "b")
        assert queue.call(Command("HGET", (queue.keys.meta,), ("opts.maxLenEvents",), as_text)) == "777"
        queue.obliterate(force=True)
    assert run("add", name, "first").exit_code == 0
    assert name in [each["queue"] for each in parsed(run("queues", "--json"))]
    with Queue[Any](name, server.url) as queue:
        queue.obliterate(force=True)


def test_a_queue_without_a_description_is_there_with_its_jobs(run: Run, server: Server, name: str) -> None:
    with Queue[Any](name, server.url, skip_meta_update=True) as queue:
        queue.add("a")
        queue.call(Command("DEL", (queue.keys.meta,), (), as_int))
        assert len(run("jobs", name, "--json").stdout.splitlines()) == 1
        queue.obliterate(force=True)


def test_lines_of_standard_input(queue: Queue[Any], run: Run, name: str) -> None:
    lines = "".join(f'{{"n": {number}}}\n' for number in range(25)) + "\n"
    result = run("add", name, "bulk", "-", "--bulk", "10", "--json", input=lines)
    assert parsed(result) == {"queue": name, "added": 25, "existing": 0, "first_id": "1", "last_id": "25"}
    assert [job.data for job in queue.get_jobs("waiting", asc=True)] == [{"n": number} for number in range(25)]
    wrong = run("add", name, "bulk", "-", "--bulk", "2", input="1\n2\n3\nnot json\n5\n")
    assert wrong.exit_code == 2
    assert "line 4" in wrong.stderr and "added 3 jobs" in wrong.stderr
    assert queue.get_waiting_count() == 28


def test_retry(queue: Queue[Any], run: Run, server: Server, name: str) -> None:
    ids = [queue.add("bad").id for _ in range(3)]
    good = queue.add("good").id
    work(queue, server)
    listed = run("jobs", name, "--state", "failed").stdout
    assert "no such \\x1b[31maddress" in listed and "\x1b" not in listed
    failed = run("job", name, ids[0]).stdout
    assert "UnrecoverableError" in failed and "\x1b" not in failed
    assert parsed(run("retry", name, ids[0], "--dry-run", "--json")) == [{"id": ids[0], "done": True, "error": None}]
    assert queue.get_job_state(ids[0]) == "failed"
    outcomes = parsed(run("retry", name, ids[0], good, "nobody", "--json"), code=4)
    assert [each["done"] for each in outcomes] == [True, False, False]
    assert list(outcomes[0]) == ["id", "done", "error"]
    assert run("retry", name, "nobody").exit_code == 4
    assert parsed(run("retry", name, "--all", "--dry-run", "--json"))["moved"] == 2
    assert queue.get_failed_count() == 2
    assert parsed(run("retry", name, "--all", "--json")) == {
        "queue": name,
        "state": "failed",
        "moved": 2,
        "dry_run": False,
    }
    assert (queue.get_failed_count(), queue.get_waiting_count()) == (0, 3)
    assert run("retry", name, good, "--state", "completed").exit_code == 0


def test_promote(queue: Queue[Any], run: Run, name: str) -> None:
    ids = [queue.add("a", options=JobOptions(delay=60_000)).id for _ in range(3)]
    assert run("promote", name, ids[0]).stdout == f"promoted {ids[0]}\n"
    assert run("promote", name, ids[0]).exit_code == 1
    assert run("promote", name, ids[0], "--dry-run").exit_code == 1
    assert "would have promoted 2 jobs" in run("promote", name, "--all", "--dry-run").stdout
    assert queue.get_delayed_count() == 2
    assert "promoted 2 jobs" in run("promote", name, "--all").stdout
    assert (queue.get_delayed_count(), queue.get_waiting_count()) == (0, 3)


def test_remove(queue: Queue[Any], run: Run, server: Server, name: str) -> None:
    ids = [queue.add("a").id for _ in range(3)]
    assert run("remove", name, ids[0]).exit_code == 2
    assert run("remove", name, ids[0], "--dry-run").stdout == f"would remove {ids[0]}\n"
    assert queue.count() == 3
    assert parsed(run("remove", name, *ids[:2], "--yes", "--json"))[1] == {"id": ids[1], "done": True, "error": None}
    assert queue.count() == 1
    queue.upsert_job_scheduler("yearly", RepeatOptions(pattern="0 3 1 1 *", tz="utc"))
    (next_job,) = queue.get_delayed()
    taker = Worker[Any](name, None, server.url)
    taken = taker.get_next_job()
    assert taken is not None
    for job, words in ((next_job, "scheduler"), (taken, "is being processed: it stays")):
        for how in ("--yes", "--dry-run"):
            refused = run("remove", name, job.id, how)
            assert (refused.exit_code, words in refused.stderr) == (1, True), refused.output
    taker.complete(taken)
    taker.close()
    assert run("remove", name, taken.id, "--dry-run").stdout == f"would remove {taken.id}\n"
    for how in ("--yes", "--dry-run"):
        assert run("remove", name, "nobody", how).exit_code == 4


def test_clean(queue: Queue[Any], run: Run, server: Server, name: str) -> None:
    for _ in range(4):
        queue.add("good")
    work(queue, server)
    queue.add("waits")
    assert parsed(run("clean", name, "--older-than", "1h", "--dry-run", "--json"))["removed"] == 0
    dry = parsed(run("clean", name, "--older-than", "0", "--limit", "3", "--dry-run", "--json"))
    assert dry == {"queue": name, "state": "completed", "removed": 3, "dry_run": True}
    assert queue.get_completed_count() == 4
    assert run("clean", name, "--older-than", "0").exit_code == 2
    assert parsed(run("clean", name, "--older-than", "0", "--limit", "1", "--yes", "--json"))["removed"] == 1
    assert parsed(run("clean", name, "--older-than", "0", "--yes", "--json"))["removed"] == 3
    assert queue.get_completed_count() == 0
    dry = run("clean", name, "--state", "waiting", "--older-than", "0", "--dry-run")
    assert dry.stdout == f"would remove at most 1 job of {name}\n"
    asked = run("clean", name, "--state", "waiting", "--older-than", "0").stderr
    assert f"Remove at most 1 job of {name} (waiting, older than 0 ms)?" in asked
    assert "removed 1 job" in run("clean", name, "--state", "waiting", "--older-than", "0", "-y").stdout


def test_drain(queue: Queue[Any], run: Run, name: str) -> None:
    for delay in (0, 0, 60_000):
        queue.add("a", options=JobOptions(delay=delay))
    assert parsed(run("drain", name, "--delayed", "--dry-run", "--json")) == {
        "queue": name,
        "removed": 3,
        "dry_run": True,
    }
    assert run("drain", name, "--dry-run").stdout == f"would remove at most 2 jobs of {name}\n"
    refused = run("drain", name)
    assert (refused.exit_code, f"Remove all that waits in {name}, at most 2 jobs?" in refused.stderr) == (2, True)
    assert queue.count() == 3
    assert parsed(run("drain", name, "--yes", "--json"))["removed"] == 2
    assert queue.count() == 1


def test_obliterate_asks(queue: Queue[Any], run: Run, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.add("a")
    assert run("obliterate", name, "--dry-run").stdout == f"would remove 1 job of {name}\n"
    monkeypatch.setattr(asking, "is_somebody_there", lambda: True)
    declined = run("obliterate", name, input="n\n")
    assert (declined.exit_code, "nothing was done" in declined.stderr) == (1, True)
    assert queue.count() == 1
    agreed = run("obliterate", name, "--json", input="y\n")
    assert parsed(agreed) == {"queue": name, "removed": 1, "dry_run": False}
    assert run("obliterate", name, "--yes").exit_code == 4


def test_obliterate_leaves_a_queue_at_work(queue: Queue[Any], run: Run, server: Server, name: str) -> None:
    queue.add("a")
    worker = Worker[Any](name, None, server.url)
    assert worker.get_next_job() is not None
    worker.close()
    assert run("obliterate", name, "--yes").exit_code == 1
    assert queue.get_active_count() == 1
    assert run("obliterate", name, "--yes", "--force").exit_code == 0
    assert run("jobs", name).exit_code == 4


def test_logs(queue: Queue[Any], run: Run, name: str) -> None:
    job = queue.add("a")
    for row in ("first", "second \x1b[2J"):
        job.log(row)
    assert run("logs", name, job.id).stdout == "first\nsecond \\x1b[2J\n"
    assert run("logs", name, job.id, "--tail", "1", "--json").stdout == '"second \\u001b[2J"\n'
    assert run("logs", name, "nobody").exit_code == 4


def test_flow(queue: Queue[Any], run: Run, server: Server, name: str) -> None:
    with FlowProducer(server.url) as flows:
        added = flows.add(FlowNode("book", name, children=[FlowNode("page", name), FlowNode("cover", name)]))
    found = parsed(run("flow", name, added.job.id, "--json"))
    assert list(found) == ["id", "name", "queue", "state", "failed_reason", "children", "missing"]
    assert (found["state"], {each["name"] for each in found["children"]}) == ("waiting-children", {"page", "cover"})
    assert parsed(run("flow", name, added.job.id, "--depth", "1", "--json"))["children"] == []
    assert len(parsed(run("flow", name, added.job.id, "--children", "1", "--json"))["children"]) == 1
    assert run("remove", name, added.job.id, "--keep-children", "--dry-run").exit_code == 0
    lines = run("flow", name, added.job.id).stdout.splitlines()
    assert lines[0].startswith("book") and len(lines) == 3
    assert run("flow", name, "nobody").exit_code == 4
    assert run("remove", name, added.job.id, "--keep-children", "--yes").exit_code == 0
    assert queue.get_waiting_count() == 2


def test_wait(queue: Queue[Any], run: Run, server: Server, name: str) -> None:
    good, bad = queue.add("good", 5), queue.add("bad")
    assert run("wait", name, good.id, "--timeout", "50ms").exit_code == 5
    work(queue, server)
    assert run("wait", name, good.id).stdout == '{"sent": 5}\n'
    assert parsed(run("wait", name, good.id, "--json")) == {
        "id": good.id,
        "outcome": "completed",
        "returnvalue": {"sent": 5},
        "failed_reason": None,
    }
    failed = run("wait", name, bad.id)
    assert (failed.exit_code, failed.stdout, "\\x1b[31maddress" in failed.stderr) == (1, "", True)
    assert parsed(run("wait", name, bad.id, "--json"), code=1)["outcome"] == "failed"
    assert run("wait", name, "nobody", "--timeout", "5s").exit_code == 4


def test_events(queue: Queue[Any], run: Run, name: str) -> None:
    job = queue.add("a\x1b")
    lines = run("events", name, "--from", "0-0", "--count", "2", "--json").stdout.splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["added", "waiting"]
    assert json.loads(lines[0])["job_id"] == job.id
    shown = run("events", name, "--from", "0-0", "--type", "added", "--count", "1").stdout
    assert "name=a\\x1b" in shown
    only = run("events", name, "--from", "0-0", "--type", "waiting", "--count", "1").stdout
    assert " waiting " in only and "added" not in only
    assert run("events", name, "--from", "nonsense").exit_code == 2


# --- top and exporter -------------------------------------------------------------------------------------------------

_LOOK = (
    *("queue", "is_paused", "workers", *COUNTED, "added_per_s", "completed_per_s", "failed_per_s"),
    "oldest_waiting_ms",
)


def test_top(queue: Queue[Any], run: Run, server: Server, name: str) -> None:
    assert run("top", name, "--count", "1").exit_code == 4
    for number in range(10):
        queue.add("bad" if number % 2 else "good")
    work(queue, server)
    queue.add("good")
    looks = [
        json.loads(line) for line in run("top", name, "--count", "2", "--interval", "0.1", "--json").stdout.splitlines()
    ]
    assert len(looks) == 2
    ((first,), _) = looks
    assert tuple(first) == _LOOK
    assert (first["waiting"], first["completed"], first["failed"]) == (1, 5, 5)
    assert first["completed_per_s"] > 0 and first["added_per_s"] > first["failed_per_s"] > 0
    assert 0 <= first["oldest_waiting_ms"] < 60_000
    shown = run("top", name, "--count", "1").stdout
    assert "\x1b" not in shown and name in shown
    assert name in run("top", "--count", "1").stdout
    assert "0 queues" in run("--prefix", "none-of-it", "top", "--count", "1").stdout


def test_exporter(queue: Queue[Any], run: Run, server: Server, name: str) -> None:
    queue.add("a", options=JobOptions(timestamp=clock().wall - 3_600_000))
    once = run("exporter", name, "--once").stdout
    oldest = re.search(rf'^bullmq_queue_oldest_waiting_seconds{{queue="{name}"}} (\S+)$', once, re.MULTILINE)
    assert oldest is not None and 3_600 <= float(oldest[1]) < 7_200
    assert f'bullmq_queue_length{{queue="{name}",state="waiting"}} 1.0' in once
    assert "bullmq_up 1.0" in once and f'bullmq_queue_paused{{queue="{name}"}} 0.0' in once
    command = [*_PROGRAM, "exporter", name, "--port", "0", "--json"]
    with subprocess.Popen(command, env=_environment(server), stdout=subprocess.PIPE, text=True) as exporter:
        assert exporter.stdout is not None
        started = json.loads(exporter.stdout.readline())
        assert list(started) == ["host", "port"]
        with urllib.request.urlopen(f"http://127.0.0.1:{started['port']}/metrics") as answer:
            assert f'bullmq_queue_length{{queue="{name}",state="waiting"}} 1.0' in answer.read().decode()
        exporter.send_signal(signal.SIGINT)
        assert exporter.wait() == 0


@pytest.mark.any_server
def test_a_server_that_goes_away_and_comes_back(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with (
        servers.start(config=("--appendonly", "yes")) as server,
        Queue[Any](name, server.url) as queue,
        Session(server.url) as session,
        closing(Watch(session, [name], 1000)) as watch,
    ):
        queue.add("a")
        watch.look()
        collector = Queues(watch, prometheus_client.core)
        server.kill()
        watch.look()
        assert watch.trouble and [each.queue for each in watch.looks] == [name]
        put_look(watch, console(), None, as_json=True)
        put_look(watch, console(), None, as_json=False)
        shown, said = capsys.readouterr()
        assert "no answer, this is how it was" in shown and "{" not in shown
        assert "no answer" in said
        assert [each.samples[0].value for each in collector.collect() if each.samples] == [0.0]
        server.restart()
        watch.look()
        assert (watch.trouble, watch.looks[0].counts["waiting"]) == ("", 1)
        assert "bullmq_queue_length" in {each.name for each in collector.collect() if each.samples}


# --- processes --------------------------------------------------------------------------------------------------------

_PROGRAM = (sys.executable, "-m", "bullmq_cli.ctl.entry")


def _environment(server: Server, **more: str) -> dict[str, str]:
    return {**os.environ, "BULLMQ_URL": server.url, "PYTHONPATH": str(_ROOT), **more}


@pytest.mark.any_server
def test_a_reader_that_has_enough(queue: Queue[Any], server: Server, name: str) -> None:
    queue.add_bulk([NewJob("a", "x" * 200) for _ in range(3000)])
    command = [*_PROGRAM, "jobs", name, "--limit", "0", "--json"]
    with subprocess.Popen(command, env=_environment(server), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as listing:
        assert listing.stdout is not None and listing.stderr is not None
        listing.stdout.readline()
        listing.stdout.close()
        assert (listing.wait(), listing.stderr.read()) == (141, b"")


@pytest.mark.any_server
@pytest.mark.parametrize("arguments", [["top", "--interval", "0.1", "--json"], ["events", "NAME", "--from", "0-0"]])
def test_a_reader_that_has_enough_of_what_has_no_end(
    queue: Queue[Any], server: Server, name: str, arguments: list[str]
) -> None:
    queue.add("a")
    command = [*_PROGRAM, *(name if each == "NAME" else each for each in arguments)]
    with subprocess.Popen(command, env=_environment(server), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as endless:
        assert endless.stdout is not None and endless.stderr is not None
        endless.stdout.readline()
        endless.stdout.close()
        if arguments[0] == "events":
            queue.add("b")
        assert (endless.wait(), endless.stderr.read()) == (141, b"")


@pytest.mark.any_server
def test_what_is_closed_or_full(queue: Queue[Any], server: Server, name: str) -> None:
    queue.add("a")
    program = shlex.join(_PROGRAM)
    for command, code, words in (
        ("jobs QUEUE >&-", 0, ""),
        ("queues QUEUE --json >&-", 0, ""),
        ("top QUEUE --count 1 >&-", 0, ""),
        ("drain QUEUE <&-", 2, "--yes"),
        ("add QUEUE a - <&-", 2, "standard input is closed"),
        ("queues >/dev/full", 1, "No space left"),
    ):
        line = f"{program} {command.replace('QUEUE', name)}"
        done = subprocess.run(line, shell=True, env=_environment(server), capture_output=True, text=True, check=False)
        assert (done.returncode, words in done.stderr, "Traceback" in done.stderr) == (code, True, False), done.stderr


@pytest.mark.any_server
def test_what_jobs_hold_does_not_steer_the_terminal(server: Server, run: Run, name: str) -> None:
    odd = f"{name} \x1b[31m\n\u202e"
    with Queue[Any](odd, server.url) as queue:
        queue.add("na\x1b]0;me\x07", {"x": "\x9b2J"}, JobOptions(job_id="id\x1b[5m"))
        broken = Command(
            "HSET", (queue.keys.job("broken"),), ("data", "\udcff\x1b", "opts", "{", "stacktrace", "[\x1b"), as_int
        )
        queue.call(broken)
        words = {"ODD": odd, "ID": "id\x1b[5m", "NO": "no\x1b"}
        for line in (
            *("queues", "queues ODD", "top ODD --count 1", "jobs ODD", "job ODD ID", "job ODD broken", "job ODD NO"),
            *("flow ODD ID", "doctor ODD", "pause ODD", "events ODD --from 0-0 --count 1", "remove ODD NO --yes"),
            *("wait ODD NO", "job ODD broken --json", "jobs ODD --json", "doctor ODD --json", "drain ODD"),
            "obliterate ODD --force --yes",
        ):
            result = run(*(words.get(word, word) for word in line.split()))
            assert result.exit_code in (0, 1, 2, 3, 4), result.output
            assert re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", result.output) is None, line
            assert "broken" not in line or "undecodable" in result.output


@pytest.mark.any_server
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_letters_that_the_locale_lacks(queue: Queue[Any], server: Server, name: str, encoding: str) -> None:
    queue.add("ünï 漢", {"to": "漢\ud800"})
    environment = _environment(server, PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    for command in (["jobs", name], ["job", name, "1"], ["flow", name, "1"], ["top", "--count", "1"], ["doctor", name]):
        done = subprocess.run([*_PROGRAM, *command], env=environment, capture_output=True, check=False)
        assert done.returncode in (0, 3) and b"Traceback" not in done.stderr, done.stderr
    done = subprocess.run([*_PROGRAM, "jobs", name], env=environment, capture_output=True, check=True)
    assert b"\\u6f22" in done.stdout


@pytest.mark.any_server
def test_interrupted_in_the_middle(queue: Queue[Any], server: Server, name: str) -> None:
    command = [*_PROGRAM, "add", name, "bulk", "-", "--bulk", "10"]
    with (
        QueueEvents(name, server.url) as events,
        subprocess.Popen(
            command, env=_environment(server), stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as adding,
    ):
        assert adding.stdin is not None and adding.stderr is not None
        stream = events.stream("0-0")
        adding.stdin.write("1\n" * 20)
        adding.stdin.flush()
        # The second bulk is sent when the first is counted.
        while getattr(next(stream), "job_id", None) != "20":
            pass
        stream.close()
        adding.send_signal(signal.SIGINT)
        text = adding.stderr.read()
        assert adding.wait() == 130
    assert re.search("added (1[0-9]|20) jobs", text) and "Traceback" not in text
    assert queue.get_waiting_count() == 20


# --- addresses --------------------------------------------------------------------------------------------------------


_EVERY_COMMAND = """
add NAME a {} --job-id mine
queues
queues NAME
top NAME --count 1
jobs NAME
job NAME mine
logs NAME mine
flow NAME mine
workers NAME
schedulers NAME
metrics NAME
events NAME --from 0-0 --count 1
exporter NAME --once
doctor NAME
pause NAME
resume NAME
clean NAME --older-than 0 --yes
add NAME a {} --delay 1h --job-id later
promote NAME later
retry NAME --all
remove NAME later --yes
drain NAME --delayed --yes
obliterate NAME --yes
"""


def _goes_through(url: str, prefix: str, name: str) -> None:
    """Let every command do its work at an address: `wait` and the programs of the doctor, too."""

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(ctl, ["--url", url, "--prefix", prefix, *arguments])

    lines = [line.replace("NAME", name).split() for line in _EVERY_COMMAND.strip().splitlines()]
    assert {line[0] for line in lines} | {"wait"} == set(ctl.commands)
    try:
        for line in lines[:-1]:
            result = call(*line)
            assert result.exit_code == (3 if line[0] == "doctor" else 0), (line, result.output)
        assert parsed(call("top", name, "--count", "1", "--json"))[0]["waiting"] == 0
        assert call("add", name, "good", "5", "--job-id", "good").exit_code == 0
        Worker[Any](name, process, url, prefix=prefix).run(until="idle")
        assert call("wait", name, "good").stdout == '{"sent": 5}\n'
        for found in (
            call("doctor", name, "--json"),
            CliRunner().invoke(doctor, [url, name, "--prefix", prefix, "--json"]),
        ):
            assert found.exit_code in (0, 1, 3), found.output
            checks = {each["check"] for each in json.loads(found.stdout)}
            assert not checks & {"no-queues", "hash-tag"}
    finally:
        assert call(*lines[-1]).exit_code == 0


def test_a_cluster(cluster: topology.ClusterSet, name: str) -> None:
    _goes_through(f"redis+cluster://{cluster.hosts}", "{bull}", name)
    refused = CliRunner().invoke(ctl, ["--url", f"redis+cluster://{cluster.hosts}", "queues", name])
    assert refused.exit_code == 2, refused.output
    assert "in one slot" in refused.output, refused.output


def test_sentinels(sentinels: topology.SentinelSet, name: str) -> None:
    _goes_through(f"redis+sentinel://{sentinels.hosts}/{topology.SERVICE}", "bull", name)


@pytest.mark.any_server
def test_tls_and_a_password(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with servers.start(tls=True, config=("--requirepass", "hunter2")) as secured:
        url = f"rediss://:hunter2@{secured.host}:{secured.port}"
        untrusted = CliRunner().invoke(ctl, ["--url", url, "add", name, "a"])
        assert (untrusted.exit_code, "hunter2" in untrusted.output) == (3, False)
        monkeypatch.setenv("SSL_CERT_FILE", str(secured.ca_file))
        _goes_through(url, "bull", name)
        refused = CliRunner().invoke(ctl, ["--url", url.replace("hunter2", "hunter3"), "pause", name])
        assert (refused.exit_code, "hunter" in refused.output) == (3, False)


@pytest.mark.any_server
def test_a_unix_socket(name: str) -> None:
    with servers.start() as server:
        # One in a container has none.
        url = server.url if server.socket_path is None else f"unix://{server.socket_path}"
        _goes_through(url, "bull", name)
