--- include call
--- include emit
--- include queue_gate
--- include markers
--- include job_keys

-- specs/03-transitions-admin-getters.md#s15, steps 1 and 2.
-- Takes the child out of the pending set. Gives prefix and id of a parent that has left waiting-children.
local function leave_pending(parent, child)
  local pending = parent .. ':dependencies'
  if call('SREM', pending, child) == 0 then
    --@not-linked
    return nil
  end
  if call('SCARD', pending) > 0 then
    --@others-pending
    return nil
  end
  local base, id = split_job_key(parent)
  if call('ZREM', base .. 'waiting-children', id) == 0 then
    --@parent-not-waiting
    return nil
  end
  --@last
  return base, id
end

-- To the list, whatever the parent's priority and delay.
local function requeue_parent(base, id)
  local target, held = queue_gate(base .. 'meta', base .. 'active', base .. 'wait', base .. 'paused')
  call('RPUSH', target, id)
  mark_ready(base .. 'marker', held)
end

-- specs/02-worker-path.md#w14, given (the soft mode of part 03)
local function unlink_given(parent, child)
  local base, id = leave_pending(parent, child)
  if base then
    requeue_parent(base, id)
    emit(base .. 'events', 'waiting', 'jobId', id, 'prev', 'waiting-children')
  end
end

-- The same, looked up in the child's hash.
local function unlink_looked_up(child)
  local parent = call('HGET', child, 'parentKey')
  if not parent or parent == '' or call('EXISTS', parent) == 0 then
    --@no-parent
    return
  end
  unlink_given(parent, child)
end
