--- keys: repeat, delayed, wait, paused, meta, prioritized, marker, id, events, pc, producing job or empty, active
--- args: next slot or empty, scheduler id, data, options (MessagePack map), now, base prefix (not used)
--- args: id of the producing job
--- include call
--- include emit_capped
--- include event_cap
--- include scheduler_slot
--- include scheduler_iteration

-- specs/04-schedulers-flows-events.md#sec-3-2
local schedulers, producer, scheduler, timestamp = KEYS[1], KEYS[11], ARGV[2], ARGV[5]
local options = cmsgpack.unpack(ARGV[4])
local previous = tonumber(call('ZSCORE', schedulers, scheduler))
if not previous then
  --@no-scheduler
  return nil
end
local record, now = schedulers .. ':' .. scheduler, tonumber(timestamp)
local template = call('HMGET', record, 'name', 'data', 'every', 'offset')
-- looked into in any case: a number or true in its place makes the script fail
local schedule = options['repeat'] or {}
local fallback_every, fallback_offset = schedule.every, schedule.offset
local every = tonumber(template[3]) or tonumber(fallback_every)
local slot
if every then
  --@every
  -- an offset that is no number makes the script fail, needed or not
  slot = next_slot(previous, every, now, template[4] or fallback_offset or 0, nil)
else
  --@cron
  slot = tonumber(ARGV[1])
end

local id_stem = 'repeat:' .. scheduler .. ':'
local id = id_stem .. slot
if ARGV[7] ~= id_stem .. previous then
  --@not-current
  return nil
end
local cap = event_cap(KEYS[5])
local job = record .. ':' .. slot
if call('EXISTS', job) == 1 then
  --@duplicated
  emit_capped(KEYS[9], cap, 'duplicated', 'jobId', id)
  return nil
end

call('ZADD', schedulers, slot, scheduler)
call('HINCRBY', record, 'ic', '1')
call('INCR', KEYS[8])
local data = template[2] or ARGV[3]
if data ~= '{}' then
  --@data-kept
  call('HSET', record, 'data', data)
else
  --@no-data
end
local delay = math.max(slot - now, 0)
create_iteration(job, id, template[1], data, options, timestamp, delay, scheduler, KEYS[12], cap)
if producer ~= '' then
  --@producer
  call('HSET', producer, 'nrjid', id)
else
  --@no-producer
end
return id
