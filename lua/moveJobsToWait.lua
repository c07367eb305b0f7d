--- keys: base, events, source, wait, paused, meta, active, marker
--- args: size (of a batch), highest_score, state (failed, completed or delayed)
--- include call
--- include each_batch
--- include emit_capped
--- include event_cap
--- include queue_gate
--- include mark_ready
--- when single_retry 6.3
--- include pending_again
--- end

-- specs/03-transitions-admin-getters.md#sec-4-5: the priority is not looked at, a hash need not exist.
local source, size, state = KEYS.source, tonumber(ARGV.size), ARGV.state
local target, held = queue_gate(KEYS.meta, KEYS.active, KEYS.wait, KEYS.paused)
local ids = call('ZRANGEBYSCORE', source, '0', tonumber(ARGV.highest_score), 'LIMIT', '0', size)
if ids[1] then
  local outcome
  if state == 'failed' then
    --@failed
    outcome = 'failedReason'
  elseif state == 'completed' then
    --@completed
    outcome = 'returnvalue'
  else
    --@delayed
  end
  for index = 1, outcome and #ids or 0 do
    call('HDEL', KEYS.base .. ids[index], 'finishedOn', 'processedOn', outcome)
    --- when single_retry 6.3
    -- specs/06-later-versions.md#sec-11-10
    pending_again(KEYS.base .. ids[index], state)
    --- end
  end
  local cap = event_cap(KEYS.meta)
  for index = 1, #ids do
    emit_capped(KEYS.events, cap, 'waiting', 'jobId', ids[index], 'prev', state)
  end
  each_batch(ids, function(...)
    call('ZREM', source, ...)
    call('LPUSH', target, ...)
  end)
  mark_ready(KEYS.marker, held)
else
  --@none
end
if #ids >= size then
  --@more
  return 1
end
--@last
return 0
