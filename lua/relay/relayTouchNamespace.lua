--- keys: registry
--- args: namespace, lifetime (ms)
--- include relay_clock

-- specs/06-later-versions.md#sec-4-14
local now = server_now()
call('ZADD', KEYS.registry, 'GT', now + ARGV.lifetime, ARGV.namespace)
call('ZREMRANGEBYSCORE', KEYS.registry, '-inf', now)
call('PEXPIREAT', KEYS.registry, last_score(KEYS.registry))
return nil
