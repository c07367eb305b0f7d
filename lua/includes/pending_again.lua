--- include call

-- specs/06-later-versions.md#l8: puts a child back among those that its parent waits for.
local function pending_again(job, state)
  local parent = call('HGET', job, 'parentKey')
  if not parent or call('EXISTS', parent) == 0 then
    --@no-parent
    return
  end
  local removed
  if state == 'failed' then
    removed = call('ZREM', parent .. ':unsuccessful', job)
    if removed == 0 then
      --@ignored
      removed = call('HDEL', parent .. ':failed', job)
    end
  else
    --@processed
    removed = call('HDEL', parent .. ':processed', job)
  end
  if removed > 0 then
    --@pending-again
    call('SADD', parent .. ':dependencies', job)
  else
    --@not-linked
  end
end
