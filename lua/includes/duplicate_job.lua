--- needs: KEYS.completed, KEYS.events
--- include call
--- include emit_capped
--- include parent_release

-- What the job is, stands in the locals of add_job.

-- specs/01-data-model-and-adding.md#sec-6-5, re-link
local function relink(id, job)
  if call('ZSCORE', KEYS.completed, id) then
    --@relink-completed
    local queue, parent_id = link.queueKey, link.id
    call('HSET', parent .. ':processed', job, call('HGET', job, 'returnvalue'))
    if call('SCARD', pending) == 0 then
      --@relink-release
      release_parent(queue, parent, parent_id, born_at)
    end
  elseif pending ~= nil then
    --@relink-pending
    call('SADD', pending, job)
  end
  call('HMSET', job, 'parentKey', parent, 'parent', cjson.encode(link))
end

-- specs/01-data-model-and-adding.md#sec-6-5: gives the reply.
local function answer_duplicate(id, job, cap)
  local present = call('HGET', job, 'parentKey')
  if parent == nil then
    --@duplicate-no-parent
  elseif not present or present == parent then
    relink(id, job)
  elseif call('EXISTS', present) == 1 then
    --@other-parent
    return -7
  else
    --@other-parent-gone
  end
  --@duplicate
  emit_capped(KEYS.events, cap, 'duplicated', 'jobId', id)
  return id .. ''
end
