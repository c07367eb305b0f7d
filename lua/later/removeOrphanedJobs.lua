--- keys: base
--- args: state_count, rest (states, number of parts of a job's keys, these parts, ids) ...
--- include call

-- specs/06-later-versions.md#sec-4-12
local base, state_count = KEYS.base, tonumber(ARGV.state_count)
local states, kinds = {}, {}
for index = 1, state_count do
  local key = base .. ARGV[index + 1]
  states[index], kinds[index] = key, call('TYPE', key).ok
end
local parts_at = state_count + 2
local part_count = tonumber(ARGV[parts_at])

local function has_state(id)
  for index = 1, state_count do
    local key, kind, found = states[index], kinds[index], false
    if kind == 'list' then
      --@list
      found = call('LPOS', key, id)
    elseif kind == 'zset' then
      --@sorted-set
      found = call('ZSCORE', key, id)
    elseif kind == 'set' then
      --@set
      found = call('SISMEMBER', key, id) == 1
    else
      --@other-kind
    end
    if found then
      --@found
      return true
    end
  end
  return false
end

local removed = 0
for index = parts_at + part_count + 1, #ARGV do
  local id = ARGV[index]
  if not has_state(id) then
    --@orphan
    local job = base .. id
    local keys = { job }
    for part = 1, part_count do
      keys[part + 1] = job .. ':' .. ARGV[parts_at + part]
    end
    call('DEL', unpack(keys))
    removed = removed + 1
  end
end
return removed
