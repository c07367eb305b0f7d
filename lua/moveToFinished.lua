--- keys: wait, active, prioritized, events, stalled, limiter, delayed, paused, meta, pc
--- keys: completed or failed, job, metrics of that kind, marker
--- args: id, now, name of the result field, result, completed or failed, fetch (1), base prefix
--- args: options (MessagePack map), fields (MessagePack array or empty)
--- include call
--- include failure_fields
--- include plain_ms
--- include start_attempt
--- lazy finish_job: finish_job
--- lazy retention: keep_by_age, keep_by_count

-- specs/02-worker-path.md#sec-5. A plain job is one without parent, children, deduplication, metrics and rate limit
-- in a queue that is open: most are, and what the others need is not even made for them. Nothing is written before that is
-- known.
local job, id, now, events = KEYS[12], ARGV[1], ARGV[2], KEYS[4]
local lock = job .. ':lock'
local readable, options = pcall(cmsgpack.unpack, ARGV[8])
readable = readable and type(options) == 'table'
local keep, token = readable and options.keepJobs, readable and options.token
local stored, attempts, attempts_text, cap, plain, may_delay
if type(keep) == 'table' and (keep.age == nil or type(keep.age) == 'number')
  and (keep.count == nil or type(keep.count) == 'number') and options.maxMetricsSize == '' and not options.limiter
  and is_plain_ms(options.lockDuration) and tonumber(options.attempts) and token ~= '0'
  -- what is kept is refused for a moment that is no number, what is removed only by the fetch
  and (keep.count ~= 0 or plain_count(now)) then
  stored = redis.pcall('HMGET', job, 'name', 'parentKey', 'parent', 'deid', 'atm', 'defa')
  if stored[1] and not (stored[2] or stored[3] or stored[4]) and redis.pcall('GET', lock) == token then
    local known = redis.pcall('HMGET', KEYS[9], 'opts.maxLenEvents', 'paused', 'concurrency', 'max')
    cap = known[1]
    attempts, attempts_text = plain_count(stored[5])
    plain = attempts and cap and (cap == '10000' or plain_count(cap)) and not (known[2] or known[3] or known[4])
      and (ARGV[9] == '' or failure_fields(ARGV[9]))
  end
end
if plain then
  local children, unsuccessful, delayed = job .. ':dependencies', job .. ':unsuccessful', KEYS[7]
  if call('EXISTS', delayed, children, unsuccessful) ~= 0 then
    -- a moment that is no number is refused where its first command stands
    local due = tonumber(now) and redis.pcall('ZRANGEBYSCORE', delayed, '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1')
    may_delay = true
    plain = due and not due.err and not due[1] and (ARGV[5] ~= 'completed' or call('EXISTS', children, unsuccessful) == 0)
  end
end
if not plain then
  --@not-plain
  return load_finish_job()(ARGV[7], id, job, now, ARGV[3], ARGV[4], ARGV[5], KEYS[11], KEYS[13],
    readable and token, readable and options, ARGV[9], ARGV[6] == '1', KEYS[14])
end

-- The job ends.
local active, field, result, outcome = KEYS[2], ARGV[3], ARGV[4], ARGV[5]
call('DEL', lock)
call('SREM', KEYS[5], id)
if ARGV[9] ~= '' then
  --@plain-fields
  call('HMSET', job, unpack(cmsgpack.unpack(ARGV[9])))
end
if call('LREM', active, '-1', id) == 0 then
  --@plain-not-active
  return -3
end
if keep.count == 0 then
  --@plain-removed
  call('XTRIM', events, 'MAXLEN', '~', cap)
  call('DEL', job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful')
  call('XADD', events, '*', 'event', outcome, 'jobId', id, field, result, 'prev', 'active')
else
  local finished = KEYS[11]
  -- Trimming before the event equals trimming with it to one more. The event comes before what it tells, for nothing of
  -- that may be there when the stream is refused. Retention may have events of its own before.
  local retains = keep.age ~= nil or (keep.count ~= nil and keep.count > 0)
  local added = not retains and redis.pcall('ZADD', finished, 'NX', now, id) == 1
  local capped = added and (cap == '10000' and '10001' or cap + 1 .. '')
  if added and type(redis.pcall('XADD', events, 'MAXLEN', '~', capped, '*', 'event', outcome, 'jobId', id, field,
    result, 'prev', 'active')) == 'table' then
    --@plain-event-refused
    call('ZREM', finished, id)
    added = false
  end
  if added then
    --@plain-stored
    call('HSET', job, 'atm', attempts_text, field, result, 'finishedOn', now)
    if stored[6] and outcome == 'failed' then
      --@plain-deferred-failure
      call('HDEL', job, 'defa')
    end
  else
    --@plain-again
    call('XTRIM', events, 'MAXLEN', '~', cap)
    if type(redis.pcall('ZADD', finished, now, id)) == 'table' then
      call('HSET', job, 'atm', attempts_text)
      call('ZADD', finished, now, id)
    end
    call('HSET', job, 'atm', attempts_text, field, result, 'finishedOn', now)
    if stored[6] and outcome == 'failed' then
      --@plain-deferred-failure-again
      call('HDEL', job, 'defa')
    end
    if retains then
      local keep_by_age, keep_by_count = load_retention()
      if keep.age ~= nil then
        --@plain-by-age
        keep_by_age(ARGV[7], finished, now, keep.age)
      end
      if keep.count ~= nil and keep.count > 0 then
        --@plain-by-count
        keep_by_count(ARGV[7], finished, keep.count)
      end
    end
    call('XADD', events, '*', 'event', outcome, 'jobId', id, field, result, 'prev', 'active')
  end
end
if outcome == 'failed' and attempts >= tonumber(options.attempts) then
  --@plain-exhausted
  call('XADD', events, '*', 'event', 'retries-exhausted', 'jobId', id, 'attemptsMade', attempts_text)
end

-- The next one begins.
if ARGV[6] == '1' then
  local next_id = call('RPOPLPUSH', KEYS[1], active)
  -- specs/02-worker-path.md#w6, finish form
  local old = next_id and string.sub(next_id, 1, 2) == '0:' and next_id
  if old then
    --@plain-old-marker
    call('LREM', active, '1', old)
    next_id = nil
  end
  if not next_id and (not old or old == '0:0') then
    next_id = call('ZPOPMIN', KEYS[3])[1]
    if next_id then
      --@plain-prioritized
      call('LPUSH', active, next_id)
    else
      --@plain-counter-reset
      call('DEL', KEYS[10])
      assert(not old, 'no prioritized job after the marker 0:0')
    end
  end
  if next_id then
    --@plain-next
    local next_job = ARGV[7] .. next_id
    call('SET', next_job .. ':lock', token, 'PX', options.lockDuration .. '')
    call('XADD', events, '*', 'event', 'active', 'jobId', next_id, 'prev', 'waiting')
    local fields = start_attempt(next_job, now, options.name)
    call('ZADD', KEYS[14], '0', '0')
    return { fields, next_id, 0, 0 }
  end
  local score = may_delay and call('ZRANGE', KEYS[7], '0', '0', 'WITHSCORES')[2]
  if score then
    --@plain-next-due
    return { 0, 0, 0, score / 4096 }
  end
end
if call('LLEN', KEYS[1]) == 0 and call('LLEN', active) == 0 and call('ZCARD', KEYS[3]) == 0 then
  --@plain-drained
  call('XADD', events, '*', 'event', 'drained')
end
return 0
