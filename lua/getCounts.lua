--- keys: base
--- args: states (with counts_cut_off a due time may stand in front) ...
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
--- when counts_cut_off
-- specs/06-later-versions.md#sec-11-17
local cut = tonumber(ARGV.states)
local before = cut and 1 or 0
for index = 1, #ARGV - before do
  local state = ARGV[index + before]
--- else
for index, state in ipairs(ARGV) do
--- end
  local key = KEYS.base .. state
  if state == 'wait' or state == 'paused' then
    --@list
    counts[index] = count_list(key)
  elseif state == 'active' then
    --@active
    counts[index] = call('LLEN', key)
  --- when counts_cut_off
  elseif cut and state == 'delayed' then
    --@due-before
    counts[index] = call('ZCOUNT', key, '-inf', cut * 4096 - 1)
  --- end
  else
    --@set
    counts[index] = call('ZCARD', key)
  end
end
return counts
