--- step: id, options, now, delay, number, events, cap
--- needs: KEYS.active, KEYS.delayed, KEYS.marker, KEYS.meta, KEYS.paused, KEYS.pc, KEYS.prioritized, KEYS.wait

-- specs/04-schedulers-flows-events.md#sec-1-5, steps 4 and 5, and specs/06-later-versions.md#l2: puts a
-- stored job in line. number: the delay as one.
if delay ~= 0 then
  --@delayed
  place_delayed(KEYS.delayed, KEYS.marker, events, cap, id, now, number)
  return
end

local target, held = queue_gate(KEYS.meta, KEYS.active, KEYS.wait, KEYS.paused)
local priority = options.priority or 0
--- when scheduler_priority positive
if priority > 0 then
--- else
if priority ~= 0 then
--- end
  --@prioritized
  zadd_by_priority(KEYS.prioritized, KEYS.pc, priority, id)
else
  --- paste push_job(target, id, options)
end
mark_ready(KEYS.marker, held)
emit_capped(events, cap, 'waiting', 'jobId', id)
