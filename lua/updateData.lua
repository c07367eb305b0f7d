--- keys: job
--- args: data (JSON)
--- include call

-- specs/03-transitions-admin-getters.md#5.1
if call('EXISTS', KEYS[1]) == 0 then
  --@no-job
  return -1
end
--@updated
call('HSET', KEYS[1], 'data', ARGV[1])
return 0
