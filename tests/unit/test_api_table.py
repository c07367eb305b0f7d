"""docs/api.md has a row for every public method, and none for what is not there."""

import re
from pathlib import Path
from typing import Any

import pytest

import bullmq_anyio
import bullmq_anyio.relay
import bullmq_sync
import bullmq_sync.relay

pytestmark = pytest.mark.any_python

_TEXT = "".join(
    (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8") for page in ("api.md", "relay.md")
)
# Set in the constructors, so the classes do not show them.
_ATTRIBUTES = {"Job": {"record", "token", "cancelled"}}


def rows(kind: str) -> set[str]:
    """Return the names in the first column of the class's table."""
    section = re.search(rf"^## {kind}\n(.*?)(?=^## |\Z)", _TEXT, re.MULTILINE | re.DOTALL)
    assert section is not None
    cells = [line.split("|")[1] for line in section[1].splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def public(kind: type[Any]) -> set[str]:
    owners = [owner for owner in kind.__mro__ if owner.__module__.startswith("bullmq_")]
    return {name for owner in owners for name in vars(owner) if not name.startswith("_")}


@pytest.mark.parametrize(
    "kind", ["Queue", "Job", "Worker", "QueueEvents", "EventStream", "QueueEventsProducer", "FlowProducer"]
)
def test_every_public_name_has_a_row(kind: str) -> None:
    both = public(getattr(bullmq_anyio, kind)) | public(getattr(bullmq_sync, kind))
    assert rows(kind) == both | _ATTRIBUTES.get(kind, set())


@pytest.mark.parametrize("kind", ["Relay", "RelayNode"])
def test_every_public_name_of_the_relay_has_a_row(kind: str) -> None:
    both = public(getattr(bullmq_anyio.relay, kind)) | public(getattr(bullmq_sync.relay, kind))
    assert rows(kind) == both | ({"connection"} & rows(kind))
