--- include call
--- include later

-- specs/02-worker-path.md#w8: nil to go on, otherwise the error code.
local function surrender_lock(job, stalled, token, id)
  if token == '0' then
    --@no-token
    return nil
  end
  local lock = job .. ':lock'
  local owner = lock_owner(lock)
  if owner == token then
    --@released
    if later then
      later.locks[lock] = false
      later.released[#later.released + 1] = lock
      later.stalled[#later.stalled + 1] = id
    else
      call('DEL', lock)
      call('SREM', stalled, id)
    end
    return nil
  end
  if owner then
    --@other-owner
    return -6
  end
  --@no-lock
  return -2
end
