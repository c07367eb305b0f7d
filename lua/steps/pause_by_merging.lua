--- step:
--- needs: KEYS.delayed, KEYS.events, KEYS.marker, KEYS.meta, KEYS.prioritized, KEYS.source, KEYS.target
--- needs: ARGV.change, ARGV.emits

-- specs/06-later-versions.md#sec-4-1-3 and #sec-8-2: loses no job where both lists are filled. Returns how many are
-- left.
local MOST = 7000
local source, target, meta, marker, change = KEYS.source, KEYS.target, KEYS.meta, KEYS.marker, ARGV.change
local is_filled = call('EXISTS', source) == 1
--- when merging_pause
if change == 'healed' and (not is_filled or call('HEXISTS', meta, 'paused') == 1) then
  --@sound
  return 0
end
--- end
local left = 0
if change == 'paused' then
  --@paused
  call('HSET', meta, 'paused', '1')
  call('DEL', marker)
  --- when merging_pause
  if is_filled and call('EXISTS', target) == 0 then
    --@set-aside
    call('RENAME', source, target)
  else
    -- behind those set aside before, in their order
    for _ = 1, MOST do
      if not call('RPOPLPUSH', source, target) then
        break
      end
    end
  end
  left = call('LLEN', source)
  --- end
else
  --@merged
  --- when merging_pause
  if change ~= 'healed' then
    call('HDEL', meta, 'paused')
  end
  --- else
  call('HDEL', meta, 'paused')
  --- end
  if not is_filled then
    --@nothing-to-merge
  elseif call('EXISTS', target) == 0 then
    --@renamed
    call('RENAME', source, target)
  else
    --@appended
    call('RPUSH', target, unpack(call('LRANGE', source, '0', MOST - 1)))
    call('LTRIM', source, MOST, '-1')
    left = call('LLEN', source)
  end
  if call('LLEN', target) + call('ZCARD', KEYS.prioritized) > 0 then
    --@ready
    call('ZADD', marker, '0', '0')
  else
    --@idle
    mark_delayed(marker, KEYS.delayed)
  end
end
--- when merging_pause
if ARGV.emits ~= '0' and change ~= 'healed' then
--- else
if ARGV.emits ~= '0' then
--- end
  --@event
  emit(KEYS.events, change)
end
return left
