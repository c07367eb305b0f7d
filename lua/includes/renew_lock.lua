--- include call

-- specs/02-worker-path.md#7: gives whether the token owned the lock.
local function renew_lock(lock, token, duration, stalled, id)
  local owner = call('GET', lock)
  if not owner or owner ~= token then
    --@refused
    return false
  end
  --@renewed
  call('SET', lock, token, 'PX', duration)
  call('SREM', stalled, id)
  return true
end
