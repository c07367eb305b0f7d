"""A plugin of pytest that plants faults in place of running the tests: `pytest -p tools.mutants.planting`.

pytest imports and collects once. The tests are first run in a fork, under coverage, which tells who covers what; then
each fault gets a fork of its own, where the function's code is replaced and the covering tests run, quickest first,
until one fails. Asked for by `python -m tools.mutants.python`, which passes on what to do in `MUTANTS`, as JSON.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import json
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, NoReturn

import coverage
import libcst as cst
import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.support import servers
from tools.mutants.rules import ROOT, Fault, code_of, faults_of, key_of

CACHE = ROOT / ".cache" / "mutants"
ASKED = json.loads(os.environ.get("MUTANTS", "{}"))

SURVIVED, KILLED, NO_FAULT, BROKEN = 0, 1, 2, 3
# A fault may let a test wait for ever, or fill the memory.
_PATIENCE_S, _PATIENCE_FACTOR = 5.0, 10.0
_MEMORY = 4 << 30

settings.register_profile(
    "mutants",
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


class _Test:
    def __init__(self, item: pytest.Item, seconds: float) -> None:
        self.item, self.seconds = item, seconds


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # It has a thread, which a fork would not have.
    config.pluginmanager.set_blocked("progress")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    if session.testsfailed:
        raise session.Interrupted("collection failed")
    if not ASKED["server"]:
        return _all_forks(session)
    usual = servers.start
    with usual(servers.kinds()[-1]) as shared:
        # The fixture `server` is of a session, which each fork is: all of them get this one.
        def start(*args: Any, **options: Any) -> Any:
            asks = sys._getframe(1).f_code
            is_fixture = asks.co_name == "server" and asks.co_filename.endswith("tests/conftest.py")
            return contextlib.nullcontext(shared) if is_fixture else usual(*args, **options)

        servers.start = start  # type: ignore[assignment]
        return _all_forks(session)


def _all_forks(session: pytest.Session) -> bool:
    items = list(session.items)
    packages = [ROOT / each for each in ASKED["packages"]]
    records = _records(session, items, packages)
    tests, covering = _covering(items, records)
    # Trees of syntax are many objects that never become garbage.
    gc.disable()
    faults = _chosen(packages)
    functions = _functions()
    _say(f"{len(faults)} faults, {len(tests)} tests")
    _plant_all(faults, tests, covering, functions)
    return True


def _say(text: str) -> None:
    print(text, file=sys.__stdout__, flush=True)


# Who covers what


def _records(session: pytest.Session, items: Sequence[pytest.Item], packages: Sequence[Path]) -> dict[str, Any]:
    """Return `{test: {"seconds": ..., "lines": {file: [line]}}}`, from the cache for files that have not changed."""
    files: dict[Path, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[item.path].append(item)
    common = hashlib.sha256()
    for path in sorted(p for each in packages for p in _modules(each)):
        common.update(path.read_bytes())
    common.update(b"1" + os.environ.get("HYPOTHESIS_PROFILE", "").encode())
    places = {}
    for path in files:
        own = common.copy()
        own.update(path.read_bytes())
        own.update(",".join(item.nodeid for item in files[path]).encode())
        places[path] = CACHE / "cover" / f"{path.stem}-{own.hexdigest()[:16]}.json"
    missing = [path for path in files if not places[path].exists()]
    if missing:
        _say(f"looking who covers what: {len(missing)} files of tests")
        started = time.monotonic()
        (CACHE / "cover").mkdir(parents=True, exist_ok=True)
        pid = os.fork()
        if pid == 0:
            _in_child(functools.partial(_record, {path: files[path] for path in missing}, places, packages))
        _, status = os.waitpid(pid, 0)
        if status:
            raise session.Failed(f"the run under coverage ended with {status}")
        _say(f"  took {time.monotonic() - started:.0f} s")
    records: dict[str, Any] = {}
    for path in files:
        records |= json.loads(places[path].read_text())
    return records


def _record(files: dict[Path, list[pytest.Item]], places: dict[Path, Path], packages: Sequence[Path]) -> int:
    watcher = _Watcher()
    every = [item for items in files.values() for item in items]
    every[0].config.pluginmanager.register(watcher)
    for path, items in files.items():
        tracer = coverage.Coverage(data_file=None, config_file=False, source=[str(each) for each in packages])
        tracer.set_option("run:disable_warnings", ["no-data-collected", "module-not-imported", "already-imported"])
        found: dict[str, Any] = {}
        tracer.start()
        for item in items:
            watcher.bad = False
            tracer.switch_context(item.nodeid)
            # What a busy machine adds is not the test's; only those that wait for a server are measured by the wall.
            now = time.perf_counter if ASKED["server"] else time.process_time
            started = now()
            following = every[(every.index(item) + 1) % len(every)]
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None if following is every[0] else following)
            if not watcher.bad:
                found[item.nodeid] = {"seconds": round(now() - started, 4), "lines": {}}
        tracer.stop()
        data = tracer.get_data()
        for file in data.measured_files():
            for line, contexts in data.contexts_by_lineno(file).items():
                for context in contexts:
                    if context in found:
                        found[context]["lines"].setdefault(file, []).append(line)
        places[path].write_text(json.dumps(found))
        left_out = len(items) - len(found)
        if left_out:
            _say(f"  {path.name}: {left_out} tests failed or were skipped without any fault, left out")
    return 0


class _Watcher:
    """Sees whether a test failed or was skipped."""

    bad = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed":
            self.bad = True


class _Ending:
    """Ends the process at the first failure, before pytest has described it, which takes longer than most tests."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        failed = call.excinfo is not None and not isinstance(call.excinfo.value, pytest.skip.Exception)
        if failed and item.get_closest_marker("xfail") is None:
            os._exit(KILLED)


def _covering(
    items: Sequence[pytest.Item], records: dict[str, Any]
) -> tuple[list[_Test], dict[str, dict[int, list[int]]]]:
    """Return the tests, and by file and line the numbers of those that run it."""
    tests: list[_Test] = []
    covering: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    longest = ASKED["longest"]
    for item in items:
        record = records.get(item.nodeid)
        if record is None or record["seconds"] > longest:
            continue
        tests.append(_Test(item, record["seconds"]))
        for file, lines in record["lines"].items():
            for line in lines:
                covering[file][line].append(len(tests) - 1)
    return tests, covering


# Faults


def _modules(package: Path) -> list[Path]:
    return [each for each in sorted(package.rglob("*.py")) if each.name != "_lua.py" and "testing" not in each.parts]


def _chosen(packages: Sequence[Path]) -> list[Fault]:
    wanted = ASKED.get("modules") or []
    only, without = ASKED["only"], ASKED["without"]
    paths = [
        path for each in packages for path in _modules(each) if _is_wanted(path, wanted) and _is_wanted(path, only)
    ]
    paths = [path for path in paths if str(path.relative_to(ROOT)) not in without]
    faults = [fault for path in paths for fault in faults_of(path)]
    again = ASKED.get("again")
    if again is not None:
        known = {tuple(each) for each in again}
        names = {each[0] for each in known}
        faults = [each for each in faults if each.dotted in names and (each.dotted, *each.texts()) in known]
    if ASKED.get("sample") and ASKED["sample"] < len(faults):
        faults = random.Random(ASKED["seed"]).sample(faults, ASKED["sample"])
    return faults


def _is_wanted(path: Path, wanted: Sequence[str]) -> bool:
    return not wanted or any(str(path.relative_to(ROOT)).startswith(each) for each in wanted)


def _functions() -> dict[tuple[str, int, str], list[FunctionType]]:
    found: dict[tuple[str, int, str], list[FunctionType]] = defaultdict(list)
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename.startswith(str(ROOT)):
            found[key_of(each.__code__)].append(each)
    return found


def _plant_all(
    faults: Sequence[Fault],
    tests: Sequence[_Test],
    covering: dict[str, dict[int, list[int]]],
    functions: dict[tuple[str, int, str], list[FunctionType]],
) -> None:
    killers: dict[str, list[int]] = defaultdict(list)
    caches = [each for each in gc.get_objects() if isinstance(each, functools._lru_cache_wrapper)]
    gc.freeze()
    gc.enable()
    started = time.monotonic()
    counts = {"killed": 0, "survived": 0, "no test": 0, "no fault": 0}
    with Path(ASKED["results"]).open("a") as results:
        for number, fault in enumerate(faults, 1):
            if ASKED.get("seconds") and time.monotonic() - started > ASKED["seconds"]:
                _say(f"  the time is over after {number - 1} faults")
                break
            module = fault.function.module
            found = functions.get((module.file, fault.function.starts, fault.function.name), [])
            chosen = _order(_who(fault, covering[module.file]), tests, killers[fault.dotted])
            began = time.monotonic()
            outcome, killer = ("no test", None) if not chosen else _try(fault, found, tests, chosen, caches)
            counts[outcome] += 1
            if outcome == "no fault":
                continue
            if killer is not None:
                _to_front(killers[fault.dotted], killer)
            entry: dict[str, Any] = {"module": module.path, "outcome": outcome}
            entry["seconds"] = round(time.monotonic() - began, 3)
            if outcome != "killed":
                was, now = fault.texts()
                entry |= {"place": fault.place, "function": fault.dotted, "was": was, "now": now, "tests": len(chosen)}
            results.write(json.dumps(entry) + "\n")
            results.flush()
            if number % 200 == 0:
                speed = number / (time.monotonic() - started)
                _say(f"  {number} of {len(faults)}: {counts}, {speed:.1f} a second, now in {module.path}")


def _who(fault: Fault, lines: dict[int, list[int]]) -> set[int]:
    own = {test for line in range(fault.at.first, fault.at.last + 1) for test in lines.get(line, ())}
    if own:
        return own
    at = fault.function.at
    # A part of a longer statement has no line of its own, nor has a parameter's default.
    return {test for line in range(at.first, at.last + 1) for test in lines.get(line, ())}


def _order(who: Iterable[int], tests: Sequence[_Test], killers: Sequence[int]) -> list[int]:
    """Put those first that noticed other faults of the function, then the quickest; keep to a budget."""
    who = set(who)
    first = [each for each in killers if each in who]
    ordered = [*first, *sorted(who.difference(first), key=lambda each: tests[each].seconds)]
    budget, kept = float(ASKED["budget"]), []
    for each in ordered:
        kept.append(each)
        budget -= tests[each].seconds
        if budget < 0:
            break
    return kept


def _to_front(killers: list[int], test: int) -> None:
    with contextlib.suppress(ValueError):
        killers.remove(test)
    killers.insert(0, test)


def _try(
    fault: Fault,
    functions: Sequence[FunctionType],
    tests: Sequence[_Test],
    chosen: Sequence[int],
    caches: Sequence[Any],
) -> tuple[str, int | None]:
    reader, writer = os.pipe()
    begun = 0
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _in_child(functools.partial(_run, fault, functions, tests, chosen, caches, writer))
    os.close(writer)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    # What a test has started goes with it; the number is still its own as long as nobody has waited for it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.set_blocking(reader, False)
    with contextlib.suppress(BlockingIOError):
        begun = len(os.read(reader, 1 << 16))
    os.close(reader)
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else KILLED
    if code == BROKEN:
        raise RuntimeError(f"planting broke: {fault.place}")
    if code == NO_FAULT:
        return "no fault", None
    return ("survived", None) if code == SURVIVED else ("killed", chosen[max(begun - 1, 0)])


def _in_child(work: functools.partial[int]) -> NoReturn:
    code = BROKEN
    try:
        os.setsid()
        code = work()
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(code)


def _run(
    fault: Fault,
    functions: Sequence[FunctionType],
    tests: Sequence[_Test],
    chosen: Sequence[int],
    caches: Sequence[Any],
    writer: int,
) -> int:
    if not _plant(fault, functions):
        return NO_FAULT
    for each in caches:
        each.cache_clear()
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    items = [tests[each].item for each in chosen]
    items[0].config.pluginmanager.register(_Ending())
    for number, item in enumerate(items):
        os.write(writer, b".")
        most = _PATIENCE_S + _PATIENCE_FACTOR * tests[chosen[number]].seconds
        signal.setitimer(signal.ITIMER_PROF, most)
        # A machine that is busy otherwise makes a test that computes no slower than this.
        signal.setitimer(signal.ITIMER_REAL, most if ASKED["server"] else 6 * most)
        following = items[number + 1] if number + 1 < len(items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    return SURVIVED


def _plant(fault: Fault, functions: Sequence[FunctionType]) -> bool:
    module = fault.function.module
    code = code_of(fault.source(), module.file, fault.function)
    if code is None or not functions:
        return False
    planted = False
    for function in functions:
        if len(code.co_freevars) < len(function.__code__.co_freevars):
            code = code.replace(co_freevars=function.__code__.co_freevars)
        if code != function.__code__:
            planted = True
        function.__code__ = code
        if fault.parameter is not None:
            planted = _set_default(fault, function) or planted
    return planted


def _set_default(fault: Fault, function: FunctionType) -> bool:
    """Give the changed default to a function that has been made."""
    node = cst.Module(body=[]).code_for_node(fault.mutated)
    value = eval(node, function.__globals__)
    name = fault.parameter
    assert name is not None
    if function.__kwdefaults__ and name in function.__kwdefaults__:
        function.__kwdefaults__ = {**function.__kwdefaults__, name: value}
        return True
    code, defaults = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount]
    index = names.index(name) - (len(names) - len(defaults))
    function.__defaults__ = (*defaults[:index], value, *defaults[index + 1 :])
    return True
