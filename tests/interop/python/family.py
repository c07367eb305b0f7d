"""Adds and reads flows, waits for jobs, reads metrics and events; the lines are those of node/family.js."""

import json
import sys
import time
from typing import Any

import anyio
import msgspec

from bullmq_conformance.words import node_of, options_of
from bullmq_protocol.errors import JobNotFound
from bullmq_protocol.events.stream import CompletedEvent, ProgressEvent
from bullmq_protocol.model.flow import FlowJob, FlowNode
from tests.support.lines import Calls, finish, got, package_of, say, serve, serve_blocking

_NAMES = {
    "job_id": "jobId",
    "delay_at": "delay",
    "failed_reason": "failedReason",
    "attempts_made": "attemptsMade",
    "debounce_id": "debounceId",
    "deduplication_id": "deduplicationId",
    "deduplicated_job_id": "deduplicatedJobId",
}


def _ids(flow: FlowJob[Any]) -> dict[str, Any]:
    return {"id": flow.job.id, "children": [_ids(child) for child in flow.children]}


def _named(flow: FlowJob[Any] | None) -> dict[str, Any] | None:
    if flow is None:
        return None
    children = [_named(child) for child in flow.children]
    queue = flow.job.key.removesuffix(f":{flow.job.id}")
    return {"name": flow.job.name, "id": flow.job.id, "queue": queue, "children": children}


def reported(event: Any) -> dict[str, Any]:
    """Say an event as BullMQ's reader gives it."""
    built = msgspec.to_builtins(event)
    name = built.pop("type")
    del built["entry_id"]
    fields: dict[str, Any] = {_NAMES.get(key, key): value for key, value in built.items() if value is not None}
    if isinstance(event, CompletedEvent):
        del fields["returnvalue_text"]
        fields["returnvalue"] = event.returnvalue
    elif isinstance(event, ProgressEvent):
        del fields["data_text"]
        fields["data"] = event.data
    else:
        fields = {key: _text(value) for key, value in fields.items()}
    return {"event": name, "fields": fields}


def _text(value: Any) -> Any:
    return str(int(value)) if isinstance(value, (int, float)) else value


class Family:
    """One object per queue."""

    def __init__(self, package: Any, url: str) -> None:
        self._package = package
        self._url = url
        self._flows = package.FlowProducer(url)
        self._made: dict[tuple[str, str], Any] = {}

    def of(self, kind: str, queue: str) -> Any:
        if (kind, queue) not in self._made:
            self._made[kind, queue] = getattr(self._package, kind)(queue, self._url)
        return self._made[kind, queue]

    async def flow(self, flow: dict[str, Any], defaults: dict[str, Any] | None = None) -> Any:
        options = {name: options_of(each) for name, each in (defaults or {}).items()}
        return _ids(await got(self._flows.add(node_of(flow), queues_options=options)))

    async def flows(self, flows: list[dict[str, Any]]) -> Any:
        return [_ids(each) for each in await got(self._flows.add_bulk([node_of(flow) for flow in flows]))]

    async def wide(self, parents: str, queue: str, count: int) -> Any:
        children = [FlowNode("c", queue, {"n": n}) for n in range(count)]
        begin = time.perf_counter()
        added = await got(self._flows.add(FlowNode("p", parents, {}, children=children)))
        return {"id": added.job.id, "ms": (time.perf_counter() - begin) * 1000}

    async def tree(self, id: str, queue: str, depth: int = 10, width: int = 20) -> Any:
        return _named(await got(self._flows.get_flow(id, queue, depth=depth, max_children=width)))

    async def metrics(self, queue: str, kind: str, start: int = 0, end: int = -1) -> Any:
        return msgspec.to_builtins(await got(self.of("Queue", queue).get_metrics(kind, start, end)))

    async def publish(self, queue: str, event: str, fields: dict[str, Any]) -> None:
        await got(self.of("QueueEventsProducer", queue).publish(event, fields, max_events=1000))

    async def watch(self, queue: str) -> None:
        """Begin to read, for `wait`."""
        events = self.of("QueueEvents", queue)
        if not events.is_running:
            await got(events.__enter__() if hasattr(events, "__enter__") else events.__aenter__())

    async def wait(self, queue: str, id: str, limit: int) -> Any:
        try:
            return await got(self.of("Queue", queue).wait_until_finished(id, self.of("QueueEvents", queue), limit))
        except JobNotFound as error:
            raise RuntimeError(f"Missing key for job {id}") from error

    async def read(self, queue: str, count: int) -> Any:
        """Read this many events from the beginning of the stream."""
        stream = self.of("QueueEvents", queue).stream("0-0")
        found: list[Any] = []
        while len(found) < count:
            found += await got(stream.read())
        return [reported(event) for event in found]

    async def close(self) -> None:
        for (kind, _), each in self._made.items():
            if kind == "QueueEvents" and each.is_running:
                leave = each.__exit__ if hasattr(each, "__exit__") else each.__aexit__
                await got(leave(None, None, None))
            else:
                await got(each.close() if hasattr(each, "close") else each.aclose())
        await got(self._flows.close() if hasattr(self._flows, "close") else self._flows.aclose())

    def calls(self) -> Calls:
        names = ("flow", "flows", "wide", "tree", "metrics", "publish", "watch", "wait", "read")
        return {name: getattr(self, name) for name in names}


async def _main(url: str) -> None:
    family = Family(package_of("asyncio"), url)
    say(event="ready")
    await serve(family.calls())
    await family.close()


def _main_blocking(url: str) -> None:
    family = Family(package_of("threads"), url)
    say(event="ready")
    serve_blocking(family.calls())
    finish(family.close())


if __name__ == "__main__":
    config = json.loads(sys.argv[1])
    if config["adapter"] == "threads":
        _main_blocking(config["url"])
    else:
        anyio.run(_main, config["url"], backend=config["adapter"])
