--- keys: job, logs
--- args: id (not used), row, rows to keep or empty
--- include call

-- specs/03-transitions-admin-getters.md#sec-5-3
if call('EXISTS', KEYS[1]) == 0 then
  --@no-job
  return -1
end
local rows = call('RPUSH', KEYS[2], ARGV[2])
if ARGV[3] == '' then
  --@all
  return rows
end
local keep = tonumber(ARGV[3])
call('LTRIM', KEYS[2], -keep, -1)
--@trimmed
return math.min(keep, rows)
