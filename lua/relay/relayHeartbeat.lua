--- keys: nodes
--- args: base, node, lease
--- include relay_lifetime
--- include relay_registered

-- specs/06-later-versions.md#sec-4-14
local node, lease = ARGV.node, ARGV.lease
if not is_registered(node) then
  --@not-registered
  return 0
end
local now, record = server_now(), record_of(node)
call('ZADD', KEYS.nodes, now + lease, node)
call('HSET', record, 'hb', now)
call('PEXPIRE', record, lease)
call('PEXPIRE', inbox_of(node), lease)
refresh(now)
--@renewed
return 1
