"""The commands about whole queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import click
from rich.text import Text

from bullmq_cli.ctl.asking import ask, progress
from bullmq_cli.ctl.program import DONE, INTERRUPTED, NOT_THERE, SPAN, ctl, destroys, fail, shared
from bullmq_cli.ctl.session import NotThere, Session
from bullmq_cli.ctl.show import age, console, print_json, put, say, sparkline, table
from bullmq_cli.text import visible
from bullmq_doctor.__main__ import report
from bullmq_doctor.facts import Unreachable, look_at
from bullmq_doctor.server import client_names, connected, count_workers, find_queues
from bullmq_protocol.commands.queues import count_until, get_job_counts, is_paused
from bullmq_protocol.errors import BullMQError
from bullmq_protocol.operations.paging import Page
from bullmq_sync import Pages, Queue, clock

COUNTED: Final = ("waiting", "paused", "active", "delayed", "prioritized", "waiting-children", "completed", "failed")
_HEADINGS: Final = ("queue", "waiting", "active", "delayed", "prio", "children", "completed", "failed", "workers")
_GIVE_WAY: Final = ("children", "completed", "prio", "delayed")
"""Columns that are left out where the terminal is narrow, the first of them first."""
_LEAST_NAME: Final = 8
_BY_SCORE: Final = ("completed", "failed", "waiting-children")
_CLEANABLE: Final = ("completed", "failed", "waiting", "paused", "active", "delayed", "prioritized", "waiting-children")
_AT_MOST: Final = "at most "
"""Of those that are counted the server may keep some: jobs that are locked, and next ones of schedulers."""
_UNREACHABLE_DOCTOR: Final = 4
_MOST_MINUTES: Final = 1_000_000


def jobs_text(count: int) -> str:
    """Return a number of jobs in words."""
    return f"{count:,} job{'' if count == 1 else 's'}"


# --- looking ----------------------------------------------------------------------------------------------------------


@ctl.command("queues")
@click.argument("names", nargs=-1, metavar="[QUEUE]...")
@shared
def queues(session: Session, /, names: tuple[str, ...]) -> int:
    """List the queues, with their jobs by state.

    Without QUEUE all of the prefix, which looks at every key of the server.

    \b
    bullmq-ctl queues
    bullmq-ctl queues mail video --json | jq '.[] | select(.failed > 0)'

    JSON: an array of {queue, is_paused, workers, waiting, paused, active, delayed, prioritized, waiting-children,
    completed, failed}. `workers` is null where the server does not tell.
    """
    with connected(session.address) as client:
        found = list(dict.fromkeys(names)) or sorted(find_queues(client, session.prefix, None)[0])
        connections, _ = client_names(client)
    rows = overview(session, found, connections)
    if session.as_json:
        print_json(rows)
        return DONE
    if not rows:
        say(f"no queues of the prefix {session.prefix} at {session.address.address}")
        return DONE
    shown = fitting(console().width)
    put(
        table([_HEADINGS[each] for each in shown], ([_row(row)[each] for each in shown] for row in rows), _HEADINGS[1:])
    )
    return DONE


def fitting(width: int) -> list[int]:
    """Return the columns that have room."""
    shown = list(range(len(_HEADINGS)))
    for heading in _GIVE_WAY:
        if _LEAST_NAME + sum(2 + len(_HEADINGS[each]) for each in shown[1:]) > width:
            shown.remove(_HEADINGS.index(heading))
    return shown


def overview(session: Session, names: Sequence[str], connections: list[str] | None) -> list[dict[str, Any]]:
    """Return a row for each queue. Raises `NotThere`."""
    all_keys = [session.keys(name) for name in names]
    asked = [command for keys in all_keys for command in (get_job_counts(keys), is_paused(keys))]
    rows: list[dict[str, Any]] = []
    session.check(all_keys)
    answers = session.answers(asked)
    for place, keys in enumerate(all_keys):
        counts, paused = answers[2 * place : 2 * place + 2]
        if not any(counts.values()) and not session.is_there(session.queue(keys.name)):
            raise NotThere(f"there is no queue {keys.name!r} of the prefix {session.prefix!r}")
        rows.append(
            {
                "queue": keys.name,
                "is_paused": paused is True,
                "workers": count_workers(keys, connections),
                **{state: counts[state] for state in COUNTED},
            }
        )
    return rows


def _row(row: dict[str, Any]) -> list[object]:
    name = Text(visible(row["queue"]))
    if row["is_paused"]:
        name.append(" paused", style="yellow")
    workers = "?" if row["workers"] is None else row["workers"]
    waiting = row["waiting"] + row["paused"]
    failed = Text(f"{row['failed']:,}", style="red" if row["failed"] else "")
    return [
        name,
        f"{waiting:,}",
        *(f"{row[state]:,}" for state in COUNTED[2:-1]),
        failed,
        Text(str(workers), style="red" if workers == 0 and waiting and not row["is_paused"] else ""),
    ]


@ctl.command("metrics")
@click.argument("queue")
@click.option("--minutes", type=click.IntRange(1, _MOST_MINUTES), default=60, show_default=True, help="How far back.")
@shared
def metrics(session: Session, /, queue: str, minutes: int) -> int:
    """Show how many jobs completed and failed per minute.

    There is something to see if a worker of the queue counts (metrics_max_data_points, on Node metrics.maxDataPoints).

    \b
    bullmq-ctl metrics mail --minutes 120

    JSON: {queue, completed: {total, per_minute}, failed: {total, per_minute}}; per_minute has the newest minute first.
    """
    with session.existing(queue) as found:
        read = {outcome: found.get_metrics(outcome, 0, minutes - 1) for outcome in ("completed", "failed")}
    if session.as_json:
        print_json(
            {
                "queue": found.name,
                **{outcome: {"total": each.total, "per_minute": each.data} for outcome, each in read.items()},
            }
        )
        return DONE
    if not any(each.data or each.total for each in read.values()):
        say(f"no worker of {queue} has counted yet: give one metrics_max_data_points")
        return DONE
    rows: list[tuple[object, ...]] = []
    for outcome, each in read.items():
        points = each.data[::-1]
        style = "green" if outcome == "completed" else "red"
        rows.append(
            (outcome, Text(sparkline(points), style=style), f"{max(points, default=0):,.0f}", f"{each.total:,}")
        )
    shown = table(("", f"the last {minutes} min, now at the right", "most per min", "in all"), rows, ("in all",))
    put(shown)
    return DONE


@ctl.command("doctor")
@click.argument("queues", nargs=-1, metavar="[QUEUE]...")
@shared
def doctor(session: Session, /, queues: tuple[str, ...]) -> int:
    """Say what is wrong with the server and its queues.

    And what mends it. Nothing is written.

    \b
    bullmq-ctl doctor
    bullmq-ctl --url redis+sentinel://s1,s2/jobs doctor mail

    Exit code: that of bullmq-doctor: 0 nothing found but notes, 1 warnings, 2 wrong usage, 3 errors, 4 the server
    cannot be examined.
    """
    try:
        facts = look_at(session.address, queues, prefix=session.prefix)
    except Unreachable as error:
        fail(_UNREACHABLE_DOCTOR, str(error))
    return report(facts, as_json=session.as_json)


# --- changing ---------------------------------------------------------------------------------------------------------


@ctl.command("pause")
@click.argument("queue")
@shared
def pause(session: Session, /, queue: str) -> int:
    """Pause a queue for all workers.

    Running jobs go on, no other one starts.

    \b
    bullmq-ctl pause mail

    JSON: {queue, is_paused}.
    """
    return _set_paused(session, queue, True)


@ctl.command("resume")
@click.argument("queue")
@shared
def resume(session: Session, /, queue: str) -> int:
    """Let all workers take jobs again.

    \b
    bullmq-ctl resume mail

    JSON: {queue, is_paused}.
    """
    return _set_paused(session, queue, False)


def _set_paused(session: Session, name: str, paused: bool) -> int:
    with session.existing(name) as queue:
        if paused:
            queue.pause()
        else:
            queue.resume()
        is_now = queue.is_paused()
    if session.as_json:
        print_json({"queue": queue.name, "is_paused": is_now})
    else:
        say(f"{queue.name} is paused" if is_now else f"{queue.name} runs")
    return DONE


@ctl.command("clean")
@click.argument("queue")
@click.option("--state", type=click.Choice(_CLEANABLE), default="completed", show_default=True)
@click.option("--older-than", type=SPAN, required=True, help="How old a job must be: 30s, 5m, 2h, 1d; 0: any age.")
@click.option("--limit", type=click.IntRange(0), default=0, help="The most jobs to remove. [default: all]")
@destroys
@shared
def clean(session: Session, /, queue: str, state: str, older_than: int, limit: int, dry_run: bool, yes: bool) -> int:
    """Remove old jobs of one state.

    Of finished jobs the age counts from their end, else from when they were added.

    \b
    bullmq-ctl clean mail --state failed --older-than 7d --dry-run
    bullmq-ctl clean mail --older-than 1d --yes

    JSON: {queue, state, removed, dry_run}. With --dry-run `removed` is how many would go, at most: of active jobs those
    stay that are locked.
    """
    with session.existing(queue) as found:
        until = clock().wall - older_than
        # Counting may take its time: nobody wants to know it who is not asked.
        likely = None if yes and not dry_run else _count_old(found, state, until)
        if likely is not None and limit:
            likely = min(likely, limit)
        if dry_run:
            return _would_remove(session, found, likely or 0, state=state)
        about = f"{state}, older than {age(older_than)}"
        ask(f"Remove {_AT_MOST}{jobs_text(likely or 0)} of {found.name} ({about})?", yes=yes)
        removed = 0

        def count(page: Page[list[str]]) -> int:
            nonlocal removed
            removed += len(page.value)
            return removed

        go_through(found.clean_pages(older_than, limit, state, page_size=1000), "cleaning", likely, count)
        return _removed(session, found, removed, state=state)


def _count_old(queue: Queue[Any], state: str, until: int) -> int:
    if state in _BY_SCORE:
        return queue.call(count_until(queue.keys, state, until))
    total = 0
    with progress("counting", sum(queue.get_job_counts(state).values())) as tell:
        for number, job in enumerate(queue.iter_jobs(state, page_size=1000), 1):
            since = job.finished_on or job.processed_on or job.timestamp or 0
            total += since <= until
            tell(number)
    return total


def go_through(pages: Pages[Any], what: str, total: int | None, done: Callable[[Page[Any]], int]) -> None:
    """Do page after page, under a bar. What is done when it is interrupted stays done, and is said."""
    so_far = 0
    try:
        with progress(what, total) as tell:
            for page in pages:
                so_far = done(page)
                tell(so_far)
    except KeyboardInterrupt:
        fail(INTERRUPTED, f"interrupted after {jobs_text(so_far)}, and perhaps those of the page under way")
    except BullMQError:
        click.echo(f"bullmq-ctl: ended after {jobs_text(so_far)}, and perhaps those of the page under way", err=True)
        raise


def _removed(session: Session, queue: Queue[Any], removed: int, **more: object) -> int:
    return _reported(session, queue, removed, "removed ", dry_run=False, **more)


def _would_remove(session: Session, queue: Queue[Any], likely: int, *, at_most: str = _AT_MOST, **more: object) -> int:
    return _reported(session, queue, likely, f"would remove {at_most}", dry_run=True, **more)


def _reported(session: Session, queue: Queue[Any], count: int, words: str, *, dry_run: bool, **more: object) -> int:
    if session.as_json:
        print_json({"queue": queue.name, **more, "removed": count, "dry_run": dry_run})
    else:
        say(f"{words}{jobs_text(count)} of {queue.name}")
    return DONE


@ctl.command("drain")
@click.argument("queue")
@click.option("--delayed", is_flag=True, help="Delayed jobs, too.")
@destroys
@shared
def drain(session: Session, /, queue: str, delayed: bool, dry_run: bool, yes: bool) -> int:
    """Remove all jobs that wait.

    Active and finished ones stay, and the next jobs of schedulers. The server does nothing else in the meantime, for
    seconds if there are a million: `clean --state waiting` goes in pages.

    \b
    bullmq-ctl drain mail --delayed --dry-run

    JSON: {queue, removed, dry_run}. With --dry-run `removed` is how many would go, at most.
    """
    states = ("waiting", "prioritized", *(("delayed",) if delayed else ()))
    with session.existing(queue) as found:
        before = sum(found.get_job_counts(*states).values())
        if dry_run:
            return _would_remove(session, found, before)
        what = f"all that waits{' or is delayed' if delayed else ''}"
        ask(f"Remove {what} in {found.name}, {_AT_MOST}{jobs_text(before)}?", yes=yes)
        found.drain(delayed)
        left = sum(found.get_job_counts(*states).values())
        return _removed(session, found, max(0, before - left))


@ctl.command("obliterate")
@click.argument("queue")
@click.option("--force", is_flag=True, help="Even while jobs are active.")
@destroys
@shared
def obliterate(session: Session, /, queue: str, force: bool, dry_run: bool, yes: bool) -> int:
    """Destroy a queue with all that it has.

    It is paused first, and cannot be had back: jobs, logs, schedulers, events. Interrupted, it leaves a paused queue
    with the rest of the jobs: run it again.

    \b
    bullmq-ctl obliterate old-queue --dry-run
    bullmq-ctl obliterate old-queue --yes

    JSON: {queue, removed, dry_run}.
    """
    with session.existing(queue) as found:
        counts = found.get_job_counts()
        total = sum(counts.values())
        if dry_run:
            return _would_remove(session, found, total, at_most="")
        active = f", {counts['active']:,} of them active" if counts["active"] else ""
        ask(f"Destroy {found.name} at {session.address.address}, with {jobs_text(total)}{active}?", yes=yes)
        go_through(found.obliterate_pages(force=force), "destroying", total, lambda page: max(0, total - page.value))
        return _removed(session, found, total)


# --- schedulers -------------------------------------------------------------------------------------------------------


@ctl.command("schedulers")
@click.argument("queue")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="The most to show.")
@click.option("--remove", metavar="ID", help="Remove this scheduler, and its next job if that is delayed.")
@destroys
@shared
def schedulers(session: Session, /, queue: str, limit: int, remove: str | None, dry_run: bool, yes: bool) -> int:
    """List the job schedulers of a queue, or remove one.

    The next one due comes first.

    \b
    bullmq-ctl schedulers mail
    bullmq-ctl schedulers mail --remove nightly --yes

    JSON: an array of {key, name, pattern, tz, every, next_at, iteration_count, limit, start_date, end_date, offset,
    data}; moments and spans in milliseconds. With --remove: {queue, key, removed, dry_run}.
    """
    with session.existing(queue) as found:
        if remove is not None:
            return _remove_scheduler(session, found, remove, dry_run=dry_run, yes=yes)
        read = found.get_job_schedulers(0, limit - 1, asc=True)
        count = found.get_job_schedulers_count()
    if session.as_json:
        names = ("key", "name", "pattern", "tz", "every", "next_at", "iteration_count", "limit", "start_date")
        print_json(
            [
                {**{name: getattr(each, name) for name in (*names, "end_date", "offset")}, "data": each.template_data}
                for each in read
            ]
        )
        return DONE
    if not read:
        say(f"{found.name} has no job schedulers")
        return DONE
    now = clock().wall
    rows = [
        (
            visible(each.key),
            visible(each.name or ""),
            f"every {age(each.every)}" if each.every else visible(each.pattern or ""),
            visible(each.tz or ""),
            "-" if each.next_at is None else f"in {age(each.next_at - now)}" if each.next_at > now else "due",
            "" if each.iteration_count is None else f"{each.iteration_count:,}",
        )
        for each in read
    ]
    put(table(("scheduler", "name", "rule", "zone", "next", "runs"), rows, ("runs",)))
    if count > len(read):
        say(f"and {count - len(read):,} more: --limit {count}")
    return DONE


def _remove_scheduler(session: Session, queue: Queue[Any], key: str, *, dry_run: bool, yes: bool) -> int:
    if queue.get_job_scheduler(key) is None:
        fail(NOT_THERE, f"there is no scheduler {key!r} in the queue {queue.name!r}")
    if not dry_run:
        ask(f"Remove the scheduler {key} of {queue.name}?", yes=yes)
        if not queue.remove_job_scheduler(key):
            # One of the older kind, which goes by its key.
            queue.remove_repeatable_by_key(key)
    if session.as_json:
        print_json({"queue": queue.name, "key": key, "removed": 1, "dry_run": dry_run})
    else:
        say(f"{'would remove' if dry_run else 'removed'} the scheduler {key}")
    return DONE
