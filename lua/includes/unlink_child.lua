--- include call
--- include emit
--- include leave_pending
--- include requeue_parent

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
