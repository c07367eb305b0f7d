--- keys: metrics, metrics data
--- args: start, end
--- include call

-- specs/03-transitions-admin-getters.md#sec-9-7
local totals = call('HMGET', KEYS[1], 'count', 'prevTS', 'prevCount')
local points = call('LRANGE', KEYS[2], ARGV[1], ARGV[2])
--@read
return { totals, points, call('LLEN', KEYS[2]) }
