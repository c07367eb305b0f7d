--- keys: marker, active, prioritized (not used), delayed, job, events, meta, stalled
--- args: base (not used), now, id, token, delay, skip_attempt (1), fields (MessagePack array, or empty)
--- include call
--- include emit_capped
--- include event_cap
--- include delay_slot
--- include mark_delayed
--- include release_lock
--- include write_fields

-- specs/03-transitions-admin-getters.md#sec-3-1
local delayed, job, id, delay = KEYS.delayed, KEYS.job, ARGV.id, ARGV.delay
if call('EXISTS', job) == 0 then
  --@no-job
  return -1
end
local refusal = release_lock(job, KEYS.stalled, ARGV.token, id)
if refusal then
  return refusal
end
write_fields(job, ARGV.fields)
if call('LREM', KEYS.active, '-1', id) == 0 then
  --@not-active
  return -3
end

local score, due = delay_slot(delayed, tonumber(ARGV.now), tonumber(delay))
if ARGV.skip_attempt == '0' then
  --@attempt
  call('HINCRBY', job, 'atm', '1')
else
  --@no-attempt
end
-- the hash keeps the relative delay, the event tells the absolute due time
call('HSET', job, 'delay', delay)
local cap = event_cap(KEYS.meta)
call('ZADD', delayed, score, id)
emit_capped(KEYS.events, cap, 'delayed', 'jobId', id, 'delay', due)
mark_delayed(KEYS.marker, delayed)
--@moved
return 0
