--- needs: KEYS.active, KEYS.delayed, KEYS.events, KEYS.limiter, KEYS.meta, KEYS.pc, KEYS.prioritized
--- include call
--- when deferred
--- include deferred
--- end
--- include is_held
--- include queue_settings
--- include start_attempt
--- lazy promote_due: promote_due
--- include next_due
--- include rate_limit

-- specs/02-worker-path.md#w6: an element left by very old producers, not a job.
local function is_old_marker(id)
  return string.sub(id, 1, 2) == '0:'
end

-- specs/02-worker-path.md#w6, priority take
local function pop_prioritized()
  local id = call('ZPOPMIN', KEYS.prioritized)[1]
  if id then
    --@prioritized
    call('LPUSH', KEYS.active, id)
    return id
  end
  --@counter-reset
  call('DEL', KEYS.pc)
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

--- when batch
-- the ready marker is there already
local marked = false

-- everything that is due at this time was promoted
local promoted_at = nil
--- end

-- specs/02-worker-path.md#w7
local function activate(base, id, now, maximum, duration, options, token)
  local job = base .. id
  token = token or options.token
  --- when token_for_deferred_failure
  if maximum and call('INCR', KEYS.limiter) == 1 then
  --- else
  -- specs/06-later-versions.md#sec-11-5: a job that is only fetched to fail takes no token
  if maximum and call('HEXISTS', job, 'defa') == 0 and call('INCR', KEYS.limiter) == 1 then
  --- end
    --@window-opened
    call('PEXPIRE', KEYS.limiter, math.floor(math.abs(duration)))
  end
  --- when deferred
  if token ~= '0' then
    --@own-lock
    local lock = job .. ':lock'
    if deferred.locks[lock] == false then
      deferred.flush_released()
    end
    deferred.locks[lock] = token
  end
  --- end
  --- paste begin_job(job, id, token, lock_ms = options.lockDuration, events = KEYS.events) with unlocked
  --- when deferred
  emitted = emitted + 1
  --- end
  --- paste answer_begun(job, id, now, worker = options.name)
end

-- specs/02-worker-path.md#sec-4, steps 2 to 7. take() moves an id to active and gives it.
-- Gives the reply, or nil when there is nothing to take and nothing delayed.
local function fetch_next(base, now, options, token, take)
  local known = queue_settings(KEYS.meta)
  local held = is_held(known.paused, known.concurrency, KEYS.active)
  --- when batch
  if promoted_at ~= now then
    --- paste promote(base, now, paused = known.paused, held)
    if promoted < 1000 then
      promoted_at = now
    end
  end
  --- else
  --- paste promote(base, now, paused = known.paused, held)
  --- end

  local maximum = effective_maximum(known.max, options)
  local pause = limited_for(KEYS.limiter, maximum)
  if pause > 0 then
    --@rate-limited
    return { 0, 0, pause, 0 }
  end
  if held then
    --@held
    return { 0, 0, 0, 0 }
  end

  -- the duration of the worker beats that of meta
  local duration = options.limiter and options.limiter.duration or known.duration
  local id = take()
  if id then
    --@job
    return activate(base, id, now, maximum, duration, options, token)
  end
  local due = next_due(KEYS.delayed)
  if due then
    --@next-due
    return { 0, 0, 0, due }
  end
  --@nothing
  return nil
end
