"""Every example in the docstrings of the facade runs, in each adapter, and shows what it promises.

An example is given what it names (`queue`, `job`, `failed`, `worker`, ...), made anew in a queue of its own, and the
public names of the packages.
"""

import inspect
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import ModuleType
from typing import Any
from uuid import uuid4

import anyio
import anyio.to_thread
import pytest

import bullmq_anyio
import bullmq_protocol
import bullmq_sync
from bullmq_protocol import FlowNode, JobOptions, errors
from bullmq_protocol.events import stream
from bullmq_protocol.operations import read_dependencies
from bullmq_protocol.testing import clock
from bullmq_protocol.worker import notices
from tests.support.adapters import Adapter
from tests.support.docstrings import Documented, documented, examples, needed, play
from tests.support.servers import Server

pytestmark = [pytest.mark.any_server, pytest.mark.any_python]

_LIMIT_S = 30
_NAMES: dict[str, list[str]] = {}
for _each in documented():
    if _each.package is bullmq_anyio and examples(_each.text):
        _NAMES.setdefault(_each.kind, []).append(_each.name)
_TEXTS = {(each.package, each.kind, each.name): each for each in documented()}
_PUBLIC: tuple[ModuleType, ...] = (bullmq_protocol, errors, stream, notices, read_dependencies, clock)
_OTHER_NAMES = {"aclose": "close"}


class Stage:
    """What examples name. Each is made when an example asks for it, those that the worker has had first."""

    def __init__(self, adapter: Adapter, url: str, left: AsyncExitStack) -> None:
        self._adapter = adapter
        self._place = {"connection": url, "prefix": f"examples-{uuid4().hex[:12]}"}
        self._left = left
        self._kept: dict[str, Any] = {}

    async def given(self, names: set[str]) -> dict[str, Any]:
        made = {name: await getattr(self, name)() for name in self.makers if name in names}
        return {name: getattr(value, "_target", value) for name, value in made.items()}

    async def queue(self) -> Any:
        return self._keep("queue", lambda: self._adapter.Queue("mail", **self._place))

    async def worker(self) -> Any:
        return self._keep("worker", lambda: self._adapter.Worker("mail", send, **self._place))

    async def router(self) -> Any:
        return self._adapter.Router()

    async def events(self) -> Any:
        return self._keep("events", lambda: self._adapter.QueueEvents("mail", last_event_id="0-0", **self._place))

    async def producer(self) -> Any:
        return self._keep("producer", lambda: self._adapter.QueueEventsProducer("mail", **self._place))

    async def flows(self) -> Any:
        return self._keep("flows", lambda: self._adapter.FlowProducer(**self._place))

    async def relay(self) -> Any:
        return self._keep("relay", lambda: self._adapter.Relay(**self._place))

    async def transport(self) -> Any:
        if self._adapter.name == "threads":
            made = bullmq_sync.connect(self._place["connection"])
            self._left.push_async_callback(anyio.to_thread.run_sync, made.close)
            return made
        return self._keep("transport", lambda: bullmq_anyio.connect(self._place["connection"]))

    async def job(self) -> Any:
        return await self._add()

    async def delayed(self) -> Any:
        return await self._add(JobOptions(delay=60_000))

    async def urgent(self) -> Any:
        return await self._add(JobOptions(priority=1))

    async def active(self) -> Any:
        await self._add()
        return await (await self._hand()).get_next_job(block=False)

    async def completed(self) -> Any:
        job = await self.active()
        await (await self._hand()).complete(job, "sent to ada")
        await job.refresh()
        return job

    async def failed(self) -> Any:
        job = await self.active()
        await (await self._hand()).fail(job, ValueError("no such address"))
        await job.refresh()
        return job

    async def parent(self) -> Any:
        return (await self._flow()).job

    async def child(self) -> Any:
        return (await self._flow()).children[-1].job

    async def _flow(self) -> Any:
        """A book whose first page is done, whose second failed, which is ignored, and whose third waits."""
        if "flow" not in self._kept:
            ignored = JobOptions(ignore_dependency_on_failure=True)
            pages = [FlowNode("page", "mail", {"number": number}, ignored) for number in (1, 2, 3)]
            self._kept["flow"] = await (await self.flows()).add(FlowNode("book", "mail", children=pages))
            hand = await self._hand()
            await hand.complete(await hand.get_next_job(block=False), 250)
            await hand.fail(await hand.get_next_job(block=False), ValueError("torn out"))
        return self._kept["flow"]

    async def _add(self, options: JobOptions | None = None) -> Any:
        return await (await self.queue()).add("welcome", {"to": "ada"}, options)

    async def _hand(self) -> Any:
        return self._keep("hand", lambda: self._adapter.Worker("mail", **self._place))

    def _keep(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._kept:
            self._kept[name] = made = make()
            self._left.push_async_callback(made.aclose)
        return self._kept[name]

    makers = (
        *("completed", "failed", "active", "parent", "child", "job", "delayed", "urgent"),
        *("queue", "worker", "events", "producer", "flows", "transport", "relay", "router"),
    )


async def send(job: Any) -> str:
    return f"sent to {job.data['to']}"


def greeted(job: Any) -> str:
    return f"hello {job.data['to']}"


def public_names(package: ModuleType) -> dict[str, Any]:
    return {
        name: value
        for module in (*_PUBLIC, package, package.relay, package.testing)
        # Names that are loaded when they are first asked for are listed there alone.
        for name in {**vars(module), **dict.fromkeys(getattr(module, "__all__", ()))}
        if not name.startswith("_") and not inspect.ismodule(value := getattr(module, name))
    }


@pytest.mark.parametrize("kind", sorted(_NAMES), ids=lambda part: part or "functions")
async def test_the_examples_show_what_they_promise(kind: str, adapter: Adapter, server: Server) -> None:
    in_threads = adapter.name == "threads"
    package = bullmq_sync if in_threads else bullmq_anyio
    wrong: dict[str, list[str]] = {}
    for name in _NAMES[kind]:
        found: Documented = _TEXTS[package, kind, _OTHER_NAMES.get(name, name) if in_threads else name]
        steps = examples(found.text)
        try:
            with anyio.fail_after(_LIMIT_S):
                async with AsyncExitStack() as left:
                    given = await Stage(adapter, server.url, left).given(needed(steps))
                    greet = greeted if in_threads else send
                    names = public_names(package) | {"send": send, "greet": greet, "url": server.url} | given
                    wrong[name] = await play(steps, names, in_threads=in_threads)
        except Exception as error:
            error.add_note(f"in the example of {kind} {name}")
            raise
    assert {name: each for name, each in wrong.items() if each} == {}
