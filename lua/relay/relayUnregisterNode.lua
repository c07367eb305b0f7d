--- keys: nodes
--- args: base, node
--- include relay_lifetime

-- specs/06-later-versions.md#sec-4-14
local now = server_now()
local removed = remove(ARGV.node, now)
refresh(now)
prune_all(100)
return removed
