--- keys: base
--- args: states ...
--- include call
--- include drop_old_marker

-- specs/03-transitions-admin-getters.md#sec-9-1
local function count_list(list)
  if drop_old_marker(list) then
    return 0
  end
  return call('LLEN', list)
end

local counts = {}
for index, state in ipairs(ARGV) do
  local key = KEYS.base .. state
  if state == 'wait' or state == 'paused' then
    --@list
    counts[index] = count_list(key)
  elseif state == 'active' then
    --@active
    counts[index] = call('LLEN', key)
  else
    --@set
    counts[index] = call('ZCARD', key)
  end
end
return counts
