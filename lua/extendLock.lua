--- keys: lock, stalled
--- args: token, duration, id
--- include renew_lock

-- specs/02-worker-path.md#7.1
return renew_lock(KEYS[1], ARGV[1], ARGV[2], KEYS[2], ARGV[3]) and 1 or 0
