--- needs: KEYS.completed, KEYS.events
--- include call
--- include emit_capped
--- include parent_release

-- What the job is, stands in the locals of add_job.

-- specs/01-data-model-and-adding.md#sec-6-5, re-link
-- and specs/06-later-versions.md#sec-11-4
local function relink(id, job)
  if call('ZSCORE', KEYS.completed, id) then
    --@relink-completed
    --- when deferred_parent_release
    local queue, parent_id = nil, nil
    if not deferring then
      -- link has to be there even if the parent stays where it is
      queue, parent_id = link.queueKey, link.id
    end
    call('HSET', parent .. ':processed', job, call('HGET', job, 'returnvalue'))
    if not deferring and call('SCARD', pending) == 0 then
    --- else
    local queue, parent_id = link.queueKey, link.id
    call('HSET', parent .. ':processed', job, call('HGET', job, 'returnvalue'))
    if call('SCARD', pending) == 0 then
    --- end
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
    --- when deferred_parent_release
    if deferring then
      --@attachment-failed
      call('HSET', parent, 'flowAttachmentFailed', '1')
    end
    --- end
    return -7
  else
    --@other-parent-gone
    --- when deferred_parent_release
    relink(id, job)
    --- end
  end
  --@duplicate
  emit_capped(KEYS.events, cap, 'duplicated', 'jobId', id)
  return id .. ''
end
