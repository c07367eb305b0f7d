--- keys: source list, destination list, meta, prioritized, events, delayed, marker
--- args: paused or resumed
--- include call
--- include emit
--- include mark_later

-- specs/03-transitions-admin-getters.md#sec-7-1
local meta, marker, change = KEYS[3], KEYS[7], ARGV[1]
local moved = call('EXISTS', KEYS[1]) == 1
if moved then
  --@moved
  call('RENAME', KEYS[1], KEYS[2])
else
  --@nothing-to-move
end
if change == 'paused' then
  --@paused
  call('HSET', meta, 'paused', '1')
  call('DEL', marker)
else
  call('HDEL', meta, 'paused')
  if moved or call('ZCARD', KEYS[4]) > 0 then
    --@resumed-ready
    call('ZADD', marker, '0', '0')
  else
    --@resumed-idle
    mark_later(marker, KEYS[6])
  end
end
emit(KEYS[5], change)
