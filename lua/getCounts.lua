--- keys: base prefix
--- args: state names ...
--- include call

-- specs/03-transitions-admin-getters.md#sec-9-1: an old marker element at the tail is dropped, so this read may write.
local function count_list(key)
  local length = call('LLEN', key)
  local tail = call('LINDEX', key, '-1')
  if not tail or string.sub(tail, 1, 2) ~= '0:' then
    --@list
    return length
  end
  if length > 1 then
    --@old-marker
    call('RPOP', key)
  else
    --@only-old-marker
  end
  return length - 1
end

local counts = {}
for index, state in ipairs(ARGV) do
  local key = KEYS[1] .. state
  if state == 'wait' or state == 'paused' then
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
