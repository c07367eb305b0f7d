"""Deliberate mistakes in our Lua: the directed cases catch each of them."""

from __future__ import annotations

import pytest

from tests.oracle import cases, directed, scripts
from tests.oracle.calls import Call
from tests.oracle.harness import Bench

MUTANTS = {
    "paused only by the value 1": ("if paused_field then", "if paused_field == '1' then"),
    "concurrency reached counts as open": (">= tonumber(concurrency)", "> tonumber(concurrency)"),
    "due one step too far": ("(now + 1) * 4096 - 1", "(now + 1) * 4096"),
    "due jobs on the wrong end": ("call('LPUSH', target, id)", "call('RPUSH', target, id)"),
    "promotion keeps the delay": ("call('HSET', job, 'delay', '0')", ""),
    "the queue's bad maximum is ignored": (
        "return tonumber(global_maximum)",
        "return tonumber(global_maximum) or (options.limiter and tonumber(options.limiter.max))",
    ),
    "the queue's duration wins": (
        "options.limiter and options.limiter.duration or known[4]",
        "known[4] or options.limiter and options.limiter.duration",
    ),
    "a full limit lets one more pass": (
        "if not (maximum <= tonumber(used or 0))",
        "if not (maximum < tonumber(used or 0))",
    ),
    "token 0 is a token": ("if token ~= '0' then", "if token ~= '' then"),
    "token 0 of a limited worker is a token": (
        "if token == '0' then\n    return nil",
        "if token == '' then\n    return nil",
    ),
    "a plain job is trimmed for too late": ("cap + 1 .. ''", "cap + 2 .. ''"),
    "a plain job is trimmed for too early, with the usual cap": ("'10001'", "'10000'"),
    "a plain job's refused event leaves it in its set": ("call('ZREM', finished, id)", ""),
    "children are not looked at": ("if call('EXISTS', delayed, children, unsuccessful) ~= 0 then", "if false then"),
    "the stalled set keeps a surrendered job": ("call('SREM', stalled, id)", ""),
    "the default cap is not stored": ("'opts.maxLenEvents', '10000'", "'opts.maxLenEvents ', '10000'"),
    "a negative delay of a parent counts": ("if delay > 0 then", "if delay ~= 0 then"),
    "a released parent takes a sequence number": ("due * 4096, id)", "due * 4096 + 1, id)"),
    "a completed parent is not deferred": (
        "call('ZSCORE', base .. 'failed', id)",
        "(call('ZSCORE', base .. 'failed', id) or call('ZSCORE', base .. 'completed', id))",
    ),
    "ignored failures are noted for rdof": ("if link.idof then", "if link.rdof then"),
    "a parent with one pending child is released": ("call('SCARD', pending) > 0", "call('SCARD', pending) > 1"),
    "old jobs are removed from the lowest": (
        "call('ZREVRANGEBYSCORE', finished, oldest, '-inf')",
        "call('ZRANGEBYSCORE', finished, '-inf', oldest)",
    ),
    "one job too many is kept": (
        "call('ZREVRANGE', finished, count, '-1')",
        "call('ZREVRANGE', finished, count + 1, '-1')",
    ),
    "a point counts its own job": (
        "'prevCount', finished_before, 'prevTS'",
        "'prevCount', finished_before + 1, 'prevTS'",
    ),
    "finishing takes from the left": ("call('LREM', active, '-1', id)", "call('LREM', active, '1', id)"),
    "another's deduplication key is released": ("remaining == -1 and call('GET', key) == id", "remaining == -1"),
    "a completed job loses its deferred failure": (
        "if (has_failed and (stored[6] or parent_id ~= '')) then",
        "if (stored[6] or parent_id ~= '') then",
    ),
    "retries are exhausted too late": ("attempts_made >= tonumber(", "attempts_made > tonumber("),
    "drained without looking at the active": (" and call('LLEN', active) == 0 and", " and"),
    "every repeat option exempts": ("rule ~= nil and rule ~= false", "rule ~= nil"),
    "stalled at the limit is too often": ("count > tonumber(limit)", "count >= tonumber(limit)"),
    "the limit 00 means none": ("maximum == '0'", "tonumber(maximum) == 0"),
    "E restarts the lifetime": ("call('SET', key, id, 'KEEPTTL')", "call('SET', key, id, 'PX', ttl)"),
    "roles of a replacement are swapped": ("report(id, owner)", "report(owner, id)"),
    "a removed duplicate is capped": (
        "emit(events, 'removed', 'jobId', owner",
        "emit_capped(events, cap, 'removed', 'jobId', owner",
    ),
    "a duplicate with the same parent is not linked": (
        "elseif not present or present == parent then",
        "elseif not present then",
    ),
    "a full millisecond overflows": ("if taken < last then", "if taken <= last then"),
    "lifo 0 is fifo": ("if options.lifo then", "if options.lifo and options.lifo ~= 0 then"),
    "large ids keep 17 digits": ("return id .. ''", "return string.format('%.17g', id)"),
    "retrying looks at the queue once": (
        "held = is_held(known[1], known[2], active)\nif priority",
        "if priority",
    ),
    "retrying counts no attempt": ("call('HINCRBY', job, 'atm', '1')\nemit_capped", "emit_capped"),
    "removal looks at waiting-children late": (
        "{ 'completed', 'waiting-children', 'delayed', 'failed', 'prioritized' }",
        "{ 'completed', 'delayed', 'failed', 'prioritized', 'waiting-children' }",
    ),
    "hard removal keeps the child's deduplication key": ("call('DEL', home .. 'de:' .. dedup_ids[level])", ""),
    "a scheduler's older job is protected": ("slot and id == 'repeat:' .. scheduler .. ':' .. slot", "slot"),
    "obliterating stops one job late": ("return budget <= 0", "return budget < 0"),
    "resuming looks at wait": ("call('ZCARD', KEYS[4]) > 0", "call('LLEN', KEYS[2]) > 0"),
    "an ignored failure is found in the hash": (
        "call('ZREM', parent .. ':failed', job)",
        "call('HDEL', parent .. ':failed', job)",
    ),
    "a repeated job asks for its priority": ("call(ARGV[2], target, id)", "call('LPUSH', target, id)"),
    "a front priority sets the marker": (
        "call('ZADD', prioritized, priority * PRIORITY_STEP, id)",
        "call('ZADD', prioritized, priority * PRIORITY_STEP, id) mark_ready(KEYS[7], held)",
    ),
    "the wrong end of a priority change": (
        "elseif call('LREM', target, '-1', id)",
        "elseif call('LREM', KEYS[1], '-1', id)",
    ),
    "promotion keeps an old marker": ("call('LPOP', target)", ""),
    "a last batch asks for more": ("if #ids >= size then", "if #ids > size then"),
    "parking looks at the lock before the failed children": (
        "if call('ZCARD', KEYS[5]) > 0 then",
        "if call('GET', KEYS[3] .. ':lock') ~= ARGV[1] then return -6 end if call('ZCARD', KEYS[5]) > 0 then",
    ),
    "draining takes out exactly what it removed": (
        "call('LTRIM', list, #erase_others(call('LRANGE', list, '0', '-1')), '-1')",
        "for _, id in ipairs(erase_others(call('LRANGE', list, '0', '-1'))) do call('LREM', list, 0, id) end",
    ),
    "all negative ends count from the tail": ("if position == -1 then", "if position < 0 then"),
    "an untied child keeps its link": ("call('HDEL', child, 'parentKey', 'parent')", "call('HDEL', child, 'parent')"),
    "cleaning compares numbers": ("return age > newest", "return tonumber(age) > tonumber(newest)"),
    "the catch-up slot is aligned": ("* every + every + offset", "* every + offset"),
}
"""What is wrong, the text in our packaged scripts, and what it is replaced by."""


def mutated(old: str, new: str) -> dict[str, str]:
    changed = {name: text.replace(old, new) for name, text in scripts.ours().items() if old in text}
    assert changed, f"no script of ours holds {old!r} any more"
    return changed


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_is_caught(counting: Bench, name: str) -> None:
    changed = mutated(*MUTANTS[name])
    counting.replace({**scripts.ours(), **changed})
    touched = [
        case for case in directed.CASES if any(isinstance(step, Call) and step.name in changed for step in case.steps)
    ]
    assert any(cases.run(counting, case) for case in touched)
