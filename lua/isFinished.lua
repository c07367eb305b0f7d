--- keys: completed, failed, job
--- args: id, with the result (1) or empty
--- include call

-- specs/03-transitions-admin-getters.md#9.5
local with_result = ARGV[2] == '1'
if call('EXISTS', KEYS[3]) == 0 then
  --@no-job
  return with_result and { -1, 'Missing key for job ' .. KEYS[3] .. '. isFinished' } or -1
end
if call('ZSCORE', KEYS[1], ARGV[1]) then
  --@completed
  return with_result and { 1, call('HGET', KEYS[3], 'returnvalue') } or 1
end
if call('ZSCORE', KEYS[2], ARGV[1]) then
  --@failed
  return with_result and { 2, call('HGET', KEYS[3], 'failedReason') } or 2
end
--@unfinished
return with_result and { 0 } or 0
