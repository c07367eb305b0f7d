"""The command about workers."""

from __future__ import annotations

from typing import Any

import click

from bullmq_cli.ctl.program import DONE, ctl, shared
from bullmq_cli.ctl.session import Session
from bullmq_cli.ctl.show import age, print_json, put, say, table


@ctl.command("workers")
@click.argument("queue")
@shared
def workers(session: Session, /, queue: str) -> int:
    """List the workers of a queue.

    Those of every library, by the connections on which they wait for jobs.

    \b
    bullmq-ctl workers mail

    JSON: an array of {name, address, connected_s, idle_s, library}; `name` is null for a worker without one.
    """
    with session.existing(queue) as found:
        own = found.keys.client_name("")
        rows = [_fields(each, own) for each in found.get_workers()]
    if session.as_json:
        print_json(rows)
        return DONE
    if not rows:
        say(f"no worker waits for jobs of {queue}")
        return DONE
    shown = (
        (
            row["name"] or "-",
            row["address"],
            age(row["connected_s"] * 1000),
            age(row["idle_s"] * 1000) if row["idle_s"] else "-",
            row["library"] or "-",
        )
        for row in rows
    )
    put(table(("worker", "address", "connected", "waits for", "library"), shown))
    return DONE


def _fields(found: dict[str, str], own: str) -> dict[str, Any]:
    raw = found.get("rawname", "")
    library = " ".join(each for each in (found.get("lib-name", ""), found.get("lib-ver", "")) if each)
    return {
        "name": raw.removeprefix(own) if raw.startswith(own) and raw != own else None,
        "address": found.get("addr", ""),
        "connected_s": _whole(found.get("age", "")),
        "idle_s": _whole(found.get("idle", "")),
        "library": library or None,
    }


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0
