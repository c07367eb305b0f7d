--- include call
--- include emit
--- include mark_ready
--- include place_by_priority
--- include priority_of

-- specs/02-worker-path.md#w4: also when the queue is paused, maxed or rate limited. Gives the number of jobs, at most 1,000.
local function promote_due(base, now, target, held, delayed, prioritized, counter, events, marker)
  local due = call('ZRANGEBYSCORE', delayed, '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1000')
  if not due[1] then
    --@none
    return 0
  end
  call('ZREM', delayed, unpack(due))
  for index = 1, #due do
    local id = due[index]
    local job = base .. id
    local priority = priority_of(job)
    if priority == 0 then
      --@to-list
      call('LPUSH', target, id)
    else
      --@to-prioritized
      place_by_priority(prioritized, counter, priority, id)
    end
    emit(events, 'waiting', 'jobId', id, 'prev', 'delayed')
    call('HSET', job, 'delay', '0')
  end
  mark_ready(marker, held)
  return #due
end
