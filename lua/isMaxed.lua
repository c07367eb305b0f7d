--- keys: meta, active
--- args:
--- include call

-- specs/02-worker-path.md#8.2: nil when it is not.
local concurrency = call('HGET', KEYS[1], 'concurrency')
if concurrency and call('LLEN', KEYS[2]) >= tonumber(concurrency) then
  --@maxed
  return 1
end
--@not-maxed
return nil
