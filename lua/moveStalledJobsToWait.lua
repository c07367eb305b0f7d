--- keys: stalled, wait, active, stalled_check, meta, paused, marker, events
--- when stalled_exemption live-scheduler
--- keys: repeats
--- end
--- args: maximum (stalled count), base, now, interval
--- include call
--- include emit
--- include queue_gate
--- include mark_ready
--- include trim_events

local limit, base = ARGV.maximum, ARGV.base
local stalled, active, events = KEYS.stalled, KEYS.active, KEYS.events
local recovered = {}

--- when stalled_exemption live-scheduler
-- specs/06-later-versions.md#sec-11-8
local function is_exempt(job)
  local scheduler = call('HGET', job, 'rjk')
  if not scheduler then
    --@no-scheduler
    return false
  end
  if call('EXISTS', KEYS.repeats .. ':' .. scheduler) == 1 then
    --@live-scheduler
    return true
  end
  return call('ZSCORE', KEYS.repeats, scheduler) ~= false
end
--- else
-- specs/02-worker-path.md#sec-6, step 4.5
local function is_exempt(job)
  local text = call('HGET', job, 'opts')
  local rule = text and cjson.decode(text)['repeat']
  return rule ~= nil and rule ~= false
end
--- end

-- specs/02-worker-path.md#sec-6, steps 4.2 to 4.9: a job with priority goes to the list too.
local function recover(id)
  local job = base .. id
  if call('EXISTS', job .. ':lock') == 1 then
    --@locked
    return
  end
  if call('LREM', active, '1', id) == 0 then
    --@not-active
    return
  end
  local count = call('HINCRBY', job, 'stc', '1')
  local exempt = is_exempt(job)
  if count > tonumber(limit) then
    if exempt then
      --@exempt
    else
      --@over-limit
      call('HSET', job, 'defa', 'job stalled more than allowable limit')
    end
  else
    --@within-limit
  end
  local target, held = queue_gate(KEYS.meta, active, KEYS.wait, KEYS.paused)
  call('RPUSH', target, id)
  mark_ready(KEYS.marker, held)
  emit(events, 'waiting', 'jobId', id, 'prev', 'active')
  emit(events, 'stalled', 'jobId', id)
  recovered[#recovered + 1] = id
end

-- specs/02-worker-path.md#sec-6
if call('EXISTS', KEYS.stalled_check) == 1 then
  --@too-early
  return recovered
end
call('SET', KEYS.stalled_check, ARGV.now, 'PX', ARGV.interval)
trim_events(KEYS.meta, events)

local suspects = call('SMEMBERS', stalled)
if suspects[1] then
  --@suspects
  call('DEL', stalled)
end
for _, id in ipairs(suspects) do
  if string.sub(id, 1, 2) == '0:' then
    --@old-marker
    call('LREM', active, '1', id)
  else
    recover(id)
  end
end

local running = call('LRANGE', active, '0', '-1')
for from = 1, #running, 7000 do
  --@candidates
  call('SADD', stalled, unpack(running, from, math.min(from + 6999, #running)))
end
return recovered
