--- keys: active, wait, paused, job, meta, events, delayed, prioritized, pc, marker, stalled
--- args: base prefix, now, LPUSH or RPUSH, id, token, fields (MessagePack array or empty)
--- include call
--- include emit_capped
--- include default_cap
--- include is_held
--- include queue_settings
--- include mark_ready
--- include place_by_priority
--- include priority_of
--- lazy promote_due: promote_due
--- include surrender_lock
--- include write_fields

-- specs/03-transitions-admin-getters.md#sec-3-4
local active, job, meta, events, marker, id = KEYS[1], KEYS[4], KEYS[5], KEYS[6], KEYS[10], ARGV[4]
local known = queue_settings(meta)
local target = known[1] and KEYS[3] or KEYS[2]
local held = is_held(known[1], known[2], active)
-- before any check, so also for a job that is missing or not locked
local now = tonumber(ARGV[2])
if call('ZRANGEBYSCORE', KEYS[7], '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1')[1] then
  load_promote_due()(ARGV[1], now, target, held, KEYS[7], KEYS[8], KEYS[9], events, marker)
end
if call('EXISTS', job) == 0 then
  --@no-job
  return -1
end
local refusal = surrender_lock(job, KEYS[11], ARGV[5], id)
if refusal then
  return refusal
end
write_fields(job, ARGV[6])
if call('LREM', active, '-1', id) == 0 then
  --@not-active
  return -3
end

local priority = priority_of(job)
held = is_held(known[1], known[2], active)
if priority == 0 then
  --@list
  call(ARGV[3], target, id)
else
  --@prioritized
  place_by_priority(KEYS[8], KEYS[9], priority, id)
end
mark_ready(marker, held)
call('HINCRBY', job, 'atm', '1')
emit_capped(events, known[5] or store_default_cap(meta), 'waiting', 'jobId', id, 'prev', 'active')
return 0
