--- keys: wait
--- unless waiting_layout v6
--- keys: paused, meta
--- end
--- keys: prioritized
--- args: priorities ...
--- include call
--- include priority_step

-- specs/03-transitions-admin-getters.md#sec-9-2
local function count_unprioritized()
  --- when waiting_layout v6
  return call('LLEN', KEYS.wait)
  --- elsewhen merging_pause
  -- specs/06-later-versions.md#sec-11-17
  return call('LLEN', KEYS.wait) + call('LLEN', KEYS.paused)
  --- else
  if call('HEXISTS', KEYS.meta, 'paused') == 1 then
    --@paused
    return call('LLEN', KEYS.paused)
  end
  --@wait
  return call('LLEN', KEYS.wait)
  --- end
end

local counts = {}
for index, text in ipairs(ARGV) do
  local priority = tonumber(text)
  if priority == 0 then
    counts[index] = count_unprioritized()
  else
    --@prioritized
    local lowest = priority * PRIORITY_STEP
    counts[index] = call('ZCOUNT', KEYS.prioritized, lowest, lowest + PRIORITY_STEP - 1)
  end
end
return counts
