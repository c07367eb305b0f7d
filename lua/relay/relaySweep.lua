--- keys: nodes
--- args: base, most (nodes)
--- include relay_lifetime

-- specs/06-later-versions.md#sec-4-14
if tonumber(ARGV.most) <= 0 then
  --@none-wanted
  return {}
end
local now = server_now()
local gone = call('ZRANGEBYSCORE', KEYS.nodes, '-inf', now, 'LIMIT', '0', ARGV.most)
for index = 1, #gone do
  --@lease-over
  remove(gone[index], now)
end
call('ZREMRANGEBYSCORE', retained, '-inf', now)
refresh(now)
prune_all(100)
return gone
