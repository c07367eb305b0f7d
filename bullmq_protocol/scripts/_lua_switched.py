"""Hold what switches change of the scripts; written by `python lua/build.py`, never by hand."""

from collections.abc import Mapping
from types import MappingProxyType

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "moveStalledJobsToWait": """\
--- keys: stalled wait active stalled_check meta paused marker events
--- when stalled_exemption live-scheduler
--- keys: repeats
--- end
--- args: maximum base now interval
--- include call
--- include emit
--- include queue_gate
--- include mark_ready
--- include trim_events
local limit, base = ARGV.maximum, ARGV.base
local stalled, active, events = KEYS.stalled, KEYS.active, KEYS.events
local recovered = {}
--- when stalled_exemption live-scheduler
local function is_exempt(job)
  local scheduler = call('HGET', job, 'rjk')
  if not scheduler then
    return false
  end
  if call('EXISTS', KEYS.repeats .. ':' .. scheduler) == 1 then
    return true
  end
  return call('ZSCORE', KEYS.repeats, scheduler) ~= false
end
--- else
local function is_exempt(job)
  local text = call('HGET', job, 'opts')
  local rule = text and cjson.decode(text)['repeat']
  return rule ~= nil and rule ~= false
end
--- end
local function recover(id)
  local job = base .. id
  if call('EXISTS', job .. ':lock') == 1 then
    return
  end
  if call('LREM', active, '1', id) == 0 then
    return
  end
  local count = call('HINCRBY', job, 'stc', '1')
  local exempt = is_exempt(job)
  if count > tonumber(limit) then
    if exempt then
    else
      call('HSET', job, 'defa', 'job stalled more than allowable limit')
    end
  else
  end
  local target, held = queue_gate(KEYS.meta, active, KEYS.wait, KEYS.paused)
  call('RPUSH', target, id)
  mark_ready(KEYS.marker, held)
  emit(events, 'waiting', 'jobId', id, 'prev', 'active')
  emit(events, 'stalled', 'jobId', id)
  recovered[#recovered + 1] = id
end
if call('EXISTS', KEYS.stalled_check) == 1 then
  return recovered
end
call('SET', KEYS.stalled_check, ARGV.now, 'PX', ARGV.interval)
trim_events(KEYS.meta, events)
local suspects = call('SMEMBERS', stalled)
if suspects[1] then
  call('DEL', stalled)
end
for _, id in ipairs(suspects) do
  if string.sub(id, 1, 2) == '0:' then
    call('LREM', active, '1', id)
  else
    recover(id)
  end
end
local running = call('LRANGE', active, '0', '-1')
for from = 1, #running, 7000 do
  call('SADD', stalled, unpack(running, from, math.min(from + 6999, #running)))
end
return recovered
""",
    }
)

INCLUDES: Mapping[str, str] = MappingProxyType(
    {
        "call": """\
local call = redis.call
""",
        "default_cap": """\
--- include call
local function store_default_cap(meta)
  call('HSET', meta, 'opts.maxLenEvents', '10000')
  return '10000'
end
""",
        "deferred": """\
local deferred = nil
local emitted = 0
""",
        "emit": """\
--- include call
--- when deferred
--- include deferred
--- end
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
--- when deferred
  emitted = emitted + 1
--- end
end
""",
        "event_cap": """\
--- include call
--- include default_cap
local function event_cap(meta)
  local stored = call('HGET', meta, 'opts.maxLenEvents')
  if stored then
    return stored
  end
  return store_default_cap(meta)
end
""",
        "is_held": """\
--- include call
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
""",
        "mark_ready": """\
--- include call
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
""",
        "queue_gate": """\
--- include call
--- include is_held
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
""",
        "trim_events": """\
--- include call
--- include event_cap
local function trim_events(meta, events)
  call('XTRIM', events, 'MAXLEN', '~', event_cap(meta))
end
""",
    }
)
