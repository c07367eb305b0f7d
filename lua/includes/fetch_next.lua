--- include call
--- include emit
--- include queue_gate
--- include next_due
--- include promote_due
--- include rate_limit

-- KEYS 1 to 10 are the same in the two commands that fetch; the marker is not.

-- specs/02-worker-path.md#w6: an element left by very old producers, not a job.
local function is_old_marker(id)
  return string.sub(id, 1, 2) == '0:'
end

-- specs/02-worker-path.md#w6, priority take
local function take_prioritized()
  local id = call('ZPOPMIN', KEYS[3])[1]
  if id then
    --@prioritized
    call('LPUSH', KEYS[2], id)
    return id
  end
  --@counter-reset
  call('DEL', KEYS[10])
  return nil
end

-- specs/02-worker-path.md#w5: the maximum of meta beats the worker's.
local function effective_maximum(global_maximum, options)
  if global_maximum then
    --@global-maximum
    return tonumber(global_maximum)
  end
  local limiter = options.limiter
  if limiter and limiter.max then
    --@worker-maximum
    return tonumber(limiter.max)
  end
  --@no-maximum
  return nil
end

-- specs/02-worker-path.md#w7: the ready marker is set always, the hash is not required to exist.
local function activate(base, id, now, maximum, duration, options, marker)
  local job = base .. id
  if maximum and call('INCR', KEYS[6]) == 1 then
    --@window-opened
    call('PEXPIRE', KEYS[6], math.floor(math.abs(duration)))
  end
  if options.token == '0' then
    --@without-lock
  else
    --@locked
    call('SET', job .. ':lock', options.token, 'PX', options.lockDuration)
  end
  emit(KEYS[4], 'active', 'jobId', id, 'prev', 'waiting')
  if options.name then
    --@named-worker
    call('HMSET', job, 'processedOn', now, 'pb', options.name)
  else
    --@unnamed-worker
    call('HMSET', job, 'processedOn', now)
  end
  call('HINCRBY', job, 'ats', '1')
  call('ZADD', marker, '0', '0')
  return { call('HGETALL', job), id, 0, 0 }
end

-- specs/02-worker-path.md#sec-4, steps 2 to 7. take() moves an id to active and gives it.
-- Gives the reply, or nil when there is nothing to take and nothing delayed.
local function fetch_next(base, now, options, marker, take)
  local target, held, global_maximum, global_duration = queue_gate(KEYS[9], KEYS[2], KEYS[1], KEYS[8])
  promote_due(base, now, target, held, KEYS[7], KEYS[3], KEYS[10], KEYS[4], marker)

  local maximum = effective_maximum(global_maximum, options)
  local pause = limited_for(KEYS[6], maximum)
  if pause > 0 then
    --@rate-limited
    return { 0, 0, pause, 0 }
  end
  if held then
    --@held
    return { 0, 0, 0, 0 }
  end

  -- the duration of the worker beats that of meta
  local duration = options.limiter and options.limiter.duration or global_duration
  local id = take()
  if id then
    --@job
    return activate(base, id, now, maximum, duration, options, marker)
  end
  local due = next_due(KEYS[7])
  if due then
    --@next-due
    return { 0, 0, 0, due }
  end
  --@nothing
  return nil
end
