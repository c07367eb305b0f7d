--- include call

-- specs/06-later-versions.md#sec-4-14: ms by the server's clock; those of the nodes play no role.
local function server_now()
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- the highest score, 0 if there is none
local function last_score(set)
  return tonumber(call('ZREVRANGE', set, '0', '0', 'WITHSCORES')[2] or 0)
end
