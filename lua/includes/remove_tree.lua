--- include call
--- include emit_capped
--- include event_cap
--- include purge
--- include split_job_key
--- include unlink_child
--- include release_dedup

-- specs/03-transitions-admin-getters.md#s16, step 5: takes the id out of its state and names it.
local function leave_state(base, id)
  for _, name in ipairs({ 'completed', 'waiting-children', 'delayed', 'failed', 'prioritized' }) do
    if call('ZSCORE', base .. name, id) then
      --@in-set
      call('ZREM', base .. name, id)
      return name
    end
  end
  for _, name in ipairs({ 'wait', 'paused', 'active' }) do
    if call('LREM', base .. name, '1', id) == 1 then
      --@in-list
      return name
    end
  end
  --@in-none
  return 'unknown'
end

-- specs/03-transitions-admin-getters.md#s16, remove-children: finished ones first, then pending ones.
local function each_child(job, visit)
  for _, suffix in ipairs({ ':processed', ':failed' }) do
    local outcomes = call('HGETALL', job .. suffix)
    for index = 1, #outcomes, 2 do
      --@finished-child
      visit(outcomes[index])
    end
  end
  for _, child in ipairs(call('ZRANGE', job .. ':unsuccessful', '0', '-1')) do
    --@unsuccessful-child
    visit(child)
  end
  for _, child in ipairs(call('SMEMBERS', job .. ':dependencies')) do
    --@pending-child
    visit(child)
  end
end

-- specs/03-transitions-admin-getters.md#s16, remove-one. parent: nil to look it up.
local function remove_tree(base, id, parent, with_children)
  local job = base .. id
  if parent then
    unlink_given(parent, job)
  else
    unlink_looked_up(job)
  end
  if with_children then
    each_child(job, function(child)
      local child_base, child_id = split_job_key(child)
      remove_tree(child_base, child_id, job, true)
    end)
  end
  local state = leave_state(base, id)
  release_dedup(base, job, id)
  if purge(job) == 0 then
    --@nothing-deleted
    return
  end
  --@removed
  emit_capped(base .. 'events', event_cap(base .. 'meta'), 'removed', 'jobId', id, 'prev', state)
end
