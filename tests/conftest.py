"""What every test shares: servers, hypothesis profiles, and no silent skip where `CI` is set."""

import functools
import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from bullmq_protocol.worker.machine import WorkerMachine
from tests.support import node, servers
from tests.support.limits import Limits
from tests.support.progress import QUIET_S, Progress

_TESTS = Path(__file__).parent
_WITHOUT_SERVER = ("unit", "property")
_NODE = ("oracle", "interop")
_LONG = (
    *("property/test_values_properties", "interop/test_schedulers", "oracle/test_schedule", "server/test_worker"),
    *("oracle/test_directed", "interop/test_mixed_queue", "oracle/test_depth", "property/test_machine_stateful"),
    *("oracle/test_batches", "server/test_callbacks_tasks", "property/test_hostile", "server/test_worker_tasks"),
    *("oracle/test_machine", "server/test_events", "server/test_losses", "oracle/test_mutants", "oracle/test_vectors"),
    *("interop/test_api", "server/test_threads_faults", "server/test_isolation", "property/test_simulation"),
    *("server/test_sentinel", "oracle/test_random", "server/test_flows", "server/test_cluster", "server/test_examples"),
)
"""Files that take long, the longest first: begun at the end, they leave all but one process idle."""
_SHORT = ("unit", "")
_THREADS = (
    *("test_worker_threads", "test_threads_faults", "test_forks", "test_connection_threads", "test_deliveries"),
    "test_crew",
)
_COLOURS = ("test_worker", "test_events", "test_hostile_handlers", "test_refusals", "test_slots")
_IN_CI = bool(os.environ.get("CI"))

# For pytest-timeout. Not in pyproject.toml, where a pytest without that plugin would stumble over it.
os.environ.setdefault("PYTEST_TIMEOUT", "180")

# How long an example takes is the machine's affair.
_ANY_TIME: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", max_examples=50, **_ANY_TIME)
settings.register_profile("ci", max_examples=200, print_blob=True, **_ANY_TIME)
settings.register_profile("night", max_examples=20_000, print_blob=True, **_ANY_TIME)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if _IN_CI else "dev"))


@pytest.fixture(autouse=True)
def _faults_of_the_machine_raise(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker contains for its users is loud here, but for the tests of just that (marked `contained`)."""
    if request.node.get_closest_marker("contained") is None:
        monkeypatch.setattr(WorkerMachine, "_tell_of", _raise)


def _raise(machine: WorkerMachine, error: Exception, job_id: str | None = None) -> None:
    raise error


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
        "--cover-oldest",
        action="store_true",
        help="with --cov: count only what tests/server runs on the oldest server, since counting costs as much again",
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


def _is_of_threads(item: pytest.Item) -> bool:
    """Whether it runs the library on threads: by its file, or by its colour where it runs in each."""
    if item.path.stem in _THREADS:
        return True
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return item.path.stem in _COLOURS and params.get("colour", ("",))[0] == "threads"


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Limits(), "limits")
    if config.getoption("switching"):
        sys.setswitchinterval(1e-6)
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
        if _room(item) == "oracle":
            item.add_marker(pytest.mark.any_python)
    if config.getoption("brief"):
        left_out = [item for item in items if item.get_closest_marker("any_python") is not None]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker("any_python") is None]
    if config.getoption("switching"):
        left_out = [item for item in items if not _is_of_threads(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _is_of_threads(item)]
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
    if item.config.getoption("cover_oldest"):
        _count_coverage(
            item.config, counted=_room(item) == "server" and _param(item, "server") in (None, *servers.kinds()[:1])
        )
    return (yield)


def _param(item: pytest.Item, name: str) -> Any:
    return item.callspec.params.get(name) if isinstance(item, pytest.Function) and hasattr(item, "callspec") else None


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
