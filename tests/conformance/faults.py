"""Faults as patches: of this library's adapter (`bullmq_conformance/calls.py`), and of its scripts."""

from __future__ import annotations

import types
from pathlib import Path
from typing import NamedTuple

from bullmq_conformance import calls


class Fault(NamedTuple):
    """A wrong argument, a missing call, a wrong answer."""

    call: str
    old: str
    new: str


FAULTS = (
    Fault("open", "await got(self._queue(queue).get_version())", "self._queue(queue)"),
    Fault("add", "add(name, data, options_of(opts))", "add(name.upper(), data, options_of(opts))"),
    Fault("add", "add(name, data, options_of(opts))", "add(name, {}, options_of(opts))"),
    Fault("add", "add(name, data, options_of(opts))", "add(name, data)"),
    Fault("add", "add(name, data, options_of(opts))", 'add(name, data, options_of({**opts, "attempts": 2}))'),
    Fault("add", "return str((await got(self._queue(queue).add(", 'return "" + str((await got(self._queue("q").add('),
    Fault("add_bulk", "for job in jobs]\n", "for job in reversed(jobs)]\n"),
    Fault("add_bulk", 'NewJob(job["name"], job["data"], options_of(job["opts"]))', 'NewJob(job["name"], job["data"])'),
    Fault(
        "add_bulk",
        "return [job.id for job in await got(self._queue(queue).add_bulk(new))]",
        "return [(await got(self._queue(queue).add(j.name, j.data, j.options))).id for j in new[:1]]",
    ),
    Fault("flow", "for child in added.children or ()", "for child in ()"),
    Fault("flow", "node_of(flow)", 'node_of({**flow, "opts": {}})'),
    Fault("flow", "node_of(flow)", 'node_of({**flow, "children": flow["children"][::-1]})'),
    Fault("take", '"token": job.token, "name": job.name', '"token": job.token, "name": job.id'),
    Fault("take", "lock_duration=LOCK_MS", "lock_duration=2 * LOCK_MS"),
    Fault("take", "return None\n        self._taken", 'raise RuntimeError("no job")\n        self._taken'),
    Fault("finish", "await self._held(queue, id, token), value)", "await self._held(queue, id, token), str(value))"),
    Fault(
        "finish", "complete(await self._held(queue, id, token), value)", "complete(await self._held(queue, id, token))"
    ),
    Fault(
        "finish",
        "complete(await self._held(queue, id, token), value)",
        "fail(await self._held(queue, id, token), RuntimeError(value))",
    ),
    Fault("fail", "if fatal else", "if not fatal else"),
    Fault("fail", "RuntimeError(reason)", 'RuntimeError("failed")'),
    Fault("delay", "move_to_delayed(until, token)", "move_to_delayed(0, token)"),
    Fault("delay", "move_to_delayed(until, token)", "move_to_delayed(until // 1000, token)"),
    Fault("delay", "move_to_delayed(until, token)", "move_to_delayed(until - 50, token)"),
    Fault("release", "await got(job.move_to_wait(token))", "job.token"),
    Fault("release", "await got(job.move_to_wait(token))", "await got(job.move_to_delayed(0, token))"),
    Fault("extend_lock", "job.extend_lock(duration)", "job.extend_lock(LOCK_MS)"),
    Fault("promote", "(await self._job(queue, id)).promote()", "self._job(queue, id)"),
    Fault("change_priority", "change_priority(priority, lifo=lifo)", "change_priority(priority, lifo=not lifo)"),
    Fault("change_priority", "change_priority(priority, lifo=lifo)", "change_priority(priority + 1, lifo=lifo)"),
    Fault("change_delay", ".change_delay(delay)", ".change_delay(delay // 1000)"),
    Fault("remove", "remove_children=remove_children", "remove_children=not remove_children"),
    Fault("update_data", "await got((await self._job(queue, id)).update_data(data))", "await self._job(queue, id)"),
    Fault("progress", "update_progress(progress)", "update_progress(str(progress))"),
    Fault("log", ".log(row)", '.log(row + " ")'),
    Fault(
        "remove_parent",
        "bool(await got((await self._job(queue, id)).remove_child_dependency()))",
        "(await self._job(queue, id)) is None",
    ),
    Fault("remove_children", "remove_unprocessed_children()", "get_state()"),
    Fault("job", '"timestamp": job.timestamp', '"timestamp": job.processed_on'),
    Fault("job", '"returnvalue": job.returnvalue', '"returnvalue": None'),
    Fault("job", '"attemptsMade": job.attempts_made', '"attemptsMade": job.attempts_started'),
    Fault("state", "str(await got(self._queue(queue).get_job_state(id)))", '"waiting"'),
)


class LuaFault(NamedTuple):
    """A wrong line of a script."""

    command: str
    old: str
    new: str


LUA_FAULTS = (
    LuaFault("promote", "'prev', 'delayed'", "'prev', 'waiting'"),
    LuaFault("promote", "call('HSET', job, 'delay', '0')", ""),
    LuaFault("changeDelay", "call('HSET', job, 'delay', delay)", ""),
    LuaFault("moveToActive", "'prev', 'waiting'", "'prev', 'delayed'"),
    LuaFault("moveToActive", "'PX', options.lockDuration", "'PX', 2 * options.lockDuration"),
    LuaFault("retryJob", "call('HINCRBY', job, 'atm', '1')", "call('HINCRBY', job, 'atm', '2')"),
    LuaFault("pause", "call('DEL', marker)", ""),
    LuaFault("drain", "if ARGV[2] == '1' then", "if ARGV[2] == '0' then"),
    LuaFault("removeJob", "return -8", "return -3"),
    LuaFault("moveToDelayed", "if ARGV[6] == '0' then", "if ARGV[6] == '1' then"),
    LuaFault("reprocessJob", "'finishedOn', 'processedOn', ARGV[3]", "'finishedOn', ARGV[3]"),
    LuaFault("extendLock", "call('SREM', stalled, id)", ""),
    LuaFault("getState", "state = 'prioritized'", "state = 'waiting'"),
)
"""Planted in this library's scripts of 5.62.0, each in the first place that has the text."""


def patched(fault: Fault) -> type[calls.Calls]:
    """Return the class of calls with a fault in it; a text that is not there once is an error of the table."""
    text = Path(calls.__file__).read_text(encoding="utf-8")
    assert text.count(fault.old) == 1, fault
    module = types.ModuleType(f"faulty_{fault.call}")
    exec(compile(text.replace(fault.old, fault.new), module.__name__, "exec"), module.__dict__)
    kind: type[calls.Calls] = module.Calls
    return kind
