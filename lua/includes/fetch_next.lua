--- include call
--- include emit
--- include later
--- include is_held
--- include queue_settings
--- include spent
--- include start_attempt
--- lazy promote_due: promote_due
--- include next_due
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

-- the ready marker is there already
local marked = false

-- everything that is due at this time was promoted
local promoted_at = nil

-- specs/02-worker-path.md#w7: the ready marker is set always.
local function activate(base, id, now, maximum, duration, options, token, marker)
  local job = base .. id
  token = token or options.token
  if maximum and call('INCR', KEYS[6]) == 1 then
    --@window-opened
    call('PEXPIRE', KEYS[6], math.floor(math.abs(duration)))
  end
  if token == '0' then
    --@without-lock
  else
    --@locked
    local lock = job .. ':lock'
    if later then
      if later.locks[lock] == false then
        later.flush_released()
      end
      later.locks[lock] = token
    end
    call('SET', lock, token, 'PX', options.lockDuration)
  end
  emit(KEYS[4], 'active', 'jobId', id, 'prev', 'waiting')
  local fields = start_attempt(job, now, options.name)
  if not marked then
    call('ZADD', marker, '0', '0')
    marked = true
  end
  return { fields, id, 0, 0 }
end

-- specs/02-worker-path.md#sec-4, steps 2 to 7. take() moves an id to active and gives it.
-- Gives the reply, or nil when there is nothing to take and nothing delayed.
local function fetch_next(base, now, options, token, marker, take)
  local known = queue_settings(KEYS[9])
  local held = is_held(known[1], known[2], KEYS[2])
  if promoted_at ~= now then
    if not call('ZRANGEBYSCORE', KEYS[7], '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1')[1] then
      promoted_at = now
    else
      local target = known[1] and KEYS[8] or KEYS[1]
      local promote_due = load_promote_due()
      if promote_due(base, now, target, held, KEYS[7], KEYS[3], KEYS[10], KEYS[4], marker) < 1000 then
        promoted_at = now
      end
    end
  end

  local maximum = effective_maximum(known[3], options)
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
  local duration = options.limiter and options.limiter.duration or known[4]
  local id = take()
  if id then
    --@job
    return activate(base, id, now, maximum, duration, options, token, marker)
  end
  local due = next_due(KEYS[7])
  if due then
    --@next-due
    return { 0, 0, 0, due }
  end
  --@nothing
  return nil
end
