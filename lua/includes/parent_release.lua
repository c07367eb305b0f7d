--- include call
--- include emit
--- include queue_gate
--- include mark_ready
--- include mark_later
--- include place_by_priority

-- specs/02-worker-path.md#w12, step 3. base: prefix of the parent's queue.
local function place_parent(base, parent, id, now)
  local numbers = call('HMGET', parent, 'priority', 'delay')
  local priority, delay = tonumber(numbers[1]) or 0, tonumber(numbers[2]) or 0
  local marker, events = base .. 'marker', base .. 'events'

  if delay > 0 then
    --@delayed
    local delayed, due = base .. 'delayed', now + delay
    call('ZADD', delayed, due * 4096, id)
    emit(events, 'delayed', 'jobId', id, 'delay', due)
    mark_later(marker, delayed)
    return
  end

  local target, held = queue_gate(base .. 'meta', base .. 'active', base .. 'wait', base .. 'paused')
  if priority == 0 then
    --@list
    call('RPUSH', target, id)
  else
    --@prioritized
    place_by_priority(base .. 'prioritized', base .. 'pc', priority, id)
  end
  mark_ready(marker, held)
  emit(events, 'waiting', 'jobId', id, 'prev', 'waiting-children')
end

-- specs/02-worker-path.md#w12. queue: qualified name, looked at only if the parent exists.
local function release_parent(queue, parent, id, now)
  if call('EXISTS', parent) == 0 then
    --@no-parent
    return
  end
  local base = queue .. ':'
  local waiting_children = base .. 'waiting-children'
  if not call('ZSCORE', waiting_children, id) then
    --@not-waiting
    return
  end
  call('ZREM', waiting_children, id)
  place_parent(base, parent, id, now)
end
