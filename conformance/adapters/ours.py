"""This library's client on asyncio, trio or threads: `python conformance/adapters/ours.py threads 5.62.0`.

The version says in which profile; `fleet` is the default one.

`bullmq_conformance/calls.py` has the requests; it is the reference, too, on threads.
"""

import importlib
import sys

import anyio
import anyio.to_thread

from bullmq_conformance.calls import Calls
from bullmq_conformance.lines import Methods, answer, finish
from bullmq_conformance.scripts import NAMED


def methods_of(backend: str, version: str) -> Methods:
    package = importlib.import_module("bullmq_sync" if backend == "threads" else "bullmq_anyio")
    return Calls(package, NAMED[version], backend).methods()


async def serve(methods: Methods) -> None:
    while text := await anyio.to_thread.run_sync(sys.stdin.readline):
        print(await answer(methods, text), flush=True)
    await methods["reset"]()


def serve_blocking(methods: Methods) -> None:
    for text in sys.stdin:
        print(finish(answer(methods, text)), flush=True)
    finish(methods["reset"]())  # type: ignore[arg-type]


if __name__ == "__main__":
    backend, version = sys.argv[1:]
    if backend == "threads":
        serve_blocking(methods_of(backend, version))
    else:
        anyio.run(serve, methods_of(backend, version), backend=backend)
