--- keys: repeats, delayed, wait, paused, meta, prioritized, marker, id, events, pc, producer (job, or empty), active
--- args: slot (the next one, or empty), scheduler (id), data, options (MessagePack map), now, base (not used)
--- args: producer_id
--- record template: name data every offset
--- include call
--- include emit_capped
--- include event_cap
--- include scheduler_slot
--- include scheduler_iteration

-- specs/04-schedulers-flows-events.md#sec-3-2
--- when write_nrjid
local schedulers, producer, scheduler, timestamp = KEYS.repeats, KEYS.producer, ARGV.scheduler, ARGV.now
--- else
local schedulers, scheduler, timestamp = KEYS.repeats, ARGV.scheduler, ARGV.now
--- end
local options = cmsgpack.unpack(ARGV.options)
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
local every = tonumber(template.every) or tonumber(fallback_every)
local slot
if every then
  --@every
  -- an offset that is no number makes the script fail, needed or not
  slot = next_slot(previous, every, now, template.offset or fallback_offset or 0, nil)
else
  --@cron
  slot = tonumber(ARGV.slot)
end

local id_stem = 'repeat:' .. scheduler .. ':'
local id = id_stem .. slot
if ARGV.producer_id ~= id_stem .. previous then
  --@not-current
  return nil
end
local cap = event_cap(KEYS.meta)
local job = record .. ':' .. slot
if call('EXISTS', job) == 1 then
  --@duplicated
  emit_capped(KEYS.events, cap, 'duplicated', 'jobId', id)
  return nil
end

call('ZADD', schedulers, slot, scheduler)
call('HINCRBY', record, 'ic', '1')
call('INCR', KEYS.id)
--- when scheduler_data_fallback
local data = template.data or ARGV.data
if data ~= '{}' then
  --@data-kept
  call('HSET', record, 'data', data)
else
  --@no-data
end
--- else
local data = template.data or '{}'
--- end
local delay = math.max(slot - now, 0)
create_iteration(job, id, template.name, data, options, timestamp, delay, scheduler, cap)
--- when write_nrjid
if producer ~= '' then
  --@producer
  call('HSET', producer, 'nrjid', id)
else
  --@no-producer
end
--- end
return id
