--- keys: job
--- args: stack trace (JSON), failed reason
--- include call

-- specs/03-transitions-admin-getters.md#5.4
if call('EXISTS', KEYS[1]) == 0 then
  --@no-job
  return -1
end
--@saved
call('HMSET', KEYS[1], 'stacktrace', ARGV[1], 'failedReason', ARGV[2])
return 0
