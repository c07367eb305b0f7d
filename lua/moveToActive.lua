--- keys: wait, active, prioritized, events, stalled (not used), limiter, delayed, paused, meta, pc, marker
--- args: base prefix, now, options (MessagePack map)
--- include call
--- include start_attempt
--- lazy take_first: fetch_next, take_first

-- specs/02-worker-path.md#sec-4. When the queue is open, nothing is due and nothing limits, the rest is not even made.
local options = cmsgpack.unpack(ARGV[3])
local known = redis.pcall('HMGET', KEYS[9], 'paused', 'concurrency', 'max')
if type(options) == 'table' and not (known.err or known[1] or known[2] or known[3] or options.limiter) then
  local due = redis.pcall('ZRANGEBYSCORE', KEYS[7], '0', (ARGV[2] + 1) * 4096 - 1, 'LIMIT', '0', '1')
  if not (due.err or due[1]) then
    local id = call('RPOPLPUSH', KEYS[1], KEYS[2])
    if id and string.sub(id, 1, 2) == '0:' then
      --@old-marker
      call('LREM', KEYS[2], '1', id)
      id = call('RPOPLPUSH', KEYS[1], KEYS[2])
    end
    if id then
      --@from-list
      local job = ARGV[1] .. id
      if options.token ~= '0' then
        --@locked
        call('SET', job .. ':lock', options.token, 'PX', options.lockDuration)
      end
      call('XADD', KEYS[4], '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')
      local fields = start_attempt(job, ARGV[2], options.name)
      call('ZADD', KEYS[11], '0', '0')
      return { fields, id, 0, 0 }
    end
  end
end
--@not-plain
local fetch_next, take_first = load_take_first()
return fetch_next(ARGV[1], ARGV[2], options, nil, KEYS[11], take_first) or { 0, 0, 0, 0 }
