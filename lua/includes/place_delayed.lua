--- include call
--- include emit_capped
--- include delay_slot
--- include mark_later

-- specs/01-data-model-and-adding.md#7.3, steps 1 to 4. The event tells the absolute due time.
local function place_delayed(delayed, marker, events, cap, id, now, delay)
  local score, due = delay_slot(delayed, now, delay)
  call('ZADD', delayed, score, id)
  emit_capped(events, cap, 'delayed', 'jobId', id, 'delay', due)
  mark_later(marker, delayed)
end
