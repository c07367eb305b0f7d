"""Run the workers of one process until a signal or their end."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import threading
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from bullmq_cli.entry import ALL, CUT_SHORT, FAILED, GOOD_ORDER, UNREACHABLE, USAGE, Signals
from bullmq_cli.load import TargetError, load
from bullmq_cli.logs import name_jobs
from bullmq_cli.probes import file, port
from bullmq_protocol import VERSION
from bullmq_protocol.errors import (
    BullMQError,
    ServerError,
    ServerTooOld,
    TransportError,
    UsageError,
)

_log = logging.getLogger("bullmq_cli")

Loop = Literal["asyncio", "uvloop", "trio"]
LOOPS: tuple[Loop, ...] = ("asyncio", "uvloop", "trio")


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is to do. `child`: its number among the processes of one parent, None without a parent."""

    target: str
    burst: bool = False
    max_jobs: int | None = None
    concurrency: int | None = None
    loop: Loop | None = None
    health_host: str = ""
    health_port: int | None = None
    health_file: Path | None = None
    patience_ms: int = 60_000
    child: int | None = None
    lifeline: int | None = None


def serve(work: Work, signals: Signals) -> int:
    """Load the workers and run them; return the exit code, unless the process begins anew."""
    try:
        adapter, workers = load(work.target)
        run = _runner(adapter, work, workers)
        with ExitStack() as probes:
            _open_probes(work, workers, probes, signals)
            if work.lifeline is not None:
                threading.Thread(target=_end_with_parent, args=(work.lifeline,), daemon=True).start()
            queues = ", ".join(dict.fromkeys(worker.name for worker in workers))
            _log.info("bullmq-worker %s: queues %s, process %d", VERSION, queues, os.getpid())
            code = _code(partial(run, on_signal=signals.count), signals)
    except (TargetError, UsageError) as error:
        _log.error("%s", error)
        return USAGE
    if signals.restarts and not signals.is_cut_short:
        _log.info("restarting")
        signals.restart()
    _log.info("ended, exit code %d", code)
    return code


def _code(run: Any, signals: Signals) -> int:
    try:
        try:
            run()
        finally:
            signals.over = True
    except UsageError:
        raise
    except (TransportError, ServerTooOld, ServerError) as error:
        _log.error("the server cannot be used: %s", error)
        return UNREACHABLE
    except BullMQError as error:
        _log.error("a worker failed: %s", error)
        return FAILED
    except Exception:
        _log.exception("a worker failed")
        return FAILED
    return CUT_SHORT if signals.is_cut_short else GOOD_ORDER


def _runner(adapter: str, work: Work, workers: list[Any]) -> Any:
    """Return what runs the workers. Raises `TargetError` for what these cannot do."""
    package: Any = importlib.import_module(adapter)
    name_jobs(package.JobFilter())
    if work.concurrency is not None:
        for worker in workers:
            worker.concurrency = work.concurrency
    run = partial(package.run_workers, *workers, until="idle" if work.burst else None, max_jobs=work.max_jobs)
    if adapter == "bullmq_sync":
        if work.loop is not None:
            raise TargetError(f"--loop {work.loop}: workers of bullmq_sync run on threads, without an event loop")
        return run
    backend: dict[str, Any] = {"backend": "trio" if work.loop == "trio" else "asyncio"}
    if work.loop == "uvloop":
        backend["backend_options"] = {"use_uvloop": True}
    if work.loop in ("uvloop", "trio"):
        try:
            importlib.import_module(work.loop)
        except ModuleNotFoundError:
            raise TargetError(f"--loop {work.loop}: pip install {work.loop}") from None
    return partial(_run_in_loop, importlib.import_module("anyio").run, run, backend)


def _run_in_loop(run_loop: Any, run: Any, backend: dict[str, Any], on_signal: Any) -> None:
    run_loop(partial(run, on_signal=on_signal), **backend)


def _open_probes(work: Work, workers: list[Any], probes: ExitStack, signals: Signals) -> None:
    number = work.child or 0
    if work.health_port is not None:
        wanted = work.health_port + number if work.health_port else 0
        try:
            found = probes.enter_context(port(workers, work.health_host, wanted, work.patience_ms))
        except (OSError, OverflowError) as error:
            raise TargetError(f"--health-port {wanted}: {error}") from None
        _log.info("health at port %d", found)
    if work.health_file is not None:
        path = (
            work.health_file if work.child is None else work.health_file.with_name(f"{work.health_file.name}.{number}")
        )
        # A signal that came between these two would leave the file behind.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ALL)
        try:
            signals.leaving = probes.enter_context(file(workers, path, work.patience_ms))
        except OSError as error:
            raise TargetError(f"--health-file {path}: {error.strerror}") from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent(lifeline: int) -> None:
    """Wait until the parent has gone, and end in good order then."""
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGTERM)
