--- keys: nodes
--- args: base, node, lease, info (JSON), layout, inbox_limit
--- include relay_lifetime

-- specs/06-later-versions.md#sec-4-14
local node, lease, layout = ARGV.node, ARGV.lease, ARGV.base .. ':layout'
if not is_id(node) then
  --@no-id
  return -5
end
local known = call('HGET', layout, 'layout')
if known and known ~= ARGV.layout then
  --@other-layout
  return -6
end
local now, record = server_now(), record_of(node)
if call('EXISTS', record) == 0 then
  --@new
  remove(node, now)
  refresh(now)
  prune(node, 100)
  if call('ZSCORE', leaving, node) then
    --@still-leaving
    return 0
  end
else
  --@again
end
call('HSET', layout, 'layout', ARGV.layout)
call('ZADD', KEYS.nodes, now + lease, node)
call('ZADD', started, 'NX', now, node)
call('HSET', record, 'info', ARGV.info, 'hb', now)
call('HSET', record, 'maxLen', tonumber(ARGV.inbox_limit) or 10000)
call('PEXPIRE', record, lease)
call('PEXPIRE', inbox_of(node), lease)
refresh(now)
return 1
