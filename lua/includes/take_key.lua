--- include call
--- include emit_capped

-- specs/06-later-versions.md#sec-11-2, for a rule that neither replaces, keeps nor moves a job: the id that answers the
-- call, or nil to add the job. A server that tells its version to scripts (Redis 7.0) takes one command for what others
-- take two for.
local function take_key(rule, key, id, base, events, cap)
  local dedup_id, ttl = rule.id, rule.ttl
  if not dedup_id then
    --@none
    return nil
  end
  local timed, at_once = ttl and ttl > 0, redis.REDIS_VERSION_NUM
  local extends, owner, prolonged = timed and rule.extend, nil, nil
  if extends then
    owner = call('GET', key)
    if not owner then
      --@extend-free
      call('SET', key, id, 'PX', ttl)
      return nil
    end
    -- A key that has a time to live is never taken over, so its job is not looked at. What PEXPIRE refuses (part of a
    -- millisecond, or this user) is left to SET.
    prolonged = at_once and redis.pcall('PEXPIRE', key, ttl, 'XX') == 1
  else
    -- NX said twice is NX.
    local also = at_once and 'GET' or 'NX'
    if timed then
      --@throttle
      owner = call('SET', key, id, 'PX', ttl, 'NX', also)
    else
      --@simple
      owner = call('SET', key, id, 'NX', also)
    end
    if not at_once then
      owner = not owner and call('GET', key)
    end
    if not owner then
      --@claimed
      return nil
    end
  end
  if not prolonged then
    --- paste repair_key(key, base, dedup_id, own = take_key(rule, key, id, base, events, cap))
    if extends then
      --@extend-owned
      call('SET', key, owner, 'PX', ttl)
    end
  end
  --@kept
  --- paste report_owner(job_id = owner, other_id = id, events, cap, dedup_id)
  return owner
end
