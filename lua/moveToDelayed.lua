--- keys: marker, active, prioritized (not used), delayed, job, events, meta, stalled
--- args: base prefix (not used), now, id, token, delay, skip attempt (1), fields (MessagePack array or empty)
--- include call
--- include emit_capped
--- include event_cap
--- include delay_slot
--- include mark_later
--- include surrender_lock
--- include write_fields

-- specs/03-transitions-admin-getters.md#sec-3-1
local delayed, job, id, delay = KEYS[4], KEYS[5], ARGV[3], ARGV[5]
if call('EXISTS', job) == 0 then
  --@no-job
  return -1
end
local refusal = surrender_lock(job, KEYS[8], ARGV[4], id)
if refusal then
  return refusal
end
write_fields(job, ARGV[7])
if call('LREM', KEYS[2], '-1', id) == 0 then
  --@not-active
  return -3
end

local score, due = delay_slot(delayed, tonumber(ARGV[2]), tonumber(delay))
if ARGV[6] == '0' then
  --@attempt
  call('HINCRBY', job, 'atm', '1')
else
  --@no-attempt
end
-- the hash keeps the relative delay, the event tells the absolute due time
call('HSET', job, 'delay', delay)
local cap = event_cap(KEYS[7])
call('ZADD', delayed, score, id)
emit_capped(KEYS[6], cap, 'delayed', 'jobId', id, 'delay', due)
mark_later(KEYS[1], delayed)
--@moved
return 0
