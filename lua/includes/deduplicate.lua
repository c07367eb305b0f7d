--- include call
--- include emit
--- include emit_capped
--- include purge
--- when keep_last_if_active
--- lazy keep_next: keep_next
--- end
--- when reschedule
--- unless flow_node
--- lazy place_delayed: place_delayed
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
    --- paste check_owner(rule, key, id, base, delayed, events, cap, dedup_id)
    --@extend-owned
    claim(owner)
  else
    --- when stale_key_repair
    -- A server that tells its version to scripts (Redis 7.0) gives the owner at once. NX said twice is NX.
    local at_once = redis.REDIS_VERSION_NUM
    local also = at_once and 'GET' or 'NX'
    --- else
    local claimed
    --- end
    --- when keep_last_if_active
    if timed and not keeps then
    --- else
    if timed then
    --- end
      --@throttle
      --- when stale_key_repair
      owner = call('SET', key, id, 'PX', ttl, 'NX', also)
      --- else
      claimed = call('SET', key, id, 'PX', ttl, 'NX')
      --- end
    else
      --@simple
      --- when stale_key_repair
      owner = call('SET', key, id, 'NX', also)
      --- else
      claimed = call('SET', key, id, 'NX')
      --- end
    end
    --- when stale_key_repair
    if not at_once then
      owner = not owner and call('GET', key)
    end
    if not owner then
    --- else
    if claimed then
    --- end
      --@claimed
      return nil
    end
    --- unless stale_key_repair
    owner = call('GET', key)
    --- end
    --- paste check_owner(rule, key, id, base, delayed, events, cap, dedup_id)
  end
  --@kept
  report(owner, id)
  --- paste answer_owner(rule, base, delayed, events, cap)
end
