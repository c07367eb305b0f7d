--- include call
--- include purge
--- include leave_pending
--- include requeue_parent
--- include release_dedup

-- specs/03-transitions-admin-getters.md#s15, hard mode: a parent of the same queue left without
-- children is deleted with its own parents; one of another queue is put in its list. No event in either case.
local function unlink_hard(home, child)
  local link = call('HMGET', child, 'parentKey', 'deid')
  local parent, dedup_id = link[1], link[2]
  if not parent or parent == '' or call('EXISTS', parent) == 0 then
    --@no-parent
    return
  end
  local base, id = leave_pending(parent, child)
  if not base then
    return
  end
  if base ~= home then
    --@other-queue
    requeue_parent(base, id)
    return
  end
  --@same-queue
  unlink_hard(home, parent)
  purge(parent)
  if dedup_id then
    --@child-dedup-key
    call('DEL', home .. 'de:' .. dedup_id)
  end
end

local function erase_job(base, id)
  local job = base .. id
  unlink_hard(base, job)
  release_dedup(base, job, id)
  purge(job)
end
