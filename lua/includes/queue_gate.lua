--- record settings: paused concurrency max duration
--- include call
--- include is_held

-- specs/02-worker-path.md#w1: gives the list for new work, held, and the texts of the global rate limit.
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  --- paste target_list(paused = settings.paused, wait, set_aside = paused)
  return target, is_held(settings.paused, settings.concurrency, active), settings.max, settings.duration
end
