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
-- nil to add the job. Where stale keys are repaired, plain rules are the business of take_key.
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
    --- paste report_owner(job_id, other_id, events, cap, dedup_id)
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
    --- paste check_owner(rule, key, id, base, delayed, events, cap, dedup_id)
  end
  --@kept
  report(owner, id)
  --- paste answer_owner(rule, base, delayed, events, cap)
end
