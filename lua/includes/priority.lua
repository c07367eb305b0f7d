--- include call

local PRIORITY_STEP = 4294967296

-- specs/01-data-model-and-adding.md#2.9
local function place_by_priority(prioritized, counter, priority, id)
  local turn = call('INCR', counter)
  call('ZADD', prioritized, priority * PRIORITY_STEP + turn % PRIORITY_STEP, id)
end

-- specs/03-transitions-admin-getters.md#s8: 0 when the field is missing or no number.
local function priority_of(job)
  return tonumber(call('HGET', job, 'priority')) or 0
end
