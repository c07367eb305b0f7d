--- include call
--- include priority_step

-- specs/01-data-model-and-adding.md#sec-2-9
local function zadd_by_priority(prioritized, counter, priority, id)
  local turn = call('INCR', counter)
  call('ZADD', prioritized, priority * PRIORITY_STEP + turn % PRIORITY_STEP, id)
end
