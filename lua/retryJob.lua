--- keys: active, wait, paused, job, meta, events, delayed, prioritized, pc, marker, stalled
--- args: base, now, push (LPUSH or RPUSH), id, token, fields (MessagePack array, or empty)
--- include call
--- include emit_capped
--- include default_cap
--- include is_held
--- include queue_settings
--- include mark_ready
--- include zadd_by_priority
--- include priority_of
--- lazy promote_due: promote_due
--- include release_lock
--- include write_fields

-- specs/03-transitions-admin-getters.md#sec-3-4
local active, job, meta, events, marker, id = KEYS.active, KEYS.job, KEYS.meta, KEYS.events, KEYS.marker, ARGV.id
local known = queue_settings(meta)
--- paste target_list(paused = known.paused, wait = KEYS.wait, set_aside = KEYS.paused)
local held = is_held(known.paused, known.concurrency, active)
-- before any check, so also for a job that is missing or not locked
local now = tonumber(ARGV.now)
if call('ZRANGEBYSCORE', KEYS.delayed, '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1')[1] then
  load_promote_due()(ARGV.base, now, target, held)
end
if call('EXISTS', job) == 0 then
  --@no-job
  return -1
end
local refusal = release_lock(job, KEYS.stalled, ARGV.token, id)
if refusal then
  return refusal
end
write_fields(job, ARGV.fields)
if call('LREM', active, '-1', id) == 0 then
  --@not-active
  return -3
end

local priority = priority_of(job)
held = is_held(known.paused, known.concurrency, active)
if priority == 0 then
  --@list
  call(ARGV.push, target, id)
else
  --@prioritized
  zadd_by_priority(KEYS.prioritized, KEYS.pc, priority, id)
end
mark_ready(marker, held)
call('HINCRBY', job, 'atm', '1')
emit_capped(events, known.cap or store_default_cap(meta), 'waiting', 'jobId', id, 'prev', 'active')
return 0
