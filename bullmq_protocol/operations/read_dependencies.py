"""Read the children of a job, at once or in pages."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from bullmq_protocol.command import Batch, Command, Operation
from bullmq_protocol.commands.getters import (
    DEPENDENCY_KINDS,
    Dependencies,
    FailuresPage,
    KeysPage,
    PageItem,
    ValuesPage,
    dependencies,
    paginate,
    range_failed,
    read_dependencies,
    scan_ignored,
    scan_processed,
    scan_unprocessed,
)
from bullmq_protocol.common.codec import check_choice, parse_json
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.units import check_whole
from bullmq_protocol.errors import BullMQError, UnexpectedReply, UsageError
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.operations.paging import Page

DependencyKind: TypeAlias = Literal["processed", "unprocessed", "ignored", "failed"]
_KindPage: TypeAlias = ValuesPage | KeysPage | FailuresPage


class Dependency(msgspec.Struct, frozen=True):
    """One child of a job: its key, and with it what a finished one returned, or the text of an ignored failure."""

    key: str
    value: Any = None


class DependencyPages(msgspec.Struct, frozen=True, kw_only=True):
    """Read the children of one kind. A page is about `page_size` of them; one may come twice while others come or go.

    Raises `UsageError`, and `UnexpectedReply` for a return value that is no JSON.

    Source: specs/03-transitions-admin-getters.md#sec-12-4
    """

    job_id: str
    kind: DependencyKind
    page_size: int = 100
    cursor: int = 0

    def checked(self) -> DependencyPages:
        """Return it as it is, or raise `UsageError`."""
        kind = check_choice("kind", self.kind, DEPENDENCY_KINDS)
        check_whole("page_size", self.page_size, least=1)
        check_whole("cursor", self.cursor, least=0)
        return replace(self, kind=kind)

    def page(self, keys: QueueKeys) -> Operation[Page[list[Dependency]]]:
        self.checked()
        found = yield from _reader(keys, self.job_id, self.kind, Cursor(self.cursor, self.page_size))
        if isinstance(found, KeysPage):
            children = [Dependency(key) for key in found.children]
        else:
            values = found.processed if isinstance(found, ValuesPage) else found.ignored
            children = [Dependency(key, value) for key, value in values.items()]
        return Page(children, replace(self, cursor=found.cursor) if found.cursor else None)


class Cursor(msgspec.Struct, frozen=True):
    """Where to continue, 0 at first, and about how many to read."""

    cursor: int = 0
    count: int = 20


class DependenciesPage(msgspec.Struct, frozen=True, kw_only=True):
    """The page of each kind that was asked for."""

    processed: ValuesPage | None = None
    unprocessed: KeysPage | None = None
    ignored: FailuresPage | None = None
    failed: KeysPage | None = None


def get_dependencies(keys: QueueKeys, job_id: str) -> Operation[Dependencies]:
    """Read all children of a job.

    Steps:   one round trip
    Atomic:  yes
    Raises:  UnexpectedReply (a return value that is no JSON)
    Source:  specs/03-transitions-admin-getters.md#sec-12-4
    """
    return dependencies((yield from read_dependencies(keys, job_id)))


def get_dependencies_page(
    keys: QueueKeys,
    job_id: str,
    *,
    processed: Cursor | None = None,
    unprocessed: Cursor | None = None,
    ignored: Cursor | None = None,
    failed: Cursor | None = None,
) -> Operation[DependenciesPage]:
    """Read one page of each kind of children that is given a cursor.

    Steps:   one round trip
    Atomic:  yes
    Raises:  UsageError, UnexpectedReply (a return value that is no JSON)
    Source:  specs/03-transitions-admin-getters.md#sec-12-4
    """
    asked = tuple(zip(DEPENDENCY_KINDS, (processed, unprocessed, ignored, failed), strict=True))
    for kind, cursor in asked:
        if cursor is not None and not isinstance(cursor, Cursor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(kind, cursor, "must be a Cursor")
    commands = {kind: _reader(keys, job_id, kind, cursor) for kind, cursor in asked if cursor is not None}
    if not commands:
        raise UsageError("cursor", None, "is needed for at least one kind")
    replies = yield from Batch(tuple(commands.values()), atomic=True)
    for reply in replies:
        if isinstance(reply, BullMQError):
            raise reply
    return DependenciesPage(**dict(zip(commands, replies, strict=True)))


class RangedChild(msgspec.Struct, frozen=True):
    """A child by its position: its key, its return value (None for a pending one), and why that could not be read."""

    key: str
    value: Any = None
    error: str | None = None


class DependencyRange(msgspec.Struct, frozen=True):
    """Children of a job by place, `jobs` beside them (None for one whose hash is gone), and how many there are."""

    items: list[RangedChild]
    jobs: list[JobRecord | None]
    total: int


def get_dependency_range(
    keys: QueueKeys,
    parent_id: str,
    kind: Literal["processed", "pending"],
    *,
    start: int = 0,
    end: int = -1,
) -> Operation[DependencyRange]:
    """Read children by their place in the order of a scan, with their jobs; both ends of the range are included.

    Steps:   one round trip per 500 children or so
    Atomic:  no
    Raises:  UsageError
    Source:  specs/03-transitions-admin-getters.md#sec-13-5
    """
    check_choice("kind", kind, ("processed", "pending"))
    check_whole("start", start, least=0)
    check_whole("end", end, least=-1)
    key = keys.processed(parent_id) if kind == "processed" else keys.dependencies(parent_id)
    wanted = end - start + 1
    items: list[PageItem] = []
    hashes: list[dict[str, bytes]] = []
    cursor = passed = 0
    while True:
        page = yield from paginate(
            key, start=start + len(items), end=end, cursor=cursor, passed=passed, with_hashes=True
        )
        if len(page.hashes) != len(page.items):
            raise UnexpectedReply("a hash beside each element", page)
        items += page.items
        hashes += page.hashes
        cursor, passed = page.cursor, page.passed
        if not cursor or (end >= 0 and len(items) >= wanted):
            break
    jobs = [
        JobRecord.from_fields(_id_of(keys, item.id), fields) if fields else None
        for item, fields in zip(items, hashes, strict=True)
    ]
    return DependencyRange([_ranged(item) for item in items], jobs, page.total)


def _reader(keys: QueueKeys, job_id: str, kind: str, cursor: Cursor) -> Command[_KindPage]:
    at = check_whole(f"{kind}.cursor", cursor.cursor, least=0)
    count = check_whole(f"{kind}.count", cursor.count, least=1)
    match kind:
        case "processed":
            return scan_processed(keys, job_id, cursor=at, count=count)
        case "unprocessed":
            return scan_unprocessed(keys, job_id, cursor=at, count=count)
        case "ignored":
            return scan_ignored(keys, job_id, cursor=at, count=count)
        case _:
            return range_failed(keys, job_id, cursor=at, count=count)


def _id_of(keys: QueueKeys, job_key: str) -> str:
    # An id may hold colons. In another queue nothing tells where it begins, so it is split as BullMQ does.
    return job_key.removeprefix(keys.base) if job_key.startswith(keys.base) else job_key.rpartition(":")[2]


def _ranged(item: PageItem) -> RangedChild:
    if item.value is None:
        return RangedChild(item.id)
    try:
        return RangedChild(item.id, parse_json(item.value))
    except msgspec.DecodeError as error:
        return RangedChild(item.id, error=str(error))
