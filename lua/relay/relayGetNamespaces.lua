--- keys: registry
--- args:
--- include relay_clock

-- specs/06-later-versions.md#sec-4-14
local found = call('ZRANGEBYSCORE', KEYS.registry, server_now() + 1, '+inf')
table.sort(found)
return found
