-- specs/04-schedulers-flows-events.md#sec-1-3: the next slot in ms, and the offset. previous: nil for the first slot.
--- when scheduler_rules 5.62
local function next_slot(previous, every, now, offset, start)
--- else
-- specs/06-later-versions.md#sec-11-15-1: an offset that is no number counts as none.
local function next_slot(previous, every, now, given_offset, start)
  local offset = tonumber(given_offset) or 0
  local function slot_after_now()
    local slot = math.floor(now / every) * every + offset
    return slot > now and slot or slot + every
  end

--- end
  local slot = now
  if previous then
    slot = previous + every
    if slot < now then
      --@catch-up
      --- when scheduler_rules 5.62
      slot = math.floor(now / every) * every + every + offset
      --- else
      slot = slot_after_now()
      --- end
    else
      --@regular
    end
  --- when scheduler_rules 5.62
  elseif start and tonumber(start) > now then
    --@start
    slot = tonumber(start)
  --- else
  elseif start then
    --@start-or-now
    -- a date that is nan loses in this order
    slot = math.max(now, tonumber(start))
  elseif offset > 0 then
    --@first-with-offset
    slot = slot_after_now()
  --- end
  else
    --@first
  end
  if offset == 0 then
    --@no-offset
    offset = slot - math.floor(slot / every) * every
  end
  return math.floor(slot), math.floor(offset)
end
