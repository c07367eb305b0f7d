--- keys: active, wait, stalled, paused, meta, limiter, prioritized, marker, events
--- args: id, token, job key
--- include call
--- include emit_capped
--- include event_cap
--- include queue_gate
--- include mark_ready
--- include priority_step
--- include priority_of
--- include surrender_lock

-- specs/03-transitions-admin-getters.md#sec-3-3
local active, meta, id, job = KEYS[1], KEYS[5], ARGV[1], ARGV[3]
if call('EXISTS', job) == 0 then
  --@no-job
  return -1
end
local refusal = surrender_lock(job, KEYS[3], ARGV[2], id)
if refusal then
  return refusal
end

if call('LREM', active, 1, id) > 0 then
  local target, held = queue_gate(meta, active, KEYS[2], KEYS[4])
  local priority = priority_of(job)
  if priority > 0 then
    --@prioritized
    call('ZADD', KEYS[7], priority * PRIORITY_STEP, id)
  else
    --@list
    call('RPUSH', target, id)
    mark_ready(KEYS[8], held)
  end
  emit_capped(KEYS[9], event_cap(meta), 'waiting', 'jobId', id, 'prev', 'active')
else
  --@not-active
end

local remaining = call('PTTL', KEYS[6])
if remaining > 0 then
  --@rate-limited
  return remaining
end
--@not-limited
return 0
