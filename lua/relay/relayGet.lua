--- keys: nodes
--- args: base, view, first, last, filter (node, pattern or empty), value (of the filter)
--- record known: info hb backlog dropped
--- record message: m ts d
--- include call
--- include relay_clock
--- include relay_keys
--- include relay_index

-- specs/06-later-versions.md#sec-4-14
local first, last, value = tonumber(ARGV.first), tonumber(ARGV.last), ARGV.value
local retained = ARGV.base .. ':retained'
local now = server_now()
local most = last < 0 and -1 or math.max(0, last - first + 1)

-- Gives the members without their beginning.
local function page(start)
  local found = {}
  if most == 0 then
    --@empty-page
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
    call('ZCARD', KEYS.nodes), count_beginning_with('n|'), count_beginning_with('t|'),
    call('ZCOUNT', retained, now + 1, '+inf'),
  }
end

function views.used()
  if call('ZCOUNT', KEYS.nodes, now + 1, '+inf') + call('ZCOUNT', retained, now + 1, '+inf') > 0 then
    --@used
    return 1
  end
  --@unused
  return 0
end

function views.nodes()
  local found = {}
  local members = call('ZRANGE', ARGV.base .. ':started', first, last, 'WITHSCORES')
  for place = 1, #members, 2 do
    --@node
    local node = members[place]
    local known = call('HMGET', record_of(node), 'info', 'hb', 'backlog', 'dropped')
    found[#found + 1] = {
      node, members[place + 1], call('ZSCORE', KEYS.nodes, node) or '', known.info or '', known.hb or '',
      known.backlog or '0', known.dropped or '0', count_beginning_with('n|' .. node .. '|'),
    }
  end
  return found
end

function views.subscriptions()
  local found = {}
  if ARGV.filter == 'node' then
    --@of-node
    for place, rest in ipairs(page('n|' .. value .. '|')) do
      local endpoint, pattern = string.match(rest, '^([^|]*)|(.*)$')
      found[place] = { value, endpoint, pattern }
    end
  elseif ARGV.filter == 'pattern' then
    --@of-pattern
    for place, rest in ipairs(page('p|' .. value .. '|')) do
      local node, endpoint = string.match(rest, '^([^|]*)|(.*)$')
      found[place] = { node, endpoint, value }
    end
  else
    --@of-all
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
    --@pattern
    found[place] = { pattern, count_beginning_with('p|' .. pattern .. '|') }
  end
  return found
end

function views.retained()
  local found = {}
  if most == 0 then
    --@none-retained
    return found
  end
  local members = call('ZRANGEBYSCORE', retained, now + 1, '+inf', 'WITHSCORES', 'LIMIT', first, most)
  for place = 1, #members, 2 do
    local message = call('HMGET', retained_of(members[place]), 'm', 'ts', 'd')
    if message.m then
      --@retained
      found[#found + 1] = { members[place], members[place + 1], message.m, message.ts, message.d }
    else
      --@no-hash
    end
  end
  return found
end

return views[ARGV.view] and views[ARGV.view]() or {}
