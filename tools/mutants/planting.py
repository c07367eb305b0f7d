"""A plugin of pytest that plants faults in place of running the tests: `pytest -p tools.mutants.planting`.

pytest imports and collects once. The tests are first run in a fork, under coverage, which tells who covers what; then
each fault gets a fork of its own, where the function's code is replaced and the covering tests run, quickest first,
until one fails (without a server, many faults in a row share a fork). Asked for by `python -m tools.mutants.python`,
which passes on what to do in `MUTANTS`, as JSON.

A fault counts as noticed only if that test fails with it and then passes without it, so that neither a test that cannot
stand where it runs, nor a process or a server that an earlier fault has spoilt, notices anything. Outcomes are kept
(`kept.py`) by what the function and the tests are.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
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
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, NoReturn, TextIO

import coverage
import libcst as cst
import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.support import servers
from tools.mutants.kept import Kept, digest
from tools.mutants.rules import ROOT, Fault, code_with, faults_of, key_of
from tools.mutants.types import refused

ASKED = json.loads(os.environ.get("MUTANTS", "{}"))
CACHE = Path(ASKED.get("cache", ROOT / ".cache" / "mutants"))

SURVIVED, KILLED, NO_FAULT, BROKEN = 0, 1, 2, 3
_ENDS_PYTEST = (KeyboardInterrupt, pytest.exit.Exception)
CHUNK = 50 if not ASKED.get("server") else 20
"""This many faults are planted in one process, if nothing goes wrong in it."""
# A fault may let a test wait for ever, or fill the memory.
_PATIENCE_S, _PATIENCE_FACTOR = (5.0, 5.0) if ASKED.get("server") else (2.0, 10.0)
_MEMORY = 4 << 30
_PR_SET_CHILD_SUBREAPER = 36

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
    def __init__(self, item: pytest.Item, seconds: float, digest: str, lines: dict[str, list[int]]) -> None:
        self.item, self.seconds, self.digest = item, seconds, digest
        self.function = item.nodeid.partition("[")[0]
        # Who covers what runs in the child is not known.
        self.forks = item.path.stem == "test_forks"
        most = sum(map(len, lines.values()))
        self.shares = {file: len(found) / most for file, found in lines.items()}
        """How much of what it runs lies in a file."""

    def price(self, file: str) -> float:
        """Tell which tests of a file to ask first: what takes little time, and looks at little else."""
        return (self.seconds + 0.005) / self.shares.get(file, 1)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # It has a thread, which a fork would not have.
    config.pluginmanager.set_blocked("progress")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    if session.testsfailed:
        raise session.Interrupted("collection failed")
    if not ASKED["server"]:
        return _all_forks(session, None)
    usual = servers.start
    _adopt()
    with usual(servers.kinds()[-1]) as shared:
        # The fixture `server` is of a session, which each fork is: all of them get this one.
        def start(*args: Any, **options: Any) -> Any:
            asks = sys._getframe(1).f_code
            is_fixture = asks.co_name == "server" and asks.co_filename.endswith("tests/conftest.py")
            if is_fixture:
                return contextlib.nullcontext(shared)
            # The programs from wheels know no TLS.
            return usual(*(args or (ASKED["for_tls"],)), **options) if options.get("tls") else usual(*args, **options)

        servers.start = start  # type: ignore[assignment]
        return _all_forks(session, shared)


def _all_forks(session: pytest.Session, server: servers.Server | None) -> bool:
    items = list(session.items)
    packages = [ROOT / each for each in ASKED["packages"]]
    records = _records(session, items, packages)
    tests, covering = _covering(items, records)
    # Trees of syntax are many objects that never become garbage. What was frozen would not be found.
    gc.disable()
    gc.unfreeze()
    faults = _chosen(packages)
    _say(f"{len(faults)} faults, {len(tests)} tests")
    _Field(tests, covering, server).plant_all(faults)
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
        if _is_failure(item, call):
            os._exit(KILLED)


class _Noticing:
    """Notes a failure in place of describing it."""

    failed = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> pytest.TestReport | None:
        if not _is_failure(item, call):
            return None
        self.failed = True
        return pytest.TestReport(item.nodeid, item.location, {}, "failed", "failed", call.when)


def _is_failure(item: pytest.Item, call: pytest.CallInfo[None]) -> bool:
    failed = call.excinfo is not None and not isinstance(call.excinfo.value, pytest.skip.Exception)
    return failed and item.get_closest_marker("xfail") is None


def _covering(
    items: Sequence[pytest.Item], records: dict[str, Any]
) -> tuple[list[_Test], dict[str, dict[int, list[int]]]]:
    """Return the tests, and by file and line the numbers of those that run it."""
    tests: list[_Test] = []
    covering: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    longest = max(ASKED["longest"], ASKED["longest_more"])
    texts = {path: _Texts(path) for path in {item.path for item in items}}
    for item in items:
        record = records.get(item.nodeid)
        if record is None or record["seconds"] > longest:
            continue
        tests.append(_Test(item, record["seconds"], texts[item.path].digest(item), record["lines"]))
        for file, lines in record["lines"].items():
            for line in lines:
                covering[file][line].append(len(tests) - 1)
    return tests, covering


# Faults


class _Texts:
    """What the tests of a file are: each its own text, and what they share."""

    def __init__(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        self._own: dict[str, str] = {}
        shared = []
        for node in ast.parse(text).body:
            segment = ast.get_source_segment(text, node, padded=True) or ""
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
                self._own[node.name] = segment + "".join(map(ast.unparse, node.decorator_list))
            else:
                shared.append(segment)
        self._shared = "\n".join(shared)

    def digest(self, item: pytest.Item) -> str:
        """Return a digest that another test appended to the file does not change."""
        name = getattr(item, "originalname", None) or item.name
        return digest(item.nodeid, self._own.get(name, ""), self._shared)


def _modules(package: Path) -> list[Path]:
    return [
        each
        for each in sorted(package.rglob("*.py"))
        if not each.name.startswith("_lua") and "testing" not in each.parts
    ]


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
    if ASKED.get("sample") or ASKED.get("seconds"):
        # Those that the time is enough for shall be a sample of all.
        faults = random.Random(ASKED["seed"]).sample(faults, min(ASKED.get("sample") or len(faults), len(faults)))
    return faults


def _is_wanted(path: Path, wanted: Sequence[str]) -> bool:
    return not wanted or any(str(path.relative_to(ROOT)).startswith(each) for each in wanted)


def _functions() -> dict[tuple[str, int, str], list[FunctionType]]:
    found: dict[tuple[str, int, str], list[FunctionType]] = defaultdict(list)
    for each in gc.get_objects():
        # Some objects of tests refuse isinstance.
        if type(each) is FunctionType and each.__code__.co_filename.startswith(str(ROOT)):
            found[key_of(each.__code__)].append(each)
    return found


class _Open:
    """A fault, and what is known of it."""

    outcome = "survived"
    is_new = False
    """Whether tests were asked in this run."""

    def __init__(self, fault: Fault, who: set[int], asked: set[int]) -> None:
        self.fault, self.who, self.asked = fault, who, asked
        """Who covers it, and who of these was asked."""
        self.left: list[int] = []
        """Who is to be asked now."""


class _Field:
    """The tests, who covers what, and what is known of the faults."""

    def __init__(
        self, tests: Sequence[_Test], covering: dict[str, dict[int, list[int]]], server: servers.Server | None
    ) -> None:
        self._tests, self._covering, self._server = tests, covering, server
        self._functions = _functions()
        self._caches = [each for each in gc.get_objects() if type(each) is functools._lru_cache_wrapper]
        self._kept = Kept(Path(ASKED["kept"]), fresh=ASKED["fresh"])
        self._forking = {number for number, test in enumerate(tests) if test.forks}
        self._numbers = {test.digest: number for number, test in enumerate(tests)}
        self._killers: dict[str, list[int]] = defaultdict(list)
        self._good: dict[str, Counter[int]] = defaultdict(Counter)
        """How many faults of a module each test noticed."""
        self._sound: set[int] = set()
        """Tests that pass in a fork of their own; asked once where no server changes between."""
        self._unsound: set[int] = set()
        self._counts: Counter[str] = Counter()
        self.again = 0
        """How many faults were tested."""

    def plant_all(self, faults: Sequence[Fault]) -> None:
        """Ask the quickest tests about all faults, the type checker about those that survive, and more tests about
        what that lets pass, too."""
        gc.freeze()
        gc.enable()
        # Two rules may come to the same text.
        seen: set[str] = set()
        self._total = len(faults)
        self._started = self._told = time.monotonic()
        alive: list[_Open] = []
        with Path(ASKED["results"]).open("a") as results:
            for at in range(0, len(faults), CHUNK):
                chunk = {each.digest: each for each in faults[at : at + CHUNK] if each.digest not in seen}
                seen |= chunk.keys()
                alive += self._settled(self._quickly(chunk.values()), results)
                self._tell(done=at + CHUNK >= len(faults))
                if self._is_late():
                    _say(f"  the time is over after {self._counts.total() + len(alive)} of {len(faults)} faults")
                    break
            if ASKED["types"] and alive:
                wrong = refused([each.fault for each in alive], Path(ASKED["types"]))
                for one in alive:
                    one.outcome = "refused" if one.fault.digest in wrong else one.outcome
                alive = self._settled(alive, results)
                _say(f"  {len(alive)} survive the quickest tests and the type checker")
            for at in range(0, len(alive), CHUNK):
                chosen = alive[at : at + CHUNK]
                if not self._is_late():
                    for one in chosen:
                        one.left = self._more(one)
                    self._ask([each for each in chosen if each.left])
                for one in self._settled(chosen, results):
                    self._write(one, results)
                self._tell(done=at + CHUNK >= len(alive))
            results.write(json.dumps({"ended": True}) + "\n")
        if self._unsound:
            _say(f"  {len(self._unsound)} tests failed without any fault, their word was not taken:")
            for each in sorted(self._unsound):
                _say(f"    {self._tests[each].item.nodeid}")

    def _is_late(self) -> bool:
        return bool(ASKED.get("seconds")) and time.monotonic() - self._started > ASKED["seconds"]

    def _tell(self, *, done: bool) -> None:
        if time.monotonic() - self._told > 20 or done:
            self._told = time.monotonic()
            found = ", ".join(f"{count} {outcome}" for outcome, count in self._counts.items())
            speed = self.again / (self._told - self._started)
            _say(
                f"  {self._counts.total()} of {self._total} judged: {found}; "
                f"{self.again} tested now, {speed:.1f} a second"
            )

    def _settled(self, open_ones: Iterable[_Open], results: TextIO) -> list[_Open]:
        """Write down what has been judged, and return the others."""
        left = []
        for one in open_ones:
            if one.outcome == "survived":
                left.append(one)
            else:
                self._write(one, results)
        results.flush()
        return left

    def _write(self, one: _Open, results: TextIO) -> None:
        fault, outcome = one.fault, one.outcome
        self._counts[outcome] += 1
        if outcome == "no fault":
            return
        entry: dict[str, Any] = {"module": fault.function.module.path, "outcome": outcome}
        if outcome != "killed" or fault.dotted in ASKED["listed"]:
            was, now = fault.texts()
            entry |= {"place": fault.place, "function": fault.dotted}
            entry |= {"was": was, "now": now, "tests": len(one.asked)}
        results.write(json.dumps(entry) + "\n")

    def _quickly(self, faults: Iterable[Fault]) -> list[_Open]:
        """Ask the quickest tests of each, unless it is known what they say."""
        found: list[_Open] = []
        for fault in faults:
            who = (_who(fault, self._covering[fault.function.module.file]) or self._forking) - self._unsound
            quick = {each for each in who if self._tests[each].seconds <= ASKED["longest"]}
            chosen = _order(quick, self._tests, self._killers[fault.dotted], fault.function.module.file)
            known = self._kept.of(fault.digest, {self._tests[each].digest for each in who})
            asked = {self._numbers[each] for each in known.asked if each in self._numbers}
            one = _Open(fault, who, asked)
            if not who or not self._living(fault):
                one.outcome = "no function" if who else "no test"
            elif known.outcome in ("killed", "no fault"):
                one.outcome = known.outcome
                if known.by:
                    self._noticed(fault, self._numbers[known.by])
            else:
                one.left = [each for each in chosen if each not in asked]
            found.append(one)
        self._ask([each for each in found if each.left])
        return found

    def _ask(self, open_ones: Sequence[_Open]) -> None:
        todo = [(each.fault, each.left) for each in open_ones]
        judged = self._together(todo) if self._server is None else self._one_by_one(todo)
        for one, (outcome, killer) in zip(open_ones, judged, strict=True):
            one.asked.update(one.left)
            self.again += not one.is_new
            one.outcome, one.is_new = outcome, True
            if killer is not None:
                self._noticed(one.fault, killer)
                self._kept.keep(one.fault.digest, outcome, by=self._tests[killer].digest)
            else:
                self._kept.keep(one.fault.digest, outcome, asked={self._tests[each].digest for each in one.asked})

    def _noticed(self, fault: Fault, killer: int) -> None:
        _to_front(self._killers[fault.dotted], killer)
        self._good[fault.function.module.path][killer] += 1

    def _more(self, one: _Open) -> list[int]:
        """Choose of the tests that were not asked: those that noticed other faults of the module, the most first, then
        one case of each test function before another of any, within a budget for all that is asked."""
        file, good = one.fault.function.module.file, self._good[one.fault.function.module.path]
        left = sorted(one.who - one.asked - self._unsound, key=lambda each: self._tests[each].price(file))
        functions = Counter(self._tests[each].function for each in one.asked)
        place: dict[int, int] = {}
        for each in left:
            place[each] = functions[self._tests[each].function]
            functions[self._tests[each].function] += 1
        budget, more = ASKED["more"] - sum(self._tests[each].seconds for each in one.asked), []
        for each in sorted(left, key=lambda each: (-good[each], place[each])):
            budget -= self._tests[each].seconds
            if budget >= 0:
                more.append(each)
        return more

    def _together(self, todo: Sequence[tuple[Fault, list[int]]]) -> Iterator[tuple[str, int | None]]:
        """Plant one fault after the other in one fork: a fork for each costs ten times what its tests do.

        Its word is not taken where it ends too soon, as it does when a test fails without the fault, too: forks of
        that fault's own decide, and another fork goes on.
        """
        done = 0
        while done < len(todo):
            reader, writer = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(reader)
                _in_child(functools.partial(self._work, todo[done:], writer))
            os.close(writer)
            with os.fdopen(reader) as lines:
                for line in lines:
                    outcome, killer = json.loads(line)
                    done += 1
                    yield outcome, killer
            if os.waitstatus_to_exitcode(_end(pid)) == BROKEN:
                raise RuntimeError(f"planting broke: {todo[done][0].place}")
            if done < len(todo):
                yield self._judged(*todo[done])
                done += 1

    def _work(self, todo: Sequence[tuple[Fault, list[int]]], writer: int) -> int:
        _settle()
        noticing = _Noticing()
        self._tests[0].item.config.pluginmanager.register(noticing)
        for fault, chosen in todo:
            functions = self._living(fault)
            right = [(each, each.__code__, each.__defaults__, each.__kwdefaults__) for each in functions]
            outcome, killer = "survived", None
            if not _plant(fault, functions):
                outcome = "no fault"
            else:
                self._clear()
                first = [each for each in self._killers[fault.dotted] if each in chosen]
                try:
                    for each in (*first, *(each for each in chosen if each not in first)):
                        if not self._passes_here(each, noticing):
                            outcome, killer = "killed", each
                            break
                except _ENDS_PYTEST:
                    # What the test had made is not taken down: no other may run here.
                    return SURVIVED
            for function, code, defaults, named in right:
                function.__code__, function.__defaults__, function.__kwdefaults__ = code, defaults, named
            self._clear()
            if killer is not None:
                if not self._passes_here(killer, noticing):
                    return SURVIVED
                _to_front(self._killers[fault.dotted], killer)
            os.write(writer, f"{json.dumps((outcome, killer))}\n".encode())
        return SURVIVED

    def _clear(self) -> None:
        for each in self._caches:
            each.cache_clear()

    def _passes_here(self, number: int, noticing: _Noticing) -> bool:
        test = self._tests[number]
        noticing.failed = False
        _limit(test)
        test.item.config.hook.pytest_runtest_protocol(item=test.item, nextitem=None)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        return not noticing.failed

    def _one_by_one(self, todo: Sequence[tuple[Fault, list[int]]]) -> Iterator[tuple[str, int | None]]:
        """Give each fault a fork of its own, and one to all the tests that noticed some, to see them pass."""
        tried = [self._try(*each) for each in todo]
        killers = sorted({killer for _, killer in tried if killer is not None})
        sound = not killers or self._passes(killers)
        for one, (outcome, killer) in zip(todo, tried, strict=True):
            yield (outcome, killer) if sound or killer is None else self._judged(*one)

    def _judged(self, fault: Fault, chosen: list[int]) -> tuple[str, int | None]:
        """Ask tests until one notices the fault that passes without it."""
        while chosen:
            outcome, killer = self._try(fault, chosen)
            if killer is None:
                return outcome, None
            if self._passes([killer]):
                return outcome, killer
            self._unsound.add(killer)
            chosen = [each for each in chosen if each != killer]
        return "survived", None

    def _passes(self, chosen: Sequence[int]) -> bool:
        """Tell whether tests pass in a fork without any fault."""
        if self._server is None and len(chosen) == 1 and chosen[0] in self._sound:
            return True
        passes = self._try(None, chosen)[1] is None
        if not passes and self._server is not None:
            self._server.kill()
            self._server.restart()
            passes = self._try(None, chosen)[1] is None
        if passes and len(chosen) == 1:
            self._sound.add(chosen[0])
        return passes

    def _living(self, fault: Fault) -> list[FunctionType]:
        at = fault.function
        return self._functions.get((at.module.file, at.starts, at.name), [])

    def _try(self, fault: Fault | None, chosen: Sequence[int]) -> tuple[str, int | None]:
        found = self._living(fault) if fault is not None else []
        return _try(fault, found, self._tests, chosen, self._caches)


def _who(fault: Fault, lines: dict[int, list[int]]) -> set[int]:
    own = {test for line in range(fault.at.first, fault.at.last + 1) for test in lines.get(line, ())}
    if own:
        return own
    at = fault.function.at
    # A part of a longer statement has no line of its own, nor has a parameter's default.
    return {test for line in range(at.first, at.last + 1) for test in lines.get(line, ())}


def _order(who: Iterable[int], tests: Sequence[_Test], killers: Sequence[int], file: str) -> list[int]:
    """Put those first that noticed other faults of the function, then the quick and special; keep to a budget."""
    who = set(who)
    first = [each for each in killers if each in who]
    ordered = [*first, *sorted(who.difference(first), key=lambda each: tests[each].price(file))]
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
    fault: Fault | None,
    functions: Sequence[FunctionType],
    tests: Sequence[_Test],
    chosen: Sequence[int],
    caches: Sequence[Any],
) -> tuple[str, int | None]:
    reader, writer = os.pipe()
    begun = 0
    before = _children()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _in_child(functools.partial(_run, fault, functions, tests, chosen, caches, writer))
    os.close(writer)
    status = _end(pid)
    _reap(before)
    os.set_blocking(reader, False)
    with contextlib.suppress(BlockingIOError):
        begun = len(os.read(reader, 1 << 16))
    os.close(reader)
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else KILLED
    if code == BROKEN:
        raise RuntimeError(f"planting broke: {fault.place if fault is not None else 'no fault'}")
    if code == NO_FAULT:
        return "no fault", None
    return ("survived", None) if code == SURVIVED else ("killed", chosen[max(begun - 1, 0)])


def _adopt() -> None:
    """Become the parent of what forks leave: the servers of tests that end with their process, a dozen of them for one
    fault in a cluster, have a session of their own and would run on."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _reap(before: set[int]) -> None:
    """End the children that have come since."""
    for each in _children() - before:
        os.kill(each, signal.SIGKILL)
        os.waitpid(each, 0)


def _children() -> set[int]:
    """Return the processes whose parent is this one."""
    own, found = str(os.getpid()), set()
    for each in Path("/proc").iterdir():
        # It may end meanwhile.
        with contextlib.suppress(OSError):
            if each.name.isdigit() and (each / "stat").read_text().rpartition(")")[2].split()[1] == own:
                found.add(int(each.name))
    return found


def _end(pid: int) -> int:
    """Await a fork, and give its status."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    # What a test has started goes with it; the number is still its own as long as nobody has waited for it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


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
    fault: Fault | None,
    functions: Sequence[FunctionType],
    tests: Sequence[_Test],
    chosen: Sequence[int],
    caches: Sequence[Any],
    writer: int,
) -> int:
    if fault is not None and not _plant(fault, functions):
        return NO_FAULT
    for each in caches:
        each.cache_clear()
    _settle()
    items = [tests[each].item for each in chosen]
    items[0].config.pluginmanager.register(_Ending())
    for number, item in enumerate(items):
        os.write(writer, b".")
        _limit(tests[chosen[number]])
        following = items[number + 1] if number + 1 < len(items) else None
        try:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        except _ENDS_PYTEST:
            return KILLED
    return SURVIVED


def _settle() -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)


def _limit(test: _Test) -> None:
    """End the process when the test that begins takes much longer than without a fault."""
    most = _PATIENCE_S + _PATIENCE_FACTOR * test.seconds
    signal.setitimer(signal.ITIMER_PROF, most)
    # A machine that is busy otherwise makes a test that computes no slower than this.
    signal.setitimer(signal.ITIMER_REAL, most if ASKED["server"] else 6 * most)


def _plant(fault: Fault, functions: Sequence[FunctionType]) -> bool:
    code = code_with(fault)
    if code is None:
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
