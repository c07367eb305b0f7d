--- include call
--- include emit
--- include later
--- include purge
--- include split_job_key
--- include surrender_lock
--- include write_fields
--- include default_cap
--- include plain_count
--- include queue_settings
--- include fetch_next
--- include spent
--- lazy child_outcome: child_completed, child_failed
--- lazy unlink_child: unlink_given
--- lazy retention: keep_by_age, keep_by_count
--- lazy metrics: record_metric

-- KEYS 1 to 10 are the same in the two commands that finish.

-- specs/02-worker-path.md#w6, finish form: an old marker element ends the search.
local function take_after_finish()
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
local function release_own_dedup(base, id, dedup_id)
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

-- specs/02-worker-path.md#w10. Gives whether the rest may be postponed.
local function trim_own(events, alone)
  local known = queue_settings(KEYS[9])
  local cap = known[5]
  if not cap then
    cap = store_default_cap(KEYS[9])
    known[5] = cap
  end
  if not alone and plain_count(cap) then
    later.trims = later.trims + 1
    later.cap, later.emitted = cap + 0, emitted
  else
    call('XTRIM', events, 'MAXLEN', '~', cap)
  end
end

local function count_metric(hash, size, now, alone)
  if not alone and later.metric_at[hash] == now then
    later.counted[hash] = (later.counted[hash] or 0) + 1
    return
  end
  if later then
    later.flush_finished()
  end
  local finished = load_metrics()(hash, size, now)
  if later and finished < 4503599627370496 then
    later.metric_at[hash] = now
  end
end

-- specs/02-worker-path.md#sec-5, steps 1 to 19
local function finish_job(base, id, job, now, field, result, outcome, finished, metrics, token, options, packed_fields, fetch, marker)
  -- no token and no options: the command for one job, which opens its packed options only when it comes to them
  local active, events = KEYS[2], KEYS[4]
  local has_failed = outcome == 'failed'

  -- steps 1 and 2. A key of another type is judged where its first command stands.
  local stored = redis.pcall('HMGET', job, 'parentKey', 'parent', 'deid', 'atm', 'defa', 'name')
  if not stored[6] and call('EXISTS', job) == 0 then
    --@no-job
    return -1
  end
  if outcome == 'completed' and not (later and later.childless) then
    local pending, unsuccessful = job .. ':dependencies', job .. ':unsuccessful'
    if call('EXISTS', pending, unsuccessful) > 0 then
      if call('SCARD', pending) ~= 0 then
        --@pending-children
        return -4
      end
      if call('ZCARD', unsuccessful) ~= 0 then
        --@failed-children
        return -9
      end
    end
  end

  -- steps 3 to 7
  if not options then
    options = cmsgpack.unpack(ARGV[8])
    token = options.token
  end
  local refusal = surrender_lock(job, KEYS[5], token, id)
  if refusal then
    return refusal
  end
  write_fields(job, packed_fields)
  local keep_count, keep_age = options.keepJobs.count, options.keepJobs.age
  if packed_fields ~= '' or stored.err then
    stored = call('HMGET', job, 'parentKey', 'parent', 'deid', 'atm', 'defa')
  end
  local parent, link = stored[1], nil
  local parent_queue, parent_id = nil, ''
  if stored[2] then
    link = cjson.decode(stored[2])
    parent_queue, parent_id = link.queueKey, link.id
  end
  local has_parent = parent and parent ~= ''
  -- what looks at other jobs needs their state to be complete
  local alone = not later or has_parent or link or keep_age or (keep_count and keep_count > 0)
  if alone and later then
    later.flush_finished()
  end

  -- steps 8 to 10: from the right end, where the oldest active jobs are
  if call('LREM', active, '-1', id) == 0 then
    --@not-active
    return -3
  end
  trim_own(events, alone)
  if stored[3] then
    release_own_dedup(base, id, stored[3])
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
  else
    -- a parent may be placed in delayed
    promoted_at = nil
    local child_completed, child_failed = load_child_outcome()
    if outcome ~= 'completed' then
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
  end

  -- steps 12 and 13
  local attempts_made, attempts_text = plain_count(stored[4])
  if not attempts_made then
    --@odd-attempts
    attempts_made = call('HINCRBY', job, 'atm', '1')
    attempts_text = attempts_made
  end
  if keep_count == 0 then
    --@removed
    purge(job)
    if has_parent then
      --@removed-child
      load_unlink_child()(parent, job)
    end
  else
    --@stored
    if alone then
      if type(redis.pcall('ZADD', finished, now, id)) == 'table' then
        call('HSET', job, 'atm', attempts_text)
        call('ZADD', finished, now, id)
      end
    else
      local members = later.finished[finished] or {}
      later.finished[finished] = members
      members[#members + 1], members[#members + 2] = now, id
    end
    call('HSET', job, 'atm', attempts_text, field, result, 'finishedOn', now)
    -- a job may be its own parent
    if has_failed and (stored[5] or parent_id ~= '') then
      --@deferred-failure-done
      call('HDEL', job, 'defa')
    end
    if keep_age ~= nil then
      --@keep-by-age
      load_retention()(base, finished, now, keep_age)
    end
    if keep_count ~= nil and keep_count > 0 then
      --@keep-by-count
      local _, keep_by_count = load_retention()
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
    count_metric(metrics, options.maxMetricsSize, now, alone)
  end

  -- steps 17 to 19
  if fetch then
    --@fetch
    local reply = fetch_next(base, now, options, token, marker, take_after_finish)
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
end
