"""Each finding of `bullmq_doctor`, produced on real servers."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner

from bullmq_doctor import Finding, Severity, Unreachable, examine, facts, look
from bullmq_doctor import examine as pure
from bullmq_doctor.__main__ import main
from bullmq_protocol import FlowNode, JobOptions, QueueKeys, RepeatOptions, UsageError
from bullmq_protocol.testing.conformance import Fault
from bullmq_sync import FlowProducer, Queue, Worker
from tests.support import servers, topology
from tests.support.cut_proxy import CutProxy
from tests.support.open_sockets import sockets
from tests.support.servers import Server

pytestmark = pytest.mark.any_python

_ROOT = Path(__file__).parents[2]
Start = Callable[..., Server]


@pytest.fixture(params=servers.ends())
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """Start a separate server with settings; in good health but for them."""
    started: list[Server] = []

    def make(*config: str) -> Server:
        started.append(servers.start(request.param, config=("--appendonly", "yes", *config)))
        return started[-1]

    yield make
    for server in started:
        server.stop()


@pytest.fixture
def queue(server: Server, name: str) -> Iterator[Queue[Any]]:
    with Queue[Any](name, server.url) as queue:
        yield queue
        queue.obliterate(force=True)


@pytest.fixture
def admin(server: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        yield client


@pytest.fixture
def idle_worker(server: Server, name: str) -> Iterator[None]:
    """A connection that waits as a worker does, and does nothing more."""
    with redis.Redis.from_url(server.url, client_name=QueueKeys.of(name).client_name()) as client:
        client.ping()
        yield


def diagnose(url: str, *queues: str) -> dict[str, Finding]:
    return {finding.check: finding for finding in examine(look(url, queues))}


def of_queue(server: Server, name: str) -> dict[str, Finding]:
    return {check: finding for check, finding in diagnose(server.url, name).items() if finding.where != "server"}


def test_nothing_is_wrong(start: Start) -> None:
    server = start()
    assert list(diagnose(server.url)) == ["no-queues"]
    with Queue[Any]("mail", server.url) as queue:
        queue.set_global_concurrency(3)
    assert diagnose(server.url) == {}
    result = CliRunner().invoke(main, [server.url])
    assert (result.exit_code, "1 queue: nothing is wrong" in result.output) == (0, True)


def test_queue_that_is_not_there(start: Start) -> None:
    server = start()
    found = diagnose(server.url, "typo")
    assert (list(found), found["no-queue"].severity) == (["no-queue"], Severity.WARNING)
    assert CliRunner().invoke(main, [server.url, "typo"]).exit_code == 1
    assert "no-queues" in CliRunner().invoke(main, [server.url, "--json"]).output


def test_old_server(start: Start) -> None:
    server = start()
    with CutProxy(server.host, server.port) as proxy:
        proxy.arm(Fault.OLD_VERSION)
        found = diagnose(proxy.url)
    assert found["version"].severity is Severity.ERROR
    assert "5." in found["version"].problem


def test_replica(start: Start) -> None:
    master, replica = start(), start()
    with redis.Redis.from_url(replica.url) as client:
        client.replicaof(master.host, master.port)
    assert list(diagnose(replica.url)) == ["replica", "no-queues"]


def test_eviction(start: Start) -> None:
    limited = start("--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru")
    assert diagnose(limited.url)["eviction"].severity is Severity.ERROR
    with redis.Redis.from_url(limited.url) as client:
        client.config_set("maxmemory", 0)
    assert diagnose(limited.url)["eviction"].severity is Severity.WARNING


def test_memory(start: Start) -> None:
    # Without the buffers of a log, which come and go.
    server = start("--appendonly", "no")
    with redis.Redis.from_url(server.url) as client:
        # Made by the server: what it reads into a buffer takes memory until some time later.
        client.setrange("ballast", 20_000_000, "x")
        for share, severity in ((0.82, Severity.WARNING), (0.95, Severity.ERROR)):
            client.config_set("maxmemory", int(look(server.url).server.memory_used / share))
            found = diagnose(server.url)
            assert found["memory"].severity is severity


def test_persistence(start: Start) -> None:
    server = start("--appendonly", "no", "--save", "")
    assert diagnose(server.url)["persistence"].severity is Severity.WARNING
    with redis.Redis.from_url(server.url) as client:
        client.config_set("save", "60 1000")
        assert diagnose(server.url)["persistence"].severity is Severity.NOTE


def test_write_that_failed(start: Start) -> None:
    server = start()
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        # A folder of that name is in the way of the snapshot.
        Path(client.config_get("dir")["dir"], client.config_get("dbfilename")["dbfilename"]).mkdir()
        with pytest.raises(redis.ResponseError):
            client.save()
        client.bgsave()
        while client.info("persistence")["rdb_bgsave_in_progress"]:
            pass
    assert diagnose(server.url)["last-write"].severity is Severity.ERROR


@pytest.mark.parametrize(("shift_s", "word"), [(-5, "5.0 s ahead"), (5, "5.0 s behind")])
def test_clocks_apart(start: Start, monkeypatch: pytest.MonkeyPatch, shift_s: int, word: str) -> None:
    now = facts.time.time
    server = start()
    monkeypatch.setattr(facts.time, "time", lambda: now() + shift_s)
    found = diagnose(server.url)
    monkeypatch.undo()
    assert re.search(word.replace("5.0", r"(4\.9|5\.\d)"), found["clock"].problem)


def test_user_who_may_not(start: Start) -> None:
    server = start()
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "me", "on", ">hunter2", "~*", "+@all", "-eval", "-client", "-config")
    found = diagnose(f"redis://me:hunter2@{server.host}:{server.port}")
    assert set(found) == {"scripts", "clients", "no-queues"}
    assert found["scripts"].severity is Severity.ERROR


def test_search_that_ends_early(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "SCANNED", 0)
    assert list(diagnose(start().url)) == ["search", "no-queues"]


def test_queue_without_hash_tag(cluster: topology.ClusterSet) -> None:
    host, port = cluster.addresses[0]
    before = sockets()
    found = [
        finding.where
        for finding in examine(look(f"redis://{host}:{port}", ["mail", "{mail}"]))
        if finding.check == "hash-tag"
    ]
    assert found == ["bull:mail"]
    assert sockets() <= before


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
@pytest.mark.parametrize("rest", ["+cluster://:hunter2@127.0.0.1:1", "+sentinel://:hunter2@127.0.0.1:1/jobs"])
def test_several_servers_that_nobody_reaches(scheme: str, rest: str) -> None:
    with pytest.raises(Unreachable) as caught:
        look(f"{scheme}{rest}")
    assert "hunter2" not in str(caught.value) and f"{scheme}{rest[:9]}" in str(caught.value)


def test_behind_sentinels(sentinels: topology.SentinelSet, name: str) -> None:
    before = sockets()
    url = f"redis+sentinel://{sentinels.hosts}/{topology.SERVICE}"
    with Queue[Any](name, url) as queue:
        queue.add("a")
        facts = look(url, [name])
        assert (facts.server.role, facts.queues[0].counts["wait"]) == ("master", 1)
        queue.obliterate()
    assert sockets() <= before


def test_queues_are_found(queue: Queue[Any], server: Server, name: str) -> None:
    queue.add("a")
    odd = [f"{name}[x]", f"{name}*"]
    for each in odd:
        with Queue[Any](each, server.url) as another:
            another.add("a")
    found = {facts.name for facts in look(server.url).queues}
    assert {f"bull:{each}" for each in (name, *odd)} <= found
    with redis.Redis.from_url(server.url) as client:
        client.delete(*(key for each in odd for key in client.scan_iter(match=f"bull:{re.escape(each)}:*")))
    assert [facts.name for facts in look(server.url, prefix=f"{name}-none").queues] == []


def test_no_workers(queue: Queue[Any], server: Server, name: str) -> None:
    assert list(of_queue(server, name)) == ["no-queue"]
    queue.add("a")
    assert list(of_queue(server, name)) == ["no-workers"]
    with Worker[Any](name, lambda _: None, server.url):
        while queue.get_job_counts("completed")["completed"] == 0 or not queue.get_workers():
            pass
        assert of_queue(server, name) == {}


def test_paused(queue: Queue[Any], server: Server, name: str) -> None:
    queue.pause()
    assert of_queue(server, name) == {}
    queue.add("a")
    assert list(of_queue(server, name)) == ["paused"]


def test_stalled(queue: Queue[Any], server: Server, name: str, admin: redis.Redis) -> None:
    job = queue.add("a")
    worker = Worker[Any](name, connection=server.url)
    assert worker.get_next_job(block=False) is not None
    assert of_queue(server, name) == {}
    admin.delete(QueueKeys.of(name).lock(job.id))
    found = of_queue(server, name)
    assert (list(found), found["stalled"].severity) == (["stalled"], Severity.ERROR)
    with redis.Redis.from_url(server.url, client_name=QueueKeys.of(name).client_name("w")) as client:
        client.ping()
        assert of_queue(server, name)["stalled"].severity is Severity.WARNING
    worker.close()


def test_versions(queue: Queue[Any], server: Server, name: str, admin: redis.Redis) -> None:
    keys = QueueKeys.of(name)
    queue.pause()
    for version, shown in (("bullmq:6.7.0", "BullMQ 6.7.0 on Node"), ("bullmq:5.81.5-beta.1", "BullMQ 5.81.5 on Node")):
        admin.hset(keys.meta, "version", version)
        found = of_queue(server, name)
        assert (list(found), found["versions"].severity) == (["versions"], Severity.NOTE)
        assert shown in found["versions"].problem
        assert "Python" not in found["versions"].problem
    for other in ("bullmq-protocol:9.9.9", "bullmq-pro:7.0.0", "bullmq:x"):
        admin.hset(keys.meta, "version", other)
        assert of_queue(server, name) == {}
    # A worker of the Python port: its connections bear the name as it is, and it counts as a worker.
    queue.resume()
    queue.add("a")
    assert list(of_queue(server, name)) == ["no-workers"]
    with redis.Redis.from_url(server.url, client_name=f"bull:{name}") as client:
        client.ping()
        found = of_queue(server, name)
        assert list(found) == ["versions"]
        assert "Python port" in found["versions"].problem
        assert "on Node" not in found["versions"].problem


def test_both_lists(queue: Queue[Any], server: Server, name: str, admin: redis.Redis) -> None:
    keys = QueueKeys.of(name)
    first = queue.add("a")
    queue.pause()
    assert list(of_queue(server, name)) == ["paused"]
    admin.lpush(keys.wait, first.id)
    found = of_queue(server, name)
    assert (list(found), found["both-lists"].severity) == (["both-lists"], Severity.ERROR)
    assert "1 job in wait and 1 in paused" in found["both-lists"].problem
    admin.delete(keys.paused)
    assert list(of_queue(server, name)) == ["paused"]


@pytest.mark.usefixtures("idle_worker")
def test_paused_list_of_a_queue_that_runs(
    queue: Queue[Any], server: Server, name: str, admin: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = QueueKeys.of(name)
    queue.add("a")
    queue.pause()
    admin.hdel(keys.meta, "paused")
    found = of_queue(server, name)
    assert (list(found), found["paused-list"].severity) == (["paused-list"], Severity.ERROR)
    assert "1 job in" in found["paused-list"].problem
    # In both lists, but no client of BullMQ 5 has a pause to end.
    queue.add("b")
    assert list(of_queue(server, name)) == ["paused-list"]
    # A resume of many jobs is under way, and gone on by the second look.
    monkeypatch.setattr(facts.time, "sleep", lambda _: admin.rename(keys.paused, keys.wait))
    assert "paused-list" not in of_queue(server, name)


def test_repeatables(queue: Queue[Any], server: Server, name: str, admin: redis.Redis) -> None:
    keys = QueueKeys.of(name)
    queue.upsert_job_scheduler("s", RepeatOptions(every=1_000_000, start_date=4_000_000_000_000))
    assert list(of_queue(server, name)) == ["no-workers"]
    members = {"0f7c": "gets empty data", "a:b:c": "ends", "n:::UTC:0 0 * * *": "ends"}
    for member in members:
        admin.zadd(keys.repeat, {member: 1})
    admin.hset(f"{keys.repeat}:0f7c", mapping={"name": "n", "every": 1000})
    found = of_queue(server, name)["repeatables"]
    assert (found.severity, all(f"{member} ({loss})" in found.problem for member, loss in members.items())) == (
        Severity.NOTE,
        True,
    )
    assert "remove_repeatable_by_key" in found.fix
    for version, severity in (("bullmq:6.0.0", Severity.ERROR), ("bullmq:5.81.5", Severity.NOTE)):
        admin.hset(keys.meta, "version", version)
        assert of_queue(server, name)["repeatables"].severity is severity
    with redis.Redis.from_url(server.url, client_name=f"bull:{name}") as client:
        client.ping()
        assert of_queue(server, name)["repeatables"].severity is Severity.ERROR
    # What it advises.
    assert all(queue.remove_repeatable_by_key(member) for member in members)
    assert "repeatables" not in of_queue(server, name)


def test_cron_patterns(queue: Queue[Any], server: Server, name: str, admin: redis.Redis) -> None:
    keys = QueueKeys.of(name)
    queue.upsert_job_scheduler("fine", RepeatOptions(pattern="0 0 1 1 *", tz="UTC"))
    assert list(of_queue(server, name)) == ["no-workers"]
    for member, pattern in (("twice", "1,1 * * * *"), ("steps", "*/7,*/11 * * * *"), ("alias", "@minutely")):
        admin.zadd(keys.repeat, {member: 1})
        admin.hset(f"{keys.repeat}:{member}", mapping={"name": "n", "ic": 1, "pattern": pattern, "tz": "UTC"})
    found = of_queue(server, name)
    assert (list(found), found["cron-dialects"].severity) == (["no-workers", "cron-dialects"], Severity.NOTE)
    assert all(f"{member} (" in found["cron-dialects"].problem for member in ("twice", "steps", "alias"))
    assert "fine" not in found["cron-dialects"].problem
    admin.hset(keys.meta, "version", "bullmq:6.7.0")
    assert of_queue(server, name)["cron-dialects"].severity is Severity.ERROR
    admin.hset(f"{keys.repeat}:fine", "tz", "")
    admin.hdel(f"{keys.repeat}:twice", "tz")
    zones = of_queue(server, name)["cron-zone"]
    assert zones.severity is Severity.NOTE
    assert "without a zone: twice, fine;" in zones.problem
    with redis.Redis.from_url(server.url, client_name=f"bull:{name}") as client:
        client.ping()
        assert of_queue(server, name)["cron-zone"].severity is Severity.WARNING


def test_series_that_is_in_no_list(queue: Queue[Any], server: Server, name: str, admin: redis.Redis) -> None:
    keys = QueueKeys.of(name)
    queue.add("a", options=JobOptions(job_id="repeat:x:1", delay=1000))
    assert "unlisted-repeats" not in of_queue(server, name)
    admin.hset(keys.job("repeat::1700000000000"), mapping={"name": "a", "opts": '{"repeat":{"every":1}}', "rjk": ""})
    admin.zadd(keys.delayed, {"repeat::1700000000000": 1})
    found = of_queue(server, name)["unlisted-repeats"]
    assert (found.severity, found.problem.endswith(": repeat::1700000000000")) == (Severity.ERROR, True)
    admin.zrem(keys.delayed, "repeat::1700000000000")
    admin.lpush(keys.active, "repeat::1700000000000")
    assert "unlisted-repeats" in of_queue(server, name)


@pytest.mark.usefixtures("idle_worker")
def test_overdue(queue: Queue[Any], server: Server, name: str, admin: redis.Redis) -> None:
    job = queue.add("a", options=JobOptions(delay=1000))
    assert of_queue(server, name) == {}
    seconds, _ = admin.time()
    admin.zadd(QueueKeys.of(name).delayed, {job.id: (seconds * 1000 - 60_000) * 4096})
    found = of_queue(server, name)
    assert (list(found), "due for 6" in found["overdue"].problem) == (["overdue"], True)


@pytest.mark.usefixtures("idle_worker")
def test_no_marker(queue: Queue[Any], server: Server, name: str, admin: redis.Redis) -> None:
    queue.add("a")
    assert of_queue(server, name) == {}
    admin.delete(QueueKeys.of(name).marker)
    found = of_queue(server, name)
    assert list(found) == ["no-marker"]
    # The fix mends it.
    admin.execute_command(*found["no-marker"].fix.split())
    assert of_queue(server, name) == {}


@pytest.mark.usefixtures("idle_worker")
def test_missing(queue: Queue[Any], server: Server, name: str, admin: redis.Redis) -> None:
    jobs = [
        queue.add("a"),
        queue.add("a", options=JobOptions(delay=100_000)),
        queue.add("a", options=JobOptions(priority=3)),
        queue.add("a"),
        queue.add("a"),
    ]
    for job in jobs[:-1]:
        admin.delete(QueueKeys.of(name).job(job.id))
    found = of_queue(server, name)
    assert list(found) == ["missing"]
    assert all(f"({state})" in found["missing"].problem for state in ("wait", "prioritized"))
    assert "and 1 more" in found["missing"].problem


def test_orphans(queue: Queue[Any], server: Server, name: str, admin: redis.Redis) -> None:
    with FlowProducer(server.url) as flows:
        family = flows.add(FlowNode("parent", name, children=[FlowNode("child", f"{name}-children")]))
    assert "orphans" not in of_queue(server, name)
    # Evicted, or deleted by hand: removed in order it lets its parent go.
    admin.delete(family.children[0].job.key)
    found = of_queue(server, name)
    assert found["orphans"].problem.endswith(f": {family.job.id}")
    with Queue[Any](f"{name}-children", server.url) as children:
        children.obliterate(force=True)


def test_job_that_a_newer_node_kept_back(queue: Queue[Any], server: Server, name: str, admin: redis.Redis) -> None:
    keys = QueueKeys.of(name)
    kept = {"name": "a", "data": "{}", "opts": '{"attempts":0,"de":{"id":"d","keepLastIfActive":true}}', "jid": "2"}
    job = queue.add("a")
    admin.set(keys.deduplication("d"), job.id)
    admin.hset(f"{keys.base}dn:d", mapping=kept)
    found = of_queue(server, name)["kept-last"]
    assert (found.severity, "before 5.72" in found.problem) == (Severity.WARNING, True)
    for version, severity in (("bullmq:5.71.1", Severity.WARNING), ("bullmq:5.72.0", Severity.NOTE)):
        admin.hset(keys.meta, "version", version)
        assert of_queue(server, name)["kept-last"].severity is severity
    assert f"{keys.base}dn:<id>" not in found.fix
    # The job before ends, by a worker that knows nothing of the record.
    with closing(Worker[Any](name, connection=server.url)) as worker:
        taken = worker.get_next_job(block=False)
        assert taken is not None
        worker.complete(taken)
    found = of_queue(server, name)["kept-last"]
    assert (found.severity, found.problem.count(": d;")) == (Severity.ERROR, 1)
    assert f"{keys.base}dn:<id>" in found.fix
    # Found among all queues, too; another queue's record is not this one's.
    assert "kept-last" in {each.check for each in examine(look(server.url)) if each.where == keys.qualified}
    with Queue[Any](f"{name}-other", server.url) as other:
        other.add("a")
        assert "kept-last" not in of_queue(server, f"{name}-other")
        other.obliterate(force=True)
    admin.delete(f"{keys.base}dn:d")
    assert "kept-last" not in of_queue(server, name)


def test_finished_jobs(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    server = start()
    with Queue[Any]("mail", server.url) as queue, closing(Worker[Any]("mail", connection=server.url)) as worker:
        queue.add("a", "x" * 8_000_000)
        assert of_queue(server, "mail").keys() == {"no-workers"}
        taken = worker.get_next_job(block=False)
        assert taken is not None
        worker.complete(taken)
    monkeypatch.setitem(pure.__globals__, "MANY_FINISHED", 0)
    assert of_queue(server, "mail").keys() == {"finished-memory", "retention"}


def test_events(queue: Queue[Any], server: Server, name: str) -> None:
    for cap in (50, 2_000_000):
        with Queue[Any](name, server.url, max_len_events=cap) as other:
            other.add("a")
            assert "events" in of_queue(server, name)


def test_changes_nothing(start: Start) -> None:
    server = start()
    with Queue[Any]("mail", server.url) as queue:
        queue.add_bulk([])
        job = queue.add("a")
        queue.add("b", options=JobOptions(delay=1000))
        queue.add("c", options=JobOptions(priority=1))
    with redis.Redis.from_url(server.url) as client:
        client.delete(QueueKeys.of("mail").job(job.id))
        before = client.info("persistence")["rdb_changes_since_last_save"]
        assert diagnose(server.url).keys() == {"no-workers", "missing"}
        assert client.info("persistence")["rdb_changes_since_last_save"] == before


def is_busy(client: redis.Redis) -> bool:
    try:
        client.ping()
    except redis.RedisError as error:
        return "BUSY" in str(error)
    return False


def test_busy_server_cannot_be_examined(start: Start) -> None:
    server = start("--lua-time-limit", "1")

    def block() -> None:
        with redis.Redis.from_url(server.url) as client, pytest.raises(redis.RedisError):
            client.eval("while true do end", 0)

    thread = threading.Thread(target=block)
    with redis.Redis.from_url(server.url) as client:
        thread.start()
        while not is_busy(client):
            pass
        result = CliRunner().invoke(main, [server.url])
        client.execute_command("SCRIPT", "KILL")
        thread.join()
    assert result.exit_code == 4
    assert "BUSY" in result.output


def test_exit_codes_and_json(start: Start) -> None:
    server = start("--appendonly", "no")
    run = CliRunner().invoke
    with redis.Redis.from_url(server.url) as client:
        client.config_set("save", "60 1000")
        assert run(main, [server.url]).exit_code == 0
        client.config_set("save", "")
    result = run(main, [server.url, "--json"])
    assert (result.exit_code, [finding["check"] for finding in json.loads(result.output)]) == (
        1,
        ["persistence", "no-queues"],
    )
    with Queue[Any]("[red]mail", server.url) as queue:
        queue.add("a")
    result = run(main, [server.url])
    assert result.exit_code == 3
    assert "[red]mail" in result.output
    for wrong in (["http://x"], [server.url, "a:b"], [], ["--wrong"]):
        assert run(main, wrong).exit_code == 2


def test_no_text_is_cut(start: Start) -> None:
    """Not in a narrow terminal, nor in a pipe, which has 80 columns."""
    server = start("--appendonly", "no")
    name = "a-name-that-is-longer-than-its-column-in-80-columns"
    with Queue[Any](name, server.url) as queue:
        queue.add("a")
    result = CliRunner().invoke(main, [server.url], env={"COLUMNS": "60"})
    cells = [line.split("│")[2].strip() for line in result.output.splitlines() if line.startswith("│")]
    assert f"bull:{name}" in "".join(cells)
    assert "…" not in result.output


def test_no_secret_is_shown(start: Start) -> None:
    server = start("--requirepass", "hunter2")
    for login, code in ((":hunter2", 0), (":hunter3", 4), ("me:hunter2", 4), ("", 4)):
        command = [sys.executable, "-m", "bullmq_doctor", f"redis://{login}@{server.host}:{server.port}"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=_ROOT, check=False)
        assert (done.returncode, "hunter" in done.stdout + done.stderr) == (code, False)
    port = server.port
    server.stop()
    with pytest.raises(Unreachable) as caught:
        look(f"redis://:hunter2@127.0.0.1:{port}")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(UsageError):
        look("redis://127.0.0.1", ["a:b"])


def test_every_check_is_in_the_docs() -> None:
    source = (_ROOT / "bullmq_doctor" / "examine.py").read_text(encoding="utf-8")
    checks = set(re.findall(r'(?:found|Finding)\(\s*"([a-z-]+)"', source))
    docs = (_ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z-]+)` \|", docs, re.MULTILINE)) == checks
    tested = Path(__file__).read_text(encoding="utf-8")
    assert all(f'"{check}"' in tested for check in checks)
