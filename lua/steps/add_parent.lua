--- step: options, found_cap
--- needs: KEYS.events, KEYS.waiting_children

-- specs/01-data-model-and-adding.md#sec-7-5, from step 2 on
if lacks_parent() then
  return -5
end
local sequence = next_number()
local cap = found_cap

local id, job, reply = admit(sequence, options, cap)
if reply then
  return reply
end

call('ZADD', KEYS.waiting_children, born_at, id)
emit_capped(KEYS.events, cap, 'waiting-children', 'jobId', id)
return finish_add(id, job)
