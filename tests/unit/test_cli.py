"""`bullmq-worker` without a process of its own: which workers are meant, what is refused, its log and its probes."""

from __future__ import annotations

import importlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import bullmq_anyio
import bullmq_sync
from bullmq_cli import command, entry, probes, serve
from bullmq_cli.command import main
from bullmq_cli.load import TargetError, load
from bullmq_cli.logs import JsonFormatter, LogConfigError, TextFormatter, set_up, set_up_by_file
from bullmq_cli.processes import FIRST_DELAY_S, LONGEST_DELAY_S, Child
from bullmq_cli.serve import Work
from bullmq_protocol.errors import (
    AuthenticationFailed,
    BullMQError,
    ConnectionLost,
    ServerError,
    ServerTooOld,
    UsageError,
)
from bullmq_protocol.scripts.profile import STRICT
from bullmq_protocol.worker.health import Health

_MODULE = """
from bullmq_anyio import Queue, Router, Worker
from bullmq_sync import Worker as OnThreads

async def process(job): ...

worker = Worker("mail", process)
threads = OnThreads("mail", print)
several = [worker, Worker("print", process)]
mixed = [worker, threads]
nothing = []
router = Router()
queue = Queue("mail", "redis://localhost")
number = 5
secret = "redis://me:secret-4711@example"
class Holder:
    worker = worker
def made(): return several
def generated():
    yield worker
    yield several[1]
async def later(): return worker
def asks(name): return worker
def fails(): raise ValueError("no such address")
def nonsense(): return None
def leaves(): raise SystemExit("no settings")
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cli_target.py").write_text(_MODULE)
    (tmp_path / "cli_broken.py").write_text("def helper():\n    1 / 0\n\nhelper()\n")
    (tmp_path / "cli_leaving.py").write_text("import sys\n\nsys.exit(3)\n")
    (tmp_path / "cli_lacking.py").write_text("import cli_nowhere\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("cli_target", "cli_broken", "cli_lacking", "cli_leaving"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.parametrize(
    ("target", "adapter", "queues"),
    [
        ("cli_target:worker", "bullmq_anyio", ["mail"]),
        ("cli_target:threads", "bullmq_sync", ["mail"]),
        ("cli_target:several", "bullmq_anyio", ["mail", "print"]),
        ("cli_target:Holder.worker", "bullmq_anyio", ["mail"]),
        ("cli_target:made", "bullmq_anyio", ["mail", "print"]),
        ("cli_target:generated", "bullmq_anyio", ["mail", "print"]),
    ],
)
def test_what_names_workers(target: str, adapter: str, queues: list[str]) -> None:
    found, workers = load(target)
    assert (found, [worker.name for worker in workers]) == (adapter, queues)


@pytest.mark.parametrize("path_has_the_folder", [False, True])
def test_a_module_is_looked_for_in_the_current_folder_first(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, path_has_the_folder: bool
) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "cli_target.py").write_text("worker = None\n")
    here = [str(Path.cwd())] if path_has_the_folder else []
    monkeypatch.setattr(sys, "path", [str(other), *sys.path, *here])
    _, workers = load("cli_target:worker")
    assert [worker.name for worker in workers] == ["mail"]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("cli_target", "'cli_target' must be module:object"),
        (":worker", "must be module:object"),
        ("cli_target:", "must be module:object"),
        ("cli_nowhere:worker", "there is no module 'cli_nowhere'"),
        ("cli_target.deeper:worker", "there is no module 'cli_target.deeper'"),
        ("cli_lacking:worker", "No module named 'cli_nowhere'"),
        ("cli_broken:worker", "ZeroDivisionError"),
        ("cli_leaving:worker", "SystemExit: 3"),
        ("cli_target:leaves", "SystemExit: no settings"),
        ("cli_target:nobody", "cli_target:nobody: module 'cli_target' has no attribute 'nobody'"),
        ("cli_target:Holder.nobody", "type 'Holder' has no attribute 'nobody'"),
        ("cli_target:nothing", "there are no workers in it"),
        ("cli_target:router", "an object of type 'Router' is no worker"),
        ("cli_target:queue", "an object of type 'Queue' is no worker"),
        ("app/jobs.py:worker", "app/jobs.py is a path: name the module, app.jobs:worker"),
        ("./jobs.py:worker", "./jobs.py is a path: name the module, jobs:worker"),
        ("cli_target:number", "an object of type 'int' is no worker of bullmq_anyio or bullmq_sync"),
        ("cli_target:secret", "an object of type 'str' is no worker"),
        ("cli_target:Holder", "cli_target:Holder: type 'Holder' is no worker"),
        ("cli_target:mixed", "workers of both bullmq_anyio and bullmq_sync"),
        ("cli_target:later", "must be a plain function, no async one"),
        ("cli_target:asks", "must be a function that takes no argument: missing a required argument: 'name'"),
        ("cli_target:fails", "ValueError: no such address"),
        ("cli_target:nonsense", "an object of type 'NoneType' is no worker"),
    ],
)
def test_what_names_none(target: str, words: str) -> None:
    with pytest.raises(TargetError) as caught:
        load(target)
    assert words in str(caught.value)
    assert "4711" not in str(caught.value)


def test_the_traceback_of_an_import_is_that_of_the_application() -> None:
    with pytest.raises(TargetError) as caught:
        load("cli_broken:worker")
    assert 'cli_broken.py", line 4' in str(caught.value) and 'cli_broken.py", line 2' in str(caught.value)
    assert "importlib" not in str(caught.value) and "bullmq_cli" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Missing argument 'TARGET'"),
        (["--url", "http://me:secret-4711@example", "a:b"], "url"),
        (["--processes", "0", "a:b"], "Invalid value for '--processes'"),
        (["--concurrency", "x", "a:b"], "Invalid value for '--concurrency'"),
        (["--max-jobs", "0", "a:b"], "Invalid value for '--max-jobs'"),
        (["--loop", "curio", "a:b"], "Invalid value for '--loop'"),
        (["--log-level", "loud", "a:b"], "Invalid value for '--log-level'"),
        (["--log-format", "xml", "a:b"], "Invalid value for '--log-format'"),
        (["--log-config", "nowhere.ini", "a:b"], "nowhere.ini cannot be read: No such file"),
        (["--log-config", "nowhere.json", "a:b"], "nowhere.json cannot be read: No such file"),
        (["--health-port", "65536", "a:b"], "Invalid value for '--health-port'"),
        (["--health-patience", "-1", "a:b"], "Invalid value for '--health-patience'"),
        (["--reload", "nowhere", "a:b"], "there is no such folder"),
        (["a:b", "c:d"], "unexpected extra argument"),
    ],
)
def test_wrong_options_are_refused(arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BULLMQ_URL", raising=False)
    result = CliRunner().invoke(main, arguments, obj=entry.Signals())
    assert result.exit_code == 2, result.output
    assert words in result.output and "4711" not in result.output


_OF_OPTIONS: dict[str, tuple[str, Any, str]] = {
    "url": ("redis://example.org:4711/3", "redis://example.org:4711/3", "http://example.org"),
    "burst": ("1", True, "perhaps"),
    "max_jobs": ("4", 4, "many"),
    "concurrency": ("7", 7, "0"),
    "processes": ("3", 3, "0"),
    "reload": (".", ".", "1"),
    "loop": ("trio", "trio", "curio"),
    "log_level": ("DEBUG", "debug", "loud"),
    "log_format": ("json", "json", "xml"),
    "log_config": ("log.json", Path("log.json"), "nowhere.json"),
    "no_logging": ("yes", True, "perhaps"),
    "health_host": ("127.0.0.1", "127.0.0.1", ""),
    "health_port": ("8080", 8080, "65536"),
    "health_file": ("health", Path("health"), ""),
    "health_patience": ("2.5", 2.5, "-1"),
}
"""Of each option a text in the environment, what it becomes, and a wrong text; none where nothing is wrong."""


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """Give what the command has made of its options, in place of running workers."""
    found: dict[str, Any] = {}

    def served(work: Work, _: Any) -> int:
        found.update({name: getattr(work, name) for name in work.__struct_fields__})
        found["health_patience"] = work.patience_ms / 1000
        return 0

    class Processes:
        def __init__(self, count: int, folder: Path | None) -> None:
            found.update(processes=count, reload=None if folder is None else str(folder))

        def run(self) -> int:
            return 0

    (tmp_path / "log.json").write_text(json.dumps({"version": 1, "disable_existing_loggers": False}))
    monkeypatch.setattr(command, "serve", served)
    monkeypatch.setattr(command, "Parent", Processes)
    monkeypatch.setattr(command, "set_up", lambda level, form: found.update(log_level=level, log_format=form))

    def by_file(path: Path) -> None:
        set_up_by_file(path)
        found.update(log_config=path)

    monkeypatch.setattr(command, "set_up_by_file", by_file)
    monkeypatch.delenv("BULLMQ_URL", raising=False)
    return found


@pytest.mark.parametrize("name", [each.name for each in main.params if isinstance(each, click.Option)])
def test_every_option_may_stand_in_the_environment(
    name: str, chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "version":
        # It is no option: an application may well keep that of its BullMQ there.
        monkeypatch.setenv("BULLMQ_VERSION", "5.62.0")
        assert CliRunner().invoke(main, ["a:b"], obj=entry.Signals()).exit_code == 0
        return
    text, value, wrong = _OF_OPTIONS[name]
    variable = f"BULLMQ_{name.upper()}"
    monkeypatch.setenv(variable, text)
    monkeypatch.setenv("BULLMQ_TARGET", "a:b")
    result = CliRunner().invoke(main, [], obj=entry.Signals())
    assert result.exit_code == 0, result.output
    if name == "url":
        # Workers find it there, and processes of theirs.
        monkeypatch.delenv(variable)
        assert CliRunner().invoke(main, ["--url", text, "a:b"], obj=entry.Signals()).exit_code == 0
        chosen["url"] = os.environ["BULLMQ_URL"]
    if name == "no_logging":
        chosen["no_logging"] = "log_level" not in chosen
    assert chosen[name] == value
    if wrong:
        monkeypatch.setenv(variable, wrong)
        refused = CliRunner().invoke(main, [], obj=entry.Signals())
        assert refused.exit_code == 2, refused.output
        assert variable in refused.output or name in ("url", "log_config")


@pytest.mark.parametrize(
    ("arguments", "folder"),
    [
        (["--reload", "a:b"], "."),
        (["a:b", "--reload"], "."),
        (["--reload", "deeper", "a:b"], "deeper"),
        (["a:b", "--reload", "deeper"], "deeper"),
        (["--reload=deeper", "a:b"], "deeper"),
        (["a:b", "--processes", "2"], None),
    ],
)
def test_the_folder_of_a_reload_may_be_left_out(
    arguments: list[str], folder: str | None, chosen: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "deeper").mkdir()
    result = CliRunner().invoke(main, arguments, obj=entry.Signals())
    assert (result.exit_code, chosen["reload"]) == (0, folder), result.output


def test_exit_codes_are_those_of_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "worker-command.md").read_text(encoding="utf-8")
    table = page[page.index("| Exit code |") :].split("\n\n")[0]
    codes = {entry.GOOD_ORDER, entry.FAILED, entry.USAGE, entry.UNREACHABLE, entry.CUT_SHORT}
    assert {int(code) for code in re.findall(r"^\| ([0-9]+) \|", table, re.MULTILINE)} == codes
    assert all(f"{code} " in str(main.help) for code in codes)
    listed = re.findall(r"`(--[a-z-]+)", page[page.index("| Option |") :].split("\n\n")[0])
    options = {name for each in main.params for name in each.opts if name.startswith("--")}
    assert options - {"--url", "--version"} == set(listed)


@pytest.mark.parametrize("package", ["bullmq_anyio", "bullmq_sync"])
def test_a_start_imports_nothing_that_the_first_fetch_does_not_need(package: str) -> None:
    unused = ("redis", "rich", "watchfiles", "trio", "uvloop", "logging.config", "http", "multiprocessing")
    if package == "bullmq_sync":
        unused += ("asyncio", "anyio")
    code = (
        f"import sys, bullmq_cli.command, {package}\n"
        f"{package}.Worker('mail', None, 'redis://localhost'); {package}.connect('rediss://localhost')\n"
        f"print(*[name for name in {unused!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("package", [bullmq_anyio, bullmq_sync])
def test_a_connection_that_is_not_given_is_that_of_the_environment(package: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("BULLMQ_URL", "redis://example.org:4711/3")
    transport = package.drive.transport_of(None, STRICT)[0]
    assert "example.org:4711" in repr(transport.__dict__ if hasattr(transport, "__dict__") else transport)
    monkeypatch.setenv("BULLMQ_URL", "")
    assert "127.0.0.1" in repr(package.drive.transport_of(None, STRICT)[0].__dict__)


def test_a_process_runs_its_workers_as_it_is_asked() -> None:
    worker = bullmq_sync.Worker("mail", print)
    work = Work(target="a:b", burst=True, max_jobs=3, concurrency=7)
    run = serve._runner("bullmq_sync", work, [worker])
    assert (worker.concurrency, run.args, run.keywords) == (7, (worker,), {"until": "idle", "max_jobs": 3})


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (None, entry.GOOD_ORDER),
        (ConnectionLost("gone", maybe_applied=False), entry.UNREACHABLE),
        (AuthenticationFailed("WRONGPASS"), entry.UNREACHABLE),
        (ServerTooOld("5.0.14"), entry.UNREACHABLE),
        (ServerError("NOPERM"), entry.UNREACHABLE),
        (BullMQError("odd"), entry.FAILED),
        (RuntimeError("the disk is gone"), entry.FAILED),
    ],
)
def test_what_ends_workers_has_its_exit_code(error: Exception | None, code: int) -> None:
    def run() -> None:
        if error is not None:
            raise error

    signals = entry.Signals()
    assert (serve._code(run, signals), signals.over) == (code, True)


def test_wrong_usage_that_only_a_run_finds_is_no_failure_of_a_worker() -> None:
    with pytest.raises(UsageError, match="processor"):
        serve._code(lambda: bullmq_sync.Worker("mail").run(), entry.Signals())


# --- logging --------------------------------------------------------------------------------------------------------


def test_json_lines_have_the_fields_of_the_record() -> None:
    record = logging.makeLogRecord(
        {"name": "bullmq_anyio", "levelno": 40, "levelname": "ERROR", "msg": "job %s", "args": ("1",), "created": 1.5}
    )
    record.msecs = 500.0
    record.queue, record.odd = "mail", {1, 2}.__class__
    try:
        raise ValueError("no such address")
    except ValueError:
        record.exc_info = sys.exc_info()
    found = json.loads(JsonFormatter().format(record))
    assert found.pop("exception").endswith("ValueError: no such address")
    assert found == {
        "time": "1970-01-01T00:00:01.500Z",
        "level": "error",
        "logger": "bullmq_anyio",
        "message": "job 1",
        "queue": "mail",
        "odd": "<class 'set'>",
    }


def test_what_comes_out_of_a_job_steers_no_terminal() -> None:
    record = logging.makeLogRecord({"levelname": "ERROR", "msg": "job %s failed", "args": ("\x1b[31m\u202e1\x9b",)})
    try:
        raise ValueError("grün\x1b]0;me\x07")
    except ValueError:
        record.exc_info = sys.exc_info()
    shown = TextFormatter("%(levelname)s %(message)s").format(record)
    assert shown.startswith("ERROR job \\x1b[31m\\u202e1\\x9b failed\nTraceback (most recent call last):\n")
    assert shown.endswith("ValueError: grün\\x1b]0;me\\x07")
    line = JsonFormatter().format(record)
    assert line.isascii() and json.loads(line)["message"] == "job \x1b[31m\u202e1\x9b failed"


@pytest.mark.parametrize(("form", "kind"), [("text", TextFormatter), ("json", JsonFormatter)])
def test_records_go_to_standard_error_in_the_form_asked_for(
    form: str, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(logging, "basicConfig", lambda **options: given.update(options))
    set_up("warning", form)
    (handler,) = given["handlers"]
    assert (given["level"], type(handler.formatter), handler.stream) == ("WARNING", kind, sys.stderr)


_LOGGERS = {"version": 1, "loggers": {"cli.test": {"level": "ERROR"}}}
_INI = "[loggers]\nkeys=root,x\n[handlers]\nkeys=\n[formatters]\nkeys=\n[logger_root]\nhandlers=\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", json.dumps(_LOGGERS)),
        ("a.toml", 'version = 1\n[loggers."cli.test"]\nlevel = "ERROR"\n'),
        ("a.ini", f"{_INI}[logger_x]\nqualname=cli.test\nhandlers=\nlevel=ERROR\n"),
    ],
)
def test_files_set_up_logging(tmp_path: Path, name: str, text: str) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    (tmp_path / name).write_text(text)
    try:
        set_up_by_file(tmp_path / name)
        assert logging.getLogger("cli.test").level == logging.ERROR
        # The logger of the program itself is there already.
        assert not logging.getLogger("bullmq_cli").disabled
    finally:
        for each in ("bullmq_cli", "bullmq_anyio", "bullmq_sync"):
            logging.getLogger(each).disabled = False
        logging.getLogger("cli.test").setLevel(logging.NOTSET)
        root.handlers[:] = handlers
        root.setLevel(level)


@pytest.mark.parametrize(("name", "text"), [("b.json", "{"), ("b.toml", "="), ("b.ini", "x"), ("c.json", "{}")])
def test_files_that_set_up_none_are_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(LogConfigError, match="sets up no logging"):
        set_up_by_file(tmp_path / name)


# --- signals --------------------------------------------------------------------------------------------------------


@pytest.fixture
def handlers() -> Any:
    before = {number: signal.getsignal(number) for number in entry.ALL}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_before_workers_run_a_signal_ends_it_and_a_hang_up_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []

    def leave(code: int) -> None:
        done.append(code)
        raise SystemExit(code)

    monkeypatch.setattr(entry.os, "_exit", leave)
    monkeypatch.setattr(entry.os, "execv", lambda *_: leave(-1))
    signals = entry.Signals()
    signals.take_over()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        with pytest.raises(SystemExit):
            signal.raise_signal(number)
    # Nothing is let in on the way to the new program.
    assert signal.pthread_sigmask(signal.SIG_UNBLOCK, entry.ALL) >= set(entry.ALL)
    assert done == [0, 0, -1] and not signals.is_cut_short


@pytest.mark.usefixtures("handlers")
def test_while_workers_run_a_hang_up_closes_them_and_the_second_signal_after_it_cuts_short() -> None:
    signals = entry.Signals()
    signals.take_over()
    # As `run_workers` does.
    for each in entry.STOPPING:
        signal.signal(each, lambda number, _: signals.count(number))
    signal.raise_signal(signal.SIGHUP)
    assert signals.restarts and signals.arrived == [signal.SIGTERM] and not signals.is_cut_short
    signal.raise_signal(signal.SIGHUP)
    assert len(signals.arrived) == 1
    signal.raise_signal(signal.SIGTERM)
    assert not signals.restarts and not signals.is_cut_short
    signal.raise_signal(signal.SIGINT)
    assert signals.is_cut_short


@pytest.mark.usefixtures("handlers")
def test_a_signal_after_the_workers_have_ended_ends_what_would_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []
    monkeypatch.setattr(entry.os, "execv", lambda *given: begun.append(given))
    signals = entry.Signals()
    signals.take_over()
    for each in entry.STOPPING:
        signal.signal(each, lambda number, _: signals.count(number))
    signal.raise_signal(signal.SIGHUP)
    signals.over = True
    signal.raise_signal(signal.SIGTERM)
    signals.restart()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, entry.ALL)
    assert begun == [] and signals.arrived == [signal.SIGTERM]


# --- processes ------------------------------------------------------------------------------------------------------


def test_what_dies_again_and_again_is_started_less_and_less_often() -> None:
    child = Child(0)
    delays = [child.died(1.0) for _ in range(12)]
    assert delays[:4] == [FIRST_DELAY_S, 2 * FIRST_DELAY_S, 4 * FIRST_DELAY_S, 8 * FIRST_DELAY_S]
    assert delays[-1] == LONGEST_DELAY_S and child.due == 1.0 + LONGEST_DELAY_S
    # It has lived for a minute since.
    assert child.died(61.0) == FIRST_DELAY_S


# --- probes ---------------------------------------------------------------------------------------------------------


def test_one_ill_worker_makes_the_process_ill(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    states = {
        "a": Health(live=True, ready=True, state="running"),
        "c": Health(live=True, ready=False, state="paused"),
        "b": Health(live=False, ready=False, state="disconnected", problems=("disconnected for 61000 ms",)),
    }

    class Some:
        def __init__(self, name: str) -> None:
            self.id = name

        def snapshot(self) -> Any:
            return self.id

    monkeypatch.setattr(probes, "health", lambda name, now, patience_ms: states[name])
    workers = [Some("a"), Some("b")]
    found = probes.report(workers, 60_000)
    assert (found.live, found.ready) == (False, False)
    assert found.workers == {name: states[name] for name in "ab"}
    server = probes._Server(None, workers, 60_000)  # type: ignore[arg-type]
    for path in ("/live", "/ready"):
        answer = server._answer(path)
        assert answer.startswith(b"HTTP/1.1 503 ") and b"disconnected for 61000 ms" in answer
    assert server._answer("/").startswith(b"HTTP/1.1 404 ")
    paused = probes._Server(None, [Some("c")], 60_000)  # type: ignore[arg-type]
    assert paused._answer("/live").startswith(b"HTTP/1.1 200 ") and paused._answer("/ready").startswith(
        b"HTTP/1.1 503 "
    )
    path = tmp_path / "health"
    with probes.file(workers, path, 60_000):
        # Only what is live keeps it new.
        assert not path.exists()
    with probes.file(workers[:1], path, 60_000):
        assert json.loads(path.read_bytes())["live"] is True
    assert not path.exists()


def test_the_file_is_written_again_and_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    looks: list[int] = []
    thrice = threading.Event()

    def report(workers: Any, patience_ms: int) -> probes.Report:
        looks.append(patience_ms)
        if len(looks) == 3:
            thrice.set()
        return probes.Report(live=True, ready=True, workers={})

    monkeypatch.setattr(probes, "report", report)
    monkeypatch.setattr(probes, "_EVERY_S", 0.001)
    with probes.file([], tmp_path / "health", 60_000):
        assert thrice.wait(60)


def test_metrics_are_those_of_the_application() -> None:
    client = importlib.import_module("prometheus_client")
    answer = probes._Server(None, [], 60_000)._answer("/metrics")  # type: ignore[arg-type]
    assert client.CONTENT_TYPE_LATEST.encode() in answer and b"python_info" in answer
