--- keys: base
--- args: first, last, ascending (1), rounds (at most), states ...
--- record fixed of ARGV: first last ascending rounds
--- include call
--- include drop_old_marker

-- specs/06-later-versions.md#sec-4-11
local base = KEYS.base
local first, last, ascending = tonumber(ARGV.first), tonumber(ARGV.last), ARGV.ascending == '1'
local rounds = tonumber(ARGV.rounds)

local function reversed(items)
  local turned = {}
  for index = #items, 1, -1 do
    turned[#turned + 1] = items[index]
  end
  return turned
end

-- length: of a list, nil if nothing needed it so far
local function read(key, from, to, is_list, length)
  if not is_list then
    return call(ascending and 'ZRANGE' or 'ZREVRANGE', key, from, to)
  end
  if not ascending then
    return call('LRANGE', key, from, to)
  end
  if from >= 0 and to >= 0 and from >= (length or call('LLEN', key)) then
    --@behind
    return {}
  end
  -- a minus zero is no integer for a server
  return reversed(call('LRANGE', key, 0 - (to + 1), 0 - (from + 1)))
end

-- wanted: how many jobs at most, nil for any number
local function append(jobs, ids, wanted)
  for index = 1, #ids do
    if #jobs == wanted then
      --@enough
      return
    end
    local fields = call('HGETALL', base .. ids[index])
    if fields[1] then
      --@job
      jobs[#jobs + 1] = { ids[index], fields }
    else
      --@no-hash
    end
  end
end

local function jobs_of(state)
  local key, is_list, length = base .. state, state == 'active', nil
  if state == 'wait' or state == 'paused' then
    --@waiting
    is_list, length = true, drop_old_marker(key) and 0 or call('LLEN', key)
  end

  local jobs = {}
  if first < 0 or last < 0 then
    --@one-window
    append(jobs, read(key, first, last, is_list, length), nil)
    return jobs
  end
  local wanted, from, round = last - first + 1, first, 0
  while #jobs < wanted and round < rounds do
    local ids = read(key, from, from + wanted - 1, is_list, length)
    if not ids[1] then
      --@end
      break
    end
    append(jobs, ids, wanted)
    from, round = from + #ids, round + 1
  end
  return jobs
end

local found = {}
for index = 1, #ARGV - fixed.size do
  found[index] = jobs_of(ARGV[fixed.size + index])
end
return found
