--- include call
--- include parent_release

-- specs/02-worker-path.md#w20
local function child_completed(parent, queue, id, child, value, now)
  local pending = parent .. ':dependencies'
  if call('SREM', pending, child) == 0 then
    --@completed-not-pending
    return
  end
  call('HSET', parent .. ':processed', child, value)
  if call('SCARD', pending) > 0 then
    --@completed-others-pending
    return
  end
  --@completed-last
  release_parent(queue, parent, id, now)
end

-- specs/02-worker-path.md#w13, deferred failure of the parent
local function defer_failure(queue, parent, id, child, now)
  local base = queue .. ':'
  if call('EXISTS', parent) == 0 then
    --@defer-no-parent
    return
  end
  local reason = 'child ' .. child .. ' failed'
  local home
  if call('ZSCORE', base .. 'waiting-children', id) then
    --@defer-waiting-children
    home = base .. 'waiting-children'
  elseif call('ZSCORE', base .. 'delayed', id) then
    --@defer-delayed
    home = base .. 'delayed'
    call('HSET', parent, 'delay', 0)
  end
  if home then
    call('ZREM', home, id)
    call('HSET', parent, 'defa', reason)
    place_parent(base, parent, id, now)
  elseif call('ZSCORE', base .. 'failed', id) then
    --@defer-already-failed
  else
    --@defer-elsewhere
    call('HSET', parent, 'defa', reason)
  end
end

-- specs/02-worker-path.md#w13: the flags of the child's field parent decide.
local function child_failed(link, child, reason, now)
  local queue, id = link.queueKey, link.id
  local parent = queue .. ':' .. id
  if not (link.fpof or link.cpof or link.idof or link.rdof) then
    --@failed-no-flag
    return
  end
  local pending = parent .. ':dependencies'
  if call('SREM', pending, child) == 0 then
    --@failed-not-pending
    return
  end
  if link.fpof then
    --@failed-fpof
    call('ZADD', parent .. ':unsuccessful', now, child)
    defer_failure(queue, parent, id, child, now)
    return
  end
  if link.cpof then
    --@failed-cpof
    call('HSET', parent .. ':failed', child, reason)
    release_parent(queue, parent, id, now)
    return
  end
  if call('SCARD', pending) == 0 then
    --@failed-last
    release_parent(queue, parent, id, now)
  end
  if link.idof then
    --@failed-idof
    call('HSET', parent .. ':failed', child, reason)
  else
    --@failed-rdof
  end
end
