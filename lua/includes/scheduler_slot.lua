-- specs/04-schedulers-flows-events.md#sec-1-3: the next slot in ms, and the offset. previous: nil for the first slot.
local function next_slot(previous, every, now, offset, start)
  local slot = now
  if previous then
    slot = previous + every
    if slot < now then
      --@catch-up
      slot = math.floor(now / every) * every + every + offset
    else
      --@regular
    end
  elseif start and tonumber(start) > now then
    --@start
    slot = tonumber(start)
  else
    --@first
  end
  if offset == 0 then
    --@no-offset
    offset = slot - math.floor(slot / every) * every
  end
  return math.floor(slot), math.floor(offset)
end
