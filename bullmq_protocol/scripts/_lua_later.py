"""Hold the packaged Lua scripts of `later/`; written by `python lua/build.py`, never by hand."""

from collections.abc import Mapping
from types import MappingProxyType

from bullmq_protocol.command import Script

GET_JOBS = Script(
    name="getJobs",
    sha1="7d1c63aa55f8c2c34f169fbc26a478e95533d74a",
    keys=1,
    source="""\
local call = redis.call
local function drop_old_marker(list)
  local tail = call('LINDEX', list, '-1')
  if not tail or string.sub(tail, 1, 2) ~= '0:' then
    return false
  end
  if call('LLEN', list) > 1 then
    call('RPOP', list)
    return false
  end
  return true
end
local base = KEYS[1]
local first, last, ascending = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1'
local rounds = tonumber(ARGV[4])
local function reversed(items)
  local turned = {}
  for index = #items, 1, -1 do
    turned[#turned + 1] = items[index]
  end
  return turned
end
local function read(key, from, to, is_list, length)
  if not is_list then
    return call(ascending and 'ZRANGE' or 'ZREVRANGE', key, from, to)
  end
  if not ascending then
    return call('LRANGE', key, from, to)
  end
  if from >= 0 and to >= 0 and from >= (length or call('LLEN', key)) then
    return {}
  end
  return reversed(call('LRANGE', key, 0 - (to + 1), 0 - (from + 1)))
end
local function append(jobs, ids, wanted)
  for index = 1, #ids do
    if #jobs == wanted then
      return
    end
    local fields = call('HGETALL', base .. ids[index])
    if fields[1] then
      jobs[#jobs + 1] = { ids[index], fields }
    else
    end
  end
end
local function jobs_of(state)
  local key, is_list, length = base .. state, state == 'active', nil
  if state == 'wait' or state == 'paused' then
    is_list, length = true, drop_old_marker(key) and 0 or call('LLEN', key)
  end
  local jobs = {}
  if first < 0 or last < 0 then
    append(jobs, read(key, first, last, is_list, length), nil)
    return jobs
  end
  local wanted, from, round = last - first + 1, first, 0
  while #jobs < wanted and round < rounds do
    local ids = read(key, from, from + wanted - 1, is_list, length)
    if not ids[1] then
      break
    end
    append(jobs, ids, wanted)
    from, round = from + #ids, round + 1
  end
  return jobs
end
local found = {}
for index = 1, #ARGV - 4 do
  found[index] = jobs_of(ARGV[4 + index])
end
return found
""",
)

RELEASE_PARENT_IF_NO_PENDING_DEPENDENCIES = Script(
    name="releaseParentIfNoPendingDependencies",
    sha1="c2dc91f321ef71ace05b8579d85abb00e78368d3",
    keys=2,
    source="""\
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
local function next_due(delayed)
  local score = call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2]
  return score and score / 4096
end
local function mark_delayed(marker, delayed)
  local due = next_due(delayed)
  if due then
    call('ZADD', marker, due, '1')
  end
end
local PRIORITY_STEP = 4294967296
local function zadd_by_priority(prioritized, counter, priority, id)
  local turn = call('INCR', counter)
  call('ZADD', prioritized, priority * PRIORITY_STEP + turn % PRIORITY_STEP, id)
end
local function place_parent(base, parent, id, now)
  local numbers = call('HMGET', parent, 'priority', 'delay')
  local priority, delay = tonumber(numbers[1]) or 0, tonumber(numbers[2]) or 0
  local marker, events = base .. 'marker', base .. 'events'
  if delay > 0 then
    local delayed, due = base .. 'delayed', now + delay
    call('ZADD', delayed, due * 4096, id)
    emit(events, 'delayed', 'jobId', id, 'delay', due)
    mark_delayed(marker, delayed)
    return
  end
  local target, held = queue_gate(base .. 'meta', base .. 'active', base .. 'wait', base .. 'paused')
  if priority == 0 then
    call('RPUSH', target, id)
  else
    zadd_by_priority(base .. 'prioritized', base .. 'pc', priority, id)
  end
  mark_ready(marker, held)
  emit(events, 'waiting', 'jobId', id, 'prev', 'waiting-children')
end
local function release_parent(queue, parent, id, now)
  if call('EXISTS', parent) == 0 then
    return
  end
  local base = queue .. ':'
  local waiting_children = base .. 'waiting-children'
  if not call('ZSCORE', waiting_children, id) then
    return
  end
  call('ZREM', waiting_children, id)
  place_parent(base, parent, id, now)
end
if call('HEXISTS', KEYS[1], 'flowAttachmentFailed') == 1 then
  call('HDEL', KEYS[1], 'flowAttachmentFailed')
elseif call('SCARD', KEYS[2]) == 0 then
  release_parent(ARGV[1], KEYS[1], ARGV[2], ARGV[3])
else
end
return nil
""",
)

REMOVE_DEDUPLICATION_KEY = Script(
    name="removeDeduplicationKey",
    sha1="bc6bc210fddbd2179ec6abfc9236da2516ac3f7a",
    keys=1,
    source="""\
local call = redis.call
if call('GET', KEYS[1]) == ARGV[1] then
  return call('DEL', KEYS[1])
end
return 0
""",
)

REMOVE_ORPHANED_JOBS = Script(
    name="removeOrphanedJobs",
    sha1="750a43bcbaa01cbb7b7bf1983251ef4bd678a90e",
    keys=1,
    source="""\
local call = redis.call
local base, state_count = KEYS[1], tonumber(ARGV[1])
local states, kinds = {}, {}
for index = 1, state_count do
  local key = base .. ARGV[index + 1]
  states[index], kinds[index] = key, call('TYPE', key).ok
end
local parts_at = state_count + 2
local part_count = tonumber(ARGV[parts_at])
local function has_state(id)
  for index = 1, state_count do
    local key, kind, found = states[index], kinds[index], false
    if kind == 'list' then
      found = call('LPOS', key, id)
    elseif kind == 'zset' then
      found = call('ZSCORE', key, id)
    elseif kind == 'set' then
      found = call('SISMEMBER', key, id) == 1
    else
    end
    if found then
      return true
    end
  end
  return false
end
local removed = 0
for index = parts_at + part_count + 1, #ARGV do
  local id = ARGV[index]
  if not has_state(id) then
    local job = base .. id
    local keys = { job }
    for part = 1, part_count do
      keys[part + 1] = job .. ':' .. ARGV[parts_at + part]
    end
    call('DEL', unpack(keys))
    removed = removed + 1
  end
end
return removed
""",
)

LATER_SCRIPTS: Mapping[str, Script] = MappingProxyType(
    {
        script.name: script
        for script in (
            GET_JOBS,
            RELEASE_PARENT_IF_NO_PENDING_DEPENDENCIES,
            REMOVE_DEDUPLICATION_KEY,
            REMOVE_ORPHANED_JOBS,
        )
    }
)
