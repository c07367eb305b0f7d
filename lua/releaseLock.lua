--- keys: lock
--- args: token, duration (not used)
--- include call

-- specs/02-worker-path.md#7.3
if call('GET', KEYS[1]) == ARGV[1] then
  --@released
  return call('DEL', KEYS[1])
end
--@refused
return 0
