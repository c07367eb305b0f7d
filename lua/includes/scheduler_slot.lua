-- specs/04-schedulers-flows-events.md#1.3, with a previous slot: the next one, in ms.
local function slot_after(previous, every, now, offset)
  local slot = previous + every
  if slot < now then
    --@catch-up
    slot = math.floor(now / every) * every + every + offset
  else
    --@regular
  end
  return math.floor(slot)
end
