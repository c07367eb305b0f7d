--- needs: KEYS.events
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
  --- paste place_new(id, options, now, delay, number = delay, events, cap)
end
