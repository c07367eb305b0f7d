--- needs: KEYS.active, KEYS.events, KEYS.meta, KEYS.prioritized, KEYS.stalled, KEYS.wait
--- needs: ARGV.options
--- record stored: name parent_key parent dedup_id attempts deferred
--- include call
--- include emit
--- when deferred
--- include deferred
--- end
--- include purge
--- include split_job_key
--- include release_lock
--- include write_fields
--- include default_cap
--- include plain_count
--- include queue_settings
--- include fetch_next
--- lazy child_outcome: child_completed, child_failed
--- lazy unlink_child: unlink_given
--- lazy retention: keep_by_age, keep_by_count
--- lazy metrics: record_metric
--- when keep_last_if_active
--- lazy requeue_kept: requeue_kept
--- end

--- paste pop_after_finish()

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

-- specs/02-worker-path.md#w10. may_wait: with those of other jobs.
local function trim_own(events, may_wait)
  local known = queue_settings(KEYS.meta)
  local cap = known.cap
  if not cap then
    cap = store_default_cap(KEYS.meta)
    known.cap = cap
  end
  --- when deferred
  if may_wait and plain_count(cap) then
    deferred.trims = deferred.trims + 1
    deferred.cap, deferred.emitted = cap + 0, emitted
    return
  end
  --- end
  call('XTRIM', events, 'MAXLEN', '~', cap)
end

--- when deferred
local function count_metric(hash, size, now, may_wait)
  if may_wait and deferred.metric_at[hash] == now then
    deferred.counted[hash] = (deferred.counted[hash] or 0) + 1
    return
  end
  deferred.flush_finished()
  if load_metrics()(hash, size, now) < 4503599627370496 then
    deferred.metric_at[hash] = now
  end
end
--- end

-- specs/02-worker-path.md#sec-5, steps 1 to 19
local function finish_job(base, id, job, now, field, result, outcome, finished, metrics, token, options, packed_fields,
  fetch)
  local active, events = KEYS.active, KEYS.events
  local has_failed = outcome == 'failed'

  -- steps 1 and 2. A key of another type is judged where its first command stands.
  local stored = redis.pcall('HMGET',
    --- paste job_state(job)
  )
  if not stored.name and call('EXISTS', job) == 0 then
    --@no-job
    return -1
  end
  --- when deferred
  local may_wait_for_children = not has_failed and not deferred.childless
  --- else
  local may_wait_for_children = outcome == 'completed'
  --- end
  if may_wait_for_children then
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
  --- unless batch
  if not options then
    -- they are found to be unreadable here, after what comes before
    options = cmsgpack.unpack(ARGV.options)
    token = options.token
  end
  --- end
  local refusal = release_lock(job, KEYS.stalled, token, id)
  if refusal then
    return refusal
  end
  write_fields(job, packed_fields)
  local keep_count, keep_age = options.keepJobs.count, options.keepJobs.age
  if packed_fields ~= '' or stored.err then
    stored = call('HMGET',
      --- paste job_state(job)
    )
  end
  local parent, link = stored.parent_key, nil
  local parent_queue, parent_id = nil, ''
  if stored.parent then
    link = cjson.decode(stored.parent)
    parent_queue, parent_id = link.queueKey, link.id
  end
  local has_parent = parent and parent ~= ''
  --- when deferred
  -- what looks at other jobs needs their state to be complete
  local may_wait = not (has_parent or link or keep_age or (keep_count and keep_count > 0))
  if not may_wait then
    deferred.flush_finished()
  end
  --- else
  local may_wait = false
  --- end

  -- steps 8 to 10: from the right end, where the oldest active jobs are
  if call('LREM', active, '-1', id) == 0 then
    --@not-active
    return -3
  end
  trim_own(events, may_wait)
  if stored.dedup_id then
    release_own_dedup(base, id, stored.dedup_id)
    --- when keep_last_if_active
    local record = base .. 'dn:' .. stored.dedup_id
    if call('EXISTS', record) == 1 then
      --@requeued
      load_requeue_kept()(base, record, stored.dedup_id, now)
      --- when batch
      -- it may be due
      promoted_at = nil
      --- end
    end
    --- end
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
    --- when batch
    -- a parent may be placed in delayed
    promoted_at = nil
    --- end
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
  local attempts_made, attempts_text = plain_count(stored.attempts)
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
    --- when deferred
    if may_wait then
      local members = deferred.finished[finished] or {}
      deferred.finished[finished] = members
      members[#members + 1], members[#members + 2] = now, id
    else
      --- paste add_finished(finished, now, job, id, attempts = attempts_text)
    end
    --- else
    --- paste add_finished(finished, now, job, id, attempts = attempts_text)
    --- end
    -- a job may be its own parent
    --- paste store_end(job, now, field, result, attempts = attempts_text,
    ---   drops_deferred = (has_failed and (stored.deferred or parent_id ~= '')))
    if keep_age ~= nil then
      --@keep-by-age
      --- when age_retention_limit
      load_retention()(base, finished, now, keep_age, options.keepJobs.limit)
      --- else
      load_retention()(base, finished, now, keep_age)
      --- end
    end
    if keep_count ~= nil and keep_count > 0 then
      --@keep-by-count
      local _, keep_by_count = load_retention()
      keep_by_count(base, finished, keep_count)
    end
  end

  -- steps 14 to 16
  --- when deferred
  --- paste emit_end(events, id, outcome, field, result, has_failed, attempts = attempts_made,
  ---   allowed = tonumber(options.attempts), text = attempts_text, count = emitted) with counted
  --- else
  --- paste emit_end(events, id, outcome, field, result, has_failed, attempts = attempts_made,
  ---   allowed = tonumber(options.attempts), text = attempts_text)
  --- end
  if options.maxMetricsSize ~= '' then
    --@metrics
    --- when deferred
    count_metric(metrics, options.maxMetricsSize, now, may_wait)
    --- else
    load_metrics()(metrics, options.maxMetricsSize, now)
    --- end
  end

  -- steps 17 to 19
  if fetch then
    --@fetch
    local reply = fetch_next(base, now, options, token, pop_after_finish)
    if reply then
      return reply
    end
  end
  if call('LLEN', KEYS.wait) == 0 and call('LLEN', active) == 0 and call('ZCARD', KEYS.prioritized) == 0 then
    --@drained
    emit(events, 'drained')
  else
    --@not-drained
  end
  return 0
end
