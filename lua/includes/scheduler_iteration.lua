--- needs: KEYS.active, KEYS.delayed, KEYS.events, KEYS.marker, KEYS.meta, KEYS.paused, KEYS.pc, KEYS.prioritized
--- needs: KEYS.wait
--- include call
--- include emit_capped
--- include queue_gate
--- include mark_ready
--- include zadd_by_priority
--- include place_delayed
--- include store_job

-- specs/04-schedulers-flows-events.md#sec-1-5: deduplication is not looked at.
local function create_iteration(job, id, name, data, options, now, delay, scheduler, cap)
  local events = KEYS.events
  options.delay = delay
  options.jobId = id
  store_job(events, job, id, name, data, now, options, nil, nil, scheduler)
  if delay ~= 0 then
    --@delayed
    place_delayed(KEYS.delayed, KEYS.marker, events, cap, id, now, delay)
    return
  end

  local target, held = queue_gate(KEYS.meta, KEYS.active, KEYS.wait, KEYS.paused)
  local priority = options.priority or 0
  if priority ~= 0 then
    --@prioritized
    zadd_by_priority(KEYS.prioritized, KEYS.pc, priority, id)
  else
    --- paste push_job(target, id, options)
  end
  mark_ready(KEYS.marker, held)
  emit_capped(events, cap, 'waiting', 'jobId', id)
end
