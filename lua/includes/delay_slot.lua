--- include call

-- specs/01-data-model-and-adding.md#sec-2-8: the next free score, and the due time in ms.
local function delay_slot(delayed, now, delay)
  local due = now
  if delay > 0 then
    --@positive
    due = now + delay
  end
  local first, last = due * 4096, (due + 1) * 4096 - 1
  local taken = tonumber(call('ZREVRANGEBYSCORE', delayed, last, first, 'WITHSCORES', 'LIMIT', 0, 1)[2])
  if not taken then
    --@free
    return first, due
  end
  if taken < last then
    --@next
    return taken + 1, due
  end
  --@full
  return last, due
end
