"""What Node makes of Python's values: each row of the table in docs/payloads.md, with a real worker of BullMQ."""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import anyio
import msgspec
import pydantic
import pytest

import bullmq_anyio
import bullmq_sync
from tests.support.programs import Program, payloads
from tests.support.servers import Server

_PAGE = Path(__file__).parents[2] / "docs" / "payloads.md"


class Suit(Enum):
    CLUBS = "clubs"


class Size(IntEnum):
    LARGE = 3


class Note(msgspec.Struct):
    text: str
    raw: bytes


class Letter(pydantic.BaseModel):
    at: datetime
    raw: bytes = "é".encode()
    price: Decimal = Decimal("1.10")


_NAMES = {
    each.__name__: each
    for each in (Suit, Decimal, Letter, Note, Size, UUID, bytes, date, datetime, float, int, time, timedelta)
} | {"UTC": UTC}


class Row(NamedTuple):
    value: Any
    data_type: Any
    json: str
    type: str
    holds: str


def _rows() -> list[Row]:
    rows = []
    for line in _PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.replace(r"\|", "¦").strip("|").split(" | ")]
        if len(cells) == 5 and line.startswith("| `"):
            # What stands in brackets after it is for people.
            value, data_type, text, kind, holds = (re.sub(r"^`(.*?)`.*$", r"\1", cell) for cell in cells)
            made = [eval(each.replace("¦", "|"), dict(_NAMES)) for each in (value, data_type)]
            rows.append(Row(*made, text, kind, holds))
    return rows


ROWS = _rows()


def _on_threads(url: str, queue: str) -> list[str]:
    with bullmq_sync.QueueEvents(queue, url) as events:
        return [_exchange(bullmq_sync.Queue(queue, url, data_type=row.data_type), events, row) for row in ROWS]


def _exchange(queue: bullmq_sync.Queue[Any], events: bullmq_sync.QueueEvents, row: Row) -> str:
    with queue:
        job = queue.add(row.holds, row.value)
        assert job.record.data_text == row.json
        _compare(job.wait_until_finished(events, 30_000, result_type=row.data_type), row)
        return job.id


async def _in_tasks(url: str, queue: str) -> list[str]:
    ids = []
    async with bullmq_anyio.QueueEvents(queue, url) as events:
        for row in ROWS:
            async with bullmq_anyio.Queue[Any](queue, url, data_type=row.data_type) as writing:
                job = await writing.add(row.holds, row.value)
                assert job.record.data_text == row.json
                _compare(await job.wait_until_finished(events, 30_000, result_type=row.data_type), row)
                ids.append(job.id)
    return ids


def _compare(result: object, row: Row) -> None:
    assert result == row.value
    assert type(result) is type(row.value)


@pytest.mark.parametrize(
    "exchange",
    [
        lambda url, queue: anyio.run(_in_tasks, url, queue),
        lambda url, queue: anyio.run(_in_tasks, url, queue, backend="trio"),
        _on_threads,
    ],
    ids=["asyncio", "trio", "threads"],
)
def test_node_sees_what_the_table_says(home: Server, queue: str, exchange: Callable[[str, str], list[str]]) -> None:
    working: Program
    with payloads(home, queue) as working:
        ids = exchange(home.url, queue)
        seen = {line["id"]: line for line in working.of("seen")}
    assert working.of("error") == []
    assert [(seen[job_id]["type"], seen[job_id]["holds"]) for job_id in ids] == [(row.type, True) for row in ROWS]


def test_the_table_has_every_kind() -> None:
    kinds = {type(row.value) for row in ROWS}
    assert kinds >= {datetime, date, time, timedelta, UUID, Decimal, Suit, Size, bytes, set, tuple, float, int, dict}
    assert kinds >= {type(None), Note, Letter}
    assert len(ROWS) == 18
