--- keys: nodes
--- args: base, node, endpoint, pattern
--- record message: m ts d
--- include call
--- include relay_registered
--- include relay_index

-- specs/06-later-versions.md#sec-4-14
local node, endpoint, pattern = ARGV.node, ARGV.endpoint, ARGV.pattern
if not (is_id(node) and is_id(endpoint)) then
  --@no-id
  return -5
end
local segments, has_wildcard = segments_of(pattern, true)
if not segments then
  --@no-pattern
  return -2
end
if not is_registered(node) then
  --@not-registered
  return -3
end
local tail = node .. '|' .. endpoint
local added = call('ZADD', subscriptions, '0', 'n|' .. tail .. '|' .. pattern)
if added == 1 then
  --@added
  call('ZADD', subscriptions, '0', 'p|' .. pattern .. '|' .. tail, '0', 't|' .. pattern)
  if has_wildcard then
    --@wildcard
    call('ZADD', subscriptions, '0', wild_member(segments, pattern))
  end
  if call('PTTL', subscriptions) == -1 then
    --@lifetime
    call('PEXPIRE', subscriptions, math.max(1, call('PTTL', KEYS.nodes)))
  end
else
  --@there-already
end
if not has_wildcard then
  local message = call('HMGET', retained_of(pattern), 'm', 'ts', 'd')
  if message.m then
    --@retained
    return { added, message.m, message.ts, message.d }
  end
end
--@nothing-retained
return { added, '', '', '' }
