--- keys: wait, paused, meta, prioritized, active, pc, marker
--- args: priority, base, id, first (1 to be the first of its priority)
--- include call
--- include queue_gate
--- include mark_ready
--- include zadd_by_priority

-- specs/03-transitions-admin-getters.md#sec-4-2
local prioritized, id = KEYS.prioritized, ARGV.id
local job, priority, first = ARGV.base .. id, tonumber(ARGV.priority), ARGV.first == '1'
if call('EXISTS', job) == 0 then
  --@no-job
  return -1
end
local target, held = queue_gate(KEYS.meta, KEYS.active, KEYS.wait, KEYS.paused)
local waiting = true
if call('ZREM', prioritized, id) > 0 then
  --@was-prioritized
--- when waiting_layout v6
elseif call('LREM', KEYS.wait, '-1', id) > 0 then
  --@was-in-wait
--- elsewhen merging_pause
elseif call('LREM', KEYS.wait, '-1', id) > 0 or call('LREM', KEYS.paused, '-1', id) > 0 then
  --@was-in-either
--- else
elseif call('LREM', target, '-1', id) > 0 then
  --@was-listed
--- end
else
  --@elsewhere
  waiting = false
end

--- when waiting_layout adaptive
if waiting then
  -- specs/06-later-versions.md#sec-11-11: the list may have been emptied
  target = queue_gate(KEYS.meta, KEYS.active, KEYS.wait, KEYS.paused)
end
--- end
if waiting and priority ~= 0 and first then
  --@first-of-priority
  call('ZADD', prioritized, priority * PRIORITY_STEP, id)
elseif waiting then
  if priority ~= 0 then
    --@by-priority
    zadd_by_priority(prioritized, KEYS.pc, priority, id)
  elseif first then
    --@next
    call('RPUSH', target, id)
  else
    --@last
    call('LPUSH', target, id)
  end
  mark_ready(KEYS.marker, held)
end
call('HSET', job, 'priority', priority)
return 0
