"""Hold the packaged Lua scripts of `relay/`; written by `python lua/build.py`, never by hand."""

from collections.abc import Mapping
from types import MappingProxyType

from bullmq_protocol.command import Script

RELAY_ACK_INBOX = Script(
    name="relayAckInbox",
    sha1="5fdd85d43193f88f5b2845dab67e2a91842b4a9a",
    keys=1,
    source="""\
local call = redis.call
local function record_of(node)
  return ARGV[1] .. ':' .. node .. ':node'
end
local function inbox_of(node)
  return ARGV[1] .. ':' .. node .. ':inbox'
end
local function retained_of(topic)
  return ARGV[1] .. ':' .. topic .. ':ret'
end
local record = record_of(ARGV[2])
if call('EXISTS', record) == 1 then
  call('HSET', record, 'cursor', ARGV[3])
else
end
return 1
""",
)

RELAY_DELETE_RETAINED = Script(
    name="relayDeleteRetained",
    sha1="96a8dbdf5e7ef2c161d7365583fed301637f5b60",
    keys=1,
    source="""\
local call = redis.call
local function server_now()
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function last_score(set)
  return tonumber(call('ZREVRANGE', set, '0', '0', 'WITHSCORES')[2] or 0)
end
local function record_of(node)
  return ARGV[1] .. ':' .. node .. ':node'
end
local function inbox_of(node)
  return ARGV[1] .. ':' .. node .. ':inbox'
end
local function retained_of(topic)
  return ARGV[1] .. ':' .. topic .. ':ret'
end
local function is_id(text)
  return #text <= 64 and string.find(text, '^[A-Za-z0-9_%-]+$') ~= nil
end
local function segments_of(text, is_pattern)
  local segments, has_wildcard, is_closed = {}, false, false
  if #text == 0 or #text > 512 then
    return nil
  end
  for segment in string.gmatch(text .. '.', '([^.]*)%.') do
    local is_wildcard = segment == '*' or segment == '>'
    if is_closed or (is_wildcard and not is_pattern) then
      return nil
    end
    if not is_wildcard and not string.find(segment, '^[A-Za-z0-9_:%%%-]+$') then
      return nil
    end
    is_closed = segment == '>'
    has_wildcard = has_wildcard or is_wildcard
    segments[#segments + 1] = segment
  end
  if #segments > 16 then
    return nil
  end
  return segments, has_wildcard
end
local subscriptions, last_byte = ARGV[1] .. ':subs', string.char(255)
local function beginning_with(start, ...)
  return call('ZRANGEBYLEX', subscriptions, '[' .. start, '[' .. start .. last_byte, ...)
end
local function count_beginning_with(start)
  return call('ZLEXCOUNT', subscriptions, '[' .. start, '[' .. start .. last_byte)
end
local function wild_member(segments, pattern)
  local first = segments[1]
  return 'w|' .. (first == '>' and '*' or first) .. '|' .. pattern
end
local function drop(members)
  for index = 1, #members do
    local node, endpoint, pattern = string.match(members[index], '^n|([^|]*)|([^|]*)|(.*)$')
    local tail = node .. '|' .. endpoint
    call('ZREM', subscriptions, 'n|' .. tail .. '|' .. pattern, 'p|' .. pattern .. '|' .. tail)
    if count_beginning_with('p|' .. pattern .. '|') == 0 then
      call('ZREM', subscriptions, 't|' .. pattern)
      local segments, has_wildcard = segments_of(pattern, true)
      if segments and has_wildcard then
        call('ZREM', subscriptions, wild_member(segments, pattern))
      end
    else
    end
  end
end
local leaving, started, retained = ARGV[1] .. ':cleanup', ARGV[1] .. ':started', ARGV[1] .. ':retained'
local function refresh(now)
  local last = last_score(KEYS[1])
  if last > now then
    call('PEXPIREAT', KEYS[1], last)
    call('PEXPIREAT', started, last)
    call('PEXPIREAT', subscriptions, last)
    call('PEXPIREAT', leaving, last)
  else
    call('UNLINK', KEYS[1], started, subscriptions, leaving)
  end
  last = math.max(last, last_score(retained))
  local counter, layout = ARGV[1] .. ':mid', ARGV[1] .. ':layout'
  if last > now then
    call('PEXPIREAT', counter, last)
    call('PEXPIREAT', layout, last)
  else
    call('UNLINK', counter, layout)
  end
end
local function remove(node, now)
  local removed = call('ZREM', KEYS[1], node)
  call('ZREM', started, node)
  call('UNLINK', inbox_of(node), record_of(node))
  if count_beginning_with('n|' .. node .. '|') > 0 then
    call('ZADD', leaving, now, node)
  end
  return removed
end
local function prune(node, budget)
  local members = beginning_with('n|' .. node .. '|', 'LIMIT', '0', budget)
  drop(members)
  if #members < budget then
    call('ZREM', leaving, node)
  else
  end
  return math.max(#members, 1)
end
local function prune_all(budget)
  while budget > 0 do
    local node = call('ZRANGE', leaving, '0', '0')[1]
    if not node then
      return
    end
    budget = budget - prune(node, budget)
  end
end
if not segments_of(ARGV[2], false) then
  return -1
end
local now = server_now()
call('ZREM', retained, ARGV[2])
call('ZREMRANGEBYSCORE', retained, '-inf', now)
local last = last_score(retained)
if last > 0 then
  call('PEXPIREAT', retained, last)
end
local deleted = call('DEL', retained_of(ARGV[2]))
refresh(now)
return deleted
""",
)

RELAY_GET = Script(
    name="relayGet",
    sha1="643837a581ac58580368a9e9b97274a2487096fa",
    keys=1,
    source="""\
local call = redis.call
local function server_now()
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function last_score(set)
  return tonumber(call('ZREVRANGE', set, '0', '0', 'WITHSCORES')[2] or 0)
end
local function record_of(node)
  return ARGV[1] .. ':' .. node .. ':node'
end
local function inbox_of(node)
  return ARGV[1] .. ':' .. node .. ':inbox'
end
local function retained_of(topic)
  return ARGV[1] .. ':' .. topic .. ':ret'
end
local function is_id(text)
  return #text <= 64 and string.find(text, '^[A-Za-z0-9_%-]+$') ~= nil
end
local function segments_of(text, is_pattern)
  local segments, has_wildcard, is_closed = {}, false, false
  if #text == 0 or #text > 512 then
    return nil
  end
  for segment in string.gmatch(text .. '.', '([^.]*)%.') do
    local is_wildcard = segment == '*' or segment == '>'
    if is_closed or (is_wildcard and not is_pattern) then
      return nil
    end
    if not is_wildcard and not string.find(segment, '^[A-Za-z0-9_:%%%-]+$') then
      return nil
    end
    is_closed = segment == '>'
    has_wildcard = has_wildcard or is_wildcard
    segments[#segments + 1] = segment
  end
  if #segments > 16 then
    return nil
  end
  return segments, has_wildcard
end
local subscriptions, last_byte = ARGV[1] .. ':subs', string.char(255)
local function beginning_with(start, ...)
  return call('ZRANGEBYLEX', subscriptions, '[' .. start, '[' .. start .. last_byte, ...)
end
local function count_beginning_with(start)
  return call('ZLEXCOUNT', subscriptions, '[' .. start, '[' .. start .. last_byte)
end
local function wild_member(segments, pattern)
  local first = segments[1]
  return 'w|' .. (first == '>' and '*' or first) .. '|' .. pattern
end
local function drop(members)
  for index = 1, #members do
    local node, endpoint, pattern = string.match(members[index], '^n|([^|]*)|([^|]*)|(.*)$')
    local tail = node .. '|' .. endpoint
    call('ZREM', subscriptions, 'n|' .. tail .. '|' .. pattern, 'p|' .. pattern .. '|' .. tail)
    if count_beginning_with('p|' .. pattern .. '|') == 0 then
      call('ZREM', subscriptions, 't|' .. pattern)
      local segments, has_wildcard = segments_of(pattern, true)
      if segments and has_wildcard then
        call('ZREM', subscriptions, wild_member(segments, pattern))
      end
    else
    end
  end
end
local first, last, value = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[6]
local retained = ARGV[1] .. ':retained'
local now = server_now()
local most = last < 0 and -1 or math.max(0, last - first + 1)
local function page(start)
  local found = {}
  if most == 0 then
    return found
  end
  for place, member in ipairs(beginning_with(start, 'LIMIT', first, most)) do
    found[place] = string.sub(member, #start + 1)
  end
  return found
end
local views = {}
function views.counts()
  return {
    call('ZCARD', KEYS[1]), count_beginning_with('n|'), count_beginning_with('t|'),
    call('ZCOUNT', retained, now + 1, '+inf'),
  }
end
function views.used()
  if call('ZCOUNT', KEYS[1], now + 1, '+inf') + call('ZCOUNT', retained, now + 1, '+inf') > 0 then
    return 1
  end
  return 0
end
function views.nodes()
  local found = {}
  local members = call('ZRANGE', ARGV[1] .. ':started', first, last, 'WITHSCORES')
  for place = 1, #members, 2 do
    local node = members[place]
    local known = call('HMGET', record_of(node), 'info', 'hb', 'backlog', 'dropped')
    found[#found + 1] = {
      node, members[place + 1], call('ZSCORE', KEYS[1], node) or '', known[1] or '', known[2] or '',
      known[3] or '0', known[4] or '0', count_beginning_with('n|' .. node .. '|'),
    }
  end
  return found
end
function views.subscriptions()
  local found = {}
  if ARGV[5] == 'node' then
    for place, rest in ipairs(page('n|' .. value .. '|')) do
      local endpoint, pattern = string.match(rest, '^([^|]*)|(.*)$')
      found[place] = { value, endpoint, pattern }
    end
  elseif ARGV[5] == 'pattern' then
    for place, rest in ipairs(page('p|' .. value .. '|')) do
      local node, endpoint = string.match(rest, '^([^|]*)|(.*)$')
      found[place] = { node, endpoint, value }
    end
  else
    for place, rest in ipairs(page('n|')) do
      local node, endpoint, pattern = string.match(rest, '^([^|]*)|([^|]*)|(.*)$')
      found[place] = { node, endpoint, pattern }
    end
  end
  return found
end
function views.patterns()
  local found = {}
  for place, pattern in ipairs(page('t|')) do
    found[place] = { pattern, count_beginning_with('p|' .. pattern .. '|') }
  end
  return found
end
function views.retained()
  local found = {}
  if most == 0 then
    return found
  end
  local members = call('ZRANGEBYSCORE', retained, now + 1, '+inf', 'WITHSCORES', 'LIMIT', first, most)
  for place = 1, #members, 2 do
    local message = call('HMGET', retained_of(members[place]), 'm', 'ts', 'd')
    if message[1] then
      found[#found + 1] = { members[place], members[place + 1], message[1], message[2], message[3] }
    else
    end
  end
  return found
end
return views[ARGV[2]] and views[ARGV[2]]() or {}
""",
)

RELAY_GET_NAMESPACES = Script(
    name="relayGetNamespaces",
    sha1="fa60d7bd7c2d57b135a637e2f8ac2f19df6bb481",
    keys=1,
    source="""\
local call = redis.call
local function server_now()
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function last_score(set)
  return tonumber(call('ZREVRANGE', set, '0', '0', 'WITHSCORES')[2] or 0)
end
local found = call('ZRANGEBYSCORE', KEYS[1], server_now() + 1, '+inf')
table.sort(found)
return found
""",
)

RELAY_HEARTBEAT = Script(
    name="relayHeartbeat",
    sha1="36361e5f6c61fac3c466d8c401ac8f7aae7561a6",
    keys=1,
    source="""\
local call = redis.call
local function server_now()
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function last_score(set)
  return tonumber(call('ZREVRANGE', set, '0', '0', 'WITHSCORES')[2] or 0)
end
local function record_of(node)
  return ARGV[1] .. ':' .. node .. ':node'
end
local function inbox_of(node)
  return ARGV[1] .. ':' .. node .. ':inbox'
end
local function retained_of(topic)
  return ARGV[1] .. ':' .. topic .. ':ret'
end
local function is_id(text)
  return #text <= 64 and string.find(text, '^[A-Za-z0-9_%-]+$') ~= nil
end
local function segments_of(text, is_pattern)
  local segments, has_wildcard, is_closed = {}, false, false
  if #text == 0 or #text > 512 then
    return nil
  end
  for segment in string.gmatch(text .. '.', '([^.]*)%.') do
    local is_wildcard = segment == '*' or segment == '>'
    if is_closed or (is_wildcard and not is_pattern) then
      return nil
    end
    if not is_wildcard and not string.find(segment, '^[A-Za-z0-9_:%%%-]+$') then
      return nil
    end
    is_closed = segment == '>'
    has_wildcard = has_wildcard or is_wildcard
    segments[#segments + 1] = segment
  end
  if #segments > 16 then
    return nil
  end
  return segments, has_wildcard
end
local subscriptions, last_byte = ARGV[1] .. ':subs', string.char(255)
local function beginning_with(start, ...)
  return call('ZRANGEBYLEX', subscriptions, '[' .. start, '[' .. start .. last_byte, ...)
end
local function count_beginning_with(start)
  return call('ZLEXCOUNT', subscriptions, '[' .. start, '[' .. start .. last_byte)
end
local function wild_member(segments, pattern)
  local first = segments[1]
  return 'w|' .. (first == '>' and '*' or first) .. '|' .. pattern
end
local function drop(members)
  for index = 1, #members do
    local node, endpoint, pattern = string.match(members[index], '^n|([^|]*)|([^|]*)|(.*)$')
    local tail = node .. '|' .. endpoint
    call('ZREM', subscriptions, 'n|' .. tail .. '|' .. pattern, 'p|' .. pattern .. '|' .. tail)
    if count_beginning_with('p|' .. pattern .. '|') == 0 then
      call('ZREM', subscriptions, 't|' .. pattern)
      local segments, has_wildcard = segments_of(pattern, true)
      if segments and has_wildcard then
        call('ZREM', subscriptions, wild_member(segments, pattern))
      end
    else
    end
  end
end
local leaving, started, retained = ARGV[1] .. ':cleanup', ARGV[1] .. ':started', ARGV[1] .. ':retained'
local function refresh(now)
  local last = last_score(KEYS[1])
  if last > now then
    call('PEXPIREAT', KEYS[1], last)
    call('PEXPIREAT', started, last)
    call('PEXPIREAT', subscriptions, last)
    call('PEXPIREAT', leaving, last)
  else
    call('UNLINK', KEYS[1], started, subscriptions, leaving)
  end
  last = math.max(last, last_score(retained))
  local counter, layout = ARGV[1] .. ':mid', ARGV[1] .. ':layout'
  if last > now then
    call('PEXPIREAT', counter, last)
    call('PEXPIREAT', layout, last)
  else
    call('UNLINK', counter, layout)
  end
end
local function remove(node, now)
  local removed = call('ZREM', KEYS[1], node)
  call('ZREM', started, node)
  call('UNLINK', inbox_of(node), record_of(node))
  if count_beginning_with('n|' .. node .. '|') > 0 then
    call('ZADD', leaving, now, node)
  end
  return removed
end
local function prune(node, budget)
  local members = beginning_with('n|' .. node .. '|', 'LIMIT', '0', budget)
  drop(members)
  if #members < budget then
    call('ZREM', leaving, node)
  else
  end
  return math.max(#members, 1)
end
local function prune_all(budget)
  while budget > 0 do
    local node = call('ZRANGE', leaving, '0', '0')[1]
    if not node then
      return
    end
    budget = budget - prune(node, budget)
  end
end
local function is_registered(node)
  return call('ZSCORE', KEYS[1], node) and call('EXISTS', record_of(node)) == 1
end
local node, lease = ARGV[2], ARGV[3]
if not is_registered(node) then
  return 0
end
local now, record = server_now(), record_of(node)
call('ZADD', KEYS[1], now + lease, node)
call('HSET', record, 'hb', now)
call('PEXPIRE', record, lease)
call('PEXPIRE', inbox_of(node), lease)
refresh(now)
return 1
""",
)

RELAY_PUBLISH = Script(
    name="relayPublish",
    sha1="eaee8c113f2b50128e83c89aad4475a83a648ff8",
    keys=1,
    source="""\
local call = redis.call
local function server_now()
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function last_score(set)
  return tonumber(call('ZREVRANGE', set, '0', '0', 'WITHSCORES')[2] or 0)
end
local function record_of(node)
  return ARGV[1] .. ':' .. node .. ':node'
end
local function inbox_of(node)
  return ARGV[1] .. ':' .. node .. ':inbox'
end
local function retained_of(topic)
  return ARGV[1] .. ':' .. topic .. ':ret'
end
local function is_id(text)
  return #text <= 64 and string.find(text, '^[A-Za-z0-9_%-]+$') ~= nil
end
local function segments_of(text, is_pattern)
  local segments, has_wildcard, is_closed = {}, false, false
  if #text == 0 or #text > 512 then
    return nil
  end
  for segment in string.gmatch(text .. '.', '([^.]*)%.') do
    local is_wildcard = segment == '*' or segment == '>'
    if is_closed or (is_wildcard and not is_pattern) then
      return nil
    end
    if not is_wildcard and not string.find(segment, '^[A-Za-z0-9_:%%%-]+$') then
      return nil
    end
    is_closed = segment == '>'
    has_wildcard = has_wildcard or is_wildcard
    segments[#segments + 1] = segment
  end
  if #segments > 16 then
    return nil
  end
  return segments, has_wildcard
end
local subscriptions, last_byte = ARGV[1] .. ':subs', string.char(255)
local function beginning_with(start, ...)
  return call('ZRANGEBYLEX', subscriptions, '[' .. start, '[' .. start .. last_byte, ...)
end
local function count_beginning_with(start)
  return call('ZLEXCOUNT', subscriptions, '[' .. start, '[' .. start .. last_byte)
end
local function wild_member(segments, pattern)
  local first = segments[1]
  return 'w|' .. (first == '>' and '*' or first) .. '|' .. pattern
end
local function drop(members)
  for index = 1, #members do
    local node, endpoint, pattern = string.match(members[index], '^n|([^|]*)|([^|]*)|(.*)$')
    local tail = node .. '|' .. endpoint
    call('ZREM', subscriptions, 'n|' .. tail .. '|' .. pattern, 'p|' .. pattern .. '|' .. tail)
    if count_beginning_with('p|' .. pattern .. '|') == 0 then
      call('ZREM', subscriptions, 't|' .. pattern)
      local segments, has_wildcard = segments_of(pattern, true)
      if segments and has_wildcard then
        call('ZREM', subscriptions, wild_member(segments, pattern))
      end
    else
    end
  end
end
local leaving, started, retained = ARGV[1] .. ':cleanup', ARGV[1] .. ':started', ARGV[1] .. ':retained'
local function refresh(now)
  local last = last_score(KEYS[1])
  if last > now then
    call('PEXPIREAT', KEYS[1], last)
    call('PEXPIREAT', started, last)
    call('PEXPIREAT', subscriptions, last)
    call('PEXPIREAT', leaving, last)
  else
    call('UNLINK', KEYS[1], started, subscriptions, leaving)
  end
  last = math.max(last, last_score(retained))
  local counter, layout = ARGV[1] .. ':mid', ARGV[1] .. ':layout'
  if last > now then
    call('PEXPIREAT', counter, last)
    call('PEXPIREAT', layout, last)
  else
    call('UNLINK', counter, layout)
  end
end
local function remove(node, now)
  local removed = call('ZREM', KEYS[1], node)
  call('ZREM', started, node)
  call('UNLINK', inbox_of(node), record_of(node))
  if count_beginning_with('n|' .. node .. '|') > 0 then
    call('ZADD', leaving, now, node)
  end
  return removed
end
local function prune(node, budget)
  local members = beginning_with('n|' .. node .. '|', 'LIMIT', '0', budget)
  drop(members)
  if #members < budget then
    call('ZREM', leaving, node)
  else
  end
  return math.max(#members, 1)
end
local function prune_all(budget)
  while budget > 0 do
    local node = call('ZRANGE', leaving, '0', '0')[1]
    if not node then
      return
    end
    budget = budget - prune(node, budget)
  end
end
local function trim_unread(inbox, limit, position, over)
  local seen = 0
  if position ~= '0-0' and position ~= '0' then
    seen = #call('XRANGE', inbox, '-', position, 'COUNT', over)
  end
  return call('XTRIM', inbox, 'MAXLEN', limit) - seen
end
local topic, data, retain = ARGV[2], ARGV[3], tonumber(ARGV[5])
local segments = segments_of(topic, false)
if not segments then
  return -1
end
if #data > tonumber(ARGV[6]) then
  return -4
end
local counter, now, number = ARGV[1] .. ':mid', server_now(), nil
if call('EXISTS', counter) == 1 then
  number = call('INCR', counter)
else
  local time = call('TIME')
  number = call('INCRBY', counter, time[1] .. string.format('%06d', time[2]))
  call('PEXPIRE', counter, math.max(1, call('PTTL', KEYS[1])))
end
local message = string.format('%.0f', number)
if retain > 0 then
  local hash = retained_of(topic)
  call('HSET', hash, 'm', message, 'ts', ARGV[4], 'd', data)
  call('PEXPIRE', hash, retain)
  call('ZADD', retained, now + retain, topic)
  call('ZREMRANGEBYSCORE', retained, '-inf', now)
  call('PEXPIREAT', retained, last_score(retained))
  refresh(now)
end
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
    end
  end
end
local function is_match(pattern)
  for place = 1, #pattern do
    local segment = pattern[place]
    if segment == '>' then
      return #segments >= place
    end
    if not segments[place] or (segment ~= '*' and segment ~= segments[place]) then
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
      find(pattern)
    else
    end
  end
end
local node_count, endpoint_count = 0, 0
for _, node in ipairs(order) do
  local record, inbox, names = record_of(node), inbox_of(node), found[node].names
  local left = call('PTTL', record)
  if left > 0 then
    local limit = tonumber(call('HGET', record, 'maxLen') or ARGV[7])
    local over = call('XLEN', inbox) + 1 - limit
    if over > 0 then
      local read = call('HMGET', record, 'inFlight', 'cursor')
      local unread = trim_unread(inbox, limit - 1, read[1] or read[2] or '0-0', over)
      if unread > 0 then
        call('HINCRBY', record, 'dropped', unread)
      end
    end
    call('XADD', inbox, '*', 'k', 'msg', 't', topic, 'm', message, 'ts', ARGV[4], 'd', data,
      'e', table.concat(names, ','))
    call('PEXPIRE', inbox, left)
    node_count, endpoint_count = node_count + 1, endpoint_count + #names
  else
  end
end
return { number, node_count, endpoint_count }
""",
)

RELAY_READ_INBOX = Script(
    name="relayReadInbox",
    sha1="d4ab91629198b6da6c45e531eb76ffd8e8cb275b",
    keys=1,
    source="""\
local call = redis.call
local function record_of(node)
  return ARGV[1] .. ':' .. node .. ':node'
end
local function inbox_of(node)
  return ARGV[1] .. ':' .. node .. ':inbox'
end
local function retained_of(topic)
  return ARGV[1] .. ':' .. topic .. ':ret'
end
local record, cursor = record_of(ARGV[2]), ARGV[3]
if call('EXISTS', record) == 0 then
  return nil
end
local found = call('XREAD', 'COUNT', ARGV[4], 'STREAMS', inbox_of(ARGV[2]), cursor)
local latest = cursor
if found then
  local entries = found[1][2]
  latest = entries[#entries][1]
else
end
call('HSET', record, 'cursor', cursor, 'inFlight', latest)
return found
""",
)

RELAY_REGISTER_NODE = Script(
    name="relayRegisterNode",
    sha1="e4a31e422b621e59ad48202ec2ae95eb35f5f57f",
    keys=1,
    source="""\
local call = redis.call
local function server_now()
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function last_score(set)
  return tonumber(call('ZREVRANGE', set, '0', '0', 'WITHSCORES')[2] or 0)
end
local function record_of(node)
  return ARGV[1] .. ':' .. node .. ':node'
end
local function inbox_of(node)
  return ARGV[1] .. ':' .. node .. ':inbox'
end
local function retained_of(topic)
  return ARGV[1] .. ':' .. topic .. ':ret'
end
local function is_id(text)
  return #text <= 64 and string.find(text, '^[A-Za-z0-9_%-]+$') ~= nil
end
local function segments_of(text, is_pattern)
  local segments, has_wildcard, is_closed = {}, false, false
  if #text == 0 or #text > 512 then
    return nil
  end
  for segment in string.gmatch(text .. '.', '([^.]*)%.') do
    local is_wildcard = segment == '*' or segment == '>'
    if is_closed or (is_wildcard and not is_pattern) then
      return nil
    end
    if not is_wildcard and not string.find(segment, '^[A-Za-z0-9_:%%%-]+$') then
      return nil
    end
    is_closed = segment == '>'
    has_wildcard = has_wildcard or is_wildcard
    segments[#segments + 1] = segment
  end
  if #segments > 16 then
    return nil
  end
  return segments, has_wildcard
end
local subscriptions, last_byte = ARGV[1] .. ':subs', string.char(255)
local function beginning_with(start, ...)
  return call('ZRANGEBYLEX', subscriptions, '[' .. start, '[' .. start .. last_byte, ...)
end
local function count_beginning_with(start)
  return call('ZLEXCOUNT', subscriptions, '[' .. start, '[' .. start .. last_byte)
end
local function wild_member(segments, pattern)
  local first = segments[1]
  return 'w|' .. (first == '>' and '*' or first) .. '|' .. pattern
end
local function drop(members)
  for index = 1, #members do
    local node, endpoint, pattern = string.match(members[index], '^n|([^|]*)|([^|]*)|(.*)$')
    local tail = node .. '|' .. endpoint
    call('ZREM', subscriptions, 'n|' .. tail .. '|' .. pattern, 'p|' .. pattern .. '|' .. tail)
    if count_beginning_with('p|' .. pattern .. '|') == 0 then
      call('ZREM', subscriptions, 't|' .. pattern)
      local segments, has_wildcard = segments_of(pattern, true)
      if segments and has_wildcard then
        call('ZREM', subscriptions, wild_member(segments, pattern))
      end
    else
    end
  end
end
local leaving, started, retained = ARGV[1] .. ':cleanup', ARGV[1] .. ':started', ARGV[1] .. ':retained'
local function refresh(now)
  local last = last_score(KEYS[1])
  if last > now then
    call('PEXPIREAT', KEYS[1], last)
    call('PEXPIREAT', started, last)
    call('PEXPIREAT', subscriptions, last)
    call('PEXPIREAT', leaving, last)
  else
    call('UNLINK', KEYS[1], started, subscriptions, leaving)
  end
  last = math.max(last, last_score(retained))
  local counter, layout = ARGV[1] .. ':mid', ARGV[1] .. ':layout'
  if last > now then
    call('PEXPIREAT', counter, last)
    call('PEXPIREAT', layout, last)
  else
    call('UNLINK', counter, layout)
  end
end
local function remove(node, now)
  local removed = call('ZREM', KEYS[1], node)
  call('ZREM', started, node)
  call('UNLINK', inbox_of(node), record_of(node))
  if count_beginning_with('n|' .. node .. '|') > 0 then
    call('ZADD', leaving, now, node)
  end
  return removed
end
local function prune(node, budget)
  local members = beginning_with('n|' .. node .. '|', 'LIMIT', '0', budget)
  drop(members)
  if #members < budget then
    call('ZREM', leaving, node)
  else
  end
  return math.max(#members, 1)
end
local function prune_all(budget)
  while budget > 0 do
    local node = call('ZRANGE', leaving, '0', '0')[1]
    if not node then
      return
    end
    budget = budget - prune(node, budget)
  end
end
local node, lease, layout = ARGV[2], ARGV[3], ARGV[1] .. ':layout'
if not is_id(node) then
  return -5
end
local known = call('HGET', layout, 'layout')
if known and known ~= ARGV[5] then
  return -6
end
local now, record = server_now(), record_of(node)
if call('EXISTS', record) == 0 then
  remove(node, now)
  refresh(now)
  prune(node, 100)
  if call('ZSCORE', leaving, node) then
    return 0
  end
else
end
call('HSET', layout, 'layout', ARGV[5])
call('ZADD', KEYS[1], now + lease, node)
call('ZADD', started, 'NX', now, node)
call('HSET', record, 'info', ARGV[4], 'hb', now)
call('HSET', record, 'maxLen', tonumber(ARGV[6]) or 10000)
call('PEXPIRE', record, lease)
call('PEXPIRE', inbox_of(node), lease)
refresh(now)
return 1
""",
)

RELAY_REMOVE_ENDPOINT = Script(
    name="relayRemoveEndpoint",
    sha1="166305cb8e729dbb69c8b636d1d0c48432eae4bc",
    keys=1,
    source="""\
local call = redis.call
local function is_id(text)
  return #text <= 64 and string.find(text, '^[A-Za-z0-9_%-]+$') ~= nil
end
local function segments_of(text, is_pattern)
  local segments, has_wildcard, is_closed = {}, false, false
  if #text == 0 or #text > 512 then
    return nil
  end
  for segment in string.gmatch(text .. '.', '([^.]*)%.') do
    local is_wildcard = segment == '*' or segment == '>'
    if is_closed or (is_wildcard and not is_pattern) then
      return nil
    end
    if not is_wildcard and not string.find(segment, '^[A-Za-z0-9_:%%%-]+$') then
      return nil
    end
    is_closed = segment == '>'
    has_wildcard = has_wildcard or is_wildcard
    segments[#segments + 1] = segment
  end
  if #segments > 16 then
    return nil
  end
  return segments, has_wildcard
end
local subscriptions, last_byte = ARGV[1] .. ':subs', string.char(255)
local function beginning_with(start, ...)
  return call('ZRANGEBYLEX', subscriptions, '[' .. start, '[' .. start .. last_byte, ...)
end
local function count_beginning_with(start)
  return call('ZLEXCOUNT', subscriptions, '[' .. start, '[' .. start .. last_byte)
end
local function wild_member(segments, pattern)
  local first = segments[1]
  return 'w|' .. (first == '>' and '*' or first) .. '|' .. pattern
end
local function drop(members)
  for index = 1, #members do
    local node, endpoint, pattern = string.match(members[index], '^n|([^|]*)|([^|]*)|(.*)$')
    local tail = node .. '|' .. endpoint
    call('ZREM', subscriptions, 'n|' .. tail .. '|' .. pattern, 'p|' .. pattern .. '|' .. tail)
    if count_beginning_with('p|' .. pattern .. '|') == 0 then
      call('ZREM', subscriptions, 't|' .. pattern)
      local segments, has_wildcard = segments_of(pattern, true)
      if segments and has_wildcard then
        call('ZREM', subscriptions, wild_member(segments, pattern))
      end
    else
    end
  end
end
local members = beginning_with('n|' .. ARGV[2] .. '|' .. ARGV[3] .. '|')
drop(members)
return #members
""",
)

RELAY_SUBSCRIBE = Script(
    name="relaySubscribe",
    sha1="e8ca4dac8e2423f857496e33f4eae227daf1ba5d",
    keys=1,
    source="""\
local call = redis.call
local function record_of(node)
  return ARGV[1] .. ':' .. node .. ':node'
end
local function inbox_of(node)
  return ARGV[1] .. ':' .. node .. ':inbox'
end
local function retained_of(topic)
  return ARGV[1] .. ':' .. topic .. ':ret'
end
local function is_registered(node)
  return call('ZSCORE', KEYS[1], node) and call('EXISTS', record_of(node)) == 1
end
local function is_id(text)
  return #text <= 64 and string.find(text, '^[A-Za-z0-9_%-]+$') ~= nil
end
local function segments_of(text, is_pattern)
  local segments, has_wildcard, is_closed = {}, false, false
  if #text == 0 or #text > 512 then
    return nil
  end
  for segment in string.gmatch(text .. '.', '([^.]*)%.') do
    local is_wildcard = segment == '*' or segment == '>'
    if is_closed or (is_wildcard and not is_pattern) then
      return nil
    end
    if not is_wildcard and not string.find(segment, '^[A-Za-z0-9_:%%%-]+$') then
      return nil
    end
    is_closed = segment == '>'
    has_wildcard = has_wildcard or is_wildcard
    segments[#segments + 1] = segment
  end
  if #segments > 16 then
    return nil
  end
  return segments, has_wildcard
end
local subscriptions, last_byte = ARGV[1] .. ':subs', string.char(255)
local function beginning_with(start, ...)
  return call('ZRANGEBYLEX', subscriptions, '[' .. start, '[' .. start .. last_byte, ...)
end
local function count_beginning_with(start)
  return call('ZLEXCOUNT', subscriptions, '[' .. start, '[' .. start .. last_byte)
end
local function wild_member(segments, pattern)
  local first = segments[1]
  return 'w|' .. (first == '>' and '*' or first) .. '|' .. pattern
end
local function drop(members)
  for index = 1, #members do
    local node, endpoint, pattern = string.match(members[index], '^n|([^|]*)|([^|]*)|(.*)$')
    local tail = node .. '|' .. endpoint
    call('ZREM', subscriptions, 'n|' .. tail .. '|' .. pattern, 'p|' .. pattern .. '|' .. tail)
    if count_beginning_with('p|' .. pattern .. '|') == 0 then
      call('ZREM', subscriptions, 't|' .. pattern)
      local segments, has_wildcard = segments_of(pattern, true)
      if segments and has_wildcard then
        call('ZREM', subscriptions, wild_member(segments, pattern))
      end
    else
    end
  end
end
local node, endpoint, pattern = ARGV[2], ARGV[3], ARGV[4]
if not (is_id(node) and is_id(endpoint)) then
  return -5
end
local segments, has_wildcard = segments_of(pattern, true)
if not segments then
  return -2
end
if not is_registered(node) then
  return -3
end
local tail = node .. '|' .. endpoint
local added = call('ZADD', subscriptions, '0', 'n|' .. tail .. '|' .. pattern)
if added == 1 then
  call('ZADD', subscriptions, '0', 'p|' .. pattern .. '|' .. tail, '0', 't|' .. pattern)
  if has_wildcard then
    call('ZADD', subscriptions, '0', wild_member(segments, pattern))
  end
  if call('PTTL', subscriptions) == -1 then
    call('PEXPIRE', subscriptions, math.max(1, call('PTTL', KEYS[1])))
  end
else
end
if not has_wildcard then
  local message = call('HMGET', retained_of(pattern), 'm', 'ts', 'd')
  if message[1] then
    return { added, message[1], message[2], message[3] }
  end
end
return { added, '', '', '' }
""",
)

RELAY_SWEEP = Script(
    name="relaySweep",
    sha1="c7888301512ccbde69e162fea67756f851fd9669",
    keys=1,
    source="""\
local call = redis.call
local function server_now()
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function last_score(set)
  return tonumber(call('ZREVRANGE', set, '0', '0', 'WITHSCORES')[2] or 0)
end
local function record_of(node)
  return ARGV[1] .. ':' .. node .. ':node'
end
local function inbox_of(node)
  return ARGV[1] .. ':' .. node .. ':inbox'
end
local function retained_of(topic)
  return ARGV[1] .. ':' .. topic .. ':ret'
end
local function is_id(text)
  return #text <= 64 and string.find(text, '^[A-Za-z0-9_%-]+$') ~= nil
end
local function segments_of(text, is_pattern)
  local segments, has_wildcard, is_closed = {}, false, false
  if #text == 0 or #text > 512 then
    return nil
  end
  for segment in string.gmatch(text .. '.', '([^.]*)%.') do
    local is_wildcard = segment == '*' or segment == '>'
    if is_closed or (is_wildcard and not is_pattern) then
      return nil
    end
    if not is_wildcard and not string.find(segment, '^[A-Za-z0-9_:%%%-]+$') then
      return nil
    end
    is_closed = segment == '>'
    has_wildcard = has_wildcard or is_wildcard
    segments[#segments + 1] = segment
  end
  if #segments > 16 then
    return nil
  end
  return segments, has_wildcard
end
local subscriptions, last_byte = ARGV[1] .. ':subs', string.char(255)
local function beginning_with(start, ...)
  return call('ZRANGEBYLEX', subscriptions, '[' .. start, '[' .. start .. last_byte, ...)
end
local function count_beginning_with(start)
  return call('ZLEXCOUNT', subscriptions, '[' .. start, '[' .. start .. last_byte)
end
local function wild_member(segments, pattern)
  local first = segments[1]
  return 'w|' .. (first == '>' and '*' or first) .. '|' .. pattern
end
local function drop(members)
  for index = 1, #members do
    local node, endpoint, pattern = string.match(members[index], '^n|([^|]*)|([^|]*)|(.*)$')
    local tail = node .. '|' .. endpoint
    call('ZREM', subscriptions, 'n|' .. tail .. '|' .. pattern, 'p|' .. pattern .. '|' .. tail)
    if count_beginning_with('p|' .. pattern .. '|') == 0 then
      call('ZREM', subscriptions, 't|' .. pattern)
      local segments, has_wildcard = segments_of(pattern, true)
      if segments and has_wildcard then
        call('ZREM', subscriptions, wild_member(segments, pattern))
      end
    else
    end
  end
end
local leaving, started, retained = ARGV[1] .. ':cleanup', ARGV[1] .. ':started', ARGV[1] .. ':retained'
local function refresh(now)
  local last = last_score(KEYS[1])
  if last > now then
    call('PEXPIREAT', KEYS[1], last)
    call('PEXPIREAT', started, last)
    call('PEXPIREAT', subscriptions, last)
    call('PEXPIREAT', leaving, last)
  else
    call('UNLINK', KEYS[1], started, subscriptions, leaving)
  end
  last = math.max(last, last_score(retained))
  local counter, layout = ARGV[1] .. ':mid', ARGV[1] .. ':layout'
  if last > now then
    call('PEXPIREAT', counter, last)
    call('PEXPIREAT', layout, last)
  else
    call('UNLINK', counter, layout)
  end
end
local function remove(node, now)
  local removed = call('ZREM', KEYS[1], node)
  call('ZREM', started, node)
  call('UNLINK', inbox_of(node), record_of(node))
  if count_beginning_with('n|' .. node .. '|') > 0 then
    call('ZADD', leaving, now, node)
  end
  return removed
end
local function prune(node, budget)
  local members = beginning_with('n|' .. node .. '|', 'LIMIT', '0', budget)
  drop(members)
  if #members < budget then
    call('ZREM', leaving, node)
  else
  end
  return math.max(#members, 1)
end
local function prune_all(budget)
  while budget > 0 do
    local node = call('ZRANGE', leaving, '0', '0')[1]
    if not node then
      return
    end
    budget = budget - prune(node, budget)
  end
end
if tonumber(ARGV[2]) <= 0 then
  return {}
end
local now = server_now()
local gone = call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', '0', ARGV[2])
for index = 1, #gone do
  remove(gone[index], now)
end
call('ZREMRANGEBYSCORE', retained, '-inf', now)
refresh(now)
prune_all(100)
return gone
""",
)

RELAY_TOUCH_NAMESPACE = Script(
    name="relayTouchNamespace",
    sha1="0751732d3e265fc14cf600cf76f5fe1234e2b6b0",
    keys=1,
    source="""\
local call = redis.call
local function server_now()
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function last_score(set)
  return tonumber(call('ZREVRANGE', set, '0', '0', 'WITHSCORES')[2] or 0)
end
local now = server_now()
call('ZADD', KEYS[1], 'GT', now + ARGV[2], ARGV[1])
call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
call('PEXPIREAT', KEYS[1], last_score(KEYS[1]))
return nil
""",
)

RELAY_TRIM_INBOX = Script(
    name="relayTrimInbox",
    sha1="20da7322556861b9eb29e57c181acdec15a48e2c",
    keys=1,
    source="""\
local call = redis.call
local function each_batch(items, visit)
  for from = 1, #items, 7000 do
    visit(unpack(items, from, math.min(from + 6999, #items)))
  end
end
local function record_of(node)
  return ARGV[1] .. ':' .. node .. ':node'
end
local function inbox_of(node)
  return ARGV[1] .. ':' .. node .. ':inbox'
end
local function retained_of(topic)
  return ARGV[1] .. ':' .. topic .. ':ret'
end
local function trim_unread(inbox, limit, position, over)
  local seen = 0
  if position ~= '0-0' and position ~= '0' then
    seen = #call('XRANGE', inbox, '-', position, 'COUNT', over)
  end
  return call('XTRIM', inbox, 'MAXLEN', limit) - seen
end
local record, inbox, cursor = record_of(ARGV[2]), inbox_of(ARGV[2]), ARGV[3]
local is_known = call('EXISTS', record) == 1
if is_known then
  call('HSET', record, 'cursor', cursor)
else
end
if cursor ~= '0-0' and cursor ~= '0' then
  local ids = {}
  for index, entry in ipairs(call('XRANGE', inbox, '-', cursor, 'COUNT', '10000')) do
    ids[index] = entry[1]
  end
  each_batch(ids, function(...)
    call('XDEL', inbox, ...)
  end)
end
local over, unread = call('XLEN', inbox) - ARGV[4], 0
if over > 0 then
  unread = trim_unread(inbox, ARGV[4], call('HGET', record, 'inFlight') or cursor, over)
end
local length = call('XLEN', inbox)
if is_known then
  call('HSET', record, 'backlog', length)
  if unread > 0 then
    call('HINCRBY', record, 'dropped', unread)
  end
end
return length
""",
)

RELAY_UNREGISTER_NODE = Script(
    name="relayUnregisterNode",
    sha1="738d8d8593c114136cc6deb7f2626023a301d42d",
    keys=1,
    source="""\
local call = redis.call
local function server_now()
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function last_score(set)
  return tonumber(call('ZREVRANGE', set, '0', '0', 'WITHSCORES')[2] or 0)
end
local function record_of(node)
  return ARGV[1] .. ':' .. node .. ':node'
end
local function inbox_of(node)
  return ARGV[1] .. ':' .. node .. ':inbox'
end
local function retained_of(topic)
  return ARGV[1] .. ':' .. topic .. ':ret'
end
local function is_id(text)
  return #text <= 64 and string.find(text, '^[A-Za-z0-9_%-]+$') ~= nil
end
local function segments_of(text, is_pattern)
  local segments, has_wildcard, is_closed = {}, false, false
  if #text == 0 or #text > 512 then
    return nil
  end
  for segment in string.gmatch(text .. '.', '([^.]*)%.') do
    local is_wildcard = segment == '*' or segment == '>'
    if is_closed or (is_wildcard and not is_pattern) then
      return nil
    end
    if not is_wildcard and not string.find(segment, '^[A-Za-z0-9_:%%%-]+$') then
      return nil
    end
    is_closed = segment == '>'
    has_wildcard = has_wildcard or is_wildcard
    segments[#segments + 1] = segment
  end
  if #segments > 16 then
    return nil
  end
  return segments, has_wildcard
end
local subscriptions, last_byte = ARGV[1] .. ':subs', string.char(255)
local function beginning_with(start, ...)
  return call('ZRANGEBYLEX', subscriptions, '[' .. start, '[' .. start .. last_byte, ...)
end
local function count_beginning_with(start)
  return call('ZLEXCOUNT', subscriptions, '[' .. start, '[' .. start .. last_byte)
end
local function wild_member(segments, pattern)
  local first = segments[1]
  return 'w|' .. (first == '>' and '*' or first) .. '|' .. pattern
end
local function drop(members)
  for index = 1, #members do
    local node, endpoint, pattern = string.match(members[index], '^n|([^|]*)|([^|]*)|(.*)$')
    local tail = node .. '|' .. endpoint
    call('ZREM', subscriptions, 'n|' .. tail .. '|' .. pattern, 'p|' .. pattern .. '|' .. tail)
    if count_beginning_with('p|' .. pattern .. '|') == 0 then
      call('ZREM', subscriptions, 't|' .. pattern)
      local segments, has_wildcard = segments_of(pattern, true)
      if segments and has_wildcard then
        call('ZREM', subscriptions, wild_member(segments, pattern))
      end
    else
    end
  end
end
local leaving, started, retained = ARGV[1] .. ':cleanup', ARGV[1] .. ':started', ARGV[1] .. ':retained'
local function refresh(now)
  local last = last_score(KEYS[1])
  if last > now then
    call('PEXPIREAT', KEYS[1], last)
    call('PEXPIREAT', started, last)
    call('PEXPIREAT', subscriptions, last)
    call('PEXPIREAT', leaving, last)
  else
    call('UNLINK', KEYS[1], started, subscriptions, leaving)
  end
  last = math.max(last, last_score(retained))
  local counter, layout = ARGV[1] .. ':mid', ARGV[1] .. ':layout'
  if last > now then
    call('PEXPIREAT', counter, last)
    call('PEXPIREAT', layout, last)
  else
    call('UNLINK', counter, layout)
  end
end
local function remove(node, now)
  local removed = call('ZREM', KEYS[1], node)
  call('ZREM', started, node)
  call('UNLINK', inbox_of(node), record_of(node))
  if count_beginning_with('n|' .. node .. '|') > 0 then
    call('ZADD', leaving, now, node)
  end
  return removed
end
local function prune(node, budget)
  local members = beginning_with('n|' .. node .. '|', 'LIMIT', '0', budget)
  drop(members)
  if #members < budget then
    call('ZREM', leaving, node)
  else
  end
  return math.max(#members, 1)
end
local function prune_all(budget)
  while budget > 0 do
    local node = call('ZRANGE', leaving, '0', '0')[1]
    if not node then
      return
    end
    budget = budget - prune(node, budget)
  end
end
local now = server_now()
local removed = remove(ARGV[2], now)
refresh(now)
prune_all(100)
return removed
""",
)

RELAY_SCRIPTS: Mapping[str, Script] = MappingProxyType(
    {
        script.name: script
        for script in (
            RELAY_ACK_INBOX,
            RELAY_DELETE_RETAINED,
            RELAY_GET,
            RELAY_GET_NAMESPACES,
            RELAY_HEARTBEAT,
            RELAY_PUBLISH,
            RELAY_READ_INBOX,
            RELAY_REGISTER_NODE,
            RELAY_REMOVE_ENDPOINT,
            RELAY_SUBSCRIBE,
            RELAY_SWEEP,
            RELAY_TOUCH_NAMESPACE,
            RELAY_TRIM_INBOX,
            RELAY_UNREGISTER_NODE,
        )
    }
)
