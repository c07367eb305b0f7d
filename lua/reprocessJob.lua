--- keys: job, events, source (completed or failed), wait, meta
--- unless waiting_layout v6
--- keys: paused
--- end
--- keys: active, marker
--- args: id, push (LPUSH or RPUSH), field (failedReason or returnvalue), state (failed or completed)
--- when single_retry 6.3
--- keys: prioritized, pc
--- include priority_of
--- include zadd_by_priority
--- end
--- when single_retry 5.81 6.3
--- args: reset_made (1), reset_started (1)
--- include pending_again
--- end
--- include call
--- include emit_capped
--- include event_cap
--- include queue_gate
--- include mark_ready

local job, meta, id, state = KEYS.job, KEYS.meta, ARGV.id, ARGV.state

--- when single_retry 5.62
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
--- end

-- specs/03-transitions-admin-getters.md#sec-4-4, specs/06-later-versions.md#sec-11-10
if call('EXISTS', job) == 0 then
  --@no-job
  return -1
end
if call('ZREM', KEYS.source, id) == 0 then
  --@not-finished
  return -3
end
--- when single_retry 5.81 6.3
local fields = { 'finishedOn', 'processedOn', ARGV.field }
if ARGV.reset_made == '1' then
  --@reset-made
  fields[#fields + 1] = 'atm'
end
if ARGV.reset_started == '1' then
  --@reset-started
  fields[#fields + 1] = 'ats'
end
call('HDEL', job, unpack(fields))
--- else
call('HDEL', job, 'finishedOn', 'processedOn', ARGV.field)
--- end
--- when waiting_layout v6
local target, held = queue_gate(meta, KEYS.active, KEYS.wait)
--- else
local target, held = queue_gate(meta, KEYS.active, KEYS.wait, KEYS.paused)
--- end
--- when single_retry 6.3
local priority = priority_of(job)
if priority ~= 0 then
  --@by-priority
  zadd_by_priority(KEYS.prioritized, KEYS.pc, priority, id)
else
  --@to-list
  call(ARGV.push, target, id)
end
--- else
-- the priority is not looked at
call(ARGV.push, target, id)
--- end
mark_ready(KEYS.marker, held)

--- when single_retry 5.81 6.3
pending_again(job, state)
--- else
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
--- end
emit_capped(KEYS.events, event_cap(meta), 'waiting', 'jobId', id, 'prev', state)
return 1
