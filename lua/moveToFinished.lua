--- keys: wait, active, prioritized, events, stalled, limiter, delayed, paused, meta, pc
--- keys: completed or failed, job, metrics of that kind, marker
--- args: id, now, name of the result field, result, completed or failed, fetch (1), base prefix
--- args: options (MessagePack map), fields (MessagePack array or empty)
--- include finish_job

-- specs/02-worker-path.md#sec-5
return finish_job(ARGV[7], ARGV[1], KEYS[12], ARGV[2], ARGV[3], ARGV[4], ARGV[5], KEYS[11], KEYS[13], nil, nil, ARGV[9],
  ARGV[6] == '1', KEYS[14])
