--- include call

-- specs/08-batches.md#postponed. Set by the commands for several jobs: what nothing reads before the end of the call, and is
-- cheaper done for all jobs at once. In a command for one job it stays nil, and all is done in its place.
local later = nil

-- entries written to the queue's own event stream
local emitted = 0

-- The lock of a job, as it is at this point of the call.
local function lock_owner(lock)
  if later and later.locks[lock] ~= nil then
    return later.locks[lock]
  end
  return call('GET', lock)
end

local function flush_released()
  local released, stalled = later.released, later.stalled
  if released[1] then
    call('DEL', unpack(released))
    later.released = {}
  end
  if stalled[1] then
    call('SREM', later.stalled_key, unpack(stalled))
    later.stalled = {}
  end
end

-- Trimming takes whole nodes from the old end as long as the cap is kept, so once, with a cap higher by what was
-- emitted since, takes what the single calls would have; each of those takes a limited number.
local function flush_finished()
  if later.trims > 0 then
    local cap = (later.cap + emitted - later.emitted) .. ''
    for _ = 1, later.trims do
      if call('XTRIM', later.events, 'MAXLEN', '~', cap) == 0 then
        break
      end
    end
    later.trims = 0
  end
  for key, members in pairs(later.finished) do
    call('ZADD', key, unpack(members))
    later.finished[key] = nil
  end
  for key, count in pairs(later.counted) do
    call('HINCRBY', key, 'count', count)
    later.counted[key] = nil
  end
  later.metric_at = {}
end
