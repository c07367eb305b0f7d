-- specs/04-schedulers-flows-events.md#sec-1-3, with a previous slot: the next slot in ms, and the offset.
local function slot_after(previous, every, now, offset)
  local slot = previous + every
  if slot < now then
    --@catch-up
    slot = math.floor(now / every) * every + every + offset
  else
    --@regular
  end
  if offset == 0 then
    --@no-offset
    offset = slot - math.floor(slot / every) * every
  end
  return math.floor(slot), math.floor(offset)
end
