--- include call
--- include emit_capped
--- include queue_gate
--- include mark_ready
--- include place_by_priority
--- include place_delayed
--- include store_job

-- KEYS 2 to 7, 9 and 10 are the same in the scheduler commands; the active list is not.

-- specs/04-schedulers-flows-events.md#sec-1-5: deduplication is not looked at.
local function create_iteration(job, id, name, data, options, now, delay, scheduler, active, cap)
  local delayed, wait, paused, meta, prioritized, marker = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
  local events, counter = KEYS[9], KEYS[10]
  options.delay = delay
  options.jobId = id
  store_job(events, job, id, name, data, now, options, nil, nil, scheduler)
  if delay ~= 0 then
    --@delayed
    place_delayed(delayed, marker, events, cap, id, now, delay)
    return
  end

  local target, held = queue_gate(meta, active, wait, paused)
  local priority = options.priority or 0
  if priority ~= 0 then
    --@prioritized
    place_by_priority(prioritized, counter, priority, id)
  elseif options.lifo then
    --@lifo
    call('RPUSH', target, id)
  else
    --@fifo
    call('LPUSH', target, id)
  end
  mark_ready(marker, held)
  emit_capped(events, cap, 'waiting', 'jobId', id)
end
