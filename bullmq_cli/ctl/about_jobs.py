"""The commands about single jobs."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from itertools import islice
from typing import Any, BinaryIO, Final

import click
import msgspec
from rich.text import Text
from rich.tree import Tree

from bullmq_cli.ctl.about_queues import go_through, jobs_text
from bullmq_cli.ctl.asking import ask, progress
from bullmq_cli.ctl.program import DONE, INTERRUPTED, NOT_THERE, REFUSED, SPAN, USAGE, ctl, destroys, fail, shared
from bullmq_cli.ctl.session import Session
from bullmq_cli.ctl.show import age, console, flush, job_fields, print_json, put, say, table, write
from bullmq_cli.text import json_line, visible
from bullmq_protocol import FlowJob
from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.commands.queues import DEFAULT_STATES
from bullmq_protocol.common.codec import parse_json
from bullmq_protocol.common.reply import as_int
from bullmq_protocol.errors import (
    BulkAddError,
    BullMQError,
    JobFailedError,
    JobNotFound,
    RetriedInPart,
    ScriptError,
    UsageError,
)
from bullmq_protocol.model.backoff import Backoff
from bullmq_protocol.model.job import NewJob
from bullmq_protocol.model.options import Deduplication, JobOptions, KeepJobs
from bullmq_sync import Job, Queue, clock

_STATES: Final = ("waiting", "active", "delayed", "prioritized", "waiting-children", "completed", "failed", "paused")
_STYLES: Final = {"completed": "green", "failed": "red", "active": "cyan", "delayed": "yellow"}
_PAGE: Final = 1000
_PREVIEW: Final = 60


# --- looking ----------------------------------------------------------------------------------------------------------


@ctl.command("job")
@click.argument("queue")
@click.argument("job_id", metavar="ID")
@shared
def job(session: Session, /, queue: str, job_id: str) -> int:
    """Show one job: state, payload, options, result or failure.

    \b
    bullmq-ctl job mail 42
    bullmq-ctl job mail 42 --json | jq .stacktrace[-1]

    JSON: an object with id, name, queue, state, data, progress, returnvalue, failed_reason, stacktrace, attempts_made,
    attempts_started, stalled_counter, priority, delay, timestamp, processed_on, finished_on, processed_by, parent_key,
    repeat_job_key, deduplication_id, opts, undecodable. Moments are milliseconds since 1970. `undecodable` names those
    that hold a text because what is stored is no JSON.
    """
    with session.queue(queue) as found:
        read = session.job(found, job_id)
        fields = job_fields(read, read.get_state())
    if session.as_json:
        print_json(fields)
        return DONE
    now = clock().wall
    shown = console()
    for name, value in fields.items():
        if value not in (None, [], {}) or name == "data":
            about = _shown_field(name, value, now)
            # What has lines of its own begins in the next one.
            label = name if about.plain.startswith("\n") else f"{name:<18}"
            shown.print(Text(label, style="bold"), about, sep="", soft_wrap=True)
    return DONE


def _shown_field(name: str, value: Any, now: int) -> Text:
    if name == "state":
        return Text(value, style=_STYLES.get(value, ""))
    if name in ("timestamp", "processed_on", "finished_on"):
        return Text(f"{value} ({age(now - value)} ago)")
    if name == "stacktrace":
        rows: list[Any] = value if isinstance(value, list) else [value]  # pyright: ignore[reportUnknownVariableType]
        parts = [visible(each, lines=True) for each in rows]
        return Text("".join(f"\n{part}" for part in parts).replace("\n", "\n  ").rstrip())
    if isinstance(value, str) and name != "data":
        return Text(visible(value, lines=name == "failed_reason"))
    return Text(visible(json_line(value) if not isinstance(value, int) else value))


@ctl.command("jobs")
@click.argument("queue")
@click.option("--state", "states", type=click.Choice(_STATES), multiple=True, help="Several times for several states.")
@click.option("--limit", type=click.IntRange(0), default=20, show_default=True, help="The most to show; 0: all.")
@click.option("--asc", is_flag=True, help="The next to run, or the first that finished, comes first.")
@shared
def jobs(session: Session, /, queue: str, states: tuple[str, ...], limit: int, asc: bool) -> int:
    """List jobs, of all states or some.

    The newest of each state come first.

    \b
    bullmq-ctl jobs mail --state failed
    bullmq-ctl jobs mail --state waiting --limit 0 --json > waiting.jsonl

    JSON: one line for each job, with the keys of `bullmq-ctl job`.
    """
    with session.existing(queue) as found:
        listed = _listed(found, states, asc, min(_PAGE, limit + 1) if limit else _PAGE)
        chosen = islice(listed, limit) if limit else listed
        now = clock().wall
        shown = 0
        while page := list(islice(chosen, _PAGE)):
            if session.as_json:
                write("\n".join(json_line(job_fields(each, state)) for state, each in page))
            else:
                rows = (_row(each, state, now) for state, each in page)
                made = table(("id", "name", "state", "age", "tries", "data, or why it failed"), rows, ("tries",))
                made.show_header = shown == 0
                put(made)
            shown += len(page)
        if session.as_json:
            return DONE
        if not shown:
            say("no jobs" if not states else f"no {' or '.join(states)} jobs")
        elif shown == limit and next(listed, None) is not None:
            say(f"the first {limit:,}: --limit 0 shows all")
    return DONE


def _listed(queue: Queue[Any], states: tuple[str, ...], asc: bool, page_size: int) -> Iterator[tuple[str, Job[Any]]]:
    wanted = tuple(dict.fromkeys(states)) or tuple(state for state in DEFAULT_STATES if state != "paused")
    for state in wanted:
        for each in queue.iter_jobs(state, page_size=page_size, asc=asc):
            yield state, each


def _row(job: Job[Any], state: str, now: int) -> tuple[object, ...]:
    record = job.record
    since = record.finished_on or record.processed_on or record.timestamp
    about = record.failed_reason if state == "failed" and record.failed_reason else record.data_text
    return (
        visible(record.id, _PREVIEW),
        visible(record.name, _PREVIEW),
        Text(state, style=_STYLES.get(state, "")),
        age(None if since is None else now - since),
        str(record.attempts_made),
        visible(about[: 2 * _PREVIEW], _PREVIEW),
    )


@ctl.command("logs")
@click.argument("queue")
@click.argument("job_id", metavar="ID")
@click.option("--tail", type=click.IntRange(1), metavar="N", help="Only the last N rows.")
@shared
def logs(session: Session, /, queue: str, job_id: str, tail: int | None) -> int:
    """Print the rows of a job's log, the oldest first.

    \b
    bullmq-ctl logs mail 42 --tail 20

    JSON: one string for each row, a line each.
    """
    with session.queue(queue) as found:
        session.job(found, job_id)
        rows = found.iter_logs(job_id) if tail is None else found.get_job_logs(job_id, -tail, -1).logs
        for row in rows:
            write(json_line(row) if session.as_json else visible(row, lines=True))
    return DONE


@ctl.command("flow")
@click.argument("queue")
@click.argument("job_id", metavar="ID")
@click.option("--depth", type=click.IntRange(1), default=10, show_default=True, help="How many levels.")
@click.option("--children", type=click.IntRange(1), default=20, show_default=True, help="The most of each kind.")
@shared
def flow(session: Session, /, queue: str, job_id: str, depth: int, children: int) -> int:
    """Show a job with its children, as a tree.

    \b
    bullmq-ctl flow books 7

    JSON: {id, name, queue, state, failed_reason, children: [...], missing: [...]}; `missing` has the keys of children
    that are gone.
    """
    with session.flows() as flows:
        found = flows.get_flow(job_id, queue, depth=depth, max_children=children)
        if found is None:
            fail(NOT_THERE, f"there is no job {job_id!r} in the queue {queue!r}")
        tree = _branch(found)
    if session.as_json:
        print_json(tree)
    else:
        drawn = Tree(_leaf(tree))
        _grow(drawn, tree)
        put(drawn)
    return DONE


def _branch(found: FlowJob[Job[Any]]) -> dict[str, Any]:
    return {
        "id": found.job.id,
        "name": found.job.name,
        "queue": found.job.queue_name,
        "state": found.job.get_state(),
        "failed_reason": found.job.failed_reason,
        "children": [_branch(child) for child in found.children],
        "missing": list(found.missing),
    }


def _leaf(branch: Mapping[str, Any]) -> Text:
    state: str = branch["state"]
    text = Text(visible(branch["name"], _PREVIEW), style="bold")
    text.append(f"  {visible(branch['queue'])} {visible(branch['id'])}  ", style="not bold")
    text.append(state, style=_STYLES.get(state, "not bold"))
    if state == "failed" and branch["failed_reason"]:
        text.append(f": {visible(branch['failed_reason'], _PREVIEW)}", style="not bold")
    return text


def _grow(tree: Tree, branch: Mapping[str, Any]) -> None:
    for child in branch["children"]:
        _grow(tree.add(_leaf(child)), child)
    for key in branch["missing"]:
        tree.add(Text(f"{visible(key)}  is gone", style="red"))


@ctl.command("events")
@click.argument("queue")
@click.option("--from", "start", metavar="EVENT", help="Begin after this event; 0-0: with the oldest. [default: now]")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only these: completed, failed, ...")
@click.option("--count", type=click.IntRange(1), help="End after this many.")
@shared
def events(session: Session, /, queue: str, start: str | None, types: tuple[str, ...], count: int | None) -> int:
    """Follow the events of a queue until Ctrl-C.

    \b
    bullmq-ctl events mail --type failed
    bullmq-ctl events mail --from 0-0 --count 100 --json

    JSON: one line for each event: {type, entry_id, ...}, with job_id and what else the event has.
    """
    with session.existing(queue):
        seen = 0
        # Ctrl-C is how it ends.
        with closing(session.events(queue, start).stream()) as stream, suppress(KeyboardInterrupt):
            for event in stream:
                fields: dict[str, Any] = msgspec.to_builtins(event)
                if types and fields["type"] not in types:
                    continue
                if session.as_json:
                    write(json_line(fields))
                else:
                    _show_event(fields)
                flush()
                seen += 1
                if seen == count:
                    break
    return DONE


def _show_event(fields: Mapping[str, Any]) -> None:
    rest = {name: value for name, value in fields.items() if name not in ("type", "entry_id", "job_id")}
    more = "  ".join(f"{name}={visible(value, 2 * _PREVIEW)}" for name, value in rest.items() if value is not None)
    job_id = visible(fields.get("job_id", ""))
    write(f"{fields['entry_id']:<20} {fields['type']:<17} {job_id:<12} {more}".rstrip())


@ctl.command("wait")
@click.argument("queue")
@click.argument("job_id", metavar="ID")
@click.option("--timeout", type=SPAN, help="The longest wait: 30s, 5m. [default: no limit]")
@shared
def wait(session: Session, /, queue: str, job_id: str, timeout: int | None) -> int:
    """Wait until a job is finished, and print its result. The exit code is the outcome.

    \b
    id=$(bullmq-ctl add reports monthly '{"month": 5}' --json | jq -r .first_id)
    bullmq-ctl wait reports "$id" --timeout 5m && echo sent

    Exit code: 0 completed, 1 failed, 4 no such job, 5 not finished in time.

    JSON: {id, outcome, returnvalue, failed_reason}; outcome is completed or failed.
    """
    if timeout == 0:
        raise click.UsageError("--timeout must be above 0")
    outcome: dict[str, Any] = {"id": job_id, "outcome": "completed", "returnvalue": None, "failed_reason": None}
    code = DONE
    with session.queue(queue) as found, session.events(queue) as reading:
        try:
            outcome["returnvalue"] = found.wait_until_finished(job_id, reading, timeout)
        except JobFailedError as error:
            outcome |= {"outcome": "failed", "failed_reason": error.reason}
            code = REFUSED
        except JobNotFound as error:
            fail(NOT_THERE, str(error))
    if session.as_json:
        print_json(outcome)
    elif code == DONE:
        write(json_line(outcome["returnvalue"]))
    else:
        fail(code, f"job {job_id} failed: {outcome['failed_reason']}")
    return code


# --- adding -----------------------------------------------------------------------------------------------------------


@ctl.command("add")
@click.argument("queue")
@click.argument("name")
@click.argument("data", required=False)
@click.option("--delay", type=SPAN, help="How long to wait before it may run: 30s, 5m, 2h.")
@click.option("--priority", type=click.IntRange(0), help="From 1, the most urgent; 0: none, before all others.")
@click.option("--attempts", type=click.IntRange(1), help="How often to try in all.")
@click.option("--job-id", help="An id of your own: an existing job with it is left as it is.")
@click.option("--options", "more", metavar="JSON", help='Further options: {"removeOnComplete": true}.')
@click.option("--bulk", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="Lines at a time.")
@shared
def add(
    session: Session,
    /,
    queue: str,
    name: str,
    data: str | None,
    job_id: str | None,
    more: str | None,
    bulk: int,
    **given: int | None,
) -> int:
    """Add a job, or one for each line of standard input.

    DATA is JSON; {} if there is none. With `-` in its place each line of standard input is the DATA of a job.

    \b
    bullmq-ctl add mail welcome '{"to": "ada@example.org"}' --delay 5m
    bullmq-ctl add mail welcome - < payloads.jsonl

    A line that is no JSON ends it, with exit code 2; what stands before it was added, and the error says how many
    jobs that were.

    JSON: {queue, added, existing, first_id, last_id}; `existing` are those that gave way to an existing job.
    """
    options = options_of({**_options_text(more), **{key: each for key, each in given.items() if each is not None}})
    if job_id is not None:
        if data == "-":
            raise click.UsageError("--job-id is for one job: the lines of standard input would share it")
        options = msgspec.structs.replace(options, job_id=job_id)
    payload = msgspec.UNSET if data in (None, "-") else _payload(data, "DATA")
    tally = Tally()
    with _adding(session, queue) as found:
        if data == "-":
            _add_lines(found, name, options, bulk, tally)
        else:
            tally.count([found.add(name, payload, options)])
    if session.as_json:
        print_json({"queue": queue, **tally.fields()})
    else:
        say(tally.text(queue))
    return DONE


def _adding(session: Session, name: str) -> Queue[Any]:
    """Return the queue; a new one describes itself, one that is there keeps its description."""
    queue = session.queue(name)
    return queue if session.is_there(queue) else session.queue(name, describes=True)


class Tally:
    """What was added."""

    def __init__(self) -> None:
        self.added = 0
        self.existing = 0
        self.first_id: str | None = None
        self.last_id: str | None = None

    def count(self, found: list[Job[Any]]) -> None:
        """Count jobs that an add gave."""
        for each in found:
            if each.added is False:
                self.existing += 1
            else:
                self.added += 1
            self.first_id = self.first_id or each.id
            self.last_id = each.id

    def fields(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {name: getattr(self, name) for name in ("added", "existing", "first_id", "last_id")}

    def text(self, queue: str) -> str:
        """Return it in words."""
        existing = f", {self.existing:,} there already" if self.existing else ""
        ids = self.first_id if self.first_id == self.last_id else f"{self.first_id} to {self.last_id}"
        total = self.added + self.existing
        which = f" ({'id' if total == 1 else 'ids'} {ids})" if total else ""
        return f"added {self.added:,} job{'' if self.added == 1 else 's'} to {queue}{which}{existing}"


def _add_lines(queue: Queue[Any], name: str, options: JobOptions, bulk: int, tally: Tally) -> None:
    standard: Any = sys.stdin
    if standard is None:
        raise click.UsageError("standard input is closed: there are no lines")
    source: BinaryIO = standard.buffer
    size = _size(source)
    read = 0
    number = 0
    try:
        with progress(f"adding to {queue.name}", size, bytes_of_file=size is not None) as tell:
            while lines := list(islice(source, bulk)):
                fresh: list[NewJob] = []
                wrong: click.UsageError | None = None
                for line in lines:
                    number += 1
                    read += len(line)
                    if not line.strip():
                        continue
                    try:
                        fresh.append(NewJob(name, _payload(line, f"line {number}"), options))
                    except click.UsageError as error:
                        wrong = error
                        break
                tally.count(queue.add_bulk(fresh))
                if wrong is not None:
                    raise wrong
                tell(read if size is not None else tally.added + tally.existing)
    except BulkAddError as error:
        tally.count([each for each in error.results if isinstance(each, Job)])
        fail(REFUSED, f"{error}; {tally.text(queue.name)}")
    except click.UsageError as error:
        fail(USAGE, f"{error.message}; {tally.text(queue.name)}")
    except UsageError as error:
        fail(USAGE, f"up to line {number}: {error}; {tally.text(queue.name)}")
    except KeyboardInterrupt:
        fail(INTERRUPTED, f"interrupted; {tally.text(queue.name)}, and perhaps the bulk under way")
    except BullMQError as error:
        click.echo(f"bullmq-ctl: {tally.text(queue.name)}, and perhaps the bulk under way", err=True)
        raise error


def _size(source: BinaryIO) -> int | None:
    """Return how long a file is; None for what is none."""
    try:
        found = os.fstat(source.fileno())
    except (OSError, ValueError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _payload(text: str | bytes, where: str) -> Any:
    try:
        return parse_json(text)
    except (msgspec.DecodeError, RecursionError) as error:
        hint = ": a text needs its quotes, '\"text\"'" if where == "DATA" else ""
        raise click.UsageError(f"{where} is no JSON ({error}){hint}") from None


def _options_text(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    found = _payload(text, "--options")
    if not isinstance(found, dict):
        raise click.UsageError('--options must be a JSON object, such as {"removeOnComplete": true}')
    return found  # pyright: ignore[reportUnknownVariableType]


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


_OF_JOBS: Final = frozenset(
    (
        *("attempts", "backoff", "delay", "priority", "lifo", "timestamp", "job_id", "remove_on_complete"),
        *("remove_on_fail", "keep_logs", "stack_trace_limit", "size_limit", "deduplication"),
    )
)
_STRUCTS: Final[dict[str, Callable[..., Any]]] = {
    "backoff": Backoff,
    "deduplication": Deduplication,
    "remove_on_complete": KeepJobs,
    "remove_on_fail": KeepJobs,
}


def options_of(found: Mapping[str, Any]) -> JobOptions:
    """Return options from names as BullMQ or this library writes them. Raises `click.UsageError` for another one."""
    values: dict[str, Any] = {}
    for name, value in found.items():
        field = _snake(name)
        if field not in _OF_JOBS:
            raise click.UsageError(f"--options: {name!r} must be one of {', '.join(sorted(_OF_JOBS))}")
        if isinstance(value, dict) and field in _STRUCTS:
            try:
                value = _STRUCTS[field](**{_snake(key): each for key, each in value.items()})  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            except TypeError as error:
                raise click.UsageError(f"--options: {name}: {error}") from None
        values[field] = value
    return JobOptions(**values)


# --- moving and removing ----------------------------------------------------------------------------------------------


def _each(session: Session, queue: Queue[Any], ids: tuple[str, ...], done: str, act: Callable[[Job[Any]], None]) -> int:
    """Do one thing to each of some jobs, and say of each what came of it; return the exit code."""
    outcomes: list[dict[str, Any]] = []
    code = DONE
    for job_id in dict.fromkeys(ids):
        error: str | None = None
        found = queue.get_job(job_id)
        if found is None:
            error, code = f"there is no job {job_id!r} in the queue {queue.name!r}", NOT_THERE
        else:
            try:
                act(found)
            except (ScriptError, RetriedInPart, _Refused) as refused:
                error, code = str(refused), code or REFUSED
        outcomes.append({"id": job_id, "done": error is None, "error": error})
        if not session.as_json:
            if error is None:
                say(f"{done} {job_id}")
            else:
                click.echo(f"bullmq-ctl: {visible(error)}", err=True)
    if session.as_json:
        print_json(outcomes)
    return code


class _Refused(BullMQError):
    """A job is not as it should be."""


def _look(job: Job[Any], state: str) -> None:
    found = job.get_state()
    if found != state:
        raise _Refused(f"job {job.id} is not {state}: it is {found}")


def _check_removable(queue: Queue[Any], job: Job[Any]) -> None:
    """Raise what a removal would raise of the job itself."""
    key = job.record.repeat_job_key
    scheduler = None if key is None else queue.get_job_scheduler(key)
    if scheduler is not None and job.id == f"repeat:{key}:{scheduler.next_at}":
        raise _Refused(f"job {job.id} is the next one of the scheduler {key}: it stays")
    locked = Command("EXISTS", (queue.keys.lock(job.id),), (), as_int, repeat=Repeat.SAFE)
    if queue.call(locked):
        raise _Refused(f"job {job.id} is being processed: it stays")


def _some(ids: tuple[str, ...], all_of_them: bool) -> None:
    if bool(ids) == all_of_them:
        raise click.UsageError("name jobs by their ids, or say --all")


def _move_all(session: Session, queue: Queue[Any], state: str, pages: Any, done: str, dry_run: bool) -> int:
    total = queue.get_job_counts(state)[state]
    if not dry_run:
        go_through(pages, "moving", total, lambda page: max(0, total - page.value))
    if session.as_json:
        print_json({"queue": queue.name, "state": state, "moved": total, "dry_run": dry_run})
    else:
        say(f"{'would have ' if dry_run else ''}{done} {jobs_text(total)} of {queue.name}")
    return DONE


@ctl.command("retry")
@click.argument("queue")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "all_of_them", is_flag=True, help="All jobs of the state, in pages.")
@click.option("--state", type=click.Choice(("failed", "completed")), default="failed", show_default=True)
@click.option("--dry-run", is_flag=True, help="Change nothing; say what would be done.")
@shared
def retry(session: Session, /, queue: str, ids: tuple[str, ...], all_of_them: bool, state: Any, dry_run: bool) -> int:
    """Run finished jobs again.

    \b
    bullmq-ctl retry mail 42 43
    bullmq-ctl retry mail --all

    JSON: an array of {id, done, error}; with --all {queue, state, moved, dry_run}.
    """
    _some(ids, all_of_them)
    with session.existing(queue) as found:
        if all_of_them:
            return _move_all(session, found, state, found.retry_pages(state), "retried", dry_run)
        if dry_run:
            return _each(session, found, ids, "would have retried", lambda each: _look(each, state))
        return _each(session, found, ids, "retried", lambda each: each.retry(state))


@ctl.command("promote")
@click.argument("queue")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "all_of_them", is_flag=True, help="All delayed jobs, in pages.")
@click.option("--dry-run", is_flag=True, help="Change nothing; say what would be done.")
@shared
def promote(session: Session, /, queue: str, ids: tuple[str, ...], all_of_them: bool, dry_run: bool) -> int:
    """Make delayed jobs ready now.

    \b
    bullmq-ctl promote mail 42
    bullmq-ctl promote mail --all --dry-run

    JSON: an array of {id, done, error}; with --all {queue, state, moved, dry_run}.
    """
    _some(ids, all_of_them)
    with session.existing(queue) as found:
        if all_of_them:
            return _move_all(session, found, "delayed", found.promote_pages(), "promoted", dry_run)
        if dry_run:
            return _each(session, found, ids, "would have promoted", lambda each: _look(each, "delayed"))
        return _each(session, found, ids, "promoted", lambda each: each.promote())


@ctl.command("remove")
@click.argument("queue")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--keep-children", is_flag=True, help="Leave the jobs' children.")
@destroys
@shared
def remove(session: Session, /, queue: str, ids: tuple[str, ...], keep_children: bool, dry_run: bool, yes: bool) -> int:
    """Remove jobs with their data, logs and children.

    One that a worker has stays.

    \b
    bullmq-ctl remove mail 42 43 --yes

    JSON: an array of {id, done, error}.
    """
    with session.existing(queue) as found:
        if not dry_run:
            count = len(dict.fromkeys(ids))
            ask(f"Remove {count:,} job{'' if count == 1 else 's'} of {found.name}?", yes=yes)

        def act(job: Job[Any]) -> None:
            if dry_run:
                _check_removable(found, job)
            elif not job.remove(remove_children=not keep_children):
                raise _Refused(f"job {job.id}, or a child of it, is being processed: it stays")

        return _each(session, found, ids, "would remove" if dry_run else "removed", act)
