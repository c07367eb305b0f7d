"""Hold the scripts that profiles change; written by `python lua/build.py`, never by hand."""

from collections.abc import Mapping
from types import MappingProxyType

SWITCHED: Mapping[str, str] = MappingProxyType(
    {
        "moveStalledJobsToWait": """\
local call = redis.call
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local function store_default_cap(meta)
  call('HSET', meta, 'opts.maxLenEvents', '10000')
  return '10000'
end
local function event_cap(meta)
  local stored = call('HGET', meta, 'opts.maxLenEvents')
  if stored then
    return stored
  end
  return store_default_cap(meta)
end
local function trim_events(meta, events)
  call('XTRIM', events, 'MAXLEN', '~', event_cap(meta))
end
--- keys: stalled, wait, active, stalled_check, meta, paused, marker, events
--- when stalled_exemption live-scheduler
--- keys: repeats
--- end
local limit, base = ARGV[1], ARGV[2]
local stalled, active, events = KEYS[1], KEYS[3], KEYS[8]
local recovered = {}
--- when stalled_exemption live-scheduler
local function is_exempt(job)
  local scheduler = call('HGET', job, 'rjk')
  if not scheduler then
    return false
  end
  if call('EXISTS', KEYS[9] .. ':' .. scheduler) == 1 then
    return true
  end
  return call('ZSCORE', KEYS[9], scheduler) ~= false
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
  local target, held = queue_gate(KEYS[5], active, KEYS[2], KEYS[6])
  call('RPUSH', target, id)
  mark_ready(KEYS[7], held)
  emit(events, 'waiting', 'jobId', id, 'prev', 'active')
  emit(events, 'stalled', 'jobId', id)
  recovered[#recovered + 1] = id
end
if call('EXISTS', KEYS[4]) == 1 then
  return recovered
end
call('SET', KEYS[4], ARGV[3], 'PX', ARGV[4])
trim_events(KEYS[5], events)
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
