--- keys: job, events, meta
--- args: id, progress (JSON)
--- include call
--- include emit_capped
--- include event_cap

-- specs/03-transitions-admin-getters.md#5.2
if call('EXISTS', KEYS[1]) == 0 then
  --@no-job
  return -1
end
local cap = event_cap(KEYS[3])
--@updated
call('HSET', KEYS[1], 'progress', ARGV[2])
emit_capped(KEYS[2], cap, 'progress', 'jobId', ARGV[1], 'data', ARGV[2])
return 0
