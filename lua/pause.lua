--- keys: source (list), target (list), meta, prioritized, events, delayed, marker
--- when merging_pause
--- args: change (paused, resumed or healed), emits (0 for no event)
--- elsewhen waiting_layout v6
--- args: change (paused or resumed), emits (0 for no event)
--- else
--- args: change (paused or resumed)
--- end
--- include call
--- include emit
--- include mark_delayed

--- when merging_pause or waiting_layout v6
--- paste pause_by_merging()
--- else
-- specs/03-transitions-admin-getters.md#sec-7-1
local meta, marker, change = KEYS.meta, KEYS.marker, ARGV.change
local moved = call('EXISTS', KEYS.source) == 1
if moved then
  --@moved
  call('RENAME', KEYS.source, KEYS.target)
else
  --@nothing-to-move
end
if change == 'paused' then
  --@paused
  call('HSET', meta, 'paused', '1')
  call('DEL', marker)
else
  call('HDEL', meta, 'paused')
  if moved or call('ZCARD', KEYS.prioritized) > 0 then
    --@resumed-ready
    call('ZADD', marker, '0', '0')
  else
    --@resumed-idle
    mark_delayed(marker, KEYS.delayed)
  end
end
emit(KEYS.events, change)
--- end
