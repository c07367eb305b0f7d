--- include call

-- specs/02-worker-path.md#w1: held means that no ready marker is written.
local function is_held(paused_field, concurrency, active)
  if paused_field then
    --@paused
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    --@maxed
    return true
  end
  --@open
  return false
end

-- Gives the list for new work, held, and the texts of the global rate limit.
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
