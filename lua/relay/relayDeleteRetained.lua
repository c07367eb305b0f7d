--- keys: nodes
--- args: base, topic
--- include relay_lifetime

-- specs/06-later-versions.md#sec-4-14
if not segments_of(ARGV.topic, false) then
  --@no-topic
  return -1
end
local now = server_now()
call('ZREM', retained, ARGV.topic)
call('ZREMRANGEBYSCORE', retained, '-inf', now)
local last = last_score(retained)
if last > 0 then
  --@others
  call('PEXPIREAT', retained, last)
end
local deleted = call('DEL', retained_of(ARGV.topic))
refresh(now)
return deleted
