--- keys: job, events, source (completed or failed), wait, meta, paused, active, marker
--- args: id, push (LPUSH or RPUSH), field (failedReason or returnvalue), state (failed or completed)
--- include call
--- include emit_capped
--- include event_cap
--- include queue_gate
--- include mark_ready

local job, meta, id, state = KEYS.job, KEYS.meta, ARGV.id, ARGV.state

-- specs/03-transitions-admin-getters.md#sec-4-4, step 5: gives how many outcomes were taken back.
local function forget_outcome(parent)
  if state == 'completed' then
    --@parent-processed
    return call('HDEL', parent .. ':processed', job)
  end
  local failures = call('ZREM', parent .. ':unsuccessful', job)
  if failures > 0 then
    --@parent-unsuccessful
    return failures
  end
  --@parent-ignored
  -- a hash, if it is there at all: the script ends here then, as specified
  return call('ZREM', parent .. ':failed', job)
end

-- specs/03-transitions-admin-getters.md#sec-4-4: the priority is not looked at.
if call('EXISTS', job) == 0 then
  --@no-job
  return -1
end
if call('ZREM', KEYS.source, id) == 0 then
  --@not-finished
  return -3
end
call('HDEL', job, 'finishedOn', 'processedOn', ARGV.field)
local target, held = queue_gate(meta, KEYS.active, KEYS.wait, KEYS.paused)
call(ARGV.push, target, id)
mark_ready(KEYS.marker, held)

local parent = call('HGET', job, 'parentKey')
if parent and call('EXISTS', parent) == 1 then
  if forget_outcome(parent) > 0 then
    --@pending-again
    call('SADD', parent .. ':dependencies', job)
  else
    --@not-linked
  end
else
  --@no-parent
end
emit_capped(KEYS.events, event_cap(meta), 'waiting', 'jobId', id, 'prev', state)
return 1
