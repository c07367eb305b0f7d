--- include call
--- when deferred
--- include deferred
--- end

-- specs/02-worker-path.md#w8: nil to go on, otherwise the error code.
local function release_lock(job, stalled, token, id)
  if token == '0' then
    --@no-token
    return nil
  end
  local lock = job .. ':lock'
  --- when deferred
  local owner = deferred.locks[lock]
  if owner == nil then
    owner = call('GET', lock)
  end
  --- else
  local owner = call('GET', lock)
  --- end
  if owner == token then
    --@released
    --- when deferred
    deferred.locks[lock] = false
    deferred.released[#deferred.released + 1] = lock
    deferred.stalled[#deferred.stalled + 1] = id
    --- else
    call('DEL', lock)
    call('SREM', stalled, id)
    --- end
    return nil
  end
  if owner then
    --@other-owner
    return -6
  end
  --@no-lock
  return -2
end
