--- keys: wait, active, prioritized, events, stalled, limiter, delayed, paused, meta, pc
--- keys: completed or failed, job, metrics of that kind, marker
--- args: id, now, name of the result field, result, completed or failed, fetch (1), base prefix
--- args: options (MessagePack map), fields (MessagePack array or empty)
--- include call
--- include emit
--- include purge
--- include split_job_key
--- include surrender_lock
--- include write_fields
--- include trim_events
--- include child_outcome
--- include unlink_child
--- include retention
--- include metrics
--- include fetch_next

local id, now, field, result, outcome = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local base = ARGV[7]
local active, events, finished, job = KEYS[2], KEYS[4], KEYS[11], KEYS[12]
local has_failed = outcome == 'failed'

-- specs/02-worker-path.md#w6, finish form: an old marker element ends the search.
local function take()
  local next_id = call('RPOPLPUSH', KEYS[1], KEYS[2])
  if not next_id then
    return take_prioritized()
  end
  if not is_old_marker(next_id) then
    --@from-list
    return next_id
  end
  call('LREM', KEYS[2], '1', next_id)
  if next_id ~= '0:0' then
    --@old-marker
    return nil
  end
  --@old-marker-zero
  return assert(take_prioritized(), 'no prioritized job after the marker 0:0')
end

-- specs/02-worker-path.md#w11
local function release_own_dedup(dedup_id)
  local key = base .. 'de:' .. dedup_id
  local remaining = call('PTTL', key)
  if remaining == 0 then
    call('DEL', key)
  elseif remaining == -1 and call('GET', key) == id then
    --@dedup-released
    call('DEL', key)
  else
    --@dedup-kept
  end
end

-- specs/02-worker-path.md#sec-5, steps 1 and 2
if call('EXISTS', job) == 0 then
  --@no-job
  return -1
end
if outcome == 'completed' then
  if call('SCARD', job .. ':dependencies') ~= 0 then
    --@pending-children
    return -4
  end
  if call('ZCARD', job .. ':unsuccessful') ~= 0 then
    --@failed-children
    return -9
  end
end

-- steps 3 to 7
local options = cmsgpack.unpack(ARGV[8])
local refusal = surrender_lock(job, KEYS[5], options.token, id)
if refusal then
  return refusal
end
write_fields(job, ARGV[9])
local keep_count, keep_age = options.keepJobs.count, options.keepJobs.age
local stored = call('HMGET', job, 'parentKey', 'parent', 'deid')
local parent, link = stored[1], nil
local parent_queue, parent_id = nil, ''
if stored[2] then
  link = cjson.decode(stored[2])
  parent_queue, parent_id = link.queueKey, link.id
end
local has_parent = parent and parent ~= ''

-- steps 8 to 10: from the right end, where the oldest active jobs are
if call('LREM', active, '-1', id) == 0 then
  --@not-active
  return -3
end
trim_events(KEYS[9], events)
if stored[3] then
  release_own_dedup(stored[3])
end

-- step 11
if parent_id == '' and has_parent then
  --@parent-from-key
  local parent_base
  parent_base, parent_id = split_job_key(parent)
  parent_queue = string.sub(parent_base, 1, -2)
end
if parent_id == '' then
  --@no-parent
elseif outcome ~= 'completed' then
  if link then
    --@failed-child
    child_failed(link, job, result, now)
  else
    --@failed-child-no-link
  end
elseif parent then
  --@completed-child
  child_completed(parent, parent_queue, parent_id, job, result, now)
else
  --@completed-child-no-key
end

-- steps 12 and 13
local attempts_made = call('HINCRBY', job, 'atm', '1')
if keep_count == 0 then
  --@removed
  purge(job)
  if has_parent then
    --@removed-child
    unlink_given(parent, job)
  end
else
  --@stored
  call('ZADD', finished, now, id)
  call('HSET', job, field, result, 'finishedOn', now)
  if has_failed then
    --@deferred-failure-done
    call('HDEL', job, 'defa')
  end
  if keep_age ~= nil then
    --@keep-by-age
    keep_by_age(base, finished, now, keep_age)
  end
  if keep_count ~= nil and keep_count > 0 then
    --@keep-by-count
    keep_by_count(base, finished, keep_count)
  end
end

-- steps 14 to 16
emit(events, outcome, 'jobId', id, field, result, 'prev', 'active')
if has_failed then
  if attempts_made >= tonumber(options.attempts) then
    --@retries-exhausted
    emit(events, 'retries-exhausted', 'jobId', id, 'attemptsMade', attempts_made)
  else
    --@attempts-left
  end
end
if options.maxMetricsSize ~= '' then
  --@metrics
  record_metric(KEYS[13], options.maxMetricsSize, now)
end

-- steps 17 to 19
if ARGV[6] == '1' then
  --@fetch
  local reply = fetch_next(base, now, options, KEYS[14], take)
  if reply then
    return reply
  end
end
if call('LLEN', KEYS[1]) == 0 and call('LLEN', active) == 0 and call('ZCARD', KEYS[3]) == 0 then
  --@drained
  emit(events, 'drained')
else
  --@not-drained
end
return 0
