--- keys: nodes
--- args: base, topic, data, timestamp, retain (ms), most_bytes, inbox_limit (of nodes that say none)
--- record read: flight cursor
--- include relay_lifetime
--- include relay_unread

-- specs/06-later-versions.md#sec-4-14
local topic, data, retain = ARGV.topic, ARGV.data, tonumber(ARGV.retain)
local segments = segments_of(topic, false)
if not segments then
  --@no-topic
  return -1
end
if #data > tonumber(ARGV.most_bytes) then
  --@too-large
  return -4
end

-- step 2: ids go on from the server's microseconds, so that none comes twice after the counter has gone
local counter, now, number = ARGV.base .. ':mid', server_now(), nil
if call('EXISTS', counter) == 1 then
  --@next-id
  number = call('INCR', counter)
else
  --@first-id
  local time = call('TIME')
  number = call('INCRBY', counter, time[1] .. string.format('%06d', time[2]))
  call('PEXPIRE', counter, math.max(1, call('PTTL', KEYS.nodes)))
end
local message = string.format('%.0f', number)

if retain > 0 then
  --@retained
  local hash = retained_of(topic)
  call('HSET', hash, 'm', message, 'ts', ARGV.timestamp, 'd', data)
  call('PEXPIRE', hash, retain)
  call('ZADD', retained, now + retain, topic)
  call('ZREMRANGEBYSCORE', retained, '-inf', now)
  call('PEXPIREAT', retained, last_score(retained))
  refresh(now)
end

-- step 4: the nodes in the order in which they are found, each with its endpoints
local found, order = {}, {}
local function find(pattern)
  local members = beginning_with('p|' .. pattern .. '|')
  for index = 1, #members do
    local node, endpoint = string.match(members[index], '^p|[^|]*|([^|]*)|(.*)$')
    local known = found[node]
    if not known then
      known = { names = {}, seen = {} }
      found[node], order[#order + 1] = known, node
    end
    if not known.seen[endpoint] then
      known.seen[endpoint] = true
      known.names[#known.names + 1] = endpoint
    else
      --@endpoint-again
    end
  end
end

local function is_match(pattern)
  for place = 1, #pattern do
    local segment = pattern[place]
    if segment == '>' then
      --@open-end
      return #segments >= place
    end
    if not segments[place] or (segment ~= '*' and segment ~= segments[place]) then
      --@other-segment
      return false
    end
  end
  return #pattern == #segments
end

find(topic)
for _, first in ipairs({ segments[1], '*' }) do
  local start = 'w|' .. first .. '|'
  local members = beginning_with(start)
  for index = 1, #members do
    local pattern = string.sub(members[index], #start + 1)
    local parts = segments_of(pattern, true)
    if parts and is_match(parts) then
      --@match
      find(pattern)
    else
      --@no-match
    end
  end
end

-- step 5
local node_count, endpoint_count = 0, 0
for _, node in ipairs(order) do
  local record, inbox, names = record_of(node), inbox_of(node), found[node].names
  local left = call('PTTL', record)
  if left > 0 then
    --@served
    local limit = tonumber(call('HGET', record, 'maxLen') or ARGV.inbox_limit)
    local over = call('XLEN', inbox) + 1 - limit
    if over > 0 then
      --@full
      local read = call('HMGET', record, 'inFlight', 'cursor')
      local unread = trim_unread(inbox, limit - 1, read.flight or read.cursor or '0-0', over)
      if unread > 0 then
        --@dropped
        call('HINCRBY', record, 'dropped', unread)
      end
    end
    call('XADD', inbox, '*', 'k', 'msg', 't', topic, 'm', message, 'ts', ARGV.timestamp, 'd', data,
      'e', table.concat(names, ','))
    call('PEXPIRE', inbox, left)
    node_count, endpoint_count = node_count + 1, endpoint_count + #names
  else
    --@lease-over
  end
end
return { number, node_count, endpoint_count }
