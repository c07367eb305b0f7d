--- include call
--- include emit
--- include emit_capped
--- include purge
--- when keep_last_if_active
--- include keep_next
--- end
--- when reschedule
--- unless flow_node
--- include place_delayed
--- end
--- end

-- specs/01-data-model-and-adding.md#sec-6-4 and specs/06-later-versions.md#sec-11-2: the id that answers the call, or
-- nil to add the job.
--- when keep_last_if_active or reschedule
local function deduplicate(rule, key, id, base, delayed, events, cap, options)
--- else
local function deduplicate(rule, key, id, base, delayed, events, cap)
--- end
  local dedup_id = rule and rule.id
  if not dedup_id then
    --@none
    return nil
  end
  local ttl = rule.ttl
  --- when keep_last_if_active
  local keeps = rule.keepLastIfActive
  --- else
  local timed = ttl and ttl > 0
  --- end

  -- makes an id the owner, for the time to live if there is one
  local function claim(owner)
    --- when keep_last_if_active
    -- one that is no number makes the script fail only where it is needed
    if not keeps and ttl and ttl > 0 then
    --- else
    if timed then
    --- end
      --@timed
      call('SET', key, owner, 'PX', ttl)
    else
      --@untimed
      call('SET', key, owner)
    end
  end
  -- the two families of modes name their jobs in opposite roles
  local function report(job_id, other_id)
    --- when debounced_event
    emit_capped(events, cap, 'debounced', 'jobId', job_id, 'debounceId', dedup_id)
    --- end
    emit_capped(events, cap, 'deduplicated', 'jobId', job_id, 'deduplicationId', dedup_id, 'deduplicatedJobId',
      other_id)
  end
  --- when stale_key_repair
  -- specs/06-later-versions.md#sec-11-1, L4: gives whether the key was a job's that is gone, and is the new one's now
  local function is_repaired(owner)
    if not owner or call('PTTL', key) ~= -1 or call('EXISTS', base .. owner) == 1 then
      --@sound
      return false
    end
    --@repaired
    call('DEL', key)
    call('DEL', base .. 'dn:' .. dedup_id)
    claim(id)
    return true
  end
  --- end
  --- when keep_last_if_active
  -- specs/06-later-versions.md#sec-11-1, L5: gives whether the new job is kept until the active one ends
  local function is_kept(owner)
    if not (keeps and owner and is_active(base .. 'active', owner)) then
      --@not-kept
      return false
    end
    --@kept-for-later
    keep_next(dedup_id, id, options)
    report(owner, id)
    return true
  end
  --- end
  --- when reschedule
  --- unless flow_node
  -- the delayed job that stays is put off anew
  local function reschedule(owner)
    if rule.reschedule and owner and call('ZSCORE', delayed, owner) then
      --@rescheduled
      local delay = tonumber(options.delay) or 0
      call('HSET', base .. owner, 'delay', delay)
      place_delayed(delayed, base .. 'marker', events, cap, owner, born_at, delay)
    end
  end
  --- end
  --- end

  local owner
  --- when keep_last_if_active
  --- unless flow_node
  --- paste replace_delayed(rule, key, id, base, delayed, events, dedup_id)
  --- end
  --- else
  --- paste replace_delayed(rule, key, id, base, delayed, events, dedup_id)
  --- end

  --- when keep_last_if_active
  local timed = ttl and ttl > 0
  --- end
  if timed and rule.extend then
    owner = call('GET', key)
    if not owner then
      --@extend-free
      claim(id)
      return nil
    end
    --- when stale_key_repair
    if is_repaired(owner) then
      return nil
    end
    --- end
    --- when keep_last_if_active
    if is_kept(owner) then
      --- paste answer_owner()
    end
    --- end
    --@extend-owned
    claim(owner)
  else
    local claimed
    --- when keep_last_if_active
    if timed and not keeps then
    --- else
    if timed then
    --- end
      --@throttle
      claimed = call('SET', key, id, 'PX', ttl, 'NX')
    else
      --@simple
      claimed = call('SET', key, id, 'NX')
    end
    if claimed then
      --@claimed
      return nil
    end
    owner = call('GET', key)
    --- when stale_key_repair
    if is_repaired(owner) then
      return nil
    end
    --- end
    --- when keep_last_if_active
    if is_kept(owner) then
      --- paste answer_owner()
    end
    --- end
  end
  --@kept
  report(owner, id)
  --- paste answer_owner()
end
