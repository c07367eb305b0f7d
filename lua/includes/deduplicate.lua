--- include call
--- include emit
--- include emit_capped
--- include purge

-- specs/01-data-model-and-adding.md#sec-6-4: the id that answers the call, or nil to add the job.
local function deduplicate(rule, key, id, base, delayed, events, cap)
  local dedup_id = rule and rule.id
  if not dedup_id then
    --@none
    return nil
  end
  local ttl = rule.ttl
  local timed = ttl and ttl > 0

  -- makes an id the owner, for the time to live if there is one
  local function claim(owner)
    if timed then
      --@timed
      call('SET', key, owner, 'PX', ttl)
    else
      --@untimed
      call('SET', key, owner)
    end
  end
  -- the two families of modes name their jobs in opposite roles
  local function report(job_id, other_id)
    emit_capped(events, cap, 'debounced', 'jobId', job_id, 'debounceId', dedup_id)
    emit_capped(events, cap, 'deduplicated', 'jobId', job_id, 'deduplicationId', dedup_id, 'deduplicatedJobId',
      other_id)
  end

  local owner
  if rule.replace then
    owner = call('GET', key)
    if not owner then
      --@replace-free
      claim(id)
      return nil
    end
    if call('ZREM', delayed, owner) == 0 then
      --@replace-not-delayed
      return owner
    end
    purge(base .. owner)
    emit(events, 'removed', 'jobId', owner, 'prev', 'delayed')
    report(id, owner)
    if timed and not rule.extend then
      --@replace-keep-ttl
      call('SET', key, id, 'KEEPTTL')
    else
      --@replace-reset-ttl
      claim(id)
    end
    return nil
  end

  if timed and rule.extend then
    owner = call('GET', key)
    if not owner then
      --@extend-free
      claim(id)
      return nil
    end
    --@extend-owned
    claim(owner)
  else
    local claimed
    if timed then
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
  end
  --@kept
  report(owner, id)
  return owner
end
