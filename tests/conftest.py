"""What every test shares: servers, hypothesis profiles, and no silent skip where `CI` is set."""

import functools
import gc
import logging
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from bullmq_protocol.worker._shared import Shared
from tests.support import node, servers, trio_order
from tests.support.limits import Limits
from tests.support.progress import QUIET_S, Progress
from tests.support.saying import LOGGERS, Lines, check_errors

_TESTS = Path(__file__).parent
_WITHOUT_SERVER = ("unit", "property")
_NODE = ("oracle", "interop")
_ANY_PYTHON = ("oracle", "interop", "conformance", "property", "chaos", "unit", "monque")
"""Rooms that the newer Pythons leave out: programs of another language, files, and values that are the same on each."""
_OF_PYTHON = (
    *("test_apart", "test_codec", "test_extras", "test_facade_docs", "test_given_objects"),
    *("test_job", "test_kit", "test_logline", "test_observability", "test_parity", "test_public_names"),
    *("test_queue_spans", "test_servers", "test_stack", "test_time_limit", "test_tracing", "test_turns", "test_zones"),
)
"""Files of these that need them all the same: tasks, contexts, threads, signatures, tracebacks, extensions in C."""
_WHOLE_FILE = re.compile(r"^pytestmark = .*\bany_python\b", re.MULTILINE)
_LONG = (
    *("interop/test_schedulers", "server/test_faults_in_links", "oracle/test_batches", "server/test_worker"),
    *("interop/test_fleet", "chaos/test_fleet", "interop/test_bullmq_5_destroys", "oracle/test_relay"),
    *("oracle/test_vectors", "oracle/test_depth", "oracle/test_directed"),
    *("oracle/test_random", "interop/test_families", "interop/test_mixed_queue", "property/test_simulation"),
    *("interop/test_api", "server/test_losses", "server/test_isolation", "property/test_machine_stateful"),
    *("server/test_sentinel", "server/test_cluster", "server/test_events", "server/test_examples"),
    *("server/test_threads_faults", "interop/test_cron", "server/test_callbacks_tasks", "oracle/test_cost"),
    *("conformance/test_faults", "conformance/test_client"),
    *("oracle/test_schedule", "property/test_hostile", "server/test_worker_tasks", "server/test_flows"),
    *("server/test_model", "server/test_runner", "server/test_fleet", "server/test_relay", "monque/test_cron"),
    *("frameworks/test_board", "frameworks/test_web"),
    *("oracle/test_mutants", "property/test_values_properties"),
)
"""Files that take long, the longest first: begun at the end, they leave all but one process idle."""
_SHORT = ("unit", "")
_THREADS = (
    *("test_worker_threads", "test_threads_faults", "test_forks", "test_connection_threads", "test_deliveries"),
    "test_thread_pool",
)
_ADAPTERS = ("test_worker", "test_events", "test_hostile_handlers", "test_refusals", "test_slots")
_ADAPTER = re.compile(r"\b(asyncio|trio|threads)\b")
_NOT_COUNTED = (
    *("test_faults_in_links", "test_threads_faults", "test_isolation", "test_callbacks_tasks", "test_events_tasks"),
    *("test_broken_deliveries", "test_hostile_handlers", "test_hostile_jobs", "test_forks_tasks", "test_losses"),
    *("test_examples", "test_facade_examples", "test_thousand_callers_share_the_same_connections"),
)
"""Files and functions of tests/server that compute most: counting more than doubles that, and others run the same."""
_COUNTED = pytest.StashKey[frozenset[str]]()
_IN_CI = bool(os.environ.get("CI"))

# For pytest-timeout. Not in pyproject.toml, where a pytest without that plugin would stumble over it.
os.environ.setdefault("PYTEST_TIMEOUT", "180")

# How long an example takes is the machine's affair.
_ANY_TIME: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("brief", max_examples=15, **_ANY_TIME)
settings.register_profile("dev", max_examples=50, **_ANY_TIME)
settings.register_profile("ci", max_examples=100, print_blob=True, **_ANY_TIME)
settings.register_profile("night", max_examples=20_000, print_blob=True, **_ANY_TIME)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if _IN_CI else "dev"))


@pytest.fixture(autouse=True)
def _faults_of_the_machine_raise(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker contains for its users is loud here, but for the tests of just that (marked `contained`)."""
    if request.node.get_closest_marker("contained") is None:
        monkeypatch.setattr(Shared, "notify_fault", _raise)


def _raise(shared: Shared, error: Exception, job_id: str | None = None) -> None:
    raise error


@pytest.fixture(autouse=True)
def _errors_and_lines_say_all() -> Iterator[None]:
    """Each error that is made, and each line that is logged, is whole: tests look at few of them."""
    lines = Lines()
    for each in LOGGERS:
        logging.getLogger(each).addHandler(lines)
    with pytest.MonkeyPatch.context() as patch:
        check_errors(patch, lines.wrong)
        yield
    for each in LOGGERS:
        logging.getLogger(each).removeHandler(lines)
    assert not lines.wrong


@pytest.fixture(autouse=True, scope="module")
def _garbage_of_this_file_alone() -> None:
    """Whoever looks for garbage in a test looks at what this file has made, not at all that is there."""
    gc.collect()
    gc.freeze()


def _room(item: pytest.Item) -> str:
    return _room_of(item.path)


@functools.cache
def _room_of(path: Path) -> str:
    return path.relative_to(_TESTS).parts[0] if path.is_relative_to(_TESTS) else ""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--brief",
        action="store_true",
        help="leave out what does not depend on Python's version (any_python); any_server runs on the oldest",
    )
    parser.addoption(
        "--cover-once",
        action="store_true",
        help="with --cov: count each function of tests/server once in each adapter, since counting costs as much again",
    )
    parser.addoption(
        "--quiet-s",
        type=float,
        default=QUIET_S,
        help="after how many seconds without a finished test a line says what runs",
    )
    parser.addoption(
        "--switching",
        action="store_true",
        help="only the tests of threads, with a switch interval of one microsecond",
    )
    parser.addoption(
        "--trio-order",
        choices=trio_order.ORDERS,
        help="the order in which trio runs tasks that are due together; without it trio draws for each batch",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files unread of which the run wants nothing: each of its processes would read them all."""
    if collection_path.suffix != ".py" or not collection_path.is_relative_to(_TESTS):
        return None
    if config.getoption("switching") and collection_path.stem not in (*_THREADS, *_ADAPTERS):
        return True
    if config.getoption("brief") and (_is_of_any_python(collection_path) or _is_marked_whole(collection_path)):
        return True
    return None


def _is_of_any_python(path: Path) -> bool:
    return _room_of(path) in _ANY_PYTHON and path.stem not in _OF_PYTHON


def _is_marked_whole(path: Path) -> bool:
    return _WHOLE_FILE.search(path.read_text()) is not None


def _is_of_threads(item: pytest.Item) -> bool:
    """Whether it runs the library on threads: by its file, or by its adapter where it runs in each."""
    if item.path.stem in _THREADS:
        return True
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return item.path.stem in _ADAPTERS and params.get("adapter", ("",))[0] == "threads"


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Limits(), "limits")
    if config.getoption("switching"):
        sys.setswitchinterval(1e-6)
    if config.getoption("trio_order"):
        patch = pytest.MonkeyPatch()
        config.add_cleanup(patch.undo)
        trio_order.fix(config.getoption("trio_order"), patch)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(config.getoption("quiet_s")), "progress")
    # SIGTERM ends a run as Ctrl-C does, so that the servers it started end with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server" in metafunc.fixturenames:
        metafunc.parametrize("server", _servers_for(metafunc), indirect=True, scope="session")


def _servers_for(metafunc: pytest.Metafunc) -> tuple[str, ...]:
    brief, marker = metafunc.config.getoption("brief"), metafunc.definition.get_closest_marker
    if marker("any_server") is not None:
        return servers.chosen()[:1] if brief else servers.chosen()[-1:]
    return servers.kinds() if marker("every_server") is not None and not brief else servers.chosen()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among what lives as long as the process: it is much, and a full look takes a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if _room(item) in _NODE:
            item.add_marker(pytest.mark.node)
        if _is_of_any_python(item.path):
            item.add_marker(pytest.mark.any_python)
    if config.getoption("brief"):
        left_out = [item for item in items if item.get_closest_marker("any_python") is not None]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker("any_python") is None]
    if config.getoption("switching"):
        left_out = [item for item in items if not _is_of_threads(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _is_of_threads(item)]
    if config.getoption("cover_once") and items:
        items[0].session.stash[_COUNTED] = _once(items)
    if hasattr(config, "workerinput"):
        places = _order(Counter(item.path for item in items))
        items.sort(key=lambda item: places[item.path])
    if not _IN_CI or all(_room(item) in _WITHOUT_SERVER for item in items):
        return
    if not os.environ.get("BULLMQ_TEST_REDIS_URL"):
        asked = servers.kinds() if os.environ.get("BULLMQ_TEST_SERVERS") else servers.KINDS
        missing = [kind for kind in asked if kind not in servers.sources()]
        if missing:
            raise pytest.UsageError(f"CI is set and these servers are missing: {', '.join(missing)}")
    if not node.node_available() and any(item.get_closest_marker("node") for item in items):
        raise pytest.UsageError("CI is set and Node or npm is missing")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if item.config.getoption("cover_once"):
        _count_coverage(item.config, counted=item.nodeid in item.session.stash[_COUNTED])
    return (yield)


def _once(items: Iterable[pytest.Item]) -> frozenset[str]:
    """Choose of each function of tests/server one case in each adapter, the same whatever the order.

    None on trio where there is one on asyncio, which runs the same text.
    """
    found: dict[tuple[str, ...], str] = {}
    for item in items:
        if _room(item) == "server" and not {item.path.stem, getattr(item, "originalname", "")} & set(_NOT_COUNTED):
            function, _, case = item.nodeid.partition("[")
            place = (function, *sorted(set(_ADAPTER.findall(case))))
            found[place] = min(item.nodeid, found.get(place, item.nodeid))
    return frozenset(
        case for place, case in found.items() if place[1:] != ("trio",) or (place[0], "asyncio") not in found
    )


def _count_coverage(config: pytest.Config, *, counted: bool) -> None:
    controller = getattr(config.pluginmanager.getplugin("_cov"), "cov_controller", None)
    if controller is not None and controller.started != counted:
        (controller.resume if counted else controller.pause)()


def _order(sizes: Mapping[Path, int]) -> dict[Path, tuple[float, ...]]:
    """Return where each file comes in a run of several processes: no one shall wait long for another at the end.

    After the long files those of all rooms in turn, the large ones first, since interop waits where others compute.
    """
    rooms: dict[str, list[Path]] = {}
    for path in sorted(sizes, key=lambda path: (-sizes[path], path)):
        rooms.setdefault(_room_of(path), []).append(path)
    places: dict[Path, tuple[float, ...]] = {}
    for room, paths in rooms.items():
        for number, path in enumerate(paths):
            name = f"{room}/{path.stem}"
            if name in _LONG:
                places[path] = (0, _LONG.index(name))
            else:
                places[path] = (2 if room in _SHORT else 1, number / len(paths))
    return places


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    if item.get_closest_marker("node") is not None and not node.node_available():
        pytest.skip(f"{_room(item)}: Node and npm are not installed")
    with _skipping_without_tls():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    with _skipping_without_tls():
        yield


@contextmanager
def _skipping_without_tls() -> Iterator[None]:
    try:
        yield
    except servers.NoTls as error:
        if _IN_CI:
            raise
        pytest.skip(str(error))


def pytest_report_collectionfinish(items: Sequence[pytest.Item]) -> list[str]:
    lines = [f"hypothesis: {settings.default.max_examples if settings.default else '?'} examples"]
    if any(_room(item) not in _WITHOUT_SERVER for item in items):
        lines += [f"servers: {', '.join(_described()) or 'none'}", f"node: {node.node_version() or 'none'}"]
    return lines


def _described() -> Iterator[str]:
    known = servers.sources()
    for kind in servers.kinds():
        source = known.get(kind)
        yield f"{kind} ({source.name} {source.origin})" if source is not None else f"{kind} (external or missing)"


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Iterator[servers.Server]:
    """Give one server per kind, shared by the session: use queue names of your own, never flush it."""
    with servers.start(request.param) as started:
        yield started
