"""Every example in the docstrings of Monque's facade runs, in each adapter, and shows what it promises."""

import inspect
from typing import Any

import anyio
import pytest

import monque_anyio
import monque_sync
from monque_protocol import commands, cursor, events
from tests.monque.conftest import Monques
from tests.support.docstrings import examples, needed, play
from tests.support.seen import LIMIT_S, Seen

pytestmark = pytest.mark.anyio
_NAMES = [
    name
    for name, member in {"": monque_anyio.Monque, **vars(monque_anyio.Monque)}.items()
    if not name.startswith("_") and examples(inspect.getdoc(member) or "")
]


async def send(job: Any) -> None:
    return None


def sent(job: Any) -> None:
    return None


async def _failed(monque: Monques, scheduler: Any) -> Any:
    """Return a job that has failed for good."""
    async with monque.running(max_retries=1) as other:
        seen = Seen(other, events.JobFailed)

        async def handle(job: Any) -> None:
            raise ValueError("no such address")

        other.worker("failing", handle)
        await other.enqueue("failing", None)
        (event,) = await seen.wait(events.JobFailed)
        return event.job


async def test_the_examples_show_what_they_promise(monque: Monques) -> None:
    package: Any = monque_sync if monque.adapter == "threads" else monque_anyio
    wrong: dict[str, list[str]] = {}
    for name in _NAMES:
        kind = package.Monque
        steps = examples(inspect.getdoc(kind if not name else getattr(kind, name)) or "")
        asked = needed(steps)
        names: dict[str, Any] = {
            each: value
            for module in (commands, cursor, events, package)
            for each, value in vars(module).items()
            if not each.startswith("_")
        }
        with anyio.fail_after(LIMIT_S):
            async with monque(max_payload_size=100) as scheduler:
                given = {
                    "monque": getattr(scheduler, "_target", scheduler),
                    "db": monque.client["monque_tests"],
                    "send": sent if package is monque_sync else send,
                }
                if "job" in asked:
                    given["job"] = await scheduler.enqueue("mail", {"to": "ann"})
                elif name in ("get_jobs_with_cursor", "get_queue_stats", "get_queue_view_summaries") or "jobs" in name:
                    await scheduler.enqueue("mail", {"to": "ann"})
                if "failed" in asked:
                    given["failed"] = await _failed(monque, scheduler)
                wrong[name] = await play(steps, names | given, in_threads=package is monque_sync)
        await anyio.to_thread.run_sync(monque.stored.delete_many, {})
    assert {name: each for name, each in wrong.items() if each} == {}
    assert len(wrong) == 23
