--- keys: base prefix, events, source set, wait, paused, meta, active, marker
--- args: batch size, highest score, failed, completed or delayed
--- include call
--- include each_batch
--- include emit_capped
--- include event_cap
--- include queue_gate
--- include mark_ready

-- specs/03-transitions-admin-getters.md#sec-4-5: neither priority nor parent is looked at, a hash need not exist.
local source, size, state = KEYS[3], tonumber(ARGV[1]), ARGV[3]
local target, held = queue_gate(KEYS[6], KEYS[7], KEYS[4], KEYS[5])
local ids = call('ZRANGEBYSCORE', source, '0', tonumber(ARGV[2]), 'LIMIT', '0', size)
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
    call('HDEL', KEYS[1] .. ids[index], 'finishedOn', 'processedOn', outcome)
  end
  local cap = event_cap(KEYS[6])
  for index = 1, #ids do
    emit_capped(KEYS[2], cap, 'waiting', 'jobId', ids[index], 'prev', state)
  end
  each_batch(ids, function(...)
    call('ZREM', source, ...)
    call('LPUSH', target, ...)
  end)
  mark_ready(KEYS[8], held)
else
  --@none
end
if #ids >= size then
  --@more
  return 1
end
--@last
return 0
